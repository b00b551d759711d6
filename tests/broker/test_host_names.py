"""With open access, only the host names in a request distinguish a local client from a web page."""

from __future__ import annotations

import pytest

from sbpair.broker.server.host_names import comes_from_this_broker, names_this_broker

pytestmark = pytest.mark.spec("R-48")


@pytest.mark.parametrize(
    ("authority", "is_ours"),
    [
        ("localhost", True),
        ("localhost:5672", True),
        ("LOCALHOST:5672", True),
        ("127.0.0.1:5672", True),
        ("127.1.2.3", True),
        ("[::1]:5672", True),
        ("my.localhost:80", True),
        ("contoso", True),
        ("Contoso:5672", True),
        ("contoso.servicebus.windows.net", True),
        ("evil.example", False),
        ("evil.example:5672", False),
        ("localhost.evil.example", False),
        ("notlocalhost", False),
        ("127.0.0.1.evil.example", False),
        ("contoso.evil.example", False),
        ("other.servicebus.windows.net", False),
        ("x.contoso.servicebus.windows.net", False),
        ("192.168.1.7", False),
        ("0.0.0.0", False),
        ("localhost@evil.example", False),
        ("evil.example#localhost", False),
        ("", False),
        ("[::1", False),
        ("a" * 60_000 + ".localhost", False),
    ],
)
def test_a_host_name_is_accepted_if_no_web_page_can_have_it(authority, is_ours):
    assert names_this_broker(authority, "127.0.0.1", ("contoso",)) is is_ours


@pytest.mark.parametrize(
    ("authority", "is_ours"),
    [
        ("broker:5672", True),
        ("192.168.1.7:5672", True),
        ("build.example", True),
        ("localhost", True),
        ("evil.example", False),
        ("", False),
    ],
)
def test_a_broker_listening_beyond_loopback_accepts_its_external_names(authority, is_ours):
    assert names_this_broker(authority, "build.example", ("contoso",)) is is_ours


@pytest.mark.parametrize(
    ("origin", "is_ours"),
    [
        (None, True),
        ("http://localhost:3000", True),
        ("http://127.0.0.1", True),
        ("https://evil.example", False),
        ("null", False),
        ("", False),
    ],
)
def test_a_request_from_a_foreign_web_page_is_refused(origin, is_ours):
    assert comes_from_this_broker(origin, "127.0.0.1", ("contoso",)) is is_ours
