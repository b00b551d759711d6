"""Sending and receiving over HTTP."""
