"""A processor: calls a handler for each message of an entity, on both namespaces of a pair."""
