"""A call to a running broker ends like any turn of its loop; one before the start leaves that to the start."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sbpair.broker import Broker
from sbpair.broker.entities.descriptions import QueueDescription
from sbpair.broker.server.control import NamespaceControl

SPAN = 5 * 60_000  # ms


def create_queue(contoso: NamespaceControl) -> None:
    contoso.create_queue("orders", auto_delete_on_idle=SPAN)


def create_topic(contoso: NamespaceControl) -> None:
    contoso.create_topic("news", auto_delete_on_idle=SPAN)


def create_subscription(contoso: NamespaceControl) -> None:
    contoso.create_topic("lasting")
    contoso.create_subscription("lasting", "all", auto_delete_on_idle=SPAN)


CREATING = pytest.mark.parametrize("create", [create_queue, create_topic, create_subscription])


def is_armed(contoso: NamespaceControl) -> bool:
    return contoso.inspect(lambda server: server._timer._handle is not None)


@pytest.mark.spec("T-20")
@CREATING
def test_an_idle_entity_created_in_a_quiet_broker_is_deleted_on_time(
    create: Callable[[NamespaceControl], None],
) -> None:
    with Broker({"contoso": 0}) as broker:
        contoso = broker.namespace("contoso")
        assert not is_armed(contoso)
        create(contoso)
        assert is_armed(contoso)


@pytest.mark.spec("T-20")
@CREATING
def test_a_callback_created_before_the_broker_started_runs_too(
    create: Callable[[NamespaceControl], None],
) -> None:
    broker = Broker({"contoso": 0})
    create(broker.namespace("contoso"))
    with broker:
        assert is_armed(broker.namespace("contoso"))


@pytest.mark.spec("R-14")
def test_an_entity_can_be_changed_and_deleted_while_the_broker_is_stopped() -> None:
    broker = Broker({"contoso": 0})
    contoso = broker.namespace("contoso")
    contoso.create_queue("orders", auto_delete_on_idle=SPAN)
    contoso.update_queue("orders", QueueDescription(auto_delete_on_idle=2 * SPAN))
    with broker:
        pass
    contoso.update_queue("orders", QueueDescription(auto_delete_on_idle=3 * SPAN))
    assert contoso.inspect(lambda server: server._timer._handle) is None
    contoso.delete_queue("orders")
    assert contoso.queue_names() == []
