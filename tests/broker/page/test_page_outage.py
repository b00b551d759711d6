"""Operating a namespace from the page: outages, faults, entities, the connection string; in a real browser."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.broker.page.test_page import CONTRASTS, opened, send
from tests.broker.page.test_page_acts import type_in

pytestmark = [pytest.mark.interop, pytest.mark.spec("R-128")]

SAID = "document.querySelector('#said-contoso')?.innerText"
PICK = "document.querySelector('[name={}]').value = '{}'"


def down_button(word: str) -> str:
    return f"[...document.querySelectorAll('.question button')].find(b => b.innerText === '{word}').click()"


def test_an_outage_is_run_entirely_from_the_page(browser, page, contoso):
    contoso.create_queue("orders")
    opened(browser, page)
    browser.click("#op-down-contoso")
    browser.wait_for("document.activeElement.id === 'op-first'")
    browser.value(down_button("Refuse"))
    browser.wait_for_text("Down (refuse)")
    with pytest.raises(ServiceBusError):
        send(contoso, "orders", ServiceBusMessage("x"))
    browser.click("#op-up-contoso")
    browser.wait_for(f"{SAID} === 'Up again.'")
    send(contoso, "orders", ServiceBusMessage("x"))
    assert contoso.counts("orders").active == 1
    browser.complaints[:] = [each for each in browser.complaints if "503" not in each]


def test_a_fault_is_set_counted_and_cleared_on_the_page(browser, page, contoso):
    contoso.create_queue("orders")
    opened(browser, page)
    browser.click("#op-fault-contoso")
    browser.wait_for("document.activeElement.id === 'op-first'")
    browser.value(PICK.format("choice", "effect:full"))
    type_in(browser, "[name=entity]", "orders")
    browser.click("form.draft button.main")
    browser.wait_for(f"{SAID} === 'Set: 1 fault.'")
    with pytest.raises(ServiceBusError):
        send(contoso, "orders", ServiceBusMessage("x"))
    browser.wait_for("document.querySelector('.faults li')?.innerText.includes('1 hits')")
    browser.click(".faults button")
    browser.wait_for("!document.querySelector('.faults')")
    assert contoso.faults == []


def test_an_entity_is_created_and_deleted(browser, page, contoso):
    opened(browser, page)
    browser.click("#op-create-contoso")
    browser.wait_for("document.activeElement.id === 'op-first'")
    type_in(browser, "[name=path]", "carts")
    browser.value("document.querySelector('[name=sessions]').click()")
    browser.click("form.draft button.main")
    browser.wait_for(f"{SAID} === 'Created: carts.'")
    assert contoso.queue_names() == ["carts"]
    browser.open(f"{page.address}/#/entity/contoso/carts")
    browser.wait_for_text("requires session")
    browser.click("#act-delete")
    browser.wait_for("document.activeElement.id === 'act-yes'")
    browser.click("#act-yes")
    browser.wait_for("location.hash === '#/'")
    browser.wait_for_text("No entities yet")
    assert contoso.queue_names() == []
    browser.complaints[:] = [each for each in browser.complaints if "404" not in each]


def test_the_connection_string_is_shown_and_works(browser, page, contoso):
    contoso.create_queue("orders")
    opened(browser, page)
    browser.click("#op-string-contoso")
    browser.wait_for("!!document.querySelector('#string-contoso')?.value")
    shown = browser.value("document.querySelector('#string-contoso').value")
    with (
        ServiceBusClient.from_connection_string(shown) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
    assert contoso.counts("orders").active == 1


def test_messages_are_found_by_id_session_and_body_and_open_anywhere(browser, page, contoso):
    contoso.create_queue("orders")
    send(contoso, "orders", *(ServiceBusMessage(f"body {n}", message_id=f"Id-{n}") for n in range(60)))
    opened(browser, page, "/entity/contoso/orders")
    browser.wait_for("document.querySelectorAll('.row-button').length === 50")
    type_in(browser, "#seek", "id-58")
    browser.wait_for("document.querySelectorAll('.row-button').length === 1")
    browser.value("document.querySelector('tr.opens td:nth-child(5)').click()")
    browser.wait_for("document.querySelector('.message pre')?.innerText === 'body 58'")
    browser.value("document.querySelector('#seek').value = ''")
    type_in(browser, "#seek", "body 7")
    browser.wait_for("document.querySelector('tr.opens td:nth-child(2)')?.innerText === 'Id-7'")


@pytest.mark.parametrize("dark", [False, True])
def test_the_panels_are_complete_and_legible_on_a_narrow_screen(browser, page, contoso, dark):
    browser.resize(420, 900, dark=dark)
    opened(browser, page)
    for what in ("down", "fault", "create"):
        browser.click(f"#op-{what}-contoso")
        browser.wait_for("document.activeElement.id === 'op-first'")
        assert browser.value("document.documentElement.scrollWidth <= 420"), what
        assert browser.value(CONTRASTS) == ""
