"""Landing: messages are sent to the entity of the same path on the secondary, in transactions."""
