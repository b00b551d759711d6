"""The processor of :mod:`tests.trials.consumers`: prints the id and the side of each message that it handled."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

from sbpair.aio import PairedServiceBusClient
from sbpair.processor import ProcessorOptions, ReceivedMessage


async def handle(message: ReceivedMessage) -> None:
    """Print one line, whole: the process may be killed at any time."""
    os.write(1, f"{message.message_id} {message.side}\n".encode())


async def main() -> None:
    options = ProcessorOptions(
        missing_entity_interval=timedelta(seconds=1), retry_backoff_max=timedelta(seconds=1)
    )
    async with PairedServiceBusClient.from_environment() as client:
        await client.get_queue_processor("orders", handle, options=options).run()


if __name__ == "__main__":
    asyncio.run(main())
