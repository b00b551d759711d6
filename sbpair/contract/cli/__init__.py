"""The commands that check the service, and a pairing."""
