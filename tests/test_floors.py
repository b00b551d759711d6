"""The layering of the packages: imports are checked against docs/explanation/architecture.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.tools.parts import PARTS
from tests.tools.source import parse

PACKAGE = Path(__file__).resolve().parent.parent / "sbpair"

SOCKETS_AND_CLOCKS = {"asyncio", "socket", "ssl", "threading", "time", "selectors", "random", "logging"}
HEAVY = ("aiohttp", "rich", "cryptography", "pyspark", "click", "httpx", "prometheus_client", "opentelemetry")

VOCABULARY = ("events", "options", "outcome")

SYPHONS_ENVELOPE = (
    "names",
    "aliases",
    "ordering",
    "values",
    "scan",
    "restore",
    "inspect",
)

DOORS = {"audit", "observation", "processor", "spark", "syphon", "testing", "tracing"}
"""The short names by which programs import what is within a part."""

WITHOUT_CIRCLES = (
    "data/audit",
    "pair/auth",
    "pair/cli",
    "pair/client",
    "contract",
    "pair/envelope",
    "pair/observation",
    "pair/paired_client",
    "pair/pairing",
    "pair/processor",
    "pair/syphon",
    "broker/testing",
    "pair/tracing",
)

RECEIVING = {"pair/amqp", "pair/auth", "pair/client", "pair/envelope", "pair/ground", "pair/tracing"}

# room: the rooms of ours it may import, beside itself
FLOORS: dict[str, set[str]] = {
    "pair/ground": set(),
    "pair/amqp": set(),
    "pair/tracing": {"pair/ground"},
    "pair/auth": {"pair/ground"},
    "pair/envelope": {"pair/amqp", "pair/auth", "pair/ground"},
    "pair/client": {"pair/amqp", "pair/auth", "pair/ground"},
    "pair/observation": {"pair/amqp", "pair/auth", "pair/ground", "pair/tracing"},  # of amqp its build alone
    "pair/pairing": {"pair/auth", "pair/envelope", "pair/ground", "pair/tracing"},
    "pair/syphon": RECEIVING,
    "pair/processor": RECEIVING,
    "pair/paired_client": RECEIVING - {"pair/amqp"}
    | {"pair/observation", "pair/pairing", "pair/processor", "pair/syphon"},
    "pair/cli": RECEIVING | {"pair/observation", "pair/pairing", "pair/processor", "pair/syphon"},
    "broker": {
        "pair/amqp",
        "pair/ground",
        "pair/observation",
    },  # the last for its server alone: it writes the journal
    "broker/testing": {
        "broker",
        "pair/amqp",
        "pair/client",
        "pair/envelope",
        "pair/ground",
        "pair/paired_client",
        "pair/pairing",
        "pair/processor",
        "pair/syphon",
    },
    "broker/cli": {
        "broker",
        "broker/testing",
        "pair/amqp",
        "pair/auth",
        "pair/cli",
        "pair/client",
        "pair/envelope",
        "pair/ground",
        "pair/observation",
        "pair/syphon",  # how `sbpair peek` peeks
    },
    "data/audit": {"pair/ground", "pair/observation"},  # the latter for the names of journal files
    "data/spark": RECEIVING | {"data/audit", "pair/observation", "pair/pairing", "pair/syphon"},
    "data/cli": {"data/audit", "data/spark", "pair/cli", "pair/ground", "pair/observation"},
    "contract": RECEIVING | {"broker/testing", "pair/pairing", "pair/syphon"},
    "contract/cli": RECEIVING
    | {
        "broker",
        "broker/testing",
        "contract",
        "data/audit",  # the ids of canaries
        "pair/cli",
        "pair/observation",
        "pair/pairing",
        "pair/processor",
        "pair/syphon",
    },
}


def modules(room: str) -> Iterator[Path]:
    """The modules of a room, or of a folder in one; a room within another is one of its own."""
    own = room_of_path(PACKAGE / room / "__init__.py")
    yield from (path for path in sorted((PACKAGE / room).rglob("*.py")) if room_of_path(path) == own)


def room_of_path(path: Path) -> str:
    """The nearest room of a module: `pair/amqp`, or `broker` for one of its folders; empty for a door."""
    folders = path.relative_to(PACKAGE).parts[:-1]
    names = ("/".join(folders[:size]) for size in (2, 1))
    return next((name for name in names if name in FLOORS), "")


def dotted(path: Path) -> list[str]:
    return list(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def imports(path: Path, *, run_time_only: bool = True) -> set[str]:
    """Every module ``path`` imports, absolute; what stands under TYPE_CHECKING is not run."""
    run, typed = _imports(path)
    return set(run if run_time_only else run | typed)


@cache
def _imports(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The imports of one file that are run, and those under TYPE_CHECKING."""
    nodes = list(ast.walk(parse(path.read_text(encoding="utf-8"))))
    under: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            under.update(inner for statement in node.body for inner in ast.walk(statement))
    run = [node for node in nodes if node not in under]
    return frozenset(_imported(path, run)), frozenset(_imported(path, under))


