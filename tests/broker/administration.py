"""Requests to the administration API, and what is in its responses, without a socket."""

from __future__ import annotations

from functools import partial
from xml.etree import ElementTree

from sbpair.broker.entities import (
    Namespace,
    QueueDescription,
)
from sbpair.broker.frontends.admin import atom, requests
from sbpair.broker.frontends.admin.requests import Request, Response

NOW = 1_800_000_000_000
standard = partial(QueueDescription, max_message_size_in_kilobytes=256)
VERSION = "api-version=2024-05"
HOST = {"host": "localhost:5300"}
NEVER = "P10675199DT2H48M5.4775807S"
ATOM, SERVICE_BUS, COUNTS = f"{{{atom.ATOM}}}", f"{{{atom.SERVICE_BUS}}}", f"{{{atom.COUNTS}}}"
BACKLOG = {  # P-11
    "LockDuration": "PT1M",
    "MaxSizeInMegabytes": "5120",
    "DefaultMessageTimeToLive": NEVER,
    "DeadLetteringOnMessageExpiration": "true",
    "MaxDeliveryCount": "2147483647",
    "EnableBatchedOperations": "true",
    "AutoDeleteOnIdle": NEVER,
}


def body_of(fields: dict[str, str] | None = None, kind: str = "QueueDescription") -> bytes:
    inner = "".join(f"<{name}>{text}</{name}>" for name, text in (fields or {}).items())
    described = f'<{kind} xmlns="{atom.SERVICE_BUS}">{inner}</{kind}>'
    return (
        f'<entry xmlns="{atom.ATOM}"><content type="application/xml">{described}</content></entry>'.encode()
    )


def request(method: str, path: str, body: bytes = b"", query: str = VERSION, **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(method, path, query, HOST | named, body)


def put(namespace: Namespace, path: str, fields: dict[str, str] | None = None, now: int = NOW) -> Response:
    return requests.answer(namespace, request("PUT", path, body_of(fields)), now)


def update(namespace: Namespace, path: str, fields: dict[str, str] | None = None, now: int = NOW) -> Response:
    return requests.answer(namespace, request("PUT", path, body_of(fields), if_match="*"), now)


def get(namespace: Namespace, path: str, query: str = VERSION, now: int = NOW) -> Response:
    return requests.answer(namespace, request("GET", path, query=query), now)


def description_in(response: Response) -> ElementTree.Element:
    found = ElementTree.fromstring(response.body).find(f".//{SERVICE_BUS}QueueDescription")
    assert found is not None
    return found


def field_of(response: Response, name: str) -> str | None:
    return description_in(response).findtext(SERVICE_BUS + name)


def refused(response: Response, status: int, part: str) -> None:
    root = ElementTree.fromstring(response.body)
    assert (response.status, root.tag, root.findtext("Code")) == (status, "Error", str(status)), response.body
    detail = root.findtext("Detail")
    assert detail is not None
    assert part in detail
    assert "TrackingId:" in detail
    assert "Traceback" not in detail


# -- one queue
