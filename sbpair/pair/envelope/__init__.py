"""The format of parked messages: park a message on its way out, restore it on its way home."""
