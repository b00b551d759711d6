"""The views that the dashboard shows."""
