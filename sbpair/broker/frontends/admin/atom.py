"""The Atom documents of the administration API.

Requests have one form; the children of the innermost element are the fields of a description:

    <entry xmlns=ATOM> <content type="application/xml"> <QueueDescription xmlns=SERVICE_BUS> fields

Responses are an entry, a feed of entries, or an error. This module knows elements and XML namespaces, not Service Bus
entities. Input is untrusted, so only plain elements and text are accepted: a DTD, an entity reference, deep nesting or
a body over ``MAX_BODY`` bytes is refused before it is processed.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from xml.etree.ElementTree import Element, ParseError, TreeBuilder  # the parser is defusedxml's

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from ...errors import InvalidDescriptionError

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
MAX_BODY = 1024 * 1024
MAX_DEPTH = 32

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NIL = f"{{{INSTANCE}}}nil"


class _ShallowTree(TreeBuilder):
    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"its elements nest deeper than {MAX_DEPTH}")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


@dataclass(frozen=True, slots=True)
class SentDescription:
    """The description in the body of a request: its kind, ``QueueDescription`` ..., and its elements, as they came."""

    kind: str
    elements: Sequence[Element]


def read_description(body: bytes) -> SentDescription:
    """Return the description in an entry. Raises InvalidDescriptionError, with the reason, for any other body."""
    content = _only_child(_parse(body), ATOM, "entry", "content")
    description = _only_child(content, ATOM, "content", None)
    namespace, kind = _split(description.tag)
    if namespace != SERVICE_BUS:
        raise InvalidDescriptionError(f"The element {kind} is not in the namespace {SERVICE_BUS}.")
    return SentDescription(kind, tuple(description))


def field_name(found: Element) -> str | None:
    """Return the name of an element in the namespace of Service Bus; None for one in another."""
    namespace, name = _split(found.tag)
    return name if namespace == SERVICE_BUS else None


def is_nil(found: Element) -> bool:
    """Whether an element says that it has no value."""
    return found.get(_NIL) in ("true", "1")


def markup_of(found: Element, around: str = SERVICE_BUS) -> str:
    """Return an element of a request as markup again, inside of an element in the XML namespace ``around``."""
    namespace, name = found.tag.removeprefix("{").rpartition("}")[::2]
    attributes: dict[str, str] = {} if namespace == around else {"xmlns": namespace}
    for key, value in found.attrib.items():
        of, local = _split(key)
        # the client's prefixes are lost when parsing: only the prefix in a type's name is known
        if of == INSTANCE:
            attributes[f"i:{local}"] = value.rpartition(":")[2]
        elif not of:
            attributes[local] = value
    inner = (
        plain(found.text or "") if not len(found) else "".join(markup_of(each, namespace) for each in found)
    )
    return element(name, inner, attributes)


def element(name: str, markup: str = "", attributes: Mapping[str, str] | None = None) -> str:
    """Return an element around ``markup``, which is inserted unescaped."""
    written = "".join(f' {key}="{_quote(value)}"' for key, value in (attributes or {}).items())
    return f"<{name}{written}>{markup}</{name}>" if markup else f"<{name}{written} />"


def plain(text: str) -> str:
    """Return ``text`` as character data; characters that XML cannot represent become U+FFFD.

    Quotes are not escaped, because the JavaScript SDK does not decode ``&#x27;``.
    """
    return escape(_NOT_XML.sub("\ufffd", text), quote=False)


def _quote(text: str) -> str:
    return plain(text).replace('"', "&quot;")


def instant(milliseconds: int | None) -> str:
    """Return an instant (ms since the epoch); None, for never, becomes the first instant of year 1."""
    if milliseconds is None:
        return "0001-01-01T00:00:00Z"
    now = _EPOCH + timedelta(milliseconds=milliseconds)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def second(milliseconds: int) -> str:
    """Return an instant (ms since the epoch) in whole seconds, as in entries."""
    return f"{instant(milliseconds)[:19]}Z"


def description(kind: str, fields: Iterable[str]) -> str:
    """Return a description of ``kind`` around fields that are markup."""
    return element(kind, "".join(fields), {"xmlns": SERVICE_BUS, "xmlns:i": INSTANCE})


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry around ``content``, a description; ``author`` and ``created`` only if the service gives them.

    ``base``: for an entry in a feed, the URL of the feed, to which ``link`` is relative.
    """

    url: str
    title: str
    updated: int
    content: str
    author: str | None = None
    created: int | None = None
    link: str | None = None
    base: str | None = None

    def markup(self) -> str:
        """Return the entry as markup."""
        parts = (
            element("id", plain(self.url)),
            element("title", plain(self.title), {"type": "text"}),
            "" if self.created is None else element("published", second(self.created)),
            element("updated", second(self.updated)),
            "" if self.author is None else element("author", element("name", plain(self.author))),
            element("link", "", {"rel": "self", "href": self.link or self.url}),
            element("content", self.content, {"type": "application/xml"}),
        )
        placed = {"xmlns": ATOM} if self.base is None else {"xml:base": self.base}
        return element("entry", "".join(parts), placed)


