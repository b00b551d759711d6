"""Brokers with other links, transfers, tokens and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web

from sbpair.broker import NoCredit, RejectWith
from sbpair.broker.certificates import LOCAL_NAMES
from sbpair.broker.entities.stored_message import StoredMessage
from sbpair.broker.errors import MessageTooLargeError
from sbpair.broker.frontends.amqp.links import Links
from sbpair.broker.frontends.amqp.queue_receiver import QueueReceiver
from sbpair.broker.frontends.amqp.queue_sender import messages_of
from sbpair.broker.frontends.amqp.request_response import status
from sbpair.broker.frontends.delivered_message import delivered_run
from sbpair.contract.subjects.wire import OTHER_NAME
from sbpair.pair.amqp.connection import Connection
from sbpair.pair.amqp.handshake import ConnectionRole
from sbpair.pair.amqp.link import Link
from sbpair.pair.amqp.performatives import Close, Condition, Detach, Open

from .keeping import FRONTENDS, RECEIVED, RECEIVER
from .sabotage import Around, Sabotage

AMQP = f"{FRONTENDS}.amqp"
SENDER = f"{AMQP}.queue_sender"
BUSY = RejectWith("com.microsoft:server-busy", "The server is busy.")
GONE = Condition("amqp:internal-error", "it goes with another")
_detach, _detached, _serve = (
    Link.receive_detach,
    Links.link_detached,
    QueueReceiver.deliver_run,
)


def _status(code: int, text: str, **more: object) -> object:
    """Accept tokens for what is missing, and answer others with 250."""
    return status({404: 202, 202: 250}.get(code, code), text, **more)


def _existing(code: int, text: str, **more: object) -> object:
    return status(202 if code == 404 else code, text, **more)


def _refused_upgrade(*what: object, **more: object) -> object:
    raise web.HTTPNotFound()


# Sizes.


def _up_to_100_kb(frontend: object, queue: object, payload: bytes, *more: object) -> list[StoredMessage]:
    if len(payload) > 100_000:
        raise MessageTooLargeError(len(payload), 100_000)
    return messages_of(frontend, queue, payload, *more)


# Credit, drain, windows, frames.


def _beyond_credit(receiver: QueueReceiver, messages: Sequence[StoredMessage]) -> None:
    for message, payload in zip(messages, delivered_run(messages, receiver.queue), strict=True):
        number = receiver.link.transfer(payload, tag=message.lock_token, force=True)
        receiver._held[number] = message.lock_token


def _once(receiver: QueueReceiver, limit: int, now: object) -> int:
    served = _serve(receiver, limit, now)
    if not served:
        receiver._frontend.leave(receiver, now)
    return served


@Around
def _unanswered(receive: Callable[..., None], connection: Connection, close: Close) -> None:
    if connection.role is ConnectionRole.CLIENT:
        receive(connection, close)


def _with_an_error(link: Link, detach: Detach) -> None:
    if link.session.connection.role is ConnectionRole.SERVER:
        link.detach(GONE)
    _detach(link, detach)


def _with_the_others(links: Links, event: object, now: object) -> None:
    _detached(links, event, now)
    for node in list(links):
        if node.queue is not None:
            node.link.detach(GONE)


@Around
def _with_large_frames(receive: Callable[..., None], connection: Connection, performative: Open) -> None:
    receive(connection, performative)
    connection.remote_max_frame_size = 1_048_576


OUTGOING = "sbpair.pair.amqp.session.OutgoingTransfers"


def _open_wide(out: object, window: int) -> None:
    waiting, out.queue = out.queue, type(out.queue)()
    out.window = 1000
    while waiting:
        out._write(*waiting.popleft())


SABOTAGES = {
    "what is missing is forbidden": Sabotage(
        {
            "sending-5": "refused with amqp:not-allowed",
            "errors-5": "refused with 'amqp:not-allowed'",
            "tokens-8": "the token was accepted",
        },
        {
            "sbpair.broker.errors.EntityNotFoundError.condition": "amqp:not-allowed",
            f"{AMQP}.request_response.status": _existing,
        },
    ),
    "a queue has few receivers": Sabotage(
        {"wire-5": "resource-limit-exceeded"}, {f"{AMQP}.attach.MAX_RECEIVERS": 10}
    ),
    "a detach is answered with an error": Sabotage(
        {"pings-6": "it ended with"}, {"sbpair.pair.amqp.link.Link.receive_detach": _with_an_error}
    ),
    "messages are small": Sabotage(
        {"limits-1": "it says 65536", "limits-4": "the attach says 65536 bytes"},
        {"sbpair.broker.entities.descriptions.QueueDescription.max_message_size": 64 * 1024},
    ),
    "large messages are refused": Sabotage(
        {"limits-2": "message-size-exceeded"}, {f"{SENDER}.messages_of": _up_to_100_kb}
    ),
    "there is no limit of size": Sabotage(
        {"limits-3": "the answer is accepted"},
        {f"{SENDER}.TOLERANCE": 2**20, f"{RECEIVED}.TOLERANCE": 2**20},
    ),
    "the size of a batch is not said": Sabotage(
        {"limits-1": "of a batch it says None"}, {f"{SENDER}.QueueSender.answer": lambda sender: {}}
    ),
    "properties are short": Sabotage(
        {"limits-5": "internal-error"}, {f"{RECEIVED}.MAX_PROPERTY_BYTES": 1024}
    ),
    "headers have no limit": Sabotage(
        {"limits-6": "it was accepted"}, {f"{RECEIVED}.MAX_HEADER_BYTES": 2**30}
    ),
    "ids are short": Sabotage({"limits-7": "argument-error"}, {f"{RECEIVED}.MAX_ID_LENGTH": 64}),
    "ids may be long": Sabotage(
        {"limits-8": "129 characters were accepted"}, {f"{RECEIVED}.MAX_ID_LENGTH": 1024}
    ),
    "links outlive their queue": Sabotage(
        {"errors-6": "the link was there"},
        {
            f"{FRONTENDS}.namespace_frontend.NamespaceFrontend._detach_all": lambda *what: None,
            "sbpair.contract.subjects.errors.PATIENCE": 2.0,
        },
    ),
    "links outlive an update": Sabotage(
        {"errors-7": "the link was there"},
        {
            f"{RECEIVER}.QueueReceiver.updated": lambda *what: None,
            "sbpair.contract.subjects.errors.PATIENCE": 2.0,
        },
    ),
    "errors are not tracked": Sabotage(
        {"errors-8": "the description is"},
        {f"{AMQP}.request_response.tracked": lambda text, tracker, now: text},
    ),
    "filters of sessions are ignored": Sabotage(
        {"errors-9": "it was attached"}, {f"{AMQP}.attach.has_session_filter": lambda attach: False}
    ),
    "the busy name no time": Sabotage(
        {"errors-10": "it names no time to wait"}, effect=BUSY, operation="send"
    ),
    "any token is taken": Sabotage(
        {
            "tokens-2": "the status is 202",
            "tokens-3": "the status is 202",
            "tokens-4": "it was attached",
            "tokens-6": "the administration API answers 0",
            "tokens-7": "the administration API answers 0",
            "tokens-9": "the status is 202",
        },
        is_open=True,
    ),
    "tokens are answered with 250": Sabotage(
        {"tokens-1": "the status is 250"}, {f"{AMQP}.request_response.status": _status}
    ),
    "any number of claim links": Sabotage(
        {"tokens-5": "a second pair was attached"},
        {f"{AMQP}.attach.NodeFactory._check_claim_links": lambda *what: None},
    ),
    "links outlive their token": Sabotage(
        {"tokens-10": "the link was there"},
        {
            f"{AMQP}.links.Links.claims_expired": lambda *what: None,
            "sbpair.contract.subjects.tokens.ENDS_WITHIN": 7.0,
        },
    ),
    "credit is ignored": Sabotage(
        {"wire-1": "a second one came"},
        {
            f"{RECEIVER}.QueueReceiver._room": 10,
            f"{RECEIVER}.QueueReceiver._transfer_all": _beyond_credit,
        },
    ),
    "a drain is not answered": Sabotage(
        {"wire-2": "the credit was not ended"}, {f"{RECEIVER}.QueueReceiver._drain": lambda *what: None}
    ),
    "senders get no credit": Sabotage({"wire-3": "there is none"}, effect=NoCredit(), operation="attach"),
    "credit is used at once or never": Sabotage(
        {"wire-4": "a message was expected"}, {f"{RECEIVER}.QueueReceiver.deliver_run": _once}
    ),
    "a link takes the others with it": Sabotage(
        {"wire-6": "nothing: the link ended"}, {f"{AMQP}.links.Links.link_detached": _with_the_others}
    ),
    "there is no WebSocket": Sabotage(
        {"wire-7": "it cannot be reached"},
        {"sbpair.broker.server.http.web.WebSocketResponse": _refused_upgrade},
    ),
    "a close is not answered": Sabotage(
        {"wire-8": "it was not answered"},
        {"sbpair.pair.amqp.connection.Connection._receive_close": _unanswered},
    ),
    "windows are ignored": Sabotage({"wire-12": "window-violation"}, {f"{OUTGOING}.open_window": _open_wide}),
    "frames are as long as they come": Sabotage(
        {"wire-13": "the link ended"},
        {"sbpair.pair.amqp.connection.Connection._receive_open": _with_large_frames},
    ),
    "a certificate is for other names": Sabotage(
        {"wire-14": f"it is for {OTHER_NAME} too"},
        {"sbpair.broker.certificates.LOCAL_NAMES": (*LOCAL_NAMES, OTHER_NAME)},
        over_tls=True,
    ),
}
