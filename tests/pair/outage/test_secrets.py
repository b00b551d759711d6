"""No key and no token appears in logs, errors, events, reprs or process arguments."""

from __future__ import annotations

import asyncio
import logging
import re
import traceback
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair import BacklogUnavailableError, PairedServiceBusClient, aio
from sbpair.broker import NamespaceControl
from sbpair.events import BacklogsCreated
from sbpair.pair.amqp.message import Message
from sbpair.pair.syphon.events import MessageSetAside
from tests.pair.outage.conftest import Either, options_of
from tests.pair.syphon.pair import Pair, parked, start_syphon, take
from tests.spellings import spellings

WRONG = "CANARY+/=%pineapple+key/7aQ="
TOKEN = re.compile(r"sig(?:=|%3D)[^\s&;*'\"]{20,}", re.IGNORECASE)  # the signature of a SAS token


def key_of(namespace: NamespaceControl) -> str:
    return namespace.connection_string.split("SharedAccessKey=")[1].split(";")[0]


def told_by(thing: object) -> list[str]:
    """Return the repr and str of an object and of its parts."""
    parts = list(vars(thing).values()) if hasattr(thing, "__dict__") else []
    return [text for each in (thing, *parts) for text in (str(each), repr(each))]


def told_in(error: BaseException) -> list[str]:
    """Return the text of an error, of what it wraps and of its traceback."""
    causes = getattr(error, "causes", ())
    whole = "".join(traceback.format_exception(error))
    return [whole, repr(vars(error)), *told_by(error), *(text for each in causes for text in told_by(each))]


def assert_untold(texts: list[str], keys: list[str]) -> None:
    assert len(texts) > 10
    for key in keys:
        for spelling in spellings(key):
            assert not [text for text in texts if spelling in text]
    assert not [text for text in texts if TOKEN.search(text)]


def test_the_check_sees_a_key_in_every_form_and_a_token() -> None:
    for spelling in spellings(WRONG):
        with pytest.raises(AssertionError):
            assert_untold([*"0123456789", f"<{spelling}>"], [WRONG])
    with pytest.raises(AssertionError):
        assert_untold([*"0123456789", "SharedAccessSignature sr=x&sig=CVi%2Fl3eCfBw31xDEndK8WCjbno6a"], [])


def with_the_wrong_key(either: Either, **options: object) -> PairedServiceBusClient:
    texts = [
        namespace.connection_string.replace(key_of(namespace), WRONG)
        for namespace in (either.primary, either.secondary)
    ]
    made = (
        aio.PairedServiceBusClient if either.is_asyncio else PairedServiceBusClient
    ).from_connection_strings(*texts, options=options_of(**options))
    made.on_event(either.told.append)
    return made  # type: ignore[return-value]


@pytest.mark.spec("P-1", "F-41", "S-12")
async def test_no_output_contains_a_key_or_token(either: Either, caplog: pytest.LogCaptureFixture) -> None:
    texts: list[str] = []
    with caplog.at_level(logging.DEBUG):  # every logger: the SDK's and asyncio's too
        client = either.client(interval=0, ping=60, timeout=60)
        sender = client.get_queue_sender("orders")
        texts += told_by(await either.send(sender, ServiceBusMessage("straight")))
        await either.heard(BacklogsCreated)
        stranger = with_the_wrong_key(either, interval=0, timeout=60)
        with pytest.raises(Exception) as refused:
            await either.send(stranger.get_queue_sender("orders"), ServiceBusMessage("x"))
        either.primary.take_down("refuse")
        either.secondary.take_down("refuse")
        with pytest.raises(BacklogUnavailableError) as raised:
            await either.send(sender, ServiceBusMessage("x"))
        await either.done(stranger.close())
        either.secondary.bring_up()
        either.primary.bring_up()
    texts += [*told_in(refused.value), *told_in(raised.value)]
    for thing in (client, stranger, client.primary, client.secondary, sender, *either.told):
        texts += told_by(thing)
    form = logging.Formatter("%(name)s %(message)s")
    texts += [form.format(record) + repr(record.args) for record in caplog.records]
    assert {record.name.partition(".")[0] for record in caplog.records} >= {"sbpair", "azure"}
    assert_untold(texts, [key_of(either.primary), key_of(either.secondary), WRONG])


@pytest.mark.spec("P-42", "S-12")
async def test_a_syphon_tells_no_key_either(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await pair.park([parked(1), parked(2, "nowhere"), parked(3, None)])
        syphon = pair.syphon()
        await syphon.drain()
    texts = [
        *told_by(syphon),
        *told_by(syphon.status),
        *(text for each in pair.events for text in told_by(each)),
    ]
    texts += [f"{record.getMessage()} {record.args!r}" for record in caplog.records]
    assert_untold(texts, [key_of(pair.primary), key_of(pair.secondary)])


@pytest.mark.spec("S-13")
async def test_a_syphon_process_has_no_key_in_its_arguments_or_output(pair: Pair) -> None:
    await pair.park([parked(1)])
    process = await start_syphon(pair, "--drain")
    arguments = Path(f"/proc/{process.pid}/cmdline").read_text().replace("\0", " ")
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    texts = [arguments, *out.decode().split(), *err.decode().splitlines()]
    assert_untold(texts, [key_of(pair.primary), key_of(pair.secondary)])


@pytest.mark.spec("S-15", "S-12")
async def test_a_connection_string_in_place_of_a_path_is_repeated_nowhere_people_read(pair: Pair) -> None:
    await pair.park([parked(1, f"{pair.primary.connection_string};{'x' * 6000}"), parked(2, "nowhere")])

    counters = await pair.syphon().drain()

    assert counters.dead_lettered == 2
    aside = [
        Message.decode(each).application_properties
        for each in await take(pair.secondary, f"{pair.backlog(0)}/$DeadLetterQueue", 2)
    ]
    descriptions = [str(properties["DeadLetterErrorDescription"]) for properties in aside]
    assert all(0 < len(text) <= 4096 for text in descriptions)
    said = [text for event in pair.said(MessageSetAside) for text in (event.reason, event.description)]
    texts = [*descriptions, *said, *(str(each["DeadLetterReason"]) for each in aside), *"0123456789"]
    assert_untold(texts, [key_of(pair.primary)])


@pytest.mark.spec("S-14")
async def test_message_content_is_never_logged(either: Either, caplog: pytest.LogCaptureFixture) -> None:
    body, value, form = "pineapple-body", "pineapple-value", logging.Formatter("%(name)s %(message)s")
    message = ServiceBusMessage(body, application_properties={"fruit": value}, message_id="m-1")
    with caplog.at_level(logging.INFO):
        client = either.client(interval=0, ping=60, timeout=60)
        sender = client.get_queue_sender("orders")
        await either.send(sender, message)
        await either.heard(BacklogsCreated)
        either.primary.take_down("refuse")
        await either.send(sender, message)
        either.secondary.take_down("refuse")
        with pytest.raises(BacklogUnavailableError) as raised:
            await either.send(sender, message)
        either.secondary.bring_up()
        either.primary.bring_up()
    texts = [form.format(record) + repr(record.args) for record in caplog.records]
    texts += told_in(raised.value) + [text for event in either.told for text in told_by(event)]
    assert len(texts) > 10
    assert [text for text in texts if body in text or value in text] == []
