"""The administration API: Atom over https."""
