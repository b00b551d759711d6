"""Ordered backlogs: sessions are relayed one message at a time."""
