"""The blocks of the docs about the broker, its faults, and the test tools around it."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable

from tests.tools.source import ROOT, commented_members, documented_classes, documented_fields, opening, table


def entity_fields() -> str:
    from sbpair.broker import QueueDescription, SubscriptionDescription, TopicDescription

    kinds = (QueueDescription, TopicDescription, SubscriptionDescription)
    defaults = [{field.name: f"`{field.default!r}`" for field in dataclasses.fields(kind)} for kind in kinds]
    names = dict.fromkeys(name for each in defaults for name in each)
    rows = [(f"`{name}`", *(each.get(name, "-") for each in defaults)) for name in names]
    return table(("field", "of a queue", "of a topic", "of a subscription"), rows)


def description_orders() -> str:
    from sbpair.broker.frontends.admin.entity_fields import (
        QUEUE_ELEMENTS,
        SUBSCRIPTION_ELEMENTS,
        TOPIC_ELEMENTS,
    )

    kinds = {"queue": QUEUE_ELEMENTS, "topic": TOPIC_ELEMENTS, "subscription": SUBSCRIPTION_ELEMENTS}
    rows = [(kind, " ".join(f"`{row.element}`" for row in elements)) for kind, elements in kinds.items()]
    return table(("kind", "elements, in the order in which they are read and written"), rows)


def limits() -> str:
    fields = documented_fields("sbpair/amqp/limits.py", "Limits")
    return table(
        ("limit", "value", "meaning"), [(f"`{n}`", f"`{value}`", doc) for n, _, value, doc in fields]
    )


def broker_errors() -> str:
    from sbpair.broker import errors

    rows = []
    for name, _, doc in documented_classes("sbpair/broker/errors.py"):
        error = getattr(errors, name)
        rows.append((f"`{name}`", f"`{error.condition}`", f"{error.status} / {error.sub_code}", doc))
    return table(("error", "on AMQP", "on HTTP", "meaning"), rows)


def faults() -> str:
    from sbpair.broker.faults import EFFECTS

    rows = []
    for name, kind in EFFECTS.items():
        level = ", ".join(sorted(each.value for each in kind.applies_to)) or "standing"
        settings = ", ".join(f"`{field.name}` {field.default!r:.30}" for field in dataclasses.fields(kind))
        rows.append(
            (f"`{name}`", f"`{kind.__name__}`", (kind.__doc__ or "").strip(), level, settings or "none")
        )
    return table(("in plans", "class", "effect", "applies to", "settings and defaults"), rows)


def fault_limits() -> str:
    docs = {
        "entity": "a path, or a pattern with `*`; without one, every entity",
        "operation": "one that the effect applies to; without one, its default operations",
        "nth": "only the n-th that matches, from 1",
        "times": "the maximum number of times it applies",
        "probability": "0 to 1, drawn from `seed`",
        "seed": "a whole number: the same draws again",
        "after": "seconds until it begins",
        "lasting": "seconds until it ends",
        "every": "seconds from one begin to the next",
    }
    from sbpair.broker.faults import FaultRule

    names = [field.name for field in dataclasses.fields(FaultRule) if field.name != "effect"]
    return table(("limit", "meaning"), [(f"`{name}`", docs[name]) for name in names])


def outages() -> str:
    rows = [
        (f"`{value}`", doc)
        for _, value, doc in commented_members("sbpair/broker/faults/effects.py", "Outage")
    ]
    return table(("outage", "behaviour"), rows)


def scenarios() -> str:
    from sbpair.broker.faults.scenarios import SCENARIOS

    rows = [(f"`{each.name}`", each.what, each.sees, each.paired) for each in SCENARIOS.values()]
    return table(("scenario", "fault", "seen by a client", "behaviour of a paired client"), rows)


def fixtures() -> str:
    tree = ast.parse((ROOT / "sbpair/testing/plugin.py").read_text("utf-8"))
    rows = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(
            "fixture" in ast.unparse(d) for d in node.decorator_list
        ):
            scope = "the run" if "session" in ast.unparse(node.decorator_list[0]) else "a test"
            rows.append((f"`{node.name}`", scope, opening(ast.get_docstring(node) or "")))
    return table(("fixture", "lives for", "description"), rows)


def frame_actions() -> str:
    rows = [(f"`{value}`", doc) for _, value, doc in commented_members("sbpair/testing/frames.py", "Action")]
    return table(("action", "effect on the frame"), rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "entity-fields": entity_fields,
    "description-orders": description_orders,
    "limits": limits,
    "broker-errors": broker_errors,
    "faults": faults,
    "fault-limits": fault_limits,
    "outages": outages,
    "scenarios": scenarios,
    "fixtures": fixtures,
    "frame-actions": frame_actions,
}
