"""The pages of docs/ match the code, and their links and programs work."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
import pytest

from sbpair.pair.cli.group import COMMANDS, cli
from sbpair.pair.envelope import restore
from sbpair.pair.pairing.options import ObservationOptions, PairedNamespaceOptions
from sbpair.pair.syphon.forward import pump
from sbpair.pair.syphon.forward.in_flight import DEAD_LETTER_REASONS
from sbpair.pair.syphon.options import SyphonOptions
from sbpair.pair.syphon.order import session_relay
from tests.needs import wanting
from tests.tools import generate_docs
from tests.tools.blocks.api import API
from tests.tools.blocks.observation import journal_events
from tests.tools.generate_docs import BLOCK, BLOCKS
from tests.tools.proofs import SPEC_ID
from tests.tools.source import DOCS, ROOT
from tests.trials.bench import page as performance

PAGES = generate_docs.pages()
WITH_README = [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"]
FENCE = re.compile(r"^(<!-- run -->\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
RUN_SECONDS = 100
OF_SPARK = re.compile(r"sbpair\.(data\.)?(spark|audit)\b")
PAGES_OF_SPARK = {
    "docs/evidence/audit.md",
    "docs/reference/api/audit.md",
    "docs/reference/api/spark-audit.md",
    "docs/reference/api/spark.md",
    "docs/reference/audit.md",
    "docs/reference/spark.md",
}  # a block of these is made of the code of the pipeline


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fences(language: str) -> list[tuple[str, bool, str]]:
    """(page, whether it is to be run, text) of every fenced block of a language."""
    return [
        (name_of(page), bool(run), text)
        for page in WITH_README
        for run, tag, text in FENCE.findall(page.read_text("utf-8"))
        if tag == language
    ]


def anchors(text: str) -> set[str]:
    """The fragments that a page's headings can be linked by."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


def is_for_people(page: Path) -> bool:
    """Whether requirement ids are out of place there: everywhere but in the record of what is proved."""
    return page.parent.name not in ("spec", "evidence")


def dead_links(page: Path) -> list[str]:
    dead = []
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if re.match(r"https?:|mailto:", target):
            continue
        file, _, fragment = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        if not there.exists() or (fragment and fragment not in anchors(there.read_text("utf-8"))):
            dead.append(target)
    return dead


@pytest.mark.parametrize("page", WITH_README, ids=name_of)
def test_every_link_between_pages_resolves(page):
    assert dead_links(page) == []


def test_every_page_can_be_reached_from_the_index():
    seen, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            waiting += linked(page)
    assert set(PAGES) - seen == set()


def linked(page: Path) -> set[Path]:
    targets = (link.partition("#")[0] for link in LINK.findall(page.read_text("utf-8")))
    return {(page.parent / target).resolve() for target in targets if target.endswith(".md")}


def test_the_index_lists_every_page():
    index = DOCS / "index.md"
    listed = linked(index) | linked(DOCS / "evidence" / "index.md")
    listed |= set((DOCS / "reference" / "api").glob("*.md"))  # these are listed by their own index
    assert set(PAGES) - listed == {index}


def test_every_reason_with_which_the_syphon_dead_letters_is_documented():
    page = (DOCS / "reference" / "syphon.md").read_text("utf-8")
    section = page.partition("## Undeliverable messages")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(documented) == sorted({*DEAD_LETTER_REASONS.values(), *poison_reasons()})


def poison_reasons() -> set[str]:
    """The reasons that the syphon itself finds: the constants that a Poison is made with."""
    found = set()
    for module in (restore, session_relay, pump):
        for node in ast.walk(ast.parse(Path(module.__file__).read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="Poison"), args=[ast.Name(id=name), *_]) if name.isupper():
                    found.add(getattr(module, name))
                case ast.Call(func=ast.Name(id="Poison"), args=[ast.Constant(value=str(reason)), *_]):
                    found.add(reason)
    return found


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=wanting("pyspark") if name_of(page) in PAGES_OF_SPARK else ())
        for page in PAGES
    ],
    ids=name_of,
)
def test_generated_blocks_are_up_to_date(page):
    text = page.read_text("utf-8")
    assert generate_docs.rendered(text) == text, "stale: run `python -m tests.tools.generate_docs`"


def test_the_performance_page_equals_its_recorded_run():
    stored = json.loads((DOCS / "evidence" / "performance.json").read_text("utf-8"))
    written = (DOCS / "evidence" / "performance.md").read_text("utf-8")
    assert written == performance.text(stored), "stale: run `python -m tests.trials.bench --docs`"


@pytest.mark.parametrize(
    "page", [page for page in [*PAGES, *sorted(ROOT.glob("*.md"))] if is_for_people(page)], ids=name_of
)
def test_pages_for_people_show_no_requirement_ids(page):
    assert SPEC_ID.findall(page.read_text("utf-8")) == []


def test_every_block_is_closed_and_every_generator_used():
    text = "".join(page.read_text("utf-8") for page in PAGES)
    written = [name for _, name, _, _ in BLOCK.findall(text)]
    assert sorted(written) == sorted(re.findall(r"<!-- generated:([\w-]+) -->", text))
    assert set(written) == set(BLOCKS)


@pytest.mark.parametrize("options", [PairedNamespaceOptions, ObservationOptions, SyphonOptions])
def test_every_option_is_documented_with_a_sentence(options):
    page = (DOCS / "reference" / "options.md").read_text("utf-8")
    documented = dict(re.findall(r"^\| `(\w+)` .*\| ([^|]+) \|$", page, re.MULTILINE))
    fields = {field.name for field in dataclasses.fields(options)}
    assert {name for name in fields if len(documented.get(name, "")) < 20} == set()


