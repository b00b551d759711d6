"""The audit: verdicts on every message, derived from journals."""
