"""Find functions that return something and are named like notifications.

    python -m tests.tools.names [FOLDER]     one line each: file, name, what it returns

A participle is the name of what happened, and so of a notification: ``link_attached(now)``. What a function returns is
named by a noun (``header``, ``locked_message``), what it does by a verb (``build_header``).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IRREGULAR = frozenset(
    [
        "begun",
        "bound",
        "bought",
        "brought",
        "built",
        "caught",
        "chosen",
        "done",
        "dealt",
        "drawn",
        "driven",
        "fallen",
        "fed",
        "felt",
        "forgotten",
        "found",
        "frozen",
        "given",
        "gone",
        "got",
        "grown",
        "heard",
        "held",
        "hidden",
        "kept",
        "known",
        "laid",
        "led",
        "left",
        "lent",
        "lost",
        "made",
        "met",
        "paid",
        "said",
        "seen",
        "sent",
        "shown",
        "sold",
        "spent",
        "spoken",
        "spun",
        "stolen",
        "stood",
        "struck",
        "sunk",
        "sworn",
        "taken",
        "thought",
        "thrown",
        "told",
        "torn",
        "understood",
        "woken",
        "won",
        "worn",
        "written",
    ]
)
NO_PARTICIPLE = frozenset(
    ["embed", "exceed", "feed", "indeed", "need", "proceed", "seed", "shed", "speed", "succeed"]
)
PARTICLES = frozenset(
    [
        "across",
        "after",
        "again",
        "alone",
        "as",
        "at",
        "away",
        "back",
        "before",
        "by",
        "empty",
        "for",
        "from",
        "in",
        "into",
        "of",
        "off",
        "on",
        "once",
        "out",
        "over",
        "till",
        "together",
        "to",
        "until",
        "up",
        "via",
        "with",
    ]
)


FIELDS = frozenset(("locked_until", "locked_until_of"))  # the name that AMQP or Service Bus gives a value


def is_participle(word: str) -> bool:
    return word in IRREGULAR or (len(word) > 4 and word.endswith("ed") and word not in NO_PARTICIPLE)


def says_what_happened(name: str) -> bool:
    """Whether a name is a participle, alone or with a particle: ``_made``, ``parked_again``, ``settled_by_hand``."""
    words = name.strip("_").split("_")
    return name not in FIELDS and is_participle(words[0]) and (len(words) == 1 or words[1] in PARTICLES)


def returning(source: str) -> Iterator[tuple[str, str]]:
    """Name and return type of each function of a module that says what happened and yet returns something.

    A notification may return what its owner should know: it takes ``now``, or returns changes or events. A property is
    a state, which a participle may name.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and says_what_happened(node.name):
            returns = "None" if node.returns is None else ast.unparse(node.returns)
            is_notified = "now" in {each.arg for each in [*node.args.args, *node.args.kwonlyargs]}
            is_property = any("property" in ast.unparse(each) for each in node.decorator_list)
            if returns != "None" and not (is_notified or is_property or re.search("Change|Event", returns)):
                yield node.name, returns


def main() -> None:
    under = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "sbpair")
    for path in sorted(under.rglob("*.py")):
        for name, returns in returning(path.read_text("utf-8")):
            print(path.relative_to(ROOT), name, returns)


if __name__ == "__main__":
    main()
