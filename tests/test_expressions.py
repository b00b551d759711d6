"""Every regular expression of the package takes time linear in its input, whatever the input.

The sources are read for the expressions and for the methods they are called with. Each is then given texts
made of its own pieces, repeated, and the processor time of this thread is looked at: at 16,384 characters a
linear one takes about a millisecond, a quadratic one three times the limit or more.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict, deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from re import _constants, _parser

import pytest

from tests.costs import cpu_of
from tests.tools.source import parse

PACKAGE = Path(__file__).resolve().parent.parent / "sbpair"
METHODS = {"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
SIZES = (
    20,
    23,
    26,
    30,
    36,
    44,
    54,
    66,
    80,
    128,
    256,
    1024,
    4096,
    16_384,
)  # an exponential one shows before it hangs
MOST_CPU = 0.05  # seconds of one call
WHOLE = 100  # a repeat that may go on for longer counts as one without an end
BUILT = {
    "sbpair/pair/cli/option_flags.py": "a field's name between word boundaries",
}
"""Files in which an expression is built out of what is only known later, and why that is linear."""


PARTS = 6  # one for each worker


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE.parent)), parse(path.read_text(encoding="utf-8"))


def is_re(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "re"


def calls(tree: ast.Module) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node, node.func


def as_text(pattern: str | bytes) -> str:
    """An expression over bytes as one over the letters of the same numbers: it takes the same steps."""
    return pattern if isinstance(pattern, str) else pattern.decode("latin-1")


@cache
def found() -> tuple[dict[tuple[str, int], set[str]], list[str]]:
    """Each expression (text, flags) with the methods it is called with, and the files that build some."""
    named: dict[str, set[tuple[str, int]]] = defaultdict(set)
    uses: dict[str, set[str]] = defaultdict(set)
    expressions: dict[tuple[str, int], set[str]] = defaultdict(set)
    built: list[str] = []
    for name, tree in modules():
        constants: set[ast.expr] = set()
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                call = node.value
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and is_re(call.func.value)
                ):
                    module = importlib.import_module(name.removesuffix(".py").replace("/", "."))
                    pattern = getattr(module, node.targets[0].id)
                    named[node.targets[0].id].add((as_text(pattern.pattern), pattern.flags))
                    constants.add(call)
        for call, method in calls(tree):
            if is_re(method.value) and method.attr in METHODS | {"compile"} and call not in constants:
                text = call.args[0]
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    expressions[text.value, 0].add(method.attr if method.attr != "compile" else "search")
                else:
                    built.append(name)
            elif method.attr in METHODS and isinstance(method.value, ast.Name | ast.Attribute):
                of = method.value
                uses[of.id if isinstance(of, ast.Name) else of.attr].add(method.attr)
    for constant, patterns in named.items():
        for pattern in patterns:
            expressions[pattern] |= uses[constant] or {"search"}
    return expressions, built


def representatives(items: list) -> str:
    """Characters of a class, one of each of its parts that is not too wide."""
    negated = items[0][0] is _constants.NEGATE
    probes = "aZ0 _-./:;,'\"\\&=%\t\n]é"
    if negated:
        return "".join(c for c in probes if not any(c in representatives([item]) for item in items[1:]))
    chosen = ""
    for kind, value in items:
        if kind is _constants.LITERAL:
            chosen += chr(value)
        elif kind is _constants.RANGE:
            chosen += chr(value[0])
        elif kind is _constants.CATEGORY:
            chosen += {
                _constants.CATEGORY_DIGIT: "0", _constants.CATEGORY_NOT_DIGIT: "a ",
                _constants.CATEGORY_SPACE: " \t", _constants.CATEGORY_NOT_SPACE: "a-",
                _constants.CATEGORY_WORD: "aZ0_", _constants.CATEGORY_NOT_WORD: " -",
            }[value]  # fmt: skip
    return chosen


def samples(tree: object, before: str = "") -> Iterator[tuple[str, str, bool]]:
    """What an expression is made of: (what comes before it, a text it matches, is it an endless repeat)."""
    for kind, value in tree:
        text, inner = "", []
        if kind is _constants.LITERAL:
            text = chr(value)
        elif kind is _constants.NOT_LITERAL:
            text = "a" if value != ord("a") else "b"
        elif kind is _constants.ANY:
            text = "a"
        elif kind is _constants.IN:
            chars = representatives(value)
            text = chars[:1]
            yield from ((before, char, False) for char in chars[:6])
        elif kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
            low, high, body = value
            inner = [body]
            text = sample_of(body)
            yield before, text, int(high) > WHOLE
            text *= max(int(low), 1 if int(high) > WHOLE else 0)
        elif kind is _constants.SUBPATTERN:
            inner = [value[3]]
            text = sample_of(value[3])
        elif kind is _constants.BRANCH:
            inner = value[1]
            text = sample_of(value[1][0])
        elif kind in (_constants.ASSERT, _constants.ASSERT_NOT):
            inner = [value[1]]
        elif kind is _constants.ATOMIC_GROUP:
            inner = [value]
            text = sample_of(value)
        yield before, text, False
        for each in inner:
            yield from samples(each, before)
        before += text


def sample_of(tree: object) -> str:
    """A text that a piece of an expression matches."""
    last = ""
    for before, text, is_repeat in list(samples(tree)):
        if not is_repeat and len(before + text) >= len(last):
            last = before + text
    return last


def attacks(pattern: str, flags: int) -> set[tuple[str, str, str]]:
    """Beginnings, pumps and ends out of which texts for an expression are made."""
    parts = list(samples(_parser.parse(pattern, flags)))
    pumps = {text for _, text, _ in parts if text} | {" ", "a", "0"}
    pumps |= {before + text for before, text, _ in parts if 1 < len(before + text) <= 24}
    begins = {""} | {before for before, _, is_repeat in parts if is_repeat and len(before) <= 40}
    return {(begin, pump, end) for begin in begins for pump in pumps for end in ("", "\0")}


def cpu(expression: re.Pattern[str], method: str, text: str) -> float:
    """Seconds that one call takes of this thread."""
    given = ("", text) if method in ("sub", "subn") else (text,)

    def call() -> None:
        result = getattr(expression, method)(*given)
        if method == "finditer":
            deque(result, maxlen=0)

    return cpu_of(call)


def slowest(pattern: str, flags: int, methods: set[str]) -> tuple[float, str]:
    """CPU seconds of the worst call, and what it was."""
    compiled, worst = re.compile(pattern, flags), (0.0, "")
    for begin, pump, end in attacks(pattern, flags):
        for size in SIZES:
            text = begin + pump * (size // len(pump)) + end
            for method in methods:
                took = cpu(compiled, method, text)
                worst = max(worst, (took, f"{method} of {begin!r} + {pump!r} * {size} + {end!r}"))
            if worst[0] > MOST_CPU:
                return worst
    return worst


@pytest.mark.spec("R-40")
@pytest.mark.parametrize("part", range(PARTS))
def test_an_expression_takes_time_in_proportion_to_its_text(part: int) -> None:
    expressions, _ = found()
    slow = [
        f"{pattern!r}: {took:.2f} s for {call}"
        for pattern, flags in sorted(expressions)[part::PARTS]
        for took, call in [slowest(pattern, flags, expressions[pattern, flags])]
        if took > MOST_CPU
    ]
    assert not slow


@pytest.mark.spec("R-40")
def test_no_expression_is_compiled_from_text_known_only_at_run_time() -> None:
    expressions, built = found()
    assert set(built) == set(BUILT)
    assert len(expressions) > 40


@pytest.mark.spec("R-40")
@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"[A-Za-z][A-Za-z0-9+.-]*://", "search"),  # every place is a beginning
        (r"(a+)+b", "match"),
        (r"(\w+\s?)+!", "match"),
        (r"x\s*\s*=", "match"),
        (r"(?:ab|a|b)*c", "search"),
        (r"\s+$", "sub"),
    ],
)
def test_a_superlinear_expression_would_be_found(pattern: str, method: str) -> None:
    assert slowest(pattern, re.compile(pattern).flags, {method})[0] > MOST_CPU


@pytest.mark.spec("R-40")
@pytest.mark.parametrize("pattern", ["%a" * 200, "a%" * 200, "_%" * 300, "%" * 512, "%" + "a" * 500])
def test_a_like_pattern_takes_time_in_proportion_to_text_and_pattern(pattern: str) -> None:
    from sbpair.broker.entities.rules.like_pattern import like_pattern

    assert cpu_of(lambda: like_pattern(pattern, None).matches("a" * 16_384 + "b")) <= MOST_CPU
