"""Distil recorded exchanges into the form of `http.jsonl`.

    python -m tests.cloud.distil recorded.jsonl > tests/cloud/http.jsonl

Each line of the input is one exchange, with the keys recording, source, recorded, method, target, request_headers,
request_body, status, reason, headers and body.
"""

from __future__ import annotations

import json
import re
import sys
from email.utils import parsedate_to_datetime
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

from tests.cloud.exchanges import ATOM, MOST_ENTRIES, Node, node_of

HEADERS = ("content-type", "location", "brokerproperties", "etag", "strict-transport-security")
OF_REQUESTS = ("content-type", "if-match", "brokerproperties")
STANDARD = {*HEADERS, "date", "server", "transfer-encoding", "content-length", "connection", "retry-after"}
TICKS = re.compile(r"\d{18}")


def distilled(exchanges: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one recording."""
    first = exchanges[0]
    at = first.get("recorded")
    return {
        "name": re.sub(r"^(\d+) .*?(\w+)(\[\d+\])?$", r"\1 \2", first["recording"]),
        "source": first["source"],
        "date": f"{parsedate_to_datetime(at):%Y-%m-%d}" if at else "",
        "exchanges": [exchange_of(each) for each in exchanges],
    }


def exchange_of(found: dict[str, Any]) -> dict[str, Any]:
    """Return one exchange."""
    sent = found["request_headers"]
    description = _described(_tree(found["request_body"]))
    written = {
        "method": found["method"],
        "target": found["target"],
        "headers": {name: value for name, value in sent.items() if name in OF_REQUESTS or name not in _ASKED},
        "description": description,
        "body": None if description is not None else found["request_body"],
        "seen": _seen(found),
    }
    return {name: value for name, value in written.items() if value not in (None, {}, "")}


_ASKED = {"authorization", "accept", "user-agent", "host", "content-length", "date", "accept-encoding"}


def _seen(found: dict[str, Any]) -> dict[str, Any]:
    root = _tree(found["body"])
    headers = {
        name: TICKS.sub("TICKS", value) if name == "etag" else value
        for name, value in found["headers"].items()
        if name in HEADERS or name not in STANDARD
    }
    written: dict[str, Any] = {"status": found["status"], "reason": found["reason"], "headers": headers}
    if root is not None and root.tag == "Error":
        written["said"] = root.findtext("Detail")
    elif root is not None:
        written |= _entries(root)
    else:
        written["body"] = found["body"]
    return {name: value for name, value in written.items() if value not in (None, {}, [], "")}


def _entries(root: ElementTree.Element) -> dict[str, Any]:
    kind = root.tag.rpartition("}")[2]
    entries = [root] if kind == "entry" else root.findall(f"{{{ATOM}}}entry")
    described = [
        [each.findtext(f"{{{ATOM}}}title") or "", node]
        for each in entries[:MOST_ENTRIES]
        if (node := _described(each)) is not None
    ]
    around = entries[0] if entries else root
    return {
        "kind": kind,
        "entries": described,
        "envelope": [child.tag.rpartition("}")[2] for child in around if child.tag != f"{{{ATOM}}}entry"],
    }


def _described(entry: ElementTree.Element | None) -> Node | None:
    content = None if entry is None else entry.find(f"{{{ATOM}}}content")
    return None if content is None or not len(content) else node_of(content[0])


def _tree(text: str | None) -> ElementTree.Element | None:
    if not text or not text.lstrip().startswith("<"):
        return None
    try:
        return ElementTree.fromstring(text.encode())
    except ElementTree.ParseError:
        return None


def main() -> None:
    """Read a file, write the recordings to standard output."""
    with open(sys.argv[1], encoding="utf-8") as lines:
        exchanges = [json.loads(line) for line in lines]
    for _, group in groupby(exchanges, key=lambda each: each["recording"]):
        sys.stdout.write(json.dumps(distilled(list(group)), ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
