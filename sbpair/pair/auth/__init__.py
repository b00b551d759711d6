"""Connection strings, credentials, TLS and references to secrets; used by all other packages."""
