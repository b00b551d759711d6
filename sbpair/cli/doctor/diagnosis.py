"""What is wrong with a pairing, how bad is it, and what is the next step?

    facts --> rules --> findings, the worst first

Pure.
"""

from __future__ import annotations

from .facts import Facts
from .finding import Finding, Rule, Severity
from .pair_rules import PAIR_RULES
from .queue_rules import QUEUE_RULES

RULES: tuple[Rule, ...] = (*PAIR_RULES, *QUEUE_RULES)


def diagnose(facts: Facts) -> list[Finding]:
    """Every finding, the worst first."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: list(Severity).index(finding.severity))
