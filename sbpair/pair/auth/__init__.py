"""Connection strings, credentials, TLS and references to secrets, for every room."""
