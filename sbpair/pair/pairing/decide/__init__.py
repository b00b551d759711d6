"""Where a message goes, decided without an SDK, a clock or a thread."""
