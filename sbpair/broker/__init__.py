"""A Service Bus namespace to test against: in memory, on loopback, for unmodified clients."""
