"""Webhooks are ordered, signed, retried and bounded, and never block the client."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import socket
import threading
from types import SimpleNamespace

import httpx
import pytest
import respx

from sbpair.observation import Patience, SignatureRefusedError, Webhook, WebhookKind, WriterRole, verify
from sbpair.observation.webhook import THREAD_NAME
from sbpair.observation.webhook_delivery import sign
from sbpair.pairing.events import EntityFailedOver, EntityRecovered, EntitySuspected, PingSent
from sbpair.syphon.events import (
    BacklogCaughtUp,
    BacklogOverdue,
    LandingBegan,
    LandingEnded,
    LandingRefused,
    MessageSetAside,
)
from tests.lacking import THREAD, no_thread
from tests.waiting import PATIENCE, wait_until

URL = "https://hooks.example/sbpair?token=CANARY-in-the-url"
SECRET = "CANARY-0123456789"
FAILED_OVER = EntityFailedOver(1000.0, "orders", "interval ended")
RECOVERED = EntityRecovered(1000.0, "orders", "ping accepted")
QUICK = Patience(request_timeout=60.0, give_up_after=60.0, first_wait=0.001, longest_wait=0.01)

pytestmark = pytest.mark.usefixtures("no_thread_left")


class Waiting(Webhook):
    """A webhook that waits at its end until everything is delivered."""

    def close(self, within=PATIENCE):
        super().close(within)


@pytest.fixture
def receiver():
    with respx.mock(assert_all_called=False) as mock:
        yield mock.post(URL).respond(204)


@pytest.fixture
def make(pair, clock):
    made = []

    def webhook(url=URL, secret=SECRET, **options):
        settings = {"role": WriterRole.SENDER, "pair": pair, "patience": QUICK, "clock": clock} | options
        made.append(Waiting(url, secret, **settings))
        return made[-1]

    yield webhook
    for each in made:
        each.close(0.0)


def posted(receiver):
    return [json.loads(call.request.content) for call in receiver.calls]


def test_a_failover_and_a_failback_are_told_in_order(receiver, make):
    with make() as webhook:
        for event in (EntitySuspected(1000.0, "orders", "c"), FAILED_OVER, PingSent(1.0, "o", 1), RECOVERED):
            webhook.write(event)

    first, second = posted(receiver)
    assert (first["kind"], first["event"], first["path"]) == ("failover", "entity_failed_over", "orders")
    assert (second["kind"], second["event"]) == ("failback", "entity_recovered")
    assert [first["ordinal"], second["ordinal"]] == [0, 1]
    assert first["at"] == "2026-11-21T06:34:00.000Z"
    assert first["pair"] == {"primary": "contoso", "secondary": "contoso-dr"}
    headers = receiver.calls[0].request.headers
    assert headers["X-Sbpair-Event"] == "failover"
    assert headers["X-Sbpair-Delivery"] == first["id"] == f"{first['writer']}-0"
    assert (webhook.counters.delivered, webhook.counters.attempts) == (2, 2)


def test_a_false_alarm_is_told_to_nobody(receiver, make):
    with make() as webhook:
        webhook.write(EntitySuspected(1000.0, "orders", "c"))
        webhook.write(RECOVERED)

    assert posted(receiver) == []


def test_dead_letters_and_backlogs_that_age_or_catch_up_are_reported(receiver, make):
    backlog = "contoso/x-servicebus-transfer/0"
    with make(role=WriterRole.SYPHON) as webhook:
        webhook.write(MessageSetAside(1795242840.0, backlog, None, "PathMissing", "d"))
        webhook.write(BacklogOverdue(1795242841.0, backlog, 360.0, 300.0))
        webhook.write(BacklogCaughtUp(1795242842.0, backlog))

    dead, aged, fine = posted(receiver)
    assert (dead["kind"], dead["reason"], dead["backlog"]) == ("dead-letter", "PathMissing", 0)
    assert (aged["kind"], aged["event"], aged["age"], aged["threshold"]) == (
        "backlog-age",
        "backlog_overdue",
        360.0,
        300.0,
    )
    assert (fine["kind"], fine["event"]) == ("backlog-age", "backlog_caught_up")


@pytest.mark.spec("C-3")
def test_landing_is_reported_when_it_begins_ends_and_is_refused(receiver, make):
    with make(role=WriterRole.SYPHON) as webhook:
        webhook.write(LandingBegan(1795242840.0, "orders", 301.5))
        webhook.write(LandingRefused(1795242841.0, "bills", "not found", 30.0))
        webhook.write(LandingEnded(1795242842.0, "orders"))

    told = [(each["kind"], each["event"], each["path"]) for each in posted(receiver)]
    assert told == [
        ("landing", "landing_began", "orders"),
        ("landing", "landing_refused", "bills"),
        ("landing", "landing_ended", "orders"),
    ]


def test_only_the_kinds_asked_for_are_told(receiver, make):
    with make(on=[WebhookKind.FAILBACK]) as webhook:
        webhook.write(FAILED_OVER)
        webhook.write(RECOVERED)

    assert [each["kind"] for each in posted(receiver)] == ["failback"]


def test_the_receiver_can_verify_what_it_got(receiver, make, clock):
    with make() as webhook:
        webhook.write(FAILED_OVER)

    request = receiver.calls[0].request
    verify(request.headers["X-Sbpair-Signature"], request.content, SECRET, clock().epoch)


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_what_may_pass_is_tried_again_with_the_same_id_and_a_new_signature(receiver, make, clock, status):
    def late(request):
        clock.passed += 1
        return httpx.Response(status if len(receiver.calls) < 2 else 200)

    receiver.side_effect = late
    with make() as webhook:
        webhook.write(FAILED_OVER)
        webhook.write(RECOVERED)

    bodies = posted(receiver)
    assert [each["kind"] for each in bodies] == ["failover"] * 3 + ["failback"]
    assert len({each["id"] for each in bodies[:3]}) == 1
    stamps = [call.request.headers["X-Sbpair-Signature"] for call in receiver.calls]
    assert len(set(stamps[:3])) == 3
    assert (webhook.counters.delivered, webhook.counters.attempts) == (2, 4)


def test_a_connection_that_fails_is_tried_again(receiver, make):
    receiver.side_effect = [httpx.ConnectError("refused"), httpx.ReadTimeout("late"), httpx.Response(200)]
    with make() as webhook:
        webhook.write(FAILED_OVER)

    assert (webhook.counters.delivered, webhook.counters.attempts) == (1, 3)


@pytest.mark.parametrize("status", [400, 401, 404, 410, 301])
def test_a_refusal_is_not_tried_again_and_the_next_notice_goes_out(receiver, make, caplog, status):
    elsewhere = {"Location": URL} if status == 301 else {}
    receiver.side_effect = [httpx.Response(status, headers=elsewhere), httpx.Response(200)]
    with make() as webhook:
        webhook.write(FAILED_OVER)
        webhook.write(RECOVERED)

    assert [each["kind"] for each in posted(receiver)] == ["failover", "failback"]
    assert (webhook.counters.failed, webhook.counters.delivered) == (1, 1)
    assert f"HTTP status {status}" in caplog.text


def test_patience_has_an_end(receiver, make, clock, monkeypatch):
    def ten_seconds_later(request):
        clock.passed += 10
        return httpx.Response(503)

    monkeypatch.setattr("tenacity.time", SimpleNamespace(monotonic=lambda: clock().mono))
    receiver.side_effect = ten_seconds_later
    with make(patience=Patience(give_up_after=35.0, first_wait=0.001, longest_wait=0.01)) as webhook:
        webhook.write(FAILED_OVER)

    assert (webhook.counters.failed, webhook.counters.delivered) == (1, 0)
    assert webhook.counters.attempts == 4


class Odd:
    """A receiver on a socket that answers each request with ``parts``, slowly."""

    def __init__(self, head, part, pause):
        self.head, self.part, self.pause = head, part, pause
        self.sent, self.is_over = 0, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/hook"
        self.thread = threading.Thread(target=self.serve)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *what):
        self.is_over.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(PATIENCE)

    def serve(self):
        while not self.is_over.is_set():
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            with peer:
                self.answer(peer)

    def answer(self, peer):
        try:
            peer.recv(65_536)
            peer.sendall(self.head)
            while not self.is_over.wait(self.pause):
                peer.sendall(self.part)
                self.sent += len(self.part)
        except OSError:
            pass  # who asked has gone


@pytest.mark.spec("R-29")
def test_a_byte_now_and_then_does_not_keep_a_request_alive(make):
    with (
        Odd(b"", b"H", 0.05) as receiver,
        make(
            receiver.url, patience=Patience(request_timeout=0.3, give_up_after=0.01, first_wait=0.001)
        ) as webhook,
    ):
        webhook.write(FAILED_OVER)
        webhook.close()

    assert (webhook.counters.failed, webhook.counters.dropped) == (1, 0)


@pytest.mark.spec("R-29")
def test_the_body_of_an_answer_is_not_read(make):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n"
    with Odd(head, bytes(1_000_000), 0) as receiver, make(receiver.url) as webhook:
        webhook.write(FAILED_OVER)
        webhook.close()
        assert webhook.counters.delivered == 1
        assert receiver.sent < 50_000_000  # what the sockets between us hold


def test_a_full_queue_drops_its_oldest_and_counts_it(receiver, make):
    arrived, go_on = threading.Event(), threading.Event()

    def slow(request):
        arrived.set()
        assert go_on.wait(PATIENCE)
        return httpx.Response(200)

    receiver.side_effect = slow
    with make(capacity=2) as webhook:
        webhook.write(FAILED_OVER)
        assert arrived.wait(PATIENCE)
        for _ in range(2):
            webhook.write(RECOVERED)
            webhook.write(FAILED_OVER)
        go_on.set()

    assert [each["ordinal"] for each in posted(receiver)] == [0, 3, 4]
    assert (webhook.counters.dropped, webhook.counters.delivered) == (2, 3)


def test_closing_is_bounded_and_drops_what_nobody_takes(receiver, make):
    receiver.respond(503)
    webhook = make(patience=Patience(first_wait=60.0, longest_wait=60.0))
    webhook.write(FAILED_OVER)
    webhook.write(RECOVERED)
    webhook.close(0.05)

    wait_until(
        lambda: webhook.counters.dropped == 2
    )  # on a slow machine, a little after close gave up on the thread
    assert webhook.counters.delivered == 0


def test_after_close_notices_are_dropped(receiver, make):
    webhook = make()
    webhook.close()
    webhook.write(FAILED_OVER)

    assert (webhook.counters.dropped, posted(receiver)) == (1, [])


@pytest.mark.spec("R-29")
def test_a_client_that_cannot_be_made_is_tried_again_at_the_next_notice(receiver, make, monkeypatch, caplog):
    genuine, failures = httpx.AsyncClient, iter([OSError("no descriptor is left")])

    def client(**options):
        for failure in failures:
            raise failure
        return genuine(**options)

    monkeypatch.setattr(httpx, "AsyncClient", client)
    with make() as webhook:
        webhook.write(FAILED_OVER)
        wait_until(lambda: not webhooks_that_run())
        webhook.write(RECOVERED)

    assert [each["kind"] for each in posted(receiver)] == ["failover", "failback"]
    assert (webhook.counters.delivered, webhook.counters.dropped) == (2, 0)
    assert "https://hooks.example cannot deliver (OSError); the next notice tries again" in caplog.text


@pytest.mark.spec("R-29")
def test_notices_of_a_client_that_could_never_be_made_are_dropped_at_the_close(make, monkeypatch):
    def client(**_):
        raise OSError("no descriptor is left")

    monkeypatch.setattr(httpx, "AsyncClient", client)
    with make() as webhook:
        webhook.write(FAILED_OVER)
        wait_until(lambda: not webhooks_that_run())

    assert (webhook.counters.delivered, webhook.counters.dropped) == (0, 1)


@pytest.mark.spec("R-29")
def test_a_thread_that_cannot_start_is_tried_again_at_the_next_notice(receiver, make, monkeypatch):
    with make() as webhook:
        with monkeypatch.context() as patched:
            patched.setattr(THREAD, no_thread)
            with pytest.raises(RuntimeError):
                webhook.write(FAILED_OVER)
        webhook.write(RECOVERED)

    assert [each["kind"] for each in posted(receiver)] == ["failover", "failback"]


def webhooks_that_run():
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


@pytest.mark.spec("S-12")
def test_neither_url_nor_secret_is_logged_or_shown(receiver, make, caplog):
    caplog.set_level(logging.DEBUG)
    receiver.side_effect = [httpx.Response(400), httpx.ConnectError("x"), httpx.Response(200)]
    with make() as webhook:
        webhook.write(FAILED_OVER)
        webhook.write(RECOVERED)

    shown = caplog.text + repr(webhook) + repr(vars(webhook)) + str(posted(receiver))
    assert "CANARY" not in shown


@pytest.mark.parametrize("url", ["hooks.example", "ftp://hooks.example", "https://", "https://[", ""])
def test_a_url_that_cannot_work_is_refused(make, url):
    with pytest.raises(ValueError, match="must be http:// or https:// followed by a host"):
        make(url)


def test_settings_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match="at least 16 characters"):
        make(secret="short")
    with pytest.raises(ValueError, match="capacity must be at least 1, not 0"):
        make(capacity=0)
    with pytest.raises(ValueError, match="give_up_after must be above 0 s"):
        Patience(give_up_after=0)


@pytest.mark.spec("F-19")
def test_a_forked_child_tells_its_own_notices(receiver, make):
    arrived, go_on, parent = threading.Event(), threading.Event(), os.getpid()

    def slow_in_the_parent(request):
        if os.getpid() == parent:
            arrived.set()
            assert go_on.wait(PATIENCE)
        return httpx.Response(200)

    receiver.side_effect = slow_in_the_parent
    webhook = make()
    webhook.write(FAILED_OVER)
    assert arrived.wait(PATIENCE)
    webhook.write(RECOVERED)  # waits behind it at the instant of the fork

    def in_child():
        before = len(receiver.calls)
        webhook.write(RECOVERED)  # for this writer nothing has failed over
        webhook.write(FAILED_OVER)
        webhook.close()
        said = posted(receiver)[before:]
        raise SystemExit(0 if [each["ordinal"] for each in said] == [0] else 1)

    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join(60)
    child.kill()
    assert child.exitcode == 0
    go_on.set()
    webhook.close()
    assert webhook.counters.delivered == 2


def test_a_changed_body_an_old_stamp_and_a_strange_header_are_refused():
    header = sign(b"{}", SECRET, 1000.0)
    verify(header, b"{}", SECRET, 1299.0)

    with pytest.raises(SignatureRefusedError, match="does not match"):
        verify(header, b"{ }", SECRET, 1000.0)
    with pytest.raises(SignatureRefusedError, match="does not match"):
        verify(header, b"{}", SECRET + "x", 1000.0)
    with pytest.raises(SignatureRefusedError, match="does not match"):
        verify(header.replace("t=1000", "t=1001"), b"{}", SECRET, 1000.0)
    with pytest.raises(SignatureRefusedError, match="by 400 s"):
        verify(header, b"{}", SECRET, 1400.0)
    for strange in ("", "t=1000", "v1=ab", "t=x,v1=ab", "t=²,v1=ab", "t=-1,v1=a", "t=1000,v1=é"):
        with pytest.raises(SignatureRefusedError):
            verify(strange, b"{}", SECRET, 1000.0)
