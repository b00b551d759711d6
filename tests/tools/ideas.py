"""Count how often the ideas that should be built once are built, now and at an earlier commit.

    python -m tests.tools.ideas              the figures of this tree, as a table
    python -m tests.tools.ideas COMMIT       those of COMMIT and of this tree, side by side
    python -m tests.tools.ideas --names      and the modules or classes that are counted

What is counted is found by what a module says, not by a list: see the functions below.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping

from tests.tools.names import ROOT, returning

HOSTS = frozenset(["host", "netloc", "hostname", "endpoint", "namespace", "fully_qualified_namespace"])
WAYS = frozenset(
    [
        "credential",
        "tokens",
        "connection_string",
        "reference",
        "ca_file",
        "route",
        "ssl_context",
        "use_tls",
        "uses_tls",
        "custom_endpoint_address",
    ]
)
FORMATS = frozenset((0x45, 0x53, 0xC0, 0xC1, 0xD0, 0xD1))
CODEC = (
    "amqp/decoding.py",
    "amqp/encoding.py",
    "amqp/composite.py",
    "amqp/fast_path.py",
    "amqp/performatives.py",
)
PROPERTIES = frozenset(
    [
        "message_id",
        "user_id",
        "to",
        "subject",
        "reply_to",
        "correlation_id",
        "content_type",
        "content_encoding",
        "absolute_expiry_time",
        "creation_time",
        "group_id",
        "group_sequence",
        "reply_to_group_id",
    ]
)

Sources = Mapping[str, str]  # by path below sbpair


def tree_of(commit: str | None) -> Sources:
    """The sources of the package at a commit, or of the working tree."""
    if commit is None:
        package = ROOT / "sbpair"
        return {
            str(path.relative_to(package)): path.read_text("utf-8") for path in sorted(package.rglob("*.py"))
        }
    packed = subprocess.run(
        ["git", "archive", commit, "sbpair"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = sorted((each for each in archive if each.name.endswith(".py")), key=lambda each: each.name)
        found = ((each.name.removeprefix("sbpair/"), archive.extractfile(each)) for each in members)
        return {name: file.read().decode() for name, file in found if file is not None}


def statements(sources: Sources) -> Iterator[str]:
    """Every statement, docstrings left out."""
    for path, tree in _trees(sources):
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if isinstance(node, ast.stmt) and not is_text:
                yield path


def namespaces(sources: Sources) -> Iterator[str]:
    """Classes outside the broker that hold the host of a namespace and how it is opened.

    A ``name`` is the name of a queue as often as of a host, and does not count.
    """
    for path, tree in _trees(sources, without=("broker/", "testing/")):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = set(_fields(node))
                if names & HOSTS and names & WAYS:
                    yield f"{path}: {node.name}"


def checkers(sources: Sources) -> Iterator[str]:
    """Modules outside the broker that look for the key in the fields of a connection string, and raise."""
    for path, tree in _trees(sources, without=("broker/", "testing/")):
        if "sharedaccesskeyname" in {text.casefold() for text in _texts(tree)} and _raises_about_fields(tree):
            yield path


def consumers(sources: Sources) -> Iterator[str]:
    """Modules that settle over a receiver themselves, and so decide when, in which runs and what a lost link means.

    One is :mod:`sbpair.client.settling`. Whoever gives it a delivery is its user, and does not count. The contract does
    not count either: it asks of a broker what a single disposition does, so it must not have a consumer between.
    """
    settles = re.compile(r"\breceiver\.(settle|settled_run|settle_and_wait)\(")
    for path, source in sources.items():
        if settles.search(source) and not path.startswith(("amqp/", "broker/", "testing/", "contract/")):
            yield path


def scanners(sources: Sources) -> Iterator[str]:
    """Modules outside the codec that read sections byte by byte.

    They know the format codes of lists and maps, or the first bytes of a section, as bytes or as a number.
    """
    for path, tree in _trees(sources, without=CODEC):
        numbers = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and type(node.value) is int
        }
        heads = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and type(node.value) is bytes
        ]
        knows_heads = any(head.startswith(b"\x00\x53") for head in heads) or any(
            number >> 16 == 0x53 for number in numbers
        )
        if len(numbers & FORMATS) > 1 or knows_heads:
            yield path


def property_lists(sources: Sources) -> Iterator[str]:
    """Modules that name most of the thirteen properties of a message."""
    for path, source in sources.items():
        words = set(re.findall(r"[a-z_]+", source.lower().replace("-", "_")))
        if len(words & PROPERTIES) > 9:
            yield path


def entity_fields(sources: Sources) -> Iterator[str]:
    """Modules that spell a field which only some entities have."""
    return (path for path, source in sources.items() if re.search(r"\brequires_session\b", source))


def participles(sources: Sources) -> Iterator[str]:
    """Functions that return something and are named like notifications; see tests/tools/names.py."""
    for path, source in sources.items():
        for name, _ in returning(source):
            yield f"{path}: {name}"


def arrows(sources: Sources) -> Iterator[str]:
    """Modules of the syphon and the processor that import something of pairing."""
    for path, source in sources.items():
        if path.startswith(("syphon/", "processor/")) and re.search(r"^\s*from \S*\bpairing\b", source, re.M):
            yield path


IDEAS: dict[str, Callable[[Sources], Iterator[str]]] = {
    "files": iter,
    "lines": lambda sources: (path for path, source in sources.items() for _ in source.splitlines()),
    "statements": statements,
    "classes that describe a namespace": namespaces,
    "checkers of connection strings": checkers,
    "consumers": consumers,
    "scanners of sections": scanners,
    "lists of the thirteen properties": property_lists,
    "modules with requires_session": entity_fields,
    "participles that return": participles,
    "arrows from what receives to what sends": arrows,
}


def _trees(sources: Sources, without: tuple[str, ...] = ()) -> Iterator[tuple[str, ast.Module]]:
    return (
        (path, ast.parse(source)) for path, source in sources.items() if not path.startswith(without or "\0")
    )


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """The fields of a class: annotated in its body, or parameters of its constructor."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id
        elif isinstance(each, ast.FunctionDef) and each.name == "__init__":
            yield from (argument.arg for argument in [*each.args.args, *each.args.kwonlyargs])


def _texts(tree: ast.AST) -> Iterator[str]:
    return (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _raises_about_fields(tree: ast.Module) -> bool:
    """Whether a function of the module names the key of a connection string and says what is wrong with it."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return any(
        any(text.casefold().startswith("sharedaccesskey") for text in _texts(each))
        and (any(isinstance(node, ast.Raise) for node in ast.walk(each)) or "missing" in ast.unparse(each))
        for each in functions
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.ideas", description=__doc__)
    parser.add_argument("commit", nargs="?", help="the commit to compare with")
    parser.add_argument("--names", action="store_true", help="list what is counted")
    given = parser.parse_args()
    commits = [given.commit, None] if given.commit else [None]
    trees = [tree_of(commit) for commit in commits]
    for idea, find in IDEAS.items():
        found = [list(find(tree)) for tree in trees]
        print(f"{idea:<42}" + "".join(f"{len(each):>9,}" for each in found))
        if given.names and len(found[-1]) < 100:
            print("".join(f"    {name}\n" for name in found[-1]), end="")


if __name__ == "__main__":
    main()
