"""Clients and a drain for two namespaces whose entity clock is advanced by the test."""

from __future__ import annotations

import inspect
from typing import Any

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, aio
from sbpair.broker import Broker
from sbpair.syphon import Syphon, SyphonOptions


async def drain(broker: Broker) -> tuple[int, int]:
    both = (broker.namespace("contoso").connection_string, broker.namespace("contoso-dr").connection_string)
    settings = SyphonOptions(backlog_queue_count=1, primary_namespace_name="contoso")
    counters = await Syphon.from_connection_strings(*both, options=settings).drain()
    return counters.forwarded, counters.dead_lettered


def paired(broker: Broker, *, is_asyncio: bool, **other: object) -> Any:
    """Create a blocking or asyncio client for a broker with a driven clock."""
    kind = aio.PairedServiceBusClient if is_asyncio else PairedServiceBusClient
    return kind.from_connection_strings(
        broker.namespace("contoso").connection_string,
        broker.namespace("contoso-dr").connection_string,
        options=PairedNamespaceOptions(
            primary_namespace_name="contoso",
            backlog_queue_count=1,
            **other,  # type: ignore[arg-type]
        ),
        connection_verify=str(broker.ca_file),
    )


async def done(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
