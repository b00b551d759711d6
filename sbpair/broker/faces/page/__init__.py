"""What the web page shows."""
