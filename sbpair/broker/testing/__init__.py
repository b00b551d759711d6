"""Pytest fixtures, the ledger, the chaos proxy and a broker as a process."""
