"""The messages of one call: their sizes, their parked copies, and the SDK's errors about them."""
