"""The commands of the broker."""
