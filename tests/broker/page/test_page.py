"""The broker's page in a real browser, with real data."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair.broker import Broker, RejectWith, ShiftedClock
from sbpair.broker.server.dashboard import Page
from sbpair.observation import Journal, PairLabels, WriterRole
from sbpair.pair.observation.journal_reading import JournalTail
from sbpair.pair.pairing.events import EntityFailedOver, EntityRecovered, EntitySuspected, MessageParked
from sbpair.pair.syphon.events import LandingBegan, LandingEnded, MessagesForwarded

pytestmark = pytest.mark.interop

HOSTILE = """<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>"""

CONTRASTS = Path(__file__).with_name("contrasts.js").read_text("utf-8")


def send(namespace, path, *messages):
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
        client.get_queue_sender(path) as sender,
    ):
        for message in messages:
            sender.send_messages(message)


def opened(browser, page, path="") -> None:
    browser.open(page.url)
    browser.wait_for_text("Live")
    if path:
        browser.open(f"{page.address}/#{path}")


def test_the_page_shows_namespaces_and_entities_with_live_counts(browser, page, contoso):
    contoso.create_queue("orders")
    contoso.create_topic("events")
    contoso.create_subscription("events", "billing")
    opened(browser, page)
    browser.wait_for_text("contoso-dr")
    browser.wait_for_text("billing")
    cells = (
        "[...document.querySelectorAll('tbody tr')].find(r => r.innerText.startsWith('orders'))?.innerText"
    )
    assert "Active" in browser.wait_for(cells)
    send(contoso, "orders", *(ServiceBusMessage("hello") for _ in range(7)))
    browser.wait_for(f"/\\b7\\b/.test({cells})")
    send(contoso, "orders", ServiceBusMessage("one more"))
    browser.wait_for(f"/\\b8\\b/.test({cells})")


@pytest.mark.parametrize(
    ("path", "seen"), [("/%E0%A4%A", "contoso-dr"), ("/connections/%", "No connections")]
)
def test_an_unparsable_address_is_shown_as_written(browser, page, contoso, path, seen):
    opened(browser, page, path)
    browser.wait_for_text(seen)
    assert "does not answer" not in browser.text()


def test_a_partition_that_is_down_is_described_in_words(browser, page, contoso):
    contoso.create_queue("spread", enable_partitioning=True)
    with contoso.partition("spread", 5).take_down(), contoso.partition("spread", 9).throttle():
        opened(browser, page)
        browser.wait_for_text("Limited")
        browser.open(f"{page.address}/#/entity/contoso/spread")
        browser.wait_for_text("5 · down")
        browser.wait_for_text("9 · throttled")
        browser.wait_for_text("15 · up")


def test_untrusted_text_is_shown_as_plain_text(browser, page, contoso):
    contoso.create_queue("orders")
    hostile = ServiceBusMessage(HOSTILE, message_id=HOSTILE[:90], subject=HOSTILE,
                                application_properties={HOSTILE: HOSTILE})  # fmt: skip
    send(contoso, "orders", hostile)
    opened(browser, page, "/entity/contoso/orders")
    browser.click(".row-button")
    browser.wait_for_text("Application properties")
    assert browser.text().count("onerror=") >= 5  # id, subject, property, value and body, all readable
    assert browser.value("document.querySelector('pre').textContent") == HOSTILE
    assert browser.value("document.querySelectorAll('main img, main script').length") == 0
    assert browser.value("document.title") == "sbpair broker"
    browser.open(f"{page.address}/#/entity/contoso/{'%3Cimg%20src=x%20onerror=alert(1)%3E'}")
    browser.wait_for_text("could not be found")
    assert browser.value("document.querySelectorAll('main img').length") == 0
    # Until it is left, the page polls for the missing entity, and each poll is one more complaint.
    browser.open("about:blank")
    browser.complaints[:] = [each for each in browser.complaints if "404" not in each]


def test_json_is_indented_and_bytes_are_shown_in_hexadecimal(browser, page, contoso):
    contoso.create_queue("orders")
    send(contoso, "orders", ServiceBusMessage(json.dumps({"order": 1, "lines": [2]})),
         ServiceBusMessage(b"\xff\x00\x10"))  # fmt: skip
    opened(browser, page, "/entity/contoso/orders")
    browser.click(".row-button")
    browser.wait_for("document.querySelector('pre')?.textContent.includes('\\n  \"order\": 1')")
    browser.click("tr:nth-child(3) .row-button")
    browser.wait_for("document.querySelector('pre')?.textContent === 'ff 00 10'")


def test_a_late_answer_is_not_shown_as_another_message(browser, page, contoso):
    contoso.create_queue("orders")
    send(contoso, "orders", ServiceBusMessage("the first"), ServiceBusMessage("the second"))
    opened(browser, page, "/entity/contoso/orders")
    browser.wait_for("document.querySelectorAll('.row-button').length === 2")
    browser.value("""{
        const ask = fetch, open = new Promise((resolve) => { window.answer = resolve; });
        window.fetch = async (url, how) => {
            const said = await ask(url, how);
            if (/api.message\\?.*number=1$/.test(url)) { window.isAsked = true; await open; }
            return said;
        };
    }""")
    browser.click(".row-button")
    browser.wait_for("window.isAsked")
    browser.value("document.querySelectorAll('.row-button')[1].click()")
    browser.value("window.answer()")
    browser.wait_for("document.querySelector('pre')?.textContent === 'the second'")


@pytest.mark.spec("T-21")
def test_viewing_the_page_changes_nothing(browser, page, contoso):
    contoso.create_queue("orders")
    send(contoso, "orders", ServiceBusMessage("hello"))
    entity = contoso.inspect(lambda server: server.frontend.namespace.queue("orders"))
    before = (entity.accessed_at, contoso.counts("orders"), contoso.operations)
    opened(browser, page, "/entity/contoso/orders")
    browser.click(".row-button")
    browser.wait_for("!!document.querySelector('pre')")
    assert (entity.accessed_at, contoso.counts("orders"), contoso.operations) == before
    assert entity.peek(1, 1, 0)[0].delivery_count == 0


def test_refused_operations_are_shown_with_the_reason(browser, page, contoso):
    contoso.create_queue("orders")
    refused = pytest.raises(ServiceBusError, match="Refused by a fault")
    with contoso.fault("orders", RejectWith("amqp:internal-error"), times=1), refused:
        send(contoso, "orders", ServiceBusMessage("never taken"))
    with pytest.raises(ServiceBusError):
        send(contoso, "nowhere", ServiceBusMessage("never taken"))
    opened(browser, page, "/rejections")
    browser.wait_for_text("Refused by a fault")
    browser.wait_for_text("/nowhere' could not be found")
    assert "SharedAccessKey" not in browser.text()
    key = contoso.connection_string.split("SharedAccessKey=")[1].split(";")[0]
    assert key not in browser.value("document.documentElement.outerHTML")


def test_connected_clients_are_shown_with_their_links(browser, page, contoso):
    contoso.create_queue("orders")
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        receiver.receive_messages(max_wait_time=0.1)
        opened(browser, page, "/connections")
        browser.wait_for_text("receives from orders")


def test_the_page_answers_while_a_namespace_does_not(browser, page, contoso):
    contoso.take_down("silent")
    opened(browser, page)
    browser.wait_for_text("Down (silent)")
    contoso.bring_up()
    browser.wait_for("!document.body.innerText.includes('Down')")


def test_the_journal_gives_the_story_of_an_outage(browser, broker, tmp_path):
    pair = PairLabels("contoso", "contoso-dr")
    with Page(broker, records=JournalTail(tmp_path).new_records) as page:
        opened(browser, page)
        browser.wait_for_text("The journals have no events yet.")
        with Journal(tmp_path, role=WriterRole.SENDER, pair=pair) as journal:
            journal.write(EntitySuspected(at=1.0, path="orders", cause="the connection failed"))
            journal.write(EntityFailedOver(at=2.0, path="orders", cause="the failover interval passed"))
            for number in (0, 1, 2):
                journal.write(
                    MessageParked(
                        at=3.0 + number, path="orders", backlog=1, count=2,
                        message_ids=("a", "b"), ambiguous=False,
                    )
                )  # fmt: skip
            browser.wait_for_text("1 not on the primary")
            browser.wait_for_text("the failover interval passed")
            browser.wait_for_text("Parked in a backlog queue · 6 messages")
            journal.write(EntityRecovered(at=9.0, path="orders", cause="a ping was accepted"))
            browser.wait_for_text("All on the primary")
        states = "[...document.querySelectorAll('.ribbon rect')].map(r => r.getAttribute('class')).join()"
        assert browser.value(states) == "is-healthy,is-suspect,is-failed_over,is-healthy"


@pytest.mark.spec("C-3")
def test_landing_is_shown_while_it_lasts_and_landed_messages_are_marked(browser, broker, tmp_path):
    pair, backlog = PairLabels("contoso", "contoso-dr"), "contoso/x-servicebus-transfer/0"
    with Page(broker, records=JournalTail(tmp_path).new_records) as page:
        opened(browser, page)
        with Journal(tmp_path, role=WriterRole.SENDER, pair=pair) as sender:
            sender.write(EntityFailedOver(at=1.0, path="orders", cause="the failover interval passed"))
        with Journal(tmp_path, role=WriterRole.SYPHON, pair=pair) as syphon:
            syphon.write(LandingBegan(2.0, "orders", 301.0))
            syphon.write(MessagesForwarded(3.0, backlog, "orders", ("a", "b"), "secondary"))
            browser.wait_for_text("1 landing on the secondary")
            browser.wait_for_text("Landed on the secondary · 2 messages")
            assert "Lands on the secondary" in browser.value("document.querySelector('.ribbon').innerText")
            syphon.write(LandingEnded(4.0, "orders"))
            syphon.write(MessagesForwarded(5.0, backlog, "orders", ("c",)))
            browser.wait_for_text("Brought home by the syphon · 1 message")
            browser.wait_for("!document.body.innerText.includes('1 landing on the secondary')")


def test_the_page_loads_nothing_from_third_parties_and_has_a_strict_policy(browser, page, contoso):
    contoso.create_queue("orders")
    opened(browser, page, "/entity/contoso/orders")
    browser.wait_for_text("Settings")
    assert browser.requests
    assert [url for url in browser.requests if not url.startswith((page.address, "about:"))] == []
    assert not any(page.token in url for url in browser.requests[1:])  # once, when signing in
    blocked = "fetch('http://127.0.0.1:9/').then(() => 'open', () => 'blocked')"
    assert browser.value(blocked) == "blocked"
    assert browser.complaints  # reported by the content security policy
    assert browser.value("document.cookie") == ""  # HttpOnly
    assert "proof" not in browser.value("location.href")
    browser.open("about:blank")
    browser.complaints.clear()


def test_the_page_fits_a_phone_without_horizontal_scrolling(browser, page, contoso):
    contoso.create_queue("a-queue/with/" + "a-very-long-name-" * 8 + "x", enable_partitioning=True)
    browser.resize(360, 740)
    opened(browser, page)
    for path in (
        "/",
        "/connections",
        "/rejections",
        f"/entity/contoso/{contoso.queue_names()[0].replace('/', '%2F')}",
    ):
        browser.open(f"{page.address}/#{path}")
        browser.wait_for_text("a-very-long-name" if path == "/" or "entity" in path else "contoso")
        assert browser.value("document.documentElement.scrollWidth - innerWidth") <= 0, path


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_is_legible_in_light_and_dark_mode(browser, page, contoso, dark):
    contoso.create_queue("orders", enable_partitioning=True)
    with contoso.partition("orders", 1).take_down(), contoso.partition("orders", 2).throttle():
        browser.resize(1280, 900, dark=dark)
        opened(browser, page)
        browser.wait_for_text("Limited")
        assert browser.value(CONTRASTS) == ""
        browser.open(f"{page.address}/#/entity/contoso/orders")
        browser.wait_for_text("2 · throttled")
        assert browser.value(CONTRASTS) == ""


def test_every_graphic_and_control_has_a_name_and_there_is_one_main_landmark(browser, page, contoso):
    contoso.create_queue("orders")
    opened(browser, page)
    browser.wait_for_text("orders")
    tree = browser.ask("Accessibility.getFullAXTree")["nodes"]
    roles = [
        (node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node["ignored"]
    ]
    for role in ("image", "button", "searchbox", "link", "region", "table", "navigation"):
        assert [name for kind, name in roles if kind == role and not name] == [], role
    assert sum(role == "main" for role, _ in roles) == 1


def test_pausing_freezes_the_page_and_keeps_the_focus(browser, page, contoso):
    contoso.create_queue("orders")
    opened(browser, page)
    browser.wait_for_text("orders")
    browser.value("document.querySelector('#find-contoso').focus()")
    contoso.create_queue("another")
    browser.wait_for_text("another")
    assert browser.value("document.activeElement.id") == "find-contoso"
    browser.click("#pause")
    browser.wait_for_text("Paused")
    contoso.create_queue("later")
    asked = len(browser.requests)
    browser.value("new Promise(done => setTimeout(done, 1500))")
    assert "later" not in browser.text()
    assert len(browser.requests) == asked


@pytest.mark.spec("R-64")
def test_a_narrow_screen_shows_dead_letters_and_state_without_scrolling(browser, page, contoso):
    contoso.create_queue("orders/of/a/region/with-a-long-name", requires_duplicate_detection=True)
    browser.resize(420, 900)
    opened(browser, page)
    browser.wait_for_text("Dead letters")
    for heading in ("Active", "Dead letters", "State"):
        edges = browser.value(
            f"[...document.querySelectorAll('thead th')].filter(t => t.innerText === '{heading}')"
            ".map(t => t.getBoundingClientRect().right)"
        )
        assert 0 < max(edges, default=0) <= 420, heading
    assert browser.value("document.documentElement.scrollWidth") <= 420


@pytest.mark.spec("R-64")
def test_sessions_are_listed_with_their_messages_lock_and_state(browser, page, contoso):
    contoso.create_queue("carts", requires_session=True)
    send(contoso, "carts", *(ServiceBusMessage("x", session_id=name) for name in ("ann", "bob", "bob")))
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_receiver("carts", session_id="ann") as receiver,
    ):
        receiver.session.set_state(b"seen")
        opened(browser, page, "/entity/contoso/carts")
        browser.wait_for_text("Sessions 2")
        browser.value(
            "[...document.querySelectorAll('.tabs button')].find(b => /^Sessions/.test(b.innerText)).click()"
        )
        browser.wait_for_text("locked until")
        rows = browser.value("[...document.querySelectorAll('tbody tr')].map(r => r.innerText)")
    assert [row.split()[:2] for row in sorted(rows)] == [["ann", "1"], ["bob", "2"]]
    assert "4 B, set" in next(row for row in rows if row.startswith("ann"))
    assert "free" in next(row for row in rows if row.startswith("bob"))


@pytest.mark.spec("R-64")
def test_recent_refusals_are_highlighted(browser):
    with Broker({"contoso": 0}, clock=ShiftedClock()) as driven, Page(driven) as page:
        with pytest.raises(ServiceBusError):
            send(driven.namespace("contoso"), "nowhere", ServiceBusMessage("x"))
        opened(browser, page)
        browser.wait_for("!!document.querySelector('nav .count')")
        driven.advance(timedelta(minutes=6))
        browser.wait_for("!document.querySelector('nav .count')")
        browser.open(f"{page.address}/#/rejections")
        browser.wait_for_text("0 in five minutes, 1 in an hour, 1 since the start")
        browser.open("about:blank")
