"""Fault rules: when a rule applies, which of several does, and which are refused."""

from __future__ import annotations

from dataclasses import fields
from math import inf

import pytest

from sbpair.broker import BrokerError
from sbpair.broker.faults import (
    EFFECTS,
    CutAfter,
    Delay,
    Disabled,
    Down,
    FaultEngine,
    FaultRule,
    LateVisibility,
    LoseLock,
    Operation,
    PartitionDown,
    RejectWith,
    SilenceLink,
    Throttle,
    Withhold,
)
from sbpair.broker.faults.plan import planned_faults, read_plan
from sbpair.broker.faults.scenarios import SCENARIOS, scenario_named

SEND = Operation.SEND


def strikes(rule: FaultRule, times: int, path: str = "orders", operation: Operation = SEND) -> list[bool]:
    engine = FaultEngine()
    engine.add(rule, 0.0)
    return [engine.apply(operation, path, float(now)) is not None for now in range(times)]


class TestRule:
    def test_a_rule_can_strike_only_the_nth_operation(self):
        assert strikes(FaultRule(Withhold(), nth=2), 4) == [False, True, False, False]

    def test_a_rule_strikes_at_most_the_given_number_of_times(self):
        assert strikes(FaultRule(Withhold(), times=2), 4) == [True, True, False, False]

    def test_a_seed_reproduces_the_same_draws(self):
        drawn = strikes(FaultRule(Withhold(), probability=0.5, seed=1), 50)
        assert strikes(FaultRule(Withhold(), probability=0.5, seed=1), 50) == drawn
        assert strikes(FaultRule(Withhold(), probability=0.5, seed=2), 50) != drawn
        assert 10 < sum(drawn) < 40

    def test_a_rule_holds_only_within_its_time_spans(self):
        rule = FaultRule(Withhold(), after=2, lasting=1, every=3)
        assert strikes(rule, 9) == [False, False, True, False, False, True, False, False, True]

    def test_a_rule_selects_an_entity_by_name_in_any_case_or_by_pattern(self):
        assert strikes(FaultRule(Withhold(), "Orders"), 1) == [True]
        assert strikes(FaultRule(Withhold(), "orders"), 1, "orders2") == [False]
        assert strikes(
            FaultRule(Withhold(), "contoso/x-servicebus-transfer/*"), 1, "contoso/x-servicebus-transfer/3"
        ) == [True]
        assert strikes(FaultRule(Withhold()), 1, "anything") == [True]

    def test_a_rule_strikes_its_default_operations_or_the_named_one(self):
        assert strikes(FaultRule(Withhold()), 1, operation=Operation.SCHEDULE) == [True]
        assert strikes(FaultRule(Withhold()), 1, operation=Operation.SETTLE) == [False]
        assert strikes(FaultRule(Withhold(), operation=Operation.SETTLE), 1, operation=Operation.SETTLE) == [
            True
        ]
        assert strikes(FaultRule(Withhold(), operation=Operation.SETTLE), 1) == [False]

    @pytest.mark.parametrize(
        ("make", "names"),
        [
            (lambda: FaultRule(Withhold), r"<class .*Withhold'>.*: use an effect such as Withhold\(\)"),
            (lambda: FaultRule(Withhold(), nth=0), "nth"),
            (lambda: FaultRule(Withhold(), times=0), "times"),
            (lambda: FaultRule(Withhold(), probability=1.5), "probability"),
            (lambda: FaultRule(Withhold(), after=-1), "after"),
            (lambda: FaultRule(Withhold(), lasting=float("nan")), "after, lasting"),
            (lambda: FaultRule(Withhold(), every=2), "every"),
            (lambda: FaultRule(Withhold(), lasting=2, every=2), "every"),
            (lambda: FaultRule(CutAfter(1), operation=SEND), "connect"),
            (lambda: FaultRule(CutAfter(1, "up")), "direction"),
            (lambda: FaultRule(CutAfter(-1)), "count"),
            (lambda: FaultRule(Delay(-1)), "seconds"),
            (lambda: FaultRule(LoseLock(-1)), "seconds"),
            (lambda: FaultRule(SilenceLink(), operation=SEND), "receive"),
            (lambda: FaultRule(LateVisibility(inf)), "seconds"),
            (lambda: FaultRule(Down("flood")), "flood"),
            (lambda: FaultRule(Down("slow", -1)), "delay"),
            (lambda: FaultRule(Down(), times=1), "standing"),
            (lambda: FaultRule(Down(), "orders"), "entity is 'orders'.*omit entity"),
            (lambda: FaultRule(CutAfter(1), "orders"), "entity is 'orders'.*omit entity"),
            (lambda: FaultRule(PartitionDown(0)), "entity"),
            (lambda: FaultRule(Disabled(), "orders*"), "entity"),
            (lambda: FaultRule(Disabled("Off"), "orders"), "Off"),
        ],
    )
    def test_an_invalid_rule_is_refused_by_name(self, make, names):
        with pytest.raises(BrokerError, match=names):
            make()


