"""Write the parts of docs/ that stand in the code already: `python -m tests.tools.generate_docs`.

A page marks a block; what is between its two comments is replaced:

    <!-- generated:options -->
    ...
    <!-- /generated:options -->

test_docs.py fails when a block is stale. Field and member docs are read from the source, the rest is asked
of the modules themselves.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"(<!-- generated:([\w-]+) -->\n)(.*?)(<!-- /generated:\2 -->)", re.DOTALL)
HELP_WIDTH = 100


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


# --- reading the source


def _class(path: str, name: str) -> ast.ClassDef:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def documented_fields(path: str, name: str) -> list[tuple[str, str, str, str]]:
    """(name, type, default, doc) of each field of a dataclass; the doc is the string below the field."""
    body = _class(path, name).body
    found = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        match node:
            case ast.AnnAssign(target=ast.Name(id=field), annotation=kind) if "ClassVar" not in ast.unparse(
                kind
            ):
                default = ast.unparse(node.value) if node.value else "required"
                found.append((field, ast.unparse(kind), default, _string(after)))
    return found


def _string(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def commented_members(path: str, name: str) -> list[tuple[str, str, str]]:
    """(name, value, comment) of each member of an enum or field of a dataclass; the comment ends its line."""
    lines = (ROOT / path).read_text("utf-8").splitlines()
    found = []
    for node in _class(path, name).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=member)]) | ast.AnnAssign(target=ast.Name(id=member)) if (
                node.value
            ):
                comment = lines[node.end_lineno - 1].partition("  # ")[2]
                found.append((member, str(ast.literal_eval(node.value)), comment))
    return found


def documented_classes(path: str) -> list[tuple[str, str, str]]:
    """(name, first base, first paragraph of the docstring) of each public class of a module."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    return [
        (node.name, ast.unparse(node.bases[0]) if node.bases else "", _opening(ast.get_docstring(node) or ""))
        for node in classes
    ]


def _opening(docstring: str) -> str:
    return docstring.partition("\n\n")[0]


# --- the blocks


