"""The entries of the contract, one module a subject."""
