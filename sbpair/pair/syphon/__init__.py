"""The syphon: forwards parked messages from the backlogs on the secondary to their entities on the primary."""
