"""The routing of messages, decided without an SDK, a clock or a thread."""