def transitions() -> str:
    """The state diagram, drawn from the machine's own table."""
    from sbpair.pairing.health import TRANSITIONS, EntityState

    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, cause), after in TRANSITIONS.items():
        arrows.setdefault((before.name, after.name), []).append(cause.value)
    drawn = [f"    {a} --> {b}: {',<br/>or '.join(causes)}" for (a, b), causes in arrows.items()]
    start = next(iter(EntityState)).name
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {start}", *drawn, "```", ""])


def states() -> str:
    rows = [
        (f"`{name}`", doc) for name, _, doc in commented_members("sbpair/pairing/health.py", "EntityState")
    ]
    return table(("state", "what sends do"), rows)


def events() -> str:
    return _events("sbpair/pairing/events.py", "PairingEvent", "`at` and `path`")


def syphon_events() -> str:
    return _events("sbpair/syphon/events.py", "SyphonEvent", "`at`")


def _events(path: str, base: str, common: str) -> str:
    rows = [
        (f"`{name}`", doc, ", ".join(f"`{field}`" for field, *_ in documented_fields(path, name)))
        for name, parent, doc in documented_classes(path)
        if parent == base
    ]
    return table(("event", "what happened", f"fields, beside {common}"), rows)


def options() -> str:
    fields = documented_fields("sbpair/pairing/options.py", "PairedNamespaceOptions")
    return table(("option", "type", "default", "what it is"), [_option(*field) for field in fields])


def observation_options() -> str:
    fields = documented_fields("sbpair/pairing/options.py", "ObservationOptions")
    return table(("option", "type", "default", "what it is"), [_option(*field) for field in fields])


def _option(name: str, kind: str, default: str, doc: str) -> tuple[str, ...]:
    return f"`{name}`", f"`{kind}`", f"`{default}`", doc


def errors() -> str:
    return _errors("sbpair/envelope/errors.py", "sbpair/pairing/errors.py")


def syphon_errors() -> str:
    return _errors("sbpair/client/errors.py")


def _errors(*paths: str) -> str:
    found = [each for path in paths for each in documented_classes(path)]
    rows = [(f"`{name}`", f"`{base}`", doc) for name, base, doc in found]
    return table(("error", "is a", "what happened"), rows)


def failures() -> str:
    rows = commented_members("sbpair/pairing/outcome.py", "Failure")
    return table(("kind", "what becomes of the message"), [(value, doc) for _, value, doc in rows])


def outcomes() -> str:
    """How errors are judged: the classes, then the conditions of a bare ServiceBusError."""
    from sbpair.pairing.classify import BY_CLASS, BY_CONDITION

    return "\n".join(
        (
            _grouped("errors", {_qualified(error): verdict for error, verdict in BY_CLASS.items()}),
            "A bare `ServiceBusError` is judged by the AMQP condition inside it:\n",
            _grouped("conditions", BY_CONDITION),
        )
    )


def _grouped(title: str, judged: Mapping[str, tuple[Enum, str]]) -> str:
    groups: dict[tuple[Enum, str], list[str]] = {}
    for name, verdict in judged.items():
        groups.setdefault(verdict, []).append(f"`{name}`")
    order = list(type(next(iter(groups))[0]))
    rows = sorted(groups.items(), key=lambda row: order.index(row[0][0]))
    return table(
        ("kind", "why", title), [(str(kind.value), why, ", ".join(names)) for (kind, why), names in rows]
    )


def _qualified(error: type[BaseException]) -> str:
    package = error.__module__.partition(".")[0]
    return error.__name__ if package in ("builtins", "azure") else f"{error.__module__}.{error.__name__}"


def syphon_options() -> str:
    fields = documented_fields("sbpair/syphon/options.py", "SyphonOptions")
    return table(("option", "type", "default", "what it is"), [_option(*field) for field in fields])


def syphon_counters() -> str:
    rows = commented_members("sbpair/syphon/status.py", "SyphonCounters")
    return table(("counter", "what it counts"), [(f"`{name}`", doc) for name, _, doc in rows])


def dead_letter_reasons() -> str:
    from sbpair.syphon.delivery import DEAD_LETTER_REASONS

    reasons: dict[str, list[str]] = {}
    for condition, reason in DEAD_LETTER_REASONS.items():
        reasons.setdefault(reason, []).append(f"`{condition}`")
    return table(
        ("dead-letter reason", "the primary answered"), [(f"`{r}`", ", ".join(c)) for r, c in reasons.items()]
    )


def entity_fields() -> str:
    from sbpair.broker import QueueDescription, SubscriptionDescription, TopicDescription

    kinds = (QueueDescription, TopicDescription, SubscriptionDescription)
    defaults = [{field.name: f"`{field.default!r}`" for field in dataclasses.fields(kind)} for kind in kinds]
    names = dict.fromkeys(name for each in defaults for name in each)
    rows = [(f"`{name}`", *(each.get(name, "-") for each in defaults)) for name in names]
    return table(("field", "of a queue", "of a topic", "of a subscription"), rows)


def limits() -> str:
    fields = documented_fields("sbpair/amqp/limits.py", "Limits")
    return table(
        ("limit", "value", "what it bounds"), [(f"`{n}`", f"`{value}`", doc) for n, _, value, doc in fields]
    )


def broker_errors() -> str:
    from sbpair.broker import errors

    rows = []
    for name, _, doc in documented_classes("sbpair/broker/errors.py"):
        error = getattr(errors, name)
        rows.append((f"`{name}`", f"`{error.condition}`", f"{error.status} / {error.sub_code}", doc))
    return table(("error", "on AMQP", "on HTTP", "what it says"), rows)


def exit_codes() -> str:
    rows = commented_members("sbpair/cli/errors.py", "ExitCode")
    return table(("exit code", "name", "meaning"), [(v, name, doc or name.lower()) for name, v, doc in rows])


def cli_errors() -> str:
    from sbpair.cli.errors import KNOWN

    rows = [(f"`{name}`", str(int(row.code)), row.next_step or "as it says") for name, row in KNOWN.items()]
    return table(("error", "exit code", "next step"), rows)


def cli() -> str:
    from sbpair.cli.group import COMMANDS

    pages: list[list[str]] = [[]]
    for name in sorted(COMMANDS):
        pages += [[name], *([name, inner] for inner in subcommands(name))]
    return "\n".join(
        f"##{'#' * (len(page) > 1)} {' '.join(['sbpair', *page])}\n\n```text\n{_help(page)}```\n"
        for page in pages
    )


def subcommands(name: str) -> list[str]:
    """The commands within a command; none for most."""
    import click

    from sbpair.cli.group import cli as group

    found = group.get_command(click.Context(group), name)
    return sorted(found.commands) if isinstance(found, click.Group) else []


def _help(arguments: list[str]) -> str:
    from click.testing import CliRunner

    from sbpair.cli.group import cli as group

    _forget_help_options(group)
    widths = {"terminal_width": HELP_WIDTH, "max_content_width": HELP_WIDTH}
    result = CliRunner().invoke(group, [*arguments, "--help"], prog_name="sbpair", **widths)
    if result.exit_code != 0:
        raise RuntimeError(
            f"sbpair {' '.join(arguments)} --help failed: {result.output}"
        ) from result.exception
    return result.output


def _forget_help_options(command: click.Command) -> None:
    """click keeps the help option of the first context a command was called in; ours is the group's."""
    vars(command)["_help_option"] = None
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            if inner is not None:
                _forget_help_options(inner)


EVENT_HOMES = (
    ("sender", "sbpair/pairing/events.py"),
    ("syphon", "sbpair/syphon/events.py"),
    ("syphon", "sbpair/syphon/status.py"),
    ("asked for", "sbpair/observation/messages.py"),
    ("broker", "sbpair/broker/entities/audit_recorder.py"),
    ("all", "sbpair/observation/journal.py"),
)
NO_EVENTS = {"PairingEvent", "SyphonEvent", "SyphonStatus", "SideRefusal", "JournalCounters", "Group"}
PLAIN_TYPES = {  # as JSON has them
    "tuple[str, ...]": "list[str]",
    "tuple[int, ...]": "list[int]",
    "Arrival": "str",
    "Removal": "str",
}


def journal_events() -> dict[str, tuple[str, dict[str, str], str]]:
    """Each event of the journal: who writes it, the type of each of its own fields, and what it says."""
    from sbpair.observation.record import HEADER

    header = {name for name, *_ in HEADER}
    found = {}
    for who, path in EVENT_HOMES:
        for name, _, doc in documented_classes(path):
            if not _is_event(path, name) or name in NO_EVENTS:
                continue
            fields = {field: PLAIN_TYPES.get(kind, kind) for field, kind, *_ in documented_fields(path, name)}
            own = {field: kind for field, kind in fields.items() if field not in header}
            if own.get("backlog") == "str":  # as a record has it: its number, then its name
                own = {"backlog": "int | None", "backlog_queue": "str"} | {
                    field: kind for field, kind in own.items() if field != "backlog"
                }
            found[re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()] = (who, own, doc)
    return found


def _is_event(path: str, name: str) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in _class(path, name).decorator_list)


def journal_schema() -> dict[str, dict[str, str]]:
    """The fields of each event of the journal, and the header's under ""."""
    from sbpair.observation.record import HEADER

    header = {name: kind for name, kind, _ in HEADER}
    return {"": header} | {event: fields for event, (_, fields, _) in journal_events().items()}


def journal_header() -> str:
    from sbpair.observation.record import HEADER

    return table(
        ("field", "type", "what it is"),
        [(f"`{name}`", f"`{kind}`", doc) for name, kind, doc in HEADER],
    )


def journal_event_fields() -> str:
    rows = [
        (f"`{event}`", who, ", ".join(f"`{name}: {kind}`" for name, kind in fields.items()), doc)
        for event, (who, fields, doc) in journal_events().items()
    ]
    return table(("event", "written by", "fields of its own", "what happened"), rows)


def metrics() -> str:
    from sbpair.observation.metrics import METRICS, READ

    shown = (*METRICS, *READ)
    rows = [(f"`{m.name}`", ", ".join(f"`{label}`" for label in m.labels), m.help) for m in shown]
    return table(("metric", "labels", "what it counts"), rows)


def syphon_metrics() -> str:
    counters = commented_members("sbpair/syphon/status.py", "SyphonCounters")
    return table(
        ("metric", "what it counts"),
        [
            (f"`sbpair_syphon_{name}{'' if name == 'pending' else '_total'}`", doc)
            for name, _, doc in counters
        ],
    )


def webhook_kinds() -> str:
    kinds = commented_members("sbpair/observation/webhook_delivery.py", "WebhookKind")
    return table(("kind", "when"), [(f"`{value}`", doc) for _, value, doc in kinds])


def proved(letters: str) -> str:
    """Each id that begins with one of these, who saw it hold, and the tests that say so."""
    return table(("id", "client", "tests"), list(_proved(letters)))


def faults_driven() -> str:
    """The same for each fault, with what it is."""
    from tests.tools.proofs import rows_of

    text = (ROOT / "docs" / "spec" / "promises.md").read_text("utf-8")
    what = {row.id: row.cells[1] for row in rows_of(text)}
    return table(
        ("id", "fault", "client", "tests"), [(name, what[name], *rest) for name, *rest in _proved("F")]
    )


def _proved(letters: str) -> Iterator[tuple[str, str, str]]:
    """An id, who saw it, and the tests: by id, then in the order of the clients."""
    from tests.tools.proofs import CLIENTS, all_proofs

    order = list(CLIENTS)
    found: dict[tuple[str, int, int], list[str]] = {}
    for proof in all_proofs():
        letter, _, number = proof.id.partition("-")
        if letter in letters:
            tests = found.setdefault((letter, int(number), order.index(proof.client)), [])
            tests.append(f"`{proof.test.removeprefix('test_').replace('_', ' ')}` ({proof.file})")
    for (letter, n, who), tests in sorted(found.items()):
        yield f"{letter}-{n}", order[who], "; ".join(tests)


def proof_clients() -> str:
    from tests.tools.proofs import CLIENTS

    return table(("client", "description"), [(name, doc) for name, doc in CLIENTS.items()])


def interop() -> str:
    """What each foreign client does, and the test that says so."""
    from tests.interop.matrix import CAPABILITIES, PEERS, cells

    found = cells()
    rows = [
        (doc, *(_tests_of(found.get((peer, capability), [])) for peer in PEERS))
        for capability, doc in CAPABILITIES.items()
    ]
    return table(("it", *PEERS), rows)


def _tests_of(files: list[str]) -> str:
    names = [Path(file).stem.removeprefix("test_").replace("_", " ") for file in files]
    links = (f"[{name}](../tests/{file})" for name, file in zip(names, files, strict=True))
    return "<br/>".join(links) or "-"


def interop_reasons() -> str:
    from tests.interop.matrix import CANNOT

    return table(("client", "cannot", "why"), [(peer, what, why) for (peer, what), why in CANNOT.items()])


def live() -> str:
    """What the SDK's own tests gave, plain and with paired senders, and those that cannot pass."""
    from tests.trials.live.record import KINDS, OUTCOMES, read, rows
    from tests.trials.live.report import known_failures

    words = {"passed": "passed", "listed": "listed", "skipped": "left out"}
    header = ("tests", *(f"{words[outcome]}, {kind}" for kind in KINDS for outcome in OUTCOMES))
    told = "".join(
        f"{kind.capitalize()}: {run['date']}, azure-servicebus {run['sdk']}, Python {run['python']}; "
        f"{run['again']} ran again, alone.\n"
        for kind, run in sorted(read().items(), reverse=True)
    )
    listed = [(f"`{test}`", reason) for test, reason in known_failures(is_paired=True).items()]
    return f"{told}\n{table(header, rows())}\n{table(('listed', 'why it cannot pass'), listed)}"


def faults() -> str:
    from sbpair.broker.faults import EFFECTS

    rows = []
    for name, kind in EFFECTS.items():
        level = ", ".join(sorted(each.value for each in kind.applies_to)) or "standing"
        settings = ", ".join(f"`{field.name}` {field.default!r:.30}" for field in dataclasses.fields(kind))
        rows.append(
            (f"`{name}`", f"`{kind.__name__}`", (kind.__doc__ or "").strip(), level, settings or "none")
        )
    return table(("in plans", "class", "what happens", "applies to", "settings and defaults"), rows)


def fault_limits() -> str:
    docs = {
        "entity": "a path, or a pattern with `*`; without one, every entity",
        "operation": "one that the effect applies to; without one, its default operations",
        "nth": "only the n-th that matches, from 1",
        "times": "at most so often",
        "probability": "0 to 1, drawn from `seed`",
        "seed": "a whole number: the same draws again",
        "after": "seconds until it begins",
        "lasting": "seconds until it ends",
        "every": "seconds from one begin to the next",
    }
    from sbpair.broker.faults import FaultRule

    names = [field.name for field in dataclasses.fields(FaultRule) if field.name != "effect"]
    return table(("limit", "what it is"), [(f"`{name}`", docs[name]) for name in names])


def outages() -> str:
    rows = [
        (f"`{value}`", doc)
        for _, value, doc in commented_members("sbpair/broker/faults/effects.py", "Outage")
    ]
    return table(("outage", "what a client meets"), rows)


def scenarios() -> str:
    from sbpair.broker.faults.scenarios import SCENARIOS

    rows = [(f"`{each.name}`", each.what, each.sees, each.paired) for each in SCENARIOS.values()]
    return table(
        ("scenario", "what goes wrong", "what a client should see", "what a paired client does"), rows
    )


def fixtures() -> str:
    tree = ast.parse((ROOT / "sbpair/testing/plugin.py").read_text("utf-8"))
    rows = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(
            "fixture" in ast.unparse(d) for d in node.decorator_list
        ):
            scope = "the run" if "session" in ast.unparse(node.decorator_list[0]) else "a test"
            rows.append((f"`{node.name}`", scope, _opening(ast.get_docstring(node) or "")))
    return table(("fixture", "lives for", "what it is"), rows)


def frame_actions() -> str:
    rows = [(f"`{value}`", doc) for _, value, doc in commented_members("sbpair/testing/frames.py", "Action")]
    return table(("action", "what becomes of the frame"), rows)


EMULATOR = {
    "python": "emulator.py",
    "javascript": "emulator.js",
    "java": "Emulator.java",
    "go": "go/main.go",
    "curl": "emulator.sh",
}
"""The snippets in samples/emulator by language; tests/interop/test_emulator.py runs each."""


def emulator(language: str) -> str:
    file = EMULATOR[language]
    tag = "bash" if language == "curl" else language
    return f"```{tag}\n{(ROOT / 'samples' / 'emulator' / file).read_text('utf-8')}```\n"


API = {
    "client": "sbpair",
    "aio": "sbpair.aio",
    "syphon": "sbpair.syphon",
    "observation": "sbpair.observation",
    "broker": "sbpair.broker",
    "testing": "sbpair.testing",
    "spark": "sbpair.spark",
}
"""The public module that each page below docs/reference/api describes."""


def api(name: str) -> str:
    """Directives of mkdocstrings for the public names of a module; sbpair.aio links what it shares with sbpair."""
    module = import_module(name)
    shared = [public for public in module.__all__ if name == "sbpair.aio" and _is_shared(module, public)]
    own = sorted(set(module.__all__) - set(shared))
    links = ", ".join(f"[`{public}`][sbpair.{public}]" for public in sorted(shared))
    directives = "\n".join(f"::: {name}.{public}\n" for public in own)
    return (f"The same objects as in `sbpair`: {links}.\n\n" if shared else "") + directives


def _is_shared(module: ModuleType, name: str) -> bool:
    import sbpair

    return getattr(module, name) is getattr(sbpair, name)


BLOCKS: dict[str, Callable[[], str]] = {
    "transitions": transitions,
    "states": states,
    "events": events,
    "options": options,
    "observation-options": observation_options,
    "errors": errors,
    "failures": failures,
    "outcomes": outcomes,
    "syphon-options": syphon_options,
    "syphon-counters": syphon_counters,
    "syphon-errors": syphon_errors,
    "syphon-events": syphon_events,
    "dead-letter-reasons": dead_letter_reasons,
    "entity-fields": entity_fields,
    "limits": limits,
    "broker-errors": broker_errors,
    "exit-codes": exit_codes,
    "journal-header": journal_header,
    "journal-events": journal_event_fields,
    "metrics": metrics,
    "syphon-metrics": syphon_metrics,
    "webhook-kinds": webhook_kinds,
    "cli": cli,
    "cli-errors": cli_errors,
    "interop": interop,
    "interop-reasons": interop_reasons,
    "live": live,
    "proof-clients": proof_clients,
    "proofs": partial(proved, "QT"),
    "security-proved": partial(proved, "S"),
    "findings-proved": partial(proved, "R"),
    "consumers-proved": partial(proved, "C"),
    "faults": faults,
    "fault-limits": fault_limits,
    "outages": outages,
    "scenarios": scenarios,
    "fixtures": fixtures,
    "frame-actions": frame_actions,
    "promises-proved": partial(proved, "G"),
    "faults-driven": faults_driven,
    **{f"emulator-{language}": partial(emulator, language) for language in EMULATOR},
    **{f"api-{page}": partial(api, module) for page, module in API.items()},
}


REQUIREMENT = r"[PQTGFSRC]-\d+"
CITED = re.compile(rf" \({REQUIREMENT}(?:(?:, | and |; ){REQUIREMENT})*\)|\b{REQUIREMENT}: ")
SHOW_IDS = {
    "proofs",
    "security-proved",
    "findings-proved",
    "consumers-proved",
    "promises-proved",
    "faults-driven",
}


def rendered(text: str) -> str:
    """Return a page with every block regenerated. Raises KeyError on an unknown block.

    Requirement ids in docstrings are for readers of the code: only the blocks of the proofs page show them.
    """
    return BLOCK.sub(lambda match: f"{match[1]}{_block(match[2])}{match[4]}", text)


def _block(name: str) -> str:
    text = BLOCKS[name]()
    return text if name in SHOW_IDS else CITED.sub("", text)


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def main() -> None:
    for page in pages():
        before = page.read_text("utf-8")
        after = rendered(before)
        if after != before:
            page.write_text(after, "utf-8")
            sys.stdout.write(f"wrote {page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
