"""The first step: journals become facts, and mentions of messages."""
