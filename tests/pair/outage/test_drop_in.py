"""A paired client honours the keywords of the SDK's client, checked on the wire."""

from __future__ import annotations

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage

from sbpair import EntityState, PairedServiceBusClient, StoredIn, aio
from sbpair.broker.faults import Withhold
from sbpair.events import BacklogsCreated
from tests.pair.outage.conftest import Either, options_of
from tests.pair.runtimes import runtime_of
from tests.stopwatch import Stopwatch


@pytest.mark.spec("R-15")
async def test_sender_arguments_reach_the_sdk_sender(either: Either) -> None:
    client = either.client()
    sender = client.get_queue_sender("orders", client_identifier="till 7", socket_timeout=3.0, keep_alive=0)
    assert sender.client_identifier == "till 7"
    assert "till 7" in str(sender)
    await either.send(sender, ServiceBusMessage("x"))
    (sdk,) = [handler for each in runtime_of(client)._clients.values() for handler in each._handlers]
    assert (sdk.client_identifier, sdk._config.socket_timeout, sdk._config.keep_alive) == ("till 7", 3.0, 0)


@pytest.mark.spec("R-15")
async def test_receiver_arguments_reach_the_sdk_receiver(either: Either) -> None:
    client = either.client()
    receiver = client.get_queue_receiver(
        "orders", client_identifier="till 7", socket_timeout=3.0, keep_alive=0
    )
    found = (receiver.client_identifier, receiver._config.socket_timeout, receiver._config.keep_alive)
    assert found == ("till 7", 3.0, 0)
    await either.done(receiver.close())


@pytest.mark.slow
@pytest.mark.spec("R-15")
async def test_sessions_are_listed_as_by_the_sdk(either: Either) -> None:
    either.primary.create_queue("sessions", requires_session=True)
    client = either.client()
    sender = client.get_queue_sender("sessions")
    for name in ("a", "b"):
        await either.send(sender, ServiceBusMessage("x", session_id=name))
        receiver = client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30)
        async with receiver if either.is_asyncio else _Blocking(receiver) as opened:
            await either.done(opened.session.set_state(b"seen"))
    listed = client.list_queue_sessions("sessions")
    found = [each async for each in listed] if hasattr(listed, "__aiter__") else list(listed)
    assert sorted(found) == ["a", "b"]


class _Blocking:
    """Adapt a blocking context manager to `async with`."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    async def __aenter__(self) -> object:
        return self._inner.__enter__()  # type: ignore[attr-defined]

    async def __aexit__(self, *error: object) -> None:
        self._inner.__exit__(*error)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.spec("R-15")
async def test_try_timeout_bounds_one_attempt_and_not_the_whole_send(either: Either) -> None:
    kind = aio.PairedServiceBusClient if either.is_asyncio else PairedServiceBusClient
    client = kind.from_connection_strings(
        *either.ways,
        options=options_of(timeout=60),
        connection_verify=str(either._pairing.broker.ca_file),
        try_timeout=4.0,
    )
    client.on_event(either.told.append)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("a link is open"))
    await either.heard(BacklogsCreated)
    with Stopwatch() as watch, either.primary.fault("orders", Withhold()):
        receipt = await either.send(sender, ServiceBusMessage("x"))  # interval 0: the first failure parks it
    assert watch.seconds < 30
    assert (receipt.stored_in, receipt.ambiguous) == (StoredIn.BACKLOG, True)
    await either.done(client.close())


@pytest.mark.spec("R-15")
async def test_a_borrowed_client_shares_the_state_and_closes_only_its_own_senders(either: Either) -> None:
    client = either.client(ping=60)
    stand_in = client.stand_in()
    either.primary.take_down("refuse")
    for make in (stand_in, stand_in.from_connection_string):
        loan = make("Endpoint=sb://whatever/", retry_total=0)
        sender = loan.get_queue_sender("orders")
        assert (await either.send(sender, ServiceBusMessage("x"))).stored_in is StoredIn.BACKLOG
        await either.done(loan.close())
        with pytest.raises(ValueError, match="closed"):
            await either.send(sender, ServiceBusMessage("x"))
    assert loan.fully_qualified_namespace == client.fully_qualified_namespace
    assert loan.state_of("orders") is client.state_of("orders") is EntityState.FAILED_OVER
    assert (
        await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    ).stored_in is StoredIn.BACKLOG
    assert sum(either.parked()) == 3
