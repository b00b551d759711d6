"""Plans of a proxy: every fault, and errors that name file, key and expected value."""

from __future__ import annotations

import pytest

from sbpair.broker.configuration import BadConfigurationError
from sbpair.broker.testing.frames import Action, FrameRule
from sbpair.broker.testing.proxy_plan import LineSettings, ProxyPlan, read_proxy_plan

pytestmark = pytest.mark.spec("E-7")
PLAN = """
rtt = 0.02
slice = 1
[[rule]]
action = "drop"
performative = "disposition"
direction = "out"
address = "orders"
nth = 2
[[rule]]
action = "delay"
seconds = 1.5
every = true
[[rule]]
action = "cut"
performative = "transfer"
after = true
[[cut]]
direction = "in"
bytes = 400
"""


def test_a_plan_is_read_with_its_meaning() -> None:
    assert read_proxy_plan("plan.toml", PLAN) == ProxyPlan(
        LineSettings(0.02, None, 1),
        (
            FrameRule(Action.DROP, "disposition", "out", "orders", 2),
            FrameRule(Action.DELAY, nth=None, seconds=1.5),
            FrameRule(Action.CUT, "transfer", after=True),
        ),
        (("in", 400),),
    )


def test_an_empty_plan_forwards() -> None:
    assert read_proxy_plan("plan.toml", "") == ProxyPlan()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rtt = ", "plan.toml: expected TOML"),
        ("rtt = -1", "plan.toml: rtt: expected a number from 0 to 86400, not -1"),
        ("rtt = nan", "plan.toml: rtt: expected a number"),
        ("bandwidth = 0", "plan.toml: bandwidth: expected a number from 1"),
        ("slice = 0", "plan.toml: slice: expected a whole number"),
        ("rtts = 1", "plan.toml: rtts: expected no such key; did you mean rtt?"),
        ("[[rule]]", "plan.toml: rule[0].action: expected one of drop, delay, hold, cut, reset"),
        (
            '[[rule]]\naction = "kill"',
            "plan.toml: rule[0].action: expected one of drop, delay, hold, cut, reset, truncate, repeat, "
            "oversize, not 'kill'",
        ),
        (
            '[[rule]]\naction = "drop"\nperformative = "sasl"',
            "rule[0].performative: expected one of open, begin",
        ),
        (
            '[[rule]]\naction = "drop"\ndirection = "up"',
            "rule[0].direction: expected one of in, out, not 'up'",
        ),
        ('[[rule]]\naction = "drop"\nnth = 0', "rule[0].nth: expected a whole number"),
        (
            '[[rule]]\naction = "drop"\nnth = 1\nevery = true',
            "rule[0].every: expected every or nth, not both",
        ),
        ('[[rule]]\naction = "delay"', "rule[0].seconds: expected the seconds of a delay"),
        ('[[rule]]\naction = "drop"\nseconds = 1', "rule[0].seconds: expected the seconds of a delay"),
        ('[[rule]]\naction = "drop"\nafter = 1', "rule[0].after: expected true or false, not 1"),
        (
            '[[rule]]\naction = "drop"\nadress = "x"',
            "rule[0].adress: expected no such key; did you mean address?",
        ),
        ("[[cut]]\nbytes = 1", "cut[0].direction: expected in (from the client) or out"),
        ('[[cut]]\ndirection = "in"', "cut[0].bytes: expected a whole number of bytes"),
        ("rule = 5", "plan.toml: rule: expected a list"),
    ],
)
def test_a_mistake_is_reported_with_file_key_and_expected_value(text: str, said: str) -> None:
    with pytest.raises(BadConfigurationError) as refused:
        read_proxy_plan("plan.toml", text)
    assert said in str(refused.value)
