"""The REST frontend: sending and receiving over HTTP."""