class TestEngine:
    def test_the_last_matching_rule_strikes_first(self):
        engine = FaultEngine()
        first = engine.add(FaultRule(Withhold()), 0)
        second = engine.add(FaultRule(Throttle(), times=1), 0)
        assert engine.apply(SEND, "orders", 1) == Throttle()
        assert engine.apply(SEND, "orders", 2) == Withhold()
        assert (first.hits, second.hits) == (1, 1)
        engine.remove(first)
        assert engine.apply(SEND, "orders", 3) is None

    def test_a_standing_rule_says_when_it_changes(self):
        engine = FaultEngine()
        engine.add(FaultRule(Down("reset"), after=1, lasting=2, every=5), 10)
        assert [len(engine.standing_now(now)) for now in (10, 11, 12.9, 13, 16)] == [0, 1, 1, 0, 1]
        assert [engine.next_change(now) for now in (10, 11, 13, 16)] == [11, 13, 16, 18]

    def test_a_permanent_rule_never_changes(self):
        engine = FaultEngine()
        engine.add(FaultRule(Withhold(), lasting=1), 0)
        assert engine.next_change(0) == inf


PLAN = """
seed = 7

[[fault]]
namespace = "contoso"
entity = "orders"
effect = "reject"
condition = "com.microsoft:server-busy"
times = 3

[[fault]]
namespace = "contoso-dr"
scenario = "brown-out"
"""


class TestPlan:
    def test_a_plan_is_read_as_rules_with_separate_seeds(self):
        reject, *brown_out = read_plan(PLAN)
        assert reject.namespace == "contoso"
        assert reject.rule == FaultRule(RejectWith("com.microsoft:server-busy"), "orders", times=3, seed=7)
        assert [type(planned.rule.effect).__name__ for planned in brown_out] == [
            "Delay",
            "Throttle",
            "Withhold",
        ]
        assert len({planned.rule.seed for planned in (reject, *brown_out)}) == 4

    @pytest.mark.parametrize("name", EFFECTS)
    def test_every_effect_can_be_planned_with_its_defaults(self, name):
        entity = {"entity": "orders"} if name in ("partition-down", "disabled") else {}
        (planned,) = planned_faults({"namespace": "contoso", "effect": name, **entity})
        assert planned.rule.effect == EFFECTS[name]()

    def test_no_effect_setting_shares_a_name_with_a_limit(self):
        limits = {field.name for field in fields(FaultRule)}
        for kind in EFFECTS.values():
            assert not limits & {field.name for field in fields(kind)}, kind.name

    @pytest.mark.parametrize("name", SCENARIOS)
    def test_every_scenario_can_be_planned_and_describes_what_a_client_sees(self, name):
        assert planned_faults({"namespace": "contoso", "scenario": name, "entity": "orders"})
        assert all((SCENARIOS[name].what, SCENARIOS[name].sees, SCENARIOS[name].paired))

    @pytest.mark.parametrize(
        ("table", "names"),
        [
            ({"effect": "withhold"}, "namespace"),
            ({"namespace": "contoso"}, "effect"),
            ({"namespace": "contoso", "effect": "flood"}, "flood"),
            ({"namespace": "contoso", "scenario": "flood"}, "flood"),
            ({"namespace": "contoso", "effect": "withhold", "tiems": 3}, "tiems"),
            (
                {"namespace": "contoso", "effect": "withhold", "times": "3"},
                "times is '3': use a whole number",
            ),
            ({"namespace": "contoso", "effect": "withhold", "after": "3"}, "after is '3': use a number"),
            ({"namespace": "contoso", "effect": "withhold", "entity": 3}, "entity is 3: use a string"),
            ({"namespace": "contoso", "effect": "withhold", "times": True}, "times"),
            ({"namespace": "contoso", "effect": "withhold", "operation": "sned"}, "sned"),
            ({"namespace": "contoso", "effect": "withhold", "operation": "connect"}, "applies to"),
            ({"namespace": "contoso", "effect": "detach", "carried_out": "yes"}, "carried_out"),
            ({"namespace": "contoso", "scenario": "flapping", "times": 1}, "times"),
            ("withhold", "table"),
        ],
    )
    def test_an_unknown_key_is_refused_by_name(self, table, names):
        with pytest.raises(BrokerError, match=names):
            planned_faults(table)

    @pytest.mark.parametrize(
        ("text", "names"),
        [("seed = ", "TOML"), ("seed = 'x'", "seed"), ("faults = []", "faults"), ("[fault]\nx = 1", "fault")],
    )
    def test_an_invalid_plan_is_refused(self, text, names):
        with pytest.raises(BrokerError, match=names):
            read_plan(text)

    def test_an_unknown_scenario_is_reported_with_the_known_ones(self):
        with pytest.raises(BrokerError, match=r"flood.*primary-down.*flapping"):
            scenario_named("flood")