def _imported(path: Path, nodes: Iterable[ast.AST]) -> set[str]:
    found: set[str] = set()
    package = dotted(path)[:-1]
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.add(module)
            found.update(f"{module}.{alias.name}" for alias in node.names if not node.module or node.level)
    return found


def rooms_of(names: set[str]) -> set[str]:
    """The rooms of imported modules; a door, such as sbpair.syphon, by its own name."""
    found = set()
    for name in names:
        if name.startswith("sbpair."):
            parts = name.split(".")
            rooms = ["/".join(parts[1:size]) for size in (3, 2) if size <= len(parts)]
            found.add(next((room for room in rooms if room in FLOORS), parts[1]))
    return found


def foreign(names: set[str]) -> set[str]:
    tops = {name.split(".")[0] for name in names} - {"sbpair", "__future__"}
    return {top for top in tops if top not in sys.stdlib_module_names}


@pytest.mark.parametrize("room", FLOORS)
def test_a_package_imports_only_from_the_floors_below(room: str) -> None:
    allowed = FLOORS[room] | {
        room,
        "aio",
        "events",
        "pair",
    }  # the asyncio client and the events as programs have them; `pair` itself is empty
    for path in modules(room):
        above = rooms_of(imports(path)) - allowed
        assert not above, f"{path.name} of {room} imports {sorted(above)}"


def test_every_module_belongs_to_a_room_or_is_a_public_door() -> None:
    doors = {
        "__main__",
        "aio",
        "audit",
        "events",
        "observation",
        "processor",
        "spark",
        "spark.audit",
        "syphon",
        "testing",
        "tracing",
    }
    found = {
        module_of(path).removeprefix("sbpair.")
        for path in PACKAGE.rglob("*.py")
        if not room_of_path(path) and path.parent.parent != PACKAGE.parent.parent
    }
    assert found - {"sbpair", "pair", "data", "pair.public"} == doors


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_only_the_allowed_parts(part: str) -> None:
    """Not even for a type."""
    allowed = {part, *PARTS[part].imports}
    for path in (PACKAGE / part).rglob("*.py"):
        used = {room.partition("/")[0] for room in rooms_of(imports(path, run_time_only=False))}
        assert used & PARTS.keys() <= allowed, f"{path.name} imports {sorted(used - allowed)}"


def test_a_public_door_is_not_imported_by_the_parts() -> None:
    for part in PARTS:
        for path in (PACKAGE / part).rglob("*.py"):
            assert not rooms_of(imports(path, run_time_only=False)) & DOORS, path.name


def test_the_engine_and_the_entities_need_the_standard_library_only() -> None:
    for path in [*modules("pair/amqp"), *folder("broker/entities")]:
        assert not foreign(imports(path)), path.name


def folder(name: str) -> Iterator[Path]:
    yield from sorted((PACKAGE / name).rglob("*.py"))


def test_the_entities_import_no_other_room_but_the_table_of_their_settings() -> None:
    for path in folder("broker/entities"):
        others = {name for name in imports(path) if rooms_of({name}) - {"broker"}}
        assert others <= {"sbpair.pair.ground.entity_settings"}, path.name


def test_only_the_server_of_the_broker_writes_journals() -> None:
    for path in modules("broker"):
        if path.parent.name != "server":
            assert "pair/observation" not in rooms_of(imports(path)), path.name


def test_only_the_server_of_the_broker_opens_sockets_or_reads_a_clock() -> None:
    allowed = {"server.py", "clock.py"}
    forbidden = {"asyncio", "socket", "threading", "time", "selectors"}
    for path in modules("broker"):
        if path.name not in allowed and path.parent.name != "server":
            used = {name.split(".")[0] for name in imports(path)}
            assert not used & forbidden, f"{path.name} imports {sorted(used & forbidden)}"


def test_send_decisions_import_no_sdk_clock_thread_or_global_randomness() -> None:
    vocabulary = [PACKAGE / "pair/pairing" / f"{name}.py" for name in VOCABULARY]
    for path in [*folder("pair/pairing/decide"), *vocabulary]:
        found = imports(path)
        used = {imported.split(".")[0] for imported in found}
        assert not foreign(found), path.name
        assert not used & (SOCKETS_AND_CLOCKS - {"random"}), path.name
        if "random" in used:  # the class, handed in and seeded; never the module's own generator
            assert "random.random(" not in path.read_text(encoding="utf-8"), path.name
        inner = {name.split(".")[3] for name in found if name.startswith("sbpair.pair.pairing.")}
        assert inner <= {"decide", *VOCABULARY}, path.name


