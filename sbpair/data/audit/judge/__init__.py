"""The second step: mentions become messages with verdicts."""
