"""The requirements that each test proves, and the client that it observes them with.

`@pytest.mark.spec("T-5")` names the requirement. The client is derived from the directory of the file, the fixtures
of the test, and whether it is async. `@pytest.mark.client("java")` on the test, its class or its file (`pytestmark`)
overrides it; the names are those of `CLIENTS`. Files are parsed, not run: a test that is skipped proves nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from tests.tools.source import ROOT, parse

SPEC_ID = re.compile(r"(?<![\w-])([ABPQTGFSRCOEHXKW])-(\d+)(?![\w-])")  # whole words: not UTF-8, not PT-1S
PROVES_NOTHING = {"skip", "xfail"}
RELEASE = re.compile(r"\d+\.\d+")
SINCE = re.compile(rf"planned|{RELEASE.pattern}|not driven: \S.*")
"""What a row may end with: the release that keeps it, or why none does."""

CLIENTS = {
    "model": "the broker's entities alone, with a simulated clock and without a network",
    "sbpair": "sbpair's own sender, syphon or commands",
    "amqp": "raw AMQP and HTTP, written by the tests",
    "azure-servicebus": "the unmodified blocking Python SDK, including its administration client",
    "azure-servicebus.aio": "the unmodified Python SDK for asyncio",
    "javascript": "the unmodified JavaScript SDK",
    "java": "the unmodified Java SDK",
    "go": "the unmodified Go SDK",
    "proton": "qpid-proton",
    "rhea": "rhea",
}
"""The clients, by the name in the marker."""

_BY_HAND = {"lab", "guarded", "ask"}  # fixtures of tests/broker that speak AMQP or HTTP


@dataclass(frozen=True, slots=True)
class Proof:
    """A test that proves ``id`` as ``client`` sees it; ``client`` is as it was marked, known or not."""

    id: str
    file: str
    test: str
    client: str


@dataclass(frozen=True, slots=True)
class Row:
    """One requirement: the cells of its row, and the file it stands in."""

    cells: tuple[str, ...]
    file: str

    @property
    def id(self) -> str:
        """In canonical form where it is well formed."""
        match = SPEC_ID.fullmatch(self.cells[0])
        return canonical(*match.groups()) if match else self.cells[0]

    @property
    def since(self) -> str:
        """The release that keeps it; or `planned`, or `not driven:` and the reason."""
        return self.cells[-1]

    @property
    def is_released(self) -> bool:
        return RELEASE.fullmatch(self.since) is not None


def rows_of(text: str, file: str = "") -> Iterator[Row]:
    """The rows of every table whose header begins with `id` and ends with `since`."""
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        cells = tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")))
        if cells[0] == "id":
            inside = cells[-1] == "since"
        elif inside and not set(cells[0]) <= set("-: "):
            yield Row(cells, file)


def canonical(letter: str, digits: str) -> str:
    """`F-01` and `F-1` are one id."""
    return f"{letter}-{int(digits)}"


def mark_of(node: ast.expr) -> tuple[str, ast.expr] | None:
    """`pytest.mark.NAME` or `pytest.mark.NAME(...)` as its name and its node."""
    attribute = node.func if isinstance(node, ast.Call) else node
    match attribute:
        case ast.Attribute(attr=name, value=ast.Attribute(attr="mark")):
            return name, node
    return None


@dataclass(frozen=True, slots=True)
class MarkedTest:
    """A test with the marks of its class and its file; ``client`` is whose eyes it looks through."""

    file: str
    name: str
    client: str
    marks: tuple[ast.AST, ...]

    def texts(self, mark: str) -> list[str]:
        """What is given to marks of that name, each once, those nearest to the test first."""
        return list(dict.fromkeys(_arguments(self.marks, mark)))


def marked_tests(source: str, file: str) -> Iterator[MarkedTest]:
    """The tests of one file that can prove something; ``file`` is its path below tests/."""
    tree = parse(source)
    whole = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    return _within(tree.body, whole, file)


def proofs_of(source: str, file: str) -> list[Proof]:
    """The proofs of one test file; ``file`` is its path below tests/."""
    return list(_proofs(marked_tests(source, file)))


def _proofs(tests: Iterable[MarkedTest]) -> Iterator[Proof]:
    return (
        Proof(canonical(*match.groups()), test.file, test.name, test.client)
        for test in tests
        for text in test.texts("spec")
        if (match := SPEC_ID.fullmatch(text))
    )


def _within(body: Sequence[ast.stmt], outer: Sequence[ast.AST], file: str) -> Iterator[MarkedTest]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _within(node.body, [*outer, *node.decorator_list], file)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            marks = (*outer, *node.decorator_list)
            if not PROVES_NOTHING & set(_names(marks)):
                client = next(iter(_arguments(marks, "client")), None) or _client(node, file)
                yield MarkedTest(file, node.name, client, marks)


def _names(marks: Sequence[ast.AST]) -> Iterator[str]:
    """The marks that stand on the test itself, and not on one of its parameters."""
    for node in marks:
        for each in node.elts if isinstance(node, ast.List) else [node]:
            if isinstance(each, ast.expr) and (found := mark_of(each)):
                yield found[0]


def _arguments(marks: Sequence[ast.AST], name: str) -> Iterator[str]:
    """The texts given to marks of that name, those nearest to the test first."""
    for outermost in reversed(marks):
        for node in ast.walk(outermost):
            if isinstance(node, ast.Call) and (found := mark_of(node)) and found[0] == name:
                yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))


def _client(test: ast.FunctionDef | ast.AsyncFunctionDef, file: str) -> str:
    room = file.partition("/")[0]
    if room == "broker":
        taken = {argument.arg for argument in test.args.args}
        return "amqp" if taken & _BY_HAND else "model"
    if room == "amqp":
        return "amqp"
    if room in ("wire", "interop"):
        return "azure-servicebus.aio" if isinstance(test, ast.AsyncFunctionDef) else "azure-servicebus"
    return "sbpair"


@cache
def all_proofs() -> tuple[Proof, ...]:
    """Every proof of every test, by file and in the order of the file."""
    return tuple(_proofs(tests_marked("spec")))


def tests_marked(mark: str) -> Iterator[MarkedTest]:
    """The tests of every file that names a mark, by file and in the order of the file; others are not parsed."""
    tests = ROOT / "tests"
    for file in sorted(tests.rglob("test_*.py")):
        source = file.read_text("utf-8")
        if f".{mark}(" in source:
            yield from marked_tests(source, file.relative_to(tests).as_posix())
