"""Journals, metrics, status pages and logs: sinks of the events of all rooms."""
