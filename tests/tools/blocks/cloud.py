"""The blocks of the docs about what the service was seen to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from tests.tools.source import table


def witness_figures() -> str:
    from tests.cloud.outcome import IN_WORDS, outcome, replayed

    return table(
        ("exchanges", ""), [(str(count), IN_WORDS[name]) for name, count in outcome(replayed()).items()]
    )


def accepted_differences() -> str:
    from tests.cloud.outcome import accepted, replayed

    rows = []
    for each in accepted():
        number = sum(each.covers(found, one) for found in replayed() for one in found.differences)
        where = each.where.removeprefix("/") if each.where != ".*" else ""
        rows.append((each.what, f"`{where}`" if where else "", str(number), each.reason))
    return table(("difference", "where", "exchanges", "reason"), rows)


def recorded_sources() -> str:
    """The repositories of the recordings: how many, of which years, and their exchanges."""
    from tests.cloud.exchanges import recordings

    found: dict[str, list[tuple[str, int]]] = {}
    for each in recordings():
        repository = re.sub(r"^([\w.-]+/)?(azure-[\w-]+).*", r"\2", each.source)
        found.setdefault(repository, []).append((each.date[:4], len(each.exchanges)))
    rows = []
    for repository, parts in found.items():
        years = sorted({year for year, _ in parts if year})
        span = years[0] if len(years) == 1 else f"{years[0]} to {years[-1]}"
        rows.append((repository, span, str(len(parts)), str(sum(count for _, count in parts))))
    return table(("recorded by the tests of", "years", "recordings", "exchanges"), rows)


def amqp_facts() -> str:
    from tests.cloud.facts import facts

    rows = []
    for each in facts():
        outcome = "the same" if each.accepted is None else each.accepted
        source = f"[{each.client}, {each.year}]({each.source})"
        rows.append((each.id, each.when, each.seen, source, outcome))
    return table(("fact", "when", "the service was seen to answer", "by", "the broker"), rows)


def contract_standings() -> str:
    from sbpair.contract.book import entries
    from tests.cloud.witnesses import sources, standing_of, witnessed

    rows = []
    for each in entries():
        seen = [f"{name} ({sources()[name][1]})" for name in witnessed().get(each.id, ())]
        rows.append((each.id, each.sentence, standing_of(each.id).value, ", ".join(seen)))
    return table(("entry", "assumption", "standing", "seen in"), rows)


def standing_figures() -> str:
    """By subject: how many of its entries are witnessed."""
    from sbpair.contract.book import entries
    from tests.cloud.witnesses import Standing, standing_of

    counts: dict[str, Counter[Standing]] = {}
    for each in entries():
        counts.setdefault(each.id.rpartition("-")[0], Counter())[standing_of(each.id)] += 1
    rows = [(subject, *(str(found[each]) for each in Standing)) for subject, found in counts.items()]
    total = sum(counts.values(), Counter())
    rows.append(("all", *(str(total[each]) for each in Standing)))
    return table(("subject", *(each.value for each in Standing)), rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "witness-figures": witness_figures,
    "accepted-differences": accepted_differences,
    "recorded-sources": recorded_sources,
    "amqp-facts": amqp_facts,
    "contract-standings": contract_standings,
    "standing-figures": standing_figures,
}
