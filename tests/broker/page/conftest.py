"""A broker with its page, and one browser for all tests of a worker."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest

from sbpair.broker import Broker
from sbpair.broker.server.dashboard import Page
from tests.broker.page.chromium import Chromium

Asked = tuple[int, dict]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@pytest.fixture
def browser(chromium: Chromium, page: Page) -> Iterator[Chromium]:
    """The browser; a test fails on console errors, such as violations of the content security policy.

    It leaves the page before the broker stops: the page polls, and failed requests are console errors.
    """
    chromium.complaints.clear()
    chromium.requests.clear()
    chromium.resize(1280, 900)
    yield chromium
    chromium.open("about:blank")
    assert chromium.complaints == []


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as made:
        yield made


@pytest.fixture
def contoso(broker):
    return broker.namespace("contoso")


@pytest.fixture
def page(broker) -> Iterator[Page]:
    with Page(broker) as served:
        yield served


@pytest.fixture
def ask(page) -> Callable[..., Asked]:
    """Request a URL as the page's script does; return status and JSON."""

    def asked(name: str, token: str | None = None, **query: object) -> Asked:
        url = f"{page.address}/api/{name}?{urlencode(query)}"
        shown = {"Authorization": f"Bearer {page.token if token is None else token}"}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=shown), timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            text = refused.read()
            return refused.code, json.loads(text) if text.startswith(b"{") else {}

    return asked
