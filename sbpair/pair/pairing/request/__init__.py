"""The messages of one call: what they weigh, how they are parked, and what the SDK says of them."""
