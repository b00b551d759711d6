"""What the blocking and the asyncio client have in common."""
