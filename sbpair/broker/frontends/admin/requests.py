"""The administration API: Atom over https (P-11, P-12).

    PUT    /{entity}                    create: 201, or 409 if it exists
    PUT    /{entity}  If-Match: *       update: 200, or 404
    GET    /{entity}                    200 with its entry; a missing queue or topic: 200 with an empty feed,
                                        a missing subscription or rule: 404
    DELETE /{entity}                    200, or 404
    GET    /$Resources/queues           a page of queues, $skip and $top; /$Resources/topics likewise
    GET    /{topic}/Subscriptions       a page of subscriptions; each is an entity below this path
    GET    /{topic}/Subscriptions/{subscription}/Rules            its rules; each is an entity below this path
    GET    /$namespaceinfo              the properties of the namespace

An entity is a queue or a topic, depending on the body of the PUT. A slash in a name arrives as ``%2F`` or unescaped;
the path is split before it is decoded, so an encoded slash never separates. Pure: request in, response out. Call
``refusal`` before ``answer`` to check the caller's rights; it takes real time in seconds, not entity time.

Forwarding requires Manage on the target too: otherwise, whoever manages one queue could send to any other. The target
may be covered by the request's own token, or by one in an extra header that the SDKs send:

    ForwardTo                          ServiceBusSupplementaryAuthorization
    ForwardDeadLetteredMessagesTo      ServiceBusDlqSupplementaryAuthorization
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode
from xml.etree.ElementTree import Element

from ...access import Verifier
from ...auth import InvalidTokenError, Right
from ...clock import ClockReading
from ...entities import Namespace
from ...entities.paths import MAX_ADDRESS, path_of
from ...entities.queue import Queue
from ...entities.rule_operations import add_rule, find_rule, remove_rule, rule_path, update_rule
from ...entities.rules import Rule
from ...entities.topic import Subscription
from ...errors import (
    BrokerError,
    EntityNotFoundError,
    InvalidArgumentError,
    InvalidDescriptionError,
    OperationInProgressError,
    UnauthorizedError,
)
from ...faults import Operation
from ..namespace_frontend import NamespaceFrontend
from . import atom
from .atom import read_description
from .descriptions import (
    CHANGES,
    SUBSCRIPTION,
    Fields,
    create_subscription,
    title_of,
    update_subscription,
    write_description,
)
from .http_messages import MethodNotAllowedError, Request, Response, failed, segments_of, xml
from .rights import refusal
from .rule_fields import RULE, read_rule, write_rule

__all__ = ["Request", "Response", "answer", "fault_response", "refusal"]

OLDEST_API, NEWEST_API = "2013-10", "2024-05"  # the oldest version that supports partitions
PAGE_SIZE = 100
Shown = TypeVar("Shown")

_API_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}")
_COLLECTIONS = ("subscriptions", "rules")
_WHOLE = re.compile(r"[0-9]{1,9}")


def fault_response(frontend: NamespaceFrontend, request: Request, now: ClockReading) -> Response | None:
    """Return a 409 response if a Conflict fault applies to the change, else None."""
    path = unquote(request.raw_path).strip("/")
    if request.method == "GET" or frontend.apply_fault(Operation.ADMINISTER, path, now) is None:
        return None
    return failed(OperationInProgressError(), request, now.entity)


def answer(namespace: Namespace, request: Request, now: int) -> Response:
    """Return the response of ``namespace`` at ``now`` (ms since the epoch). Refusals are responses too."""
    try:
        namespace.credits.spend_on_administration(namespace.name, now)
        return _Call(namespace, request, now).answer()
    except BrokerError as error:
        return failed(error, request, now)


@dataclass(frozen=True, slots=True)
class _Call:
    namespace: Namespace
    request: Request
    now: int

    def answer(self) -> Response:
        segments = segments_of(self.request)
        self._check_version()
        if segments[-1] == "" and len(segments) > 1 and segments[-2].lower() in _COLLECTIONS:
            segments.pop()  # JavaScript's client lists /news/Subscriptions/
        match [segment.lower() for segment in segments]:
            case ["$namespaceinfo"]:
                return self._route({"GET": self._namespace_information})
            case ["$resources", kind]:
                return self._route({"GET": lambda: self._list_all(kind)})
            case [*topic, "subscriptions"] if topic:
                return self._route({"GET": lambda: self._list_subscriptions("/".join(segments[:-1]))})
            case [*topic, "subscriptions", _] if topic:
                return self._subscription("/".join(segments[:-2]), segments[-1])
            case [*topic, "subscriptions", _, "rules"] if topic:
                subscription = ("/".join(segments[:-3]), segments[-2])
                return self._route({"GET": lambda: self._list_rules(*subscription)})
            case [*topic, "subscriptions", _, "rules", _] if topic:
                return self._rule("/".join(segments[:-4]), segments[-3], segments[-1])
        return self._entity("/".join(segments))

    # -- queues and topics

    def _entity(self, path: str) -> Response:
        return self._route(
            {
                "GET": lambda: self._get(path),
                "PUT": lambda: self._put(path),
                "DELETE": lambda: self._delete(lambda: self.namespace.delete(path)),
            }
        )

    def _put(self, path: str) -> Response:
        kind, fields = self._description()
        change = CHANGES.get(kind)
        if change is None:
            raise InvalidDescriptionError(
                f"The body describes a {kind}: use one of {', '.join(CHANGES)} with this path."
            )
        if self._is_update():
            return self._entity_response(200, change.update(self.namespace, path, fields, self.now))
        return self._entity_response(201, change.create(self.namespace, path, fields, self.now))

    def _list_all(self, kind: str) -> Response:
        namespace = self.namespace
        if kind == "queues":
            return self._list("Queues", namespace.queues(), self._entry)
        if kind == "topics":
            return self._list("Topics", namespace.topics(), self._entry)
        return self._empty()

    # -- subscriptions and their rules

    def _subscription(self, topic: str, name: str) -> Response:
        namespace = self.namespace
        return self._route(
            {
                "GET": lambda: self._entity_response(200, namespace.subscription(topic, name)),
                "PUT": lambda: self._put_subscription(topic, name),
                "DELETE": lambda: self._delete(lambda: namespace.delete_subscription(topic, name)),
            }
        )

    def _put_subscription(self, topic: str, name: str) -> Response:
        kind, fields = self._description()
        if kind != SUBSCRIPTION:
            raise InvalidDescriptionError(
                f"The body describes a {kind}: use a {SUBSCRIPTION} with this path."
            )
        if self._is_update():
            return self._entity_response(
                200, update_subscription(self.namespace, topic, name, fields, self.now)
            )
        return self._entity_response(201, create_subscription(self.namespace, topic, name, fields, self.now))

    def _list_subscriptions(self, topic: str) -> Response:
        return self._list("Subscriptions", self.namespace.subscriptions(topic), self._entry)

    def _rule(self, topic: str, name: str, rule: str) -> Response:
        return self._route(
            {
                "GET": lambda: self._get_rule(topic, name, rule),
                "PUT": lambda: self._put_rule(topic, name, rule),
                "DELETE": lambda: self._delete_rule(topic, name, rule),
            }
        )

    def _get_rule(self, topic: str, name: str, rule: str) -> Response:
        subscription = self.namespace.subscription(topic, name)
        return xml(200, self._rule_entry(subscription, find_rule(subscription, rule)))

    def _put_rule(self, topic: str, name: str, rule: str) -> Response:
        kind, fields = self._description()
        if kind != RULE:
            raise InvalidDescriptionError(f"The body describes a {kind}: use a {RULE} with this path.")
        subscription = self.namespace.subscription(topic, name)
        requested = read_rule(fields, rule, self.now)
        if self._is_update():
            return xml(200, self._rule_entry(subscription, update_rule(subscription, requested, self.now)))
        return xml(201, self._rule_entry(subscription, add_rule(subscription, requested, self.now)))

    def _delete_rule(self, topic: str, name: str, rule: str) -> Response:
        remove_rule(self.namespace.subscription(topic, name), rule)
        return Response(200)

    def _list_rules(self, topic: str, name: str) -> Response:
        subscription = self.namespace.subscription(topic, name)
        return self._list(
            "Rules", list(subscription.rules), lambda rule: self._rule_entry(subscription, rule)
        )

    def _rule_entry(self, subscription: Subscription, rule: Rule) -> str:
        created = atom.instant(rule.created_at)
        return self._entry_of(
            rule_path(subscription, rule.name), rule.name, created, created, write_rule(rule)
        )

    # -- what all have in common

    def _route(self, methods: Mapping[str, Callable[[], Response]]) -> Response:
        method = methods.get(self.request.method)
        if method is None:
            raise MethodNotAllowedError(self.request.method, methods)
        return method()

    def _check_version(self) -> None:
        version = self._query("api-version")
        if version is None:
            return  # the newest, as far as the answers differ
        if not _API_VERSION.fullmatch(version) or not OLDEST_API <= version <= NEWEST_API:
            raise InvalidArgumentError(
                f"The api-version {version!r} is not supported: use one from {OLDEST_API} to {NEWEST_API}."
            )

    def _description(self) -> tuple[str, Fields]:
        return atom.read_description(self.request.body)

    def _is_update(self) -> bool:
        condition = self.request.headers.get("if-match")
        if condition is not None and condition.strip() != "*":
            raise InvalidArgumentError("If-Match is not *: only unconditional updates are supported.")
        return condition is not None

    def _get(self, path: str) -> Response:
        try:
            entity = self.namespace.queue(path)
        except EntityNotFoundError:
            return self._empty()
        return self._empty() if entity.parent else self._entity_response(200, entity)

    def _entity_response(self, status: int, entity: Queue) -> Response:
        return xml(status, self._entry(entity))

    def _delete(self, delete: Callable[[], Queue]) -> Response:
        delete()
        return Response(200)

    def _list(self, title: str, entities: Sequence[Shown], show: Callable[[Shown], str]) -> Response:
        skip, top = self._whole("$skip", 0), min(self._whole("$top", PAGE_SIZE), PAGE_SIZE)
        page = entities[skip : skip + top]
        more = bool(page) and skip + len(page) < len(entities)
        following = self._url_of_page(skip + len(page), top) if more else None
        entries = [show(entity) for entity in page]
        return xml(200, atom.feed(self._url(), title, atom.instant(self.now), entries, following))

    def _namespace_information(self) -> Response:
        created = atom.instant(self.namespace.created_at)
        texts = {
            "CreatedTime": created,
            "MessagingSKU": self.namespace.tier.value,
            **(
                {"MessagingUnits": str(self.namespace.messaging_units)}
                if self.namespace.messaging_units
                else {}
            ),
            "ModifiedTime": created,
            "Name": self.namespace.name,
            "NamespaceType": "Messaging",
        }
        fields = (atom.element(name, atom.plain(text)) for name, text in texts.items())
        name = self.namespace.name
        content = atom.description("NamespaceInfo", fields)
        return xml(200, atom.entry(self._url(), name, name, created, created, content))

    def _empty(self) -> Response:
        return xml(200, atom.feed(self._url(), "Publicly Listed Services", atom.instant(self.now)))

    def _entry(self, entity: Queue) -> str:
        created, updated = atom.instant(entity.created_at), atom.instant(entity.updated_at)
        content = write_description(entity, self.now)
        return self._entry_of(entity.path, title_of(entity), created, updated, content)

    def _entry_of(self, path: str, title: str, created: str, updated: str, content: str) -> str:
        version = self._query("api-version")
        query = "" if version is None else f"?api-version={version}"
        url = f"https://{self._host()}/{quote(path, safe='/$')}{query}"
        return atom.entry(url, title, self.namespace.name, created, updated, content)

    def _host(self) -> str:
        return self.request.headers.get("host") or self.namespace.name

    def _url(self) -> str:
        return f"https://{self._host()}{self.request.raw_path}?{self.request.query}"

    def _url_of_page(self, skip: int, top: int) -> str:
        version = self._query("api-version")
        fields = {} if version is None else {"api-version": version}
        query = urlencode({**fields, "$skip": str(skip), "$top": str(top)}, safe="$")
        return f"https://{self._host()}{self.request.raw_path}?{query}"

    def _query(self, name: str) -> str | None:
        try:
            pairs = parse_qsl(self.request.query, keep_blank_values=True, max_num_fields=32)
        except ValueError:
            raise InvalidArgumentError("The query has more than 32 fields.") from None
        return dict(pairs).get(name)

    def _whole(self, name: str, default: int) -> int:
        text = self._query(name)
        if text is None:
            return default
        if not _WHOLE.fullmatch(text):
            raise InvalidArgumentError(f"{name} is {text[:100]!r}: use a whole number from 0 to 999999999.")
        return int(text)


_TARGETS = (
    ("ForwardTo", "forward_to", "servicebussupplementaryauthorization"),
    (
        "ForwardDeadLetteredMessagesTo",
        "forward_dead_lettered_messages_to",
        "servicebusdlqsupplementaryauthorization",
    ),
)


def forwarding_refusal(
    request: Request, namespace: Namespace, verifier: Verifier, now_s: int
) -> Response | None:
    """Return a 401 response unless the caller has Manage on each new forwarding target, else None.

    ``now_s``: seconds since the epoch.
    """
    if request.method != "PUT":
        return None
    try:
        fields = read_description(request.body)[1]
        current = _current(request, namespace)
    except BrokerError:
        return None  # answer() reports the error
    for element, attribute, header in _TARGETS:
        target = _path(fields.get(element))
        if not target or target.casefold() == path_of(getattr(current, attribute, None) or "").casefold():
            continue
        tokens = (request.headers.get("authorization"), request.headers.get(header))
        if not any(_may_manage(token, target, request, verifier, now_s) for token in tokens):
            text = f"{element} is '{target[:300]}': the token must grant Manage on that entity too."
            return failed(UnauthorizedError(text), request, now_s * 1000)
    return None


def _current(request: Request, namespace: Namespace) -> object:
    """Return the current description; None for an entity that does not exist."""
    try:
        return namespace.queue("/".join(segments_of(request))).description
    except EntityNotFoundError:
        return None


def _path(field: Element | None) -> str:
    text = "" if field is None else (field.text or "").strip()
    return path_of(text[:MAX_ADDRESS])


def _may_manage(token: str | None, target: str, request: Request, verifier: Verifier, now_s: int) -> bool:
    try:
        grant = None if not token else verifier.verify(token, now_s)
    except InvalidTokenError:
        return False
    return grant is not None and grant.covers(request.headers.get("host", ""), target, Right.MANAGE)
