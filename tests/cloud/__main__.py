"""Replay the recorded exchanges and count how the broker's answers differ: `python -m tests.cloud`."""

from __future__ import annotations

from collections import Counter

from tests.cloud.outcome import IN_WORDS, outcome, replayed


def main() -> None:
    """Print the figures and the kinds of differences with an example of each."""
    found = replayed()
    for name, count in outcome(found).items():
        print(f"{count:6} {IN_WORDS[name]}")
    kinds: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for each in found:
        for difference in each.differences:
            key = difference.what, difference.where
            kinds[key] += 1
            examples.setdefault(
                key, f"{each.label}: {str(difference.service)[:110]} | {str(difference.broker)[:110]}"
            )
    for key, count in kinds.most_common():
        print(f"{count:6} {key[0]} {key[1]}   {examples[key]}")


if __name__ == "__main__":
    main()
