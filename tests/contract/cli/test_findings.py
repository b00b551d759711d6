"""The doctor's rules: each finds its problem, and none finds anything in a healthy pairing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbpair.contract.cli.doctor.facts import (
    Backlog,
    Load,
    NotInForce,
    PairFacts,
    Ping,
    PrimaryEntity,
    Refusal,
    SenderSeen,
    SyphonSeen,
)
from sbpair.contract.cli.doctor.finding import Severity
from sbpair.contract.cli.doctor.rules import diagnose
from sbpair.pair.envelope.names import take_inventory

NAMES = [f"contoso/x-servicebus-transfer/{i}" for i in range(2)]
RUNNING = SyphonSeen(state="running", backlogs=tuple(NAMES))
HEALTHY = PairFacts(
    label="contoso",
    secondary_label="contoso-dr",
    has_given_name=False,
    is_one_namespace=False,
    unreachable={},
    inventory=take_inventory(NAMES, "contoso", 2),
    backlogs=tuple(Backlog(name, lock=60.0, largest=262_144, capacity=2**30) for name in NAMES),
    destinations=(PrimaryEntity("orders", None, "Active", True, 600.0, 86_400.0, 262_144),),
    ping=Ping.HIDDEN,
    syphon=RUNNING,
    sender=SenderSeen(failover_share=0.5, operation_timeout=10.0),
)
SEES_B = SyphonSeen(state="running", backlogs=("b",))
NOT_FOUND, UNAUTHORIZED = "amqp:not-found", "amqp:unauthorized-access"


UNASKED = replace(HEALTHY, syphon=None)


def test_checks_that_need_an_unreachable_primary_are_skipped():
    found = diagnose(replace(HEALTHY, ping=None, unreachable={"primary": "refused"}))
    assert [finding.about for finding in found] == ["primary"]
    assert "ping" in [finding.about for finding in diagnose(replace(HEALTHY, ping=None))]


def test_a_healthy_pairing_has_no_findings():
    assert diagnose(HEALTHY) == []


@pytest.mark.spec("H-55", "R-83")
@pytest.mark.parametrize(
    ("change", "severity", "about", "words"),
    [
        ({"is_one_namespace": True}, "error", "pair", "the same namespace"),
        ({"secondary_label": "contoso"}, "error", "pair", "both called 'contoso'"),
        ({"unreachable": {"primary": "refused"}}, "error", "primary", "refused"),
        (
            {"refusals": (Refusal("primary", "orders", "Send", UNAUTHORIZED, "no"),)},
            "error",
            "primary orders",
            "may not Send",
        ),
        (
            {
                "refusals": (
                    Refusal("primary", "orders", "Send", UNAUTHORIZED, "no such policy", is_of_key=True),
                )
            },
            "error",
            "primary orders",
            "the key is refused: no such policy",
        ),
        (
            {"refusals": (Refusal("primary", "orders", "Send", NOT_FOUND, "no"),)},
            "error",
            "primary orders",
            "does not exist",
        ),
        (
            {"refusals": tuple(Refusal("secondary", name, "Listen", UNAUTHORIZED, "no") for name in NAMES)},
            "error",
            f"secondary {NAMES[0]} and 1 more",
            "may not Listen",
        ),
        (
            {"refusals": (Refusal("secondary", NAMES[0], "Send", UNAUTHORIZED, "no"),)},
            "error",
            f"secondary {NAMES[0]}",
            "may not Send",
        ),
        (
            {"refusals": (Refusal("primary", "orders", "Send", "odd:thing", "it is odd"),)},
            "error",
            "primary orders",
            "it is odd",
        ),
        ({"inventory": take_inventory(NAMES[:1], "contoso", 2)}, "error", NAMES[1], "does not exist"),
        ({"inventory": take_inventory(NAMES, "contoso", 1)}, "warning", NAMES[1], "beyond --backlogs"),
        (
            {"inventory": take_inventory(NAMES, "contoso", 1), "stranded": {NAMES[1]: 12}},
            "error",
            NAMES[1],
            "holds 12 messages",
        ),
        ({"label": "localhost"}, "warning", "pair", "named after 'localhost'"),
        ({"label": "127.0.0.1"}, "warning", "pair", "named after '127.0.0.1'"),
        ({"syphon": SyphonSeen("http://x/state: refused")}, "error", "syphon", "no syphon answers"),
        (
            {"syphon": SyphonSeen(state="refused", reason="no right", backlogs=tuple(NAMES))},
            "warning",
            "syphon",
            "refused: no right",
        ),
        ({"syphon": SyphonSeen(state="running", backlogs=(NAMES[0],))}, "error", "syphon", NAMES[1]),
        ({"syphon": None}, "note", "syphon", "not checked"),
        ({"syphon": None, "backlogs": (Backlog("b", 301),)}, "warning", "syphon", "has waited 5 min 1 s"),
        (
            {"backlogs": (Backlog("b", lock=10.0),), "syphon": SEES_B},
            "warning",
            "b",
            "lock duration is only 10 s",
        ),
        (
            {
                "backlogs": (Backlog("b", largest=262_144),),
                "destinations": (PrimaryEntity("q", largest=2**20),),
                "syphon": SEES_B,
            },
            "warning",
            "q",
            "1048576 bytes, a backlog queue of 262144",
        ),
        ({"load": Load(200.0, 1024, 86_400.0)}, "warning", "room", "2048 MiB free last 1 h 50 min at 200"),
        ({"load": Load(200.0, 1024, 3600.0)}, "note", "room", "2048 MiB free last 1 h 50 min"),
        (
            {"load": Load(1.0, 1, 1.0), "backlogs": (Backlog("b"),), "syphon": SEES_B},
            "note",
            "room",
            "not known",
        ),
        ({"backlogs": (Backlog("b", differences=("lock_duration is x",)),)}, "warning", "b", "lock_duration"),
        (
            {"backlogs": (Backlog("b", differences=("requires_session is True",)),)},
            "error",
            "b",
            "requires_session",
        ),
        ({"backlogs": (Backlog("b", has_dead_letters=True),)}, "warning", "b", "dead letters"),
        ({"backlogs": (Backlog("b", has_untransferred=True),)}, "warning", "b", "refused on the secondary"),
        (
            {"backlogs": (Backlog("b", oldest_age=61, time_to_live=120),)},
            "error",
            "b",
            "1 min 1 s of its 2 min",
        ),
        ({"destinations": (PrimaryEntity("q", status="Disabled"),)}, "error", "q", "Disabled"),
        (
            {"destinations": (PrimaryEntity("q", 601, "Active", True, 600, None),)},
            "warning",
            "q",
            "will not be recognised",
        ),
        (
            {"destinations": (PrimaryEntity("q", 31, "Active", True, None, 30),)},
            "warning",
            "q",
            "arrive late",
        ),
        ({"ping": Ping.DELIVERED}, "warning", "ping", "delivers pings"),
        ({"ping": Ping.NOT_EMPTY}, "warning", "ping", "not probed"),
        ({"ping": None}, "note", "ping", "not checked"),
        ({"undescribed": {"secondary": "401"}}, "note", "secondary", "401"),
        (
            {"backlogs": (Backlog("b", differences=("status is SendDisabled",)),)},
            "error",
            "b",
            "senders cannot park there",
        ),
        (
            {"backlogs": (Backlog("b", differences=("status is ReceiveDisabled",)),)},
            "error",
            "b",
            "a syphon cannot take messages",
        ),
        ({"sender": SenderSeen("http://x/state: refused")}, "error", "sender", "no sender answers"),
        ({"sender": SenderSeen(failover_share=1.0)}, "warning", "sender", "is never left"),
        (
            {"sender": SenderSeen(backlogs_missing="no Manage")},
            "error",
            "sender",
            "backlog queues: no Manage",
        ),
        (
            {"sender": SenderSeen(failover_share=0.5, operation_timeout=60.0)},
            "note",
            "sender",
            "may take 1 min",
        ),
        (
            {"syphon": replace(RUNNING, is_unpaced=True)},
            "note",
            "syphon",
            "until the primary is busy",
        ),
    ],
)
def test_each_fault_is_found_once_with_a_next_step(change, severity, about, words):
    if {each.name for each in change.get("backlogs", ())} == {"b"} and "syphon" not in change:
        change = change | {"syphon": SEES_B}

    (finding,) = diagnose(replace(HEALTHY, **change))

    assert (finding.severity, finding.about) == (severity, about)
    assert words in f"{finding.what}: {finding.why}"
    assert finding.why
    assert finding.next_step


@pytest.mark.parametrize(
    "harmless",
    [
        {"secondary_label": "contoso", "has_given_name": True},
        {"backlogs": (Backlog("b", oldest_age=299, time_to_live=None),)},
        {"backlogs": (Backlog("b", oldest_age=59, time_to_live=120),)},
        {"destinations": (PrimaryEntity("q", 599, "Active", True, 600, 600),)},
        {"destinations": (PrimaryEntity("a-topic"),)},
    ],
    ids=str,
)
def test_a_harmless_setting_is_no_finding(harmless):
    assert diagnose(replace(HEALTHY, **harmless | {"syphon": None})) == diagnose(UNASKED)


def test_a_missing_backlog_queue_is_reported_once():
    refusals = (Refusal("secondary", NAMES[1], "Send", NOT_FOUND, "no"),)
    inventory = take_inventory(NAMES[:1], "contoso", 2)

    assert len(diagnose(replace(HEALTHY, refusals=refusals, inventory=inventory))) == 1
    (finding,) = diagnose(replace(HEALTHY, refusals=refusals, inventory=None))
    assert "sbpair backlog create" in finding.next_step


def test_findings_are_sorted_by_severity():
    facts = replace(
        HEALTHY,
        ping=None,
        unreachable={"secondary": "no"},
        backlogs=(Backlog("b", None, True),),
        syphon=SEES_B,
    )
    assert [finding.severity for finding in diagnose(facts)] == list(Severity)


# Ordered sessions.

ORDERED = [f"contoso/x-servicebus-transfer/ordered/{i}" for i in range(2)]
IN_ORDER = replace(
    HEALTHY,
    keeps_order=True,
    ordered_inventory=take_inventory(ORDERED, "contoso", 2, is_ordered=True),
    backlogs=tuple(Backlog(name, lock=60.0, largest=262_144) for name in (*NAMES, *ORDERED)),
    destinations=(PrimaryEntity("orders", None, "Active", True, 600.0),),
    syphon=SyphonSeen(state="running", backlogs=(*NAMES, *ORDERED)),
)


@pytest.mark.spec("O-2", "O-4")
def test_a_correct_ordered_pairing_has_no_findings():
    assert diagnose(IN_ORDER) == []


@pytest.mark.spec("O-2", "O-4", "O-6")
@pytest.mark.parametrize(
    ("change", "severity", "about", "words"),
    [
        (
            {"ordered_inventory": take_inventory(ORDERED[:1], "contoso", 2, is_ordered=True)},
            "error",
            ORDERED[1],
            "does not exist",
        ),
        (
            {"ordered_inventory": take_inventory(ORDERED, "contoso", 1, is_ordered=True)},
            "warning",
            ORDERED[1],
            "beyond --backlogs",
        ),
        (
            {
                "ordered_inventory": take_inventory(ORDERED, "contoso", 1, is_ordered=True),
                "stranded": {ORDERED[1]: 3},
            },
            "error",
            ORDERED[1],
            "holds 3 messages",
        ),
        (
            {"refusals": (Refusal("secondary", ORDERED[0], "Listen", UNAUTHORIZED, "no"),)},
            "error",
            f"secondary {ORDERED[0]}",
            "cannot see that it is empty",
        ),
        (
            {"syphon": SyphonSeen(state="running", backlogs=tuple(NAMES))},
            "error",
            "syphon",
            f"2 of the backlog queues, such as {ORDERED[0]}",
        ),
        (
            {"backlogs": (Backlog(NAMES[0], has_sessions=True), Backlog(ORDERED[0], has_sessions=True))},
            "warning",
            NAMES[0],
            "a client without ordering",
        ),
        (
            {"destinations": (PrimaryEntity("orders", None, "Active", False, 600.0),)},
            "warning",
            "orders",
            "does not require sessions",
        ),
        (
            {"destinations": (PrimaryEntity("orders", None, "Active", True, None),)},
            "note",
            "orders",
            "does not detect duplicates",
        ),
        (
            {"backlogs": (Backlog(ORDERED[0], has_dead_letters=True),)},
            "warning",
            ORDERED[0],
            "behind the later ones",
        ),
        (
            {"backlogs": (Backlog(ORDERED[0], differences=("enable_partitioning is True",)),)},
            "error",
            ORDERED[0],
            "the fence may open too early",
        ),
        (
            {"backlogs": (Backlog(NAMES[0], differences=("requires_duplicate_detection is True",)),)},
            "error",
            NAMES[0],
            "a parked message is lost",
        ),
        (
            {"backlogs": (Backlog(ORDERED[0], lock=10.0),)},
            "warning",
            ORDERED[0],
            "lock duration is only 10 s",
        ),
    ],
)
def test_each_fault_of_ordering_is_found_once_with_a_next_step(change, severity, about, words):
    (finding,) = diagnose(replace(IN_ORDER, **change))

    assert (finding.severity, finding.about) == (severity, about)
    assert words in f"{finding.what}: {finding.why}"
    assert finding.next_step


@pytest.mark.spec("O-6")
def test_unrequested_ordered_backlogs_are_noted_and_messages_in_them_are_a_warning():
    facts = replace(HEALTHY, ordered_inventory=IN_ORDER.ordered_inventory)
    (note,) = diagnose(facts)
    assert (note.severity, note.about, note.next_step) == ("note", "order", "--ordering session")

    warning, _ = diagnose(replace(facts, stranded={ORDERED[0]: 7}))
    assert (warning.severity, warning.about) == ("warning", ORDERED[0])
    assert "7 messages of ordered sessions" in warning.what


@pytest.mark.spec("O-2")
def test_a_missing_ordered_queue_is_reported_once_with_its_own_command():
    refusals = (Refusal("secondary", ORDERED[1], "Send", NOT_FOUND, "no"),)
    inventory = take_inventory(ORDERED[:1], "contoso", 2, is_ordered=True)

    assert len(diagnose(replace(IN_ORDER, refusals=refusals, ordered_inventory=inventory))) == 1
    (finding,) = diagnose(replace(IN_ORDER, refusals=refusals))
    assert "sbpair backlog create --ordered" in finding.next_step


@pytest.mark.spec("W-2")
def test_ineffective_forwarding_is_an_error():
    late = frozenset(
        (NotInForce("primary", "orders", "ForwardTo"), NotInForce("primary", "a", "UserMetadata"))
    )
    found = diagnose(replace(HEALTHY, not_in_force=late))

    assert [(each.severity, each.about) for each in found] == [
        (Severity.ERROR, "primary orders"),
        (Severity.NOTE, "primary a"),
    ]
    assert found[0].what == "ForwardTo is shown and not in force"
