"""The way of a parked message to its destination, and its completion."""
