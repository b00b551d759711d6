"""Every fault effect is handled by every frontend that its operations pass through."""

from __future__ import annotations

import pytest

from sbpair.broker.clock import ClockReading
from sbpair.broker.faults import EFFECTS, Effect
from sbpair.broker.faults.effects import EndingEffect, Operation, StandingEffect
from sbpair.broker.frontends.admin.http_messages import Request
from sbpair.broker.frontends.amqp.faults import fault_outcome
from sbpair.broker.frontends.rest.faults import UNTOUCHED, faulted_response

NOW = ClockReading(0.0, 0, 0)
OF_MESSAGES = [kind for kind in EFFECTS.values() if kind.applies_to & {Operation.SEND, Operation.SETTLE}]


@pytest.mark.parametrize("kind", OF_MESSAGES, ids=lambda kind: kind.name)
def test_amqp_has_an_outcome_for_every_message_refusing_effect(kind: type[Effect]) -> None:
    effect = kind()
    if effect.answers and not effect.happens and not isinstance(effect, EndingEffect):
        assert fault_outcome(effect, "tracker", NOW) is not None


APPLIED_WHERE_IT_HAPPENS = {"late-visibility"}
"""Effects that change what the operation does: rest/requests.py applies them, not the table of answers."""


@pytest.mark.parametrize("kind", EFFECTS.values(), ids=lambda kind: kind.name)
def test_a_rule_without_operations_covers_those_its_effect_applies_to(kind: type[Effect]) -> None:
    assert kind.usual & kind.applies_to or issubclass(kind, StandingEffect)


@pytest.mark.parametrize("kind", OF_MESSAGES, ids=lambda kind: kind.name)
def test_every_effect_but_delayed_visibility_applies_over_http(kind: type[Effect]) -> None:
    faulted = faulted_response(kind(), Request("POST", "/orders/messages"), NOW)
    assert faulted != UNTOUCHED or kind.name in APPLIED_WHERE_IT_HAPPENS
