"""Common parts of the blocking and the asyncio client."""