def nothing(now: int) -> str:
    """Return the feed with which the service answers a request for a missing queue or topic."""
    head = (
        element("title", "Publicly Listed Services", {"type": "text"}),
        element(
            "subtitle",
            "This is the list of publicly-listed services currently available.",
            {"type": "text"},
        ),
        element("id", f"uuid:{uuid.uuid4()};id=1"),
        element("updated", second(now)),
        element("generator", "Service Bus 1.1"),
    )
    return element("feed", "".join(head), {"xmlns": ATOM})


def feed(url: str, title: str, updated: str, entries: Iterable[str] = (), next_url: str | None = None) -> str:
    """Return a page of entries. SDKs request another page exactly when there is a second link."""
    links = [element("link", "", {"rel": "self", "href": url})]
    if next_url is not None:
        links.append(element("link", "", {"rel": "next", "href": next_url}))
    head = (
        element("title", plain(title), {"type": "text"}),
        element("id", plain(url)),
        element("updated", updated),
    )
    return element("feed", "".join([*head, *links, *entries]), {"xmlns": ATOM})


def error(status: int, detail: str) -> str:
    """Return the error document that SDKs read: the HTTP status, and a detail, which may have more than one line."""
    lines = plain(detail).replace("\r\n", "&#xD;\n")  # a parser would drop a carriage return
    return element("Error", element("Code", str(status)) + element("Detail", lines))


def _parse(body: bytes) -> Element:
    if len(body) > MAX_BODY:
        raise InvalidDescriptionError(f"The body is {len(body)} bytes long: at most {MAX_BODY} are read.")
    parser = DefusedXMLParser(target=_ShallowTree(), forbid_dtd=True)
    try:
        parser.feed(body)
        root: Element = parser.close()
    except ParseError as problem:
        raise InvalidDescriptionError(f"The body is not well-formed XML: {problem}.") from None
    except DefusedXmlException as problem:  # its text would repeat the declaration
        raise InvalidDescriptionError(
            f"The body is XML that is not accepted: {type(problem).__name__}."
        ) from None
    except (ValueError, LookupError) as problem:  # nested too deeply, or an unknown encoding
        reason = str(problem)[:100]
        raise InvalidDescriptionError(f"The body is XML that is not accepted: {reason}.") from None
    return root


def _only_child(parent: Element, namespace: str, name: str, child_name: str | None) -> Element:
    if parent.tag != f"{{{namespace}}}{name}":
        raise InvalidDescriptionError(
            f"The body has {parent.tag[:200]} where {name} in {namespace} is expected."
        )
    children = [child for child in parent if child_name is None or _split(child.tag)[1] == child_name]
    if len(children) != 1:
        raise InvalidDescriptionError(
            f"The element {name} holds {len(children)} {child_name or 'element'}s, not one."
        )
    return children[0]


def _split(tag: str) -> tuple[str, str]:
    namespace, _, name = tag.rpartition("}")
    return namespace.removeprefix("{"), name[:100]
