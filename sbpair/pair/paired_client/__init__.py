"""The paired clients, blocking and asyncio: they compose the rooms of pairing, syphon and observation."""
