"""The administration API: Atom over https.

    PUT    /{entity}                    create: 201, or 409 if it exists
    PUT    /{entity}  If-Match: *       update: 200, or 404
    GET    /{entity}                    200 with its entry; a missing queue or topic, or below a missing topic:
                                        200 with an empty feed; a missing subscription or rule: 404
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode
from xml.etree.ElementTree import Element

from sbpair.pair.ground.entity_settings import FORWARD_DEAD_LETTERS_TO, FORWARD_TO

from ...access import Verifier
from ...auth import InvalidTokenError, Right
from ...clock import ClockReading
from ...entities import Namespace
from ...entities.descriptions import MAX_ADDRESS, KeptText, path_of
from ...entities.queue import Queue
from ...entities.rule_operations import add_rule, find_rule, remove_rule, update_rule
from ...entities.rules import Rule
from ...entities.topic import Subscription
from ...errors import (
    BrokerError,
    EntityNotFoundError,
    InvalidArgumentError,
    InvalidDescriptionError,
    InvalidPageError,
    OperationInProgressError,
    TargetTokenError,
    UnauthorizedError,
)
from ...faults import Operation
from ..namespace_frontend import NamespaceFrontend
from . import atom
from .atom import SentDescription, read_description
from .descriptions import CHANGES, create_subscription, update_subscription
from .entity_fields import QUEUE_ELEMENTS, SUBSCRIPTION, SUBSCRIPTION_ELEMENTS, write_description
from .error_texts import Asked, Place
from .fields import (
    FIRST,
    LATEST_FORM,
    OLDEST,
    Answer,
    Arranged,
    Form,
    Row,
    arrange,
    check_versions,
    sent_back,
)
from .http_messages import (
    ENTRY,
    FEED,
    MethodNotAllowedError,
    Request,
    Response,
    entity_headers,
    failed,
    place_of,
    segments_of,
    xml,
)
from .rights import refusal
from .rule_fields import RULE, RULE_ELEMENTS, read_rule, write_rule

__all__ = ["Request", "Response", "answer", "fault_response", "refusal"]

OLDEST_API, NEWEST_API = "2013-10", "2024-05"  # the oldest version that supports partitions
PAGE_SIZE = 100
Shown = TypeVar("Shown")

_API_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}")
_CREATED = -1
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
        headers = entity_headers(self.request, self._changed_at(segments))
        try:
            response = self._routed(segments)
        except BrokerError as error:
            response = failed(error, self.request, self.now, place=self._place(segments))
        return replace(response, headers={**response.headers, **headers})

    def _routed(self, segments: list[str]) -> Response:
        match [segment.lower() for segment in segments]:
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
        self._check_is_free(path)
        sent = atom.read_description(self.request.body)
        change = CHANGES.get(sent.kind)
        if change is None:
            raise InvalidDescriptionError(
                f"The body describes a {sent.kind}: use one of {', '.join(CHANGES)} with this path."
            )
        fields = self._arranged(sent, change.rows)
        if self._is_update():
            entity = change.update(self.namespace, path, fields.fields, self.now)
            content = sent_back(sent.kind, sent.elements)
            return self._changed(200, entity, fields, self._entry(entity, content, created=None))
        entity = change.create(self.namespace, path, fields.fields, self.now)
        return self._changed(201, entity, fields)

    def _check_is_free(self, path: str) -> None:
        """Raise EntityAlreadyExistsError if an entity exists where one is to be created without a description."""
        if not self.request.body and not self._is_update():
            self.namespace.directory.check_free(path)

    def _arranged(self, sent: SentDescription, rows: tuple[Row[Any], ...]) -> Arranged:
        fields = arrange(rows, sent.elements)
        check_versions(sent.kind, rows, fields.fields, self._version())
        return fields

    def _changed(
        self, status: int, entity: Queue, fields: Arranged, entry: atom.Entry | None = None
    ) -> Response:
        """Return the answer to a creation or update; elements stored without effect are logged for the operator."""
        kept = fields.kept
        if entity.description.forward_to is not None:  # never idle: the span that was sent does not hold
            kept = replace(kept, texts=tuple(each for each in kept.texts if each[0] != "AutoDeleteOnIdle"))
        self.namespace.keep(entity, kept)
        content = write_description(entity, self._form(Answer.CHANGED))
        shown = entry or self._entry(entity, content)
        return replace(xml(status, shown.markup(), ENTRY), unread=tuple(unread(fields.kept)))

    def _list_all(self, kind: str) -> Response:
        namespace = self.namespace
        if kind == "queues":
            return self._list("Queues", namespace.queues(), self._listed)
        if kind == "topics":
            return self._list("Topics", namespace.topics(), self._listed)
        return self._nothing()

    # -- subscriptions and their rules

    def _subscription(self, topic: str, name: str) -> Response:
        namespace = self.namespace
        return self._route(
            {
                "GET": lambda: self._below(topic, lambda: self._shown(namespace.subscription(topic, name))),
                "PUT": lambda: self._put_subscription(topic, name),
                "DELETE": lambda: self._delete(lambda: namespace.delete_subscription(topic, name)),
            }
        )

    def _put_subscription(self, topic: str, name: str) -> Response:
        self._check_is_free(f"{topic}/Subscriptions/{name}")
        sent = atom.read_description(self.request.body)
        if sent.kind != SUBSCRIPTION:
            raise InvalidDescriptionError(
                f"The body describes a {sent.kind}: use a {SUBSCRIPTION} with this path."
            )
        fields = self._arranged(sent, SUBSCRIPTION_ELEMENTS)
        if self._is_update():
            entity = update_subscription(self.namespace, topic, name, fields.fields, self.now)
            return self._changed(200, entity, fields)
        entity = create_subscription(self.namespace, topic, name, fields.fields, self.now)
        return self._changed(201, entity, fields)

    def _list_subscriptions(self, topic: str) -> Response:
        return self._below(
            topic, lambda: self._list("Subscriptions", self.namespace.subscriptions(topic), self._listed)
        )

    def _rule(self, topic: str, name: str, rule: str) -> Response:
        return self._route(
            {
                "GET": lambda: self._below(topic, lambda: self._get_rule(topic, name, rule)),
                "PUT": lambda: self._put_rule(topic, name, rule),
                "DELETE": lambda: self._delete_rule(topic, name, rule),
            }
        )

    def _get_rule(self, topic: str, name: str, rule: str) -> Response:
        subscription = self.namespace.subscription(topic, name)
        return xml(200, self._rule_entry(find_rule(subscription, rule), Answer.SHOWN).markup(), ENTRY)

    def _put_rule(self, topic: str, name: str, rule: str) -> Response:
        sent = atom.read_description(self.request.body)
        if sent.kind != RULE:
            raise InvalidDescriptionError(f"The body describes a {sent.kind}: use a {RULE} with this path.")
        subscription = self.namespace.subscription(topic, name)
        fields = arrange(RULE_ELEMENTS, sent.elements)
        requested = read_rule(fields.fields, rule, self.now)
        change, status = (update_rule, 200) if self._is_update() else (add_rule, 201)
        shown = self._rule_entry(change(subscription, requested, self.now), Answer.CHANGED)
        return replace(xml(status, shown.markup(), ENTRY), unread=tuple(unread(fields.kept)))

    def _delete_rule(self, topic: str, name: str, rule: str) -> Response:
        remove_rule(self.namespace.subscription(topic, name), rule)
        return Response(200)

    def _list_rules(self, topic: str, name: str) -> Response:
        return self._below(
            topic,
            lambda: self._list(
                "Rules",
                list(self.namespace.subscription(topic, name).rules),
                lambda rule: (rule.name, self._rule_entry(rule, Answer.SHOWN)),
            ),
        )

    def _rule_entry(self, rule: Rule, answer: Answer) -> atom.Entry:
        content = write_rule(rule, self._form(answer))
        return atom.Entry(self._url(answer), rule.name, rule.created_at, content, created=rule.created_at)

    def _below(self, topic: str, answer: Callable[[], Response]) -> Response:
        """Return the answer to a GET for something that belongs to a topic: an empty feed if the topic does not exist.

        Between the oldest api-version and that of 2021 no such answer is known; clients of those versions expect a 404.
        """
        try:
            self.namespace.topic(topic)
        except EntityNotFoundError:
            if FIRST <= self._version() < LATEST_FORM:
                raise
            return self._nothing()
        return answer()

    # -- common to all

    def _route(self, methods: Mapping[str, Callable[[], Response]]) -> Response:
        method = methods.get(self.request.method)
        if method is None:
            raise MethodNotAllowedError(self.request.method, methods)
        return method()

    def _check_version(self) -> None:
        version = self._query("api-version")
        if version is None:
            return  # the oldest form
        if not _API_VERSION.fullmatch(version) or not OLDEST_API <= version <= NEWEST_API:
            raise InvalidArgumentError(
                f"The api-version {version!r} is not supported: use one from {OLDEST_API} to {NEWEST_API}."
            )

    def _version(self) -> str:
        return self._query("api-version") or OLDEST

    def _form(self, answer: Answer) -> Form:
        return Form(self._version(), answer, self.now)

    def _is_update(self) -> bool:
        condition = self.request.headers.get("if-match")
        if condition is not None and condition.strip() != "*":
            raise InvalidArgumentError("If-Match is not *: only unconditional updates are supported.")
        return condition is not None

    def _get(self, path: str) -> Response:
        try:
            entity = self.namespace.queue(path)
        except EntityNotFoundError:
            return self._nothing()
        return self._nothing() if entity.parent else self._shown(entity)

    def _shown(self, entity: Queue) -> Response:
        content = write_description(entity, self._form(Answer.SHOWN))
        return xml(200, self._entry(entity, content, Answer.SHOWN).markup(), ENTRY)

    def _delete(self, delete: Callable[[], Queue]) -> Response:
        delete()
        return Response(200)

    def _list(
        self, title: str, entities: Sequence[Shown], show: Callable[[Shown], tuple[str, atom.Entry]]
    ) -> Response:
        skip, top = self._whole("$skip", 0), min(self._whole("$top", PAGE_SIZE), PAGE_SIZE)
        page = entities[skip : skip + top]
        more = bool(page) and skip + len(page) < len(entities)
        following = self._url_of_page(skip + len(page), top) if more else None
        entries = (self._in_list(title, *show(entity)).markup() for entity in page)
        return xml(200, atom.feed(self._url(), title, atom.second(self.now), entries, following), FEED)

    def _in_list(self, title: str, name: str, entry: atom.Entry) -> atom.Entry:
        """Return the entry of the entity ``name`` as an entry of this list: with an address relative to the list's."""
        version = self._query("api-version")
        query = "" if version is None else f"?api-version={version}"
        path = quote(name, safe="/$")
        if title in ("Queues", "Topics"):
            url, link = f"{self._origin()}/{path}", f"../{path}"
        else:
            raw = self.request.raw_path
            collection = raw.rpartition("/")[2]
            url = f"{self._origin()}{raw.removesuffix('/')}/{path}"
            link = f"{collection}/{path}" if collection else path
        return replace(entry, url=url + query, link=link + query, base=self._url())

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
        entry = atom.Entry(self._url(), name, self.namespace.created_at, content, author=name)
        return xml(200, entry.markup(), ENTRY)

    def _nothing(self) -> Response:
        return xml(200, atom.nothing(self.now), FEED)

    def _listed(self, entity: Queue) -> tuple[str, atom.Entry]:
        content = write_description(entity, self._form(Answer.SHOWN))
        name = entity.name if isinstance(entity, Subscription) else entity.path
        return name, self._entry(entity, content)

    def _entry(
        self,
        entity: Queue,
        content: str,
        answer: Answer = Answer.CHANGED,
        created: int | None = _CREATED,
    ) -> atom.Entry:
        is_below = isinstance(entity, Subscription)
        return atom.Entry(
            self._url(answer if is_below else Answer.CHANGED),
            entity.name if isinstance(entity, Subscription) else entity.path,
            entity.updated_at,
            content,
            author=None if is_below else self.namespace.name,
            created=entity.created_at if created == _CREATED else created,
        )

    # -- headers and addresses

    def _changed_at(self, segments: Sequence[str]) -> int | None:
        """Return when the queue or topic in the path last changed; None if there is none."""
        folded = [segment.lower() for segment in segments]
        at = folded.index("subscriptions", 1) if "subscriptions" in folded[1:] else len(segments)
        try:
            return self.namespace.directory.entity("/".join(segments[:at])).updated_at
        except BrokerError:
            return None

    def _place(self, segments: Sequence[str]) -> Place:
        found = place_of(self.request, self.namespace.name)
        if found.asked not in (Asked.SUBSCRIPTION, Asked.RULE):
            return found
        at = [segment.lower() for segment in segments].index("subscriptions", 1)
        try:
            self.namespace.topic("/".join(segments[:at]))
        except EntityNotFoundError:
            return replace(found, asked=Asked.ORPHAN)
        return found

    def _origin(self, scheme: str = "https") -> str:
        return f"{scheme}://{self.request.headers.get('host') or self.namespace.name}"

    def _url(self, answer: Answer = Answer.CHANGED) -> str:
        """Return the URL as requested; for a GET of a subscription or rule, with the scheme sb://."""
        query = f"?{self.request.query}" if self.request.query else ""
        path = quote(unquote(self.request.raw_path), safe="/$")
        return f"{self._origin('https' if answer is Answer.CHANGED else 'sb')}{path}{query}"

    def _url_of_page(self, skip: int, top: int) -> str:
        version = self._query("api-version")
        fields = {} if version is None else {"api-version": version}
        query = urlencode({"$skip": str(skip), "$top": str(top), **fields})
        return f"{self._origin()}{self.request.raw_path}?{query}"

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
            raise InvalidPageError(name.removeprefix("$"))
        return int(text)


