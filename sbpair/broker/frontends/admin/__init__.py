"""The administration API: Atom over https (P-11, P-12)."""
