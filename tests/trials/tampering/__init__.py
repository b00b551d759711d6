"""Tampered journals by the thousand, on this machine and on Spark."""