def test_every_command_and_every_flag_is_documented():
    page = (DOCS / "reference" / "cli.md").read_text("utf-8")
    sections = dict(re.findall(r"^## sbpair (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    missing = [
        f"{name} {flag}"
        for name in COMMANDS
        for flag in flags_of(name)
        if not re.search(rf"{re.escape(flag)}(?![\w-])", sections.get(name, ""))
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("page", "module"),
    [
        pytest.param(page, module, marks=wanting("pyspark") if OF_SPARK.match(module) else ())
        for page, module in API.items()
    ],
)
def test_every_public_name_is_in_the_api_reference(page, module):
    text = (DOCS / "reference" / "api" / f"{page}.md").read_text("utf-8")
    listed = set(re.findall(r"(?:^::: |\]\[)sbpair(?:\.\w+)*\.(\w+)", text, re.MULTILINE))
    assert listed == set(import_module(module).__all__)


@wanting("pyspark")
def test_every_column_of_the_spark_sources_is_documented_with_its_type():
    from sbpair.data.spark.message_rows import TYPES
    from sbpair.data.spark.syphon_source import DRAIN_COLUMNS

    blocks = {
        name: text for _, name, text, _ in BLOCK.findall((DOCS / "reference" / "spark.md").read_text("utf-8"))
    }
    drained = [tuple(column.split()) for column in DRAIN_COLUMNS.split(", ")]
    for name, columns in (("message-columns", [*TYPES.items()]), ("drain-columns", drained)):
        rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| [^|]{10,} \|$", blocks.get(name, ""), re.MULTILINE)
        assert rows == columns


def flags_of(command: str) -> set[str]:
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    within = found.commands.values() if isinstance(found, click.Group) else ()
    options = [each for one in (found, *within) for each in one.params if isinstance(each, click.Option)]
    return {flag for option in options for flag in option.opts}


def test_every_command_line_in_the_docs_parses():
    lines = [
        line
        for _, _, text in fences("bash")
        for line in text.replace("\\\n", " ").splitlines()
        if re.match(r"sbpair \w", line)
    ]
    assert lines
    for line in lines:
        _, command, *words = shlex.split(line, comments=True)
        assert command in COMMANDS, line
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= flags_of(command), line


@pytest.mark.parametrize(
    ("page", "text"),
    [
        pytest.param(page, text, marks=wanting("pyspark") if OF_SPARK.search(text) else ())
        for page, _, text in fences("python")
    ],
)
def test_python_in_the_docs_compiles_and_its_imports_exist(page, text):
    tree = ast.parse(text, page)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sbpair":
            module = __import__(node.module, fromlist=["*"])
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.timeout(RUN_SECONDS + 20)
@pytest.mark.parametrize("text", [text for _, run, text in fences("python") if run])
def test_the_programs_of_the_docs_run(text):
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=RUN_SECONDS)
    assert done.returncode == 0, done.stderr


def test_a_dead_link_and_a_dead_anchor_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A b\n[x](nowhere.md) [y](#a-c) [z](#a-b) [w](https://example.org)\n", "utf-8")
    assert dead_links(page) == ["nowhere.md", "#a-c"]


def test_a_stale_block_is_rewritten():
    stale = "<!-- generated:states -->\nold\n<!-- /generated:states -->\n"
    assert "HEALTHY" in generate_docs.rendered(stale)


def terminal(name: str) -> str:
    """A block of the quickstart, by the terminal it belongs to."""
    text = (DOCS / "tutorial" / "quickstart.md").read_text("utf-8")
    found = re.search(rf"^<!-- terminal: {name} -->\n```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[1]


@pytest.mark.slow
@pytest.mark.timeout(300)  # six programs, one after the other
def test_the_three_terminals_of_the_quickstart_lose_nothing(tmp_path):
    for name, call in (("python", ""), ("sbpair", "-c 'from sbpair.pair.cli import main; main()'")):
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {call} "$@"\n')
        command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"cwd": tmp_path, "env": {**os.environ, "PATH": path}, "text": True, "stdout": subprocess.PIPE}

    def bash(text: str) -> subprocess.Popen[str]:
        return subprocess.Popen(["bash", "-euc", text], start_new_session=True, **settings)

    running = [bash(terminal("broker"))]
    try:
        until(lambda: (tmp_path / "broker.env").exists() and (tmp_path / "broker.env").stat().st_size > 0)
        running.append(bash(terminal("syphon")))
        program = bash(terminal("program"))
        running.append(program)
        printed, _ = program.communicate(timeout=100)
        assert program.returncode == 0
        assert {line.split(": ")[1] for line in printed.splitlines()} == {"primary", "backlog"}
        until(lambda: "0 messages wait" in bash(terminal("check")).communicate(timeout=60)[0])
        by_hand = bash(terminal("by hand"))
        assert (by_hand.communicate(timeout=60)[0], by_hand.returncode) == ("1\n", 0)
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=60)


def until(is_so: Callable[[], bool], within: float = 60) -> None:
    end = time.monotonic() + within
    while not is_so():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.1)


@wanting("pyarrow")
@pytest.mark.spec("R-141")
def test_every_event_of_the_journal_reference_is_known_to_the_audit() -> None:
    from sbpair.data.audit.event_names import EVENTS

    assert set(journal_events()) - EVENTS == set()