def unread(kept: KeptText) -> Iterator[str]:
    """Yield, for the operator of the broker, the parts of a client's request that the service does not read."""
    late = ", ".join(f"{each.name} (it came after {each.after})" for each in kept.late)
    if late:
        yield (
            f"not in force: {late}. The service reads a description in its own order only; it keeps the rest as text, "
            "and shows it in a GET"
        )


_TARGETS = (
    (FORWARD_TO, "servicebussupplementaryauthorization"),
    (FORWARD_DEAD_LETTERS_TO, "servicebusdlqsupplementaryauthorization"),
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
        sent = read_description(request.body)
        rows: tuple[Row[Any], ...] = SUBSCRIPTION_ELEMENTS if sent.kind == SUBSCRIPTION else QUEUE_ELEMENTS
        fields = arrange(rows, sent.elements).fields
        current = _current(request, namespace)
    except BrokerError:
        return None  # answer() reports the error
    for setting, header in _TARGETS:
        target = _path(fields.get(setting.element))
        if not target or target.casefold() == path_of(str(setting.value_in(current) or "")).casefold():
            continue
        tokens = (request.headers.get("authorization"), request.headers.get(header))
        if not any(_may_manage(token, target, request, verifier, now_s) for token in tokens):
            text = f"{setting.element} is '{target[:300]}': the token must grant Manage on that entity too."
            kind = UnauthorizedError if request.headers.get(header) else TargetTokenError
            return failed(kind(text), request, now_s * 1000)
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
