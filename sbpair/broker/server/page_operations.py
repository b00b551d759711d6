"""The page's requests that operate a namespace: outages, faults, its connection string, and its entities.

    GET  /api/faults              ?namespace    the faults that are set, and those that can be
    POST /api/take-down           {"namespace", "how"}
    POST /api/bring-up            {"namespace"}
    POST /api/set-fault           {"namespace", "choice", "entity"}; entity "" for all          -> {"set"}
    POST /api/clear-fault         {"namespace", "number"}
    POST /api/connection-string   {"namespace"}                                               -> {"connection_string"}
    POST /api/create              {"namespace", "kind", "path", "sessions"}
    POST /api/delete              {"namespace", "path"}

A choice is a scenario, or an effect that needs no settings. The connection string, which holds a key, is behind the
protection of actions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from sbpair.pair.ground.entity_settings import SESSIONS

from ..errors import InvalidArgumentError
from ..faults import EFFECTS, ActiveFault
from ..faults.plan import planned_faults
from ..faults.scenarios import SCENARIOS
from ..frontends.dashboard.views import MAX_ROWS
from .broker import Broker
from .control import NamespaceControl
from .page_requests import Given, Row, namespace_of, text_of, whole_of

SCENARIO, EFFECT = "scenario", "effect"
WITHOUT_SETTINGS = (
    "throttle",
    "full",
    "withhold",
    "lose",
    "no-credit",
    "silence",
    "lose-lock",
    "conflict",
    "front-end-cache",
)
"""Effects that are complete without settings."""


class PageOperations:
    """The operations on the namespaces of one broker; numbers the faults that it shows."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._numbers = itertools.count(1)
        self._shown: dict[int, ActiveFault] = {}
        self.by_name: dict[str, Callable[[Given], Row]] = {
            "take-down": self._take_down,
            "bring-up": self._bring_up,
            "set-fault": self._set_fault,
            "clear-fault": self._clear_fault,
            "connection-string": self._connection_string,
            "create": self._create,
            "delete": self._delete,
        }

    def faults(self, control: NamespaceControl) -> Row:
        """Return the faults of a namespace, each with its number, and the choices for another."""
        active = control.faults
        return {"rows": [self._row(each) for each in active[:MAX_ROWS]], "choices": _choices()}

    def _row(self, active: ActiveFault) -> Row:
        number = next((number for number, each in self._shown.items() if each is active), None)
        if number is None:
            number = next(self._numbers)
            self._shown[number] = active
        rule = active.rule
        return {"number": number, "effect": rule.effect.name, "entity": rule.entity, "hits": active.hits}

    def _take_down(self, given: Given) -> Row:
        namespace_of(self._broker, given).take_down(text_of(given, "how"))
        return {}

    def _bring_up(self, given: Given) -> Row:
        namespace_of(self._broker, given).bring_up()
        return {}

    def _set_fault(self, given: Given) -> Row:
        control, (kind, _, name) = namespace_of(self._broker, given), text_of(given, "choice").partition(":")
        if kind not in (SCENARIO, EFFECT):
            raise InvalidArgumentError("choice must be one of those that /api/faults lists.")
        table = {"namespace": control.name, kind: name}
        if entity := text_of(given, "entity"):
            table["entity"] = entity
        planned = planned_faults(table)
        done: list[ActiveFault] = []
        try:
            done.extend(control.set_fault(each.rule) for each in planned)
        except Exception:  # all of them, or none
            for active in done:
                control.clear_fault(active)
            raise
        return {"set": len(done)}

    def _clear_fault(self, given: Given) -> Row:
        control, active = namespace_of(self._broker, given), self._shown.pop(whole_of(given, "number"), None)
        if active is None or active not in control.faults:
            raise InvalidArgumentError("That fault is not set any more.")
        control.clear_fault(active)
        return {}

    def _connection_string(self, given: Given) -> Row:
        return {"connection_string": namespace_of(self._broker, given).connection_string}

    def _create(self, given: Given) -> Row:
        control, path = namespace_of(self._broker, given), text_of(given, "path").strip()
        sessions = SESSIONS.set_to(given.get("sessions") is True)
        kind = text_of(given, "kind")
        if kind == "queue":
            control.create_queue(path, **sessions)
        elif kind == "topic":
            control.create_topic(path)
        elif kind == "subscription":
            topic, separator, name = path.partition("/Subscriptions/")
            if not separator:
                raise InvalidArgumentError("The path of a subscription is TOPIC/Subscriptions/NAME.")
            control.create_subscription(topic, name, **sessions)
        else:
            raise InvalidArgumentError("kind must be queue, topic or subscription.")
        return {"path": path}

    def _delete(self, given: Given) -> Row:
        control, path = namespace_of(self._broker, given), text_of(given, "path")
        control.act(lambda server: server.frontend.namespace.delete(path))
        return {"path": path}


def _choices() -> list[dict[str, str]]:
    scenarios = [{"value": f"{SCENARIO}:{each.name}", "text": each.what} for each in SCENARIOS.values()]
    effects = [
        {"value": f"{EFFECT}:{name}", "text": _first_sentence(EFFECTS[name])} for name in WITHOUT_SETTINGS
    ]
    return scenarios + effects


def _first_sentence(kind: type) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]
