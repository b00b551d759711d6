"""Sending, purging and resubmitting on the page by mouse and keyboard, in a real browser."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.broker.page.test_page import CONTRASTS, HOSTILE, opened, send

pytestmark = pytest.mark.interop

PART = "[...document.querySelectorAll('.tabs button')].find(b => b.innerText.startsWith('{}')).click()"
SAID = "document.querySelector('#act-said')?.innerText"


def dead_letter(namespace, path: str, count: int) -> None:
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_receiver(path) as receiver,
    ):
        left = count
        while left:
            for message in receiver.receive_messages(left, max_wait_time=10):
                receiver.dead_letter_message(message, reason="NoSuchCustomer")
                left -= 1


def press(browser, key: str) -> None:
    code = {"Enter": 13, " ": 32}[key]
    text = {"Enter": "\r", " ": " "}[key]
    for kind in ("keyDown", "keyUp"):
        browser.ask(
            "Input.dispatchKeyEvent", type=kind, key=key, text=text if kind == "keyDown" else "",
            windowsVirtualKeyCode=code,
        )  # fmt: skip


def type_in(browser, selector: str, text: str) -> None:
    browser.value(f"document.querySelector('{selector}').focus()")
    browser.ask("Input.insertText", text=text)


@pytest.mark.spec("R-195")
def test_a_message_is_written_and_sent_by_keyboard_while_the_page_refreshes(browser, page, contoso):
    contoso.create_queue("orders")
    opened(browser, page, "/entity/contoso/orders")
    browser.wait_for_text("No messages.")
    browser.value("document.querySelector('#act-send').focus()")
    press(browser, "Enter")
    browser.wait_for("document.activeElement.id === 'act-body'")
    browser.ask("Input.insertText", text="hello")
    type_in(browser, "[name=subject]", HOSTILE)
    type_in(browser, "[name=properties]", '{"attempt": 1}')
    send(contoso, "orders", ServiceBusMessage("another"))  # the page is rendered again
    browser.wait_for("document.querySelectorAll('.row-button').length === 1")
    assert browser.value("document.querySelector('#act-body').value") == "hello"
    type_in(browser, "[name=message_id]", "m1")
    press(browser, "Enter")
    browser.wait_for(f"{SAID} === 'Sent: number 2.'")
    browser.wait_for("document.querySelectorAll('.row-button').length === 2")
    assert contoso.message_ids("orders")[1] == "m1"
    assert browser.value("document.activeElement.name") == "message_id"
    assert browser.value("document.title") == "sbpair broker"


@pytest.mark.spec("R-195")
def test_a_refused_message_shows_the_reason_and_keeps_the_text(browser, page, contoso):
    contoso.create_queue("orders", status="SendDisabled")
    opened(browser, page, "/entity/contoso/orders")
    browser.click("#act-send")
    browser.wait_for("document.activeElement.id === 'act-body'")
    type_in(browser, "[name=properties]", "{")
    browser.click("form.draft button.main")
    browser.wait_for(f"{SAID}?.includes('are not JSON')")
    browser.value("document.querySelector('[name=properties]').value = ''")
    browser.click("form.draft button.main")
    browser.wait_for(f"{SAID}?.includes('SendDisabled') || {SAID}?.includes('disabled')")
    assert browser.value("document.querySelector('#act-said').getAttribute('role')") == "alert"
    browser.complaints[:] = [each for each in browser.complaints if "400" not in each]


@pytest.mark.spec("R-195")
def test_a_session_id_is_asked_for_only_where_required(browser, page, contoso):
    contoso.create_queue("carts", requires_session=True)
    opened(browser, page, "/entity/contoso/carts")
    browser.click("#act-send")
    browser.wait_for("document.querySelector('[name=session_id]')?.required")
    browser.click("form.draft button.main")
    assert contoso.counts("carts").active == 0
    type_in(browser, "[name=session_id]", "ann")
    browser.click("form.draft button.main")
    browser.wait_for(f"{SAID} === 'Sent: number 1.'")


@pytest.mark.spec("R-195")
def test_a_purge_asks_for_confirmation_with_the_number(browser, page, contoso):
    contoso.create_queue("orders")
    send(contoso, "orders", *(ServiceBusMessage("x") for _ in range(3)))
    opened(browser, page, "/entity/contoso/orders")
    browser.click("#act-purge")
    browser.wait_for("document.activeElement.id === 'act-yes'")
    browser.value("[...document.querySelectorAll('.question button')].at(-1).click()")
    browser.wait_for("!document.querySelector('.question')")
    assert browser.value("document.activeElement.id") == "act-purge"
    assert contoso.counts("orders").active == 3
    browser.click("#act-purge")
    browser.wait_for("document.activeElement.id === 'act-yes'")
    press(browser, " ")
    browser.wait_for(f"{SAID} === '3 messages deleted.'")
    browser.wait_for_text("No messages.")
    browser.wait_for("document.activeElement.id === 'act-said'")
    assert contoso.counts("orders").active == 0


@pytest.mark.spec("R-195")
def test_dead_letters_are_resubmitted_singly_and_all_at_once(browser, page, contoso):
    contoso.create_queue("orders")
    send(contoso, "orders", *(ServiceBusMessage(f"{n}", message_id=f"m{n}") for n in range(3)))
    dead_letter(contoso, "orders", 3)
    opened(browser, page, "/entity/contoso/orders")
    browser.wait_for_text("Dead letters 3")
    browser.value(PART.format("Dead letters"))
    browser.wait_for_text("NoSuchCustomer")
    browser.click(".row-button")
    browser.click(".resubmit button")
    browser.wait_for(f"{SAID} === 'Resubmitted number 1.'")
    browser.wait_for_text("Dead letters 2")
    browser.click("#act-resubmit")
    browser.wait_for("document.activeElement.id === 'act-yes'")
    press(browser, "Enter")
    browser.wait_for(f"{SAID} === '2 messages resubmitted.'")
    counts = contoso.counts("orders")
    assert (counts.active, counts.dead_letter) == (3, 0)


@pytest.mark.spec("R-195")
def test_a_session_shows_its_state_and_its_holder(browser, page, contoso):
    contoso.create_queue("carts", requires_session=True)
    send(contoso, "carts", ServiceBusMessage("x", session_id="ann"), ServiceBusMessage("x", session_id="bob"))
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_receiver("carts", session_id="ann", client_identifier="till-7") as receiver,
    ):
        receiver.session.set_state(HOSTILE.encode())
        opened(browser, page, "/entity/contoso/carts")
        browser.wait_for_text("Sessions 2")
        browser.value(PART.format("Sessions"))
        browser.wait_for_text("locked until")
        rows = browser.value("[...document.querySelectorAll('tbody tr')].map(r => r.innerText)")
        ann = next(row for row in rows if row.startswith("ann"))
        assert "by till-7" in ann
        assert HOSTILE in ann
        assert "free" in next(row for row in rows if row.startswith("bob"))
    browser.wait_for("[...document.querySelectorAll('tbody tr')].every(r => r.innerText.includes('free'))")
    assert browser.value("document.title") == "sbpair broker"


@pytest.mark.spec("R-64", "R-195")
@pytest.mark.parametrize("dark", [False, True])
def test_the_whole_page_is_legible_on_a_narrow_screen(browser, page, contoso, dark):
    contoso.create_queue("orders")
    send(contoso, "orders", *(ServiceBusMessage("x") for _ in range(2)))
    dead_letter(contoso, "orders", 1)
    browser.resize(420, 900, dark=dark)
    opened(browser, page, "/entity/contoso/orders")
    whole = """[document.documentElement, ...document.querySelectorAll('.scroll')]
        .every(e => e.scrollWidth <= e.clientWidth) && document.documentElement.scrollWidth <= 420"""
    browser.click("#act-send")
    browser.wait_for("document.activeElement.id === 'act-body'")
    assert browser.value(whole)
    assert browser.value(CONTRASTS) == ""
    browser.value(PART.format("Dead letters"))
    browser.wait_for_text("NoSuchCustomer")
    browser.click("#act-resubmit")
    browser.wait_for("document.activeElement.id === 'act-yes'")
    browser.click(".row-button")
    browser.wait_for("!!document.querySelector('.resubmit')")
    assert browser.value(whole)
    assert browser.value(CONTRASTS) == ""


@pytest.mark.spec("R-195")
def test_every_button_and_field_has_a_name(browser, page, contoso):
    contoso.create_queue("orders")
    send(contoso, "orders", ServiceBusMessage("x"))
    opened(browser, page, "/entity/contoso/orders")
    browser.click("#act-send")
    browser.wait_for("document.activeElement.id === 'act-body'")
    browser.click("#act-purge")
    browser.wait_for("document.activeElement.id === 'act-yes'")
    tree = browser.ask("Accessibility.getFullAXTree")["nodes"]
    roles = [
        (node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node["ignored"]
    ]
    for role in ("button", "textbox", "form"):
        names = [name for kind, name in roles if kind == role]
        assert names, role
        assert all(names), role