def test_the_blocking_and_the_asyncio_client_do_not_import_each_other() -> None:
    for skin, other in (("blocking", "aio"), ("aio", "blocking")):
        for path in folder(f"pair/pairing/{skin}"):
            assert not any(f"pairing.{other}" in name for name in imports(path, run_time_only=False)), (
                path.name
            )


@pytest.mark.parametrize("room", ["pair/syphon", "pair/processor"])
def test_receiving_code_imports_no_sending_code(room: str) -> None:
    """Not even for a type; which side is meant and the fork stand on the ground floor."""
    for path in modules(room):
        assert "pair/pairing" not in rooms_of(imports(path, run_time_only=False)), path.name


def test_the_ground_needs_the_standard_library_only() -> None:
    for path in modules("pair/ground"):
        assert not rooms_of(imports(path, run_time_only=False)) - {"pair/ground"}, path.name
        assert not foreign(imports(path)), path.name


def test_the_envelope_code_used_by_the_syphon_imports_no_sdk() -> None:
    allowed = {f"sbpair.pair.envelope.{name}" for name in SYPHONS_ENVELOPE}
    for name in SYPHONS_ENVELOPE:
        used = imports(PACKAGE / "pair/envelope" / f"{name}.py")
        assert not foreign(used), name
        assert not {top.split(".")[0] for top in used} & SOCKETS_AND_CLOCKS, name
    for path in modules("pair/syphon"):
        taken = {name for name in imports(path) if name.startswith("sbpair.pair.envelope.")}
        assert taken <= allowed, f"{path.name} imports {sorted(taken - allowed)}"


@pytest.mark.spec("R-194")
def test_only_tracing_and_the_export_command_import_opentelemetry() -> None:
    allowed = {"pair/tracing/opentelemetry.py", "pair/cli/syphon/monitoring.py"}
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(name.split(".")[0] == "opentelemetry" for name in imports(path))
    }
    assert users == allowed


@pytest.mark.parametrize("room", WITHOUT_CIRCLES)
def test_no_two_modules_of_a_room_import_each_other(room: str) -> None:
    """Not even for a type: what stands under TYPE_CHECKING counts too."""
    known = {".".join(dotted(path)): path for path in modules(room)}
    graph = {name: imports(path, run_time_only=False) & known.keys() for name, path in known.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def module_of(path: Path) -> str:
    parts = dotted(path)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(*, run_time_only: bool) -> dict[str, set[str]]:
    """Every module of ours, and those of ours that it imports, inside functions too."""
    files = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        graph[name] = {each for each in imports(path, run_time_only=run_time_only) if each in files} - {name}
        # "from . import events" names the package too: it is the module that is meant
        graph[name] -= {each for each in graph[name] if name.startswith(f"{each}.") or each == "sbpair"}
    return graph


def circles(graph: dict[str, set[str]]) -> set[str]:
    """The modules that lie on a circle: what remains when those that end nowhere are taken away."""
    left = {name: set(targets) for name, targets in graph.items()}
    for _ in range(2):
        while loose := {name for name, targets in left.items() if not targets & left.keys()}:
            left = {name: targets for name, targets in left.items() if name not in loose}
        # and the other way round: those that nobody on a circle imports
        left = {name: {source for source, targets in left.items() if name in targets} for name in left}
    return set(left)


def test_an_import_cycle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": set()}
    assert circles(graph) == {"b", "c"}


def test_there_are_no_import_cycles() -> None:
    assert circles(import_graph(run_time_only=True)) == set()


def test_type_only_cycles_exist_only_where_listed() -> None:
    known = ("sbpair.pair.amqp.", "sbpair.broker.entities.")
    found = circles(import_graph(run_time_only=False))
    assert {name for name in found if not name.startswith(known)} == set()


def test_nothing_imports_the_command_line() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        if "cli" not in path.parts and path.name != "__main__.py":
            assert not {room for room in rooms_of(imports(path)) if room.endswith("/cli")}, path.name


@pytest.mark.spec("S-20")
def test_only_one_file_of_pairing_uses_private_names_of_the_sdk() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        private = {name for name in imports(path) if name.startswith("azure.servicebus._")}
        assert not private or path.relative_to(PACKAGE).as_posix() == "pair/pairing/request/sdk.py", path.name


@pytest.mark.parametrize(
    "statement", ["import sbpair", "import sbpair.pair.amqp", "from sbpair import PairedServiceBusClient"]
)
def test_importing_the_package_is_cheap(statement: str) -> None:
    program = f"import sys; {statement}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_blocking_client_imports_no_asyncio_and_no_database() -> None:
    later = ("asyncio", "sqlite3", "azure.servicebus._pyamqp.aio", "azure.servicebus.aio")
    program = (
        "import sys; from sbpair import PairedServiceBusClient; "
        f"print([name for name in {later!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
