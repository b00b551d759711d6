"""Pair: send messages although a namespace is down, and bring the parked ones home afterwards."""
