"""What the service was seen to answer over HTTP, as facts in a form of our own.

`http.jsonl` has a line for each recording: where it was published, when it was made, and its exchanges in order. A
document is a tree of nodes: ``[name, text or nodes, attributes]``, without what is empty; a node of another XML
namespace than the one around it has it as the attribute ``ns``. Of a list, the first entries are kept. Names of
namespaces and keys are neutral, instants are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from tests.cloud import verified as runs

DATA = Path(__file__).parent / "http.jsonl"
TIERS = ("Basic", "Standard", "Premium")
ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
PREFIXES = {INSTANCE: "i"}
MOST_ENTRIES = 2  # that are kept of a list

Node = list[Any]  # [name], [name, text], [name, nodes] or [name, either, attributes]


@dataclass(frozen=True, slots=True)
class Seen:
    """An answer of the service. ``entries``: the title and the description of each, of an entry or a list.

    ``envelope``: the names of the elements around the first description. ``said``: the text of an error.
    """

    status: int
    reason: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = ""
    entries: list[list[Any]] = field(default_factory=list)
    envelope: list[str] = field(default_factory=list)
    said: str | None = None
    body: str | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and what the service answered. ``description``: that of the request; None if it was not recorded."""

    method: str
    target: str
    seen: Seen
    headers: dict[str, str] = field(default_factory=dict)
    description: Node | None = None
    body: str | None = None

    @property
    def document(self) -> bytes | None:
        """The body of the request."""
        if self.description is not None:
            return entry_around(self.description)
        return None if self.body is None else self.body.encode()


@dataclass(frozen=True, slots=True)
class Recording:
    """The exchanges of one test of an SDK, in order."""

    name: str
    source: str
    date: str
    exchanges: list[Exchange]
    tier: str = "Standard"


@cache
def recordings() -> Sequence[Recording]:
    """Return all recordings: of the SDKs' tests, and of the runs that people sent."""
    published = [_recording(json.loads(line)) for line in DATA.read_text("utf-8").splitlines()]
    return [*published, *of_runs()]


def of_runs(directory: Path = runs.DATA) -> list[Recording]:
    """Return what runs of `sbpair verify` asked the administration API, a recording for each entry and side."""
    return [
        Recording(
            f"{run.label(line['entry'])}:{side} {line['entry']}",
            run.source,
            run.date,
            [_exchange(each) for at, each in line["exchanges"] if at == side],
            tier if (tier := run.tiers.get(side, "")) in TIERS else "Standard",
        )
        for run in runs.runs(directory)
        for line in run.lines
        for side in dict.fromkeys(side for side, _ in line["exchanges"])
    ]


def _recording(found: dict[str, Any]) -> Recording:
    exchanges = [_exchange(each) for each in found.pop("exchanges")]
    tier = "Premium" if "premium" in found["name"] else "Standard"
    return Recording(**found, exchanges=exchanges, tier=tier)


def _exchange(found: dict[str, Any]) -> Exchange:
    return Exchange(**{**found, "seen": Seen(**found["seen"])})


def node_of(element: ElementTree.Element, around: str = SERVICE_BUS) -> Node:
    """Return an element as a node."""
    namespace, _, name = element.tag.rpartition("}")
    namespace = namespace.removeprefix("{")
    attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
    if namespace != around:
        attributes["ns"] = namespace
    content: Any = [node_of(child, namespace) for child in element] or (element.text or "").strip()
    if attributes:
        return [name, content, attributes]
    return [name, content] if content else [name]


def markup_of(node: Node) -> str:
    """Return a node as markup."""
    name, content, attributes = [*node, *["", {}][len(node) - 1 :]]
    written = "".join(
        f" {'xmlns' if key == 'ns' else 'i:type' if key == 'type' else key}={quoteattr(value)}"
        for key, value in attributes.items()
    )
    inner = escape(content) if isinstance(content, str) else "".join(map(markup_of, content))
    return f"<{name}{written}>{inner}</{name}>"


def entry_around(description: Node) -> bytes:
    """Return the body of a request that describes an entity."""
    name, content = description[0], description[1] if len(description) > 1 else []
    inner = "".join(map(markup_of, content)) if isinstance(content, list) else ""
    described = f'<{name} xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}" xmlns:d6p1="{XSD}">{inner}</{name}>'
    return f'<entry xmlns="{ATOM}"><content type="application/xml">{described}</content></entry>'.encode()


XSD = "http://www.w3.org/2001/XMLSchema"


def children(description: Node) -> list[Node]:
    """Return the elements of a description."""
    return description[1] if len(description) > 1 and isinstance(description[1], list) else []


def without(description: Node, names: set[str]) -> Node:
    """Return a description without the elements of these names."""
    return [description[0], [each for each in children(description) if each[0] not in names]]


def counted() -> Iterator[tuple[str, int]]:
    """Yield the SDK of each recording and the number of its exchanges."""
    for each in recordings():
        yield each.source, len(each.exchanges)
