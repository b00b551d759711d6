"""Pair: send although a namespace is down, and bring home what was parked meanwhile."""
