"""Utilities shared by several packages; they import only the standard library."""
