"""Every requirement that a release claims has a test.

docs/spec/ holds tables of requirements: first column `id`, last column `since`. An id whose `since` is a
release (`0.1`) owes a test marked with it. `planned` owes nothing, nor does a fault that is `not driven:` for a
reason. Nobody may name an id that no table has, and the code names none.

The test files are read, not run: their marks come from the syntax tree.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from tests.tools.proofs import (
    CLIENTS,
    PROVES_NOTHING,
    ROOT,
    SINCE,
    SPEC_ID,
    Proof,
    Row,
    all_proofs,
    canonical,
    mark_of,
    proofs_of,
    rows_of,
)
from tests.tools.source import parse


def ids_in(text: str) -> set[str]:
    return {canonical(*match.groups()) for match in SPEC_ID.finditer(text)}


def marks_of(source: str) -> tuple[set[str], list[str]]:
    """The ids that the marks of a test file prove, and the marks that are not well formed."""
    proved: set[str] = set()
    wrong: list[str] = []
    skipped: set[int] = set()
    if "spec" not in source:
        return set(), []
    nodes = list(ast.walk(parse(source)))
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            calls = [mark for decorator in node.decorator_list if (mark := mark_of(decorator))]
            is_test = node.name.startswith(("test", "Test"))
            if any(name == "spec" for name, _ in calls) and not is_test:
                wrong.append(f"line {node.lineno}: {node.name} is no test, yet it carries a spec mark")
            if PROVES_NOTHING & {name for name, _ in calls}:
                skipped.update(id(call) for _, call in calls)
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and (mark := mark_of(node))
            and mark[0] == "spec"
            and id(node) not in skipped
        ):
            for argument in node.args:
                text = argument.value if isinstance(argument, ast.Constant) else None
                match = SPEC_ID.fullmatch(text) if isinstance(text, str) else None
                if match:
                    proved.add(canonical(*match.groups()))
                else:
                    wrong.append(f"line {node.lineno}: {ast.unparse(argument)} is no requirement id")
    return proved, wrong


@cache
def prose_of(source: str) -> list[str]:
    """The comments and docstrings of a module, those of dataclass fields too."""
    return list(_prose(source))


def _prose(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value.value


def citations_of(source: str) -> set[str]:
    return set().union(*map(ids_in, prose_of(source))) if SPEC_ID.search(source) else set()


def spec_rows() -> list[Row]:
    files = sorted((ROOT / "docs" / "spec").glob("*.md"))
    return [row for file in files for row in rows_of(file.read_text("utf-8"), file.name)]


@cache
def marks_by_file() -> dict[str, tuple[set[str], list[str]]]:
    files = sorted((ROOT / "tests").rglob("*.py"))
    return {str(file.relative_to(ROOT)): marks_of(file.read_text("utf-8")) for file in files}


@cache
def citations_by_file() -> dict[str, set[str]]:
    files = sorted((ROOT / "sbpair").rglob("*.py"))
    return {str(file.relative_to(ROOT)): citations_of(file.read_text("utf-8")) for file in files}


# --- the project


def test_the_tables_hold_every_family_of_ids():
    assert {row.id[0] for row in spec_rows()} == set("ABPQTGFSRCOEHXKW")


def test_every_row_has_a_valid_id_and_a_since_version():
    rows = spec_rows()
    assert not [row for row in rows if not SPEC_ID.fullmatch(row.id) or not SINCE.fullmatch(row.since)]


def test_an_undriven_entry_is_a_fault_without_a_test():
    proved = set().union(*(ids for ids, _ in marks_by_file().values()))
    undriven = [row for row in spec_rows() if row.since.startswith("not driven")]
    assert _listed(row.id for row in undriven if not row.id.startswith("F-") or row.id in proved) == ""


def test_no_id_has_two_rows():
    assert [name for name, count in Counter(row.id for row in spec_rows()).items() if count > 1] == []


def test_every_released_id_has_a_test():
    proved = set().union(*(ids for ids, _ in marks_by_file().values()))
    assert _listed(row.id for row in spec_rows() if row.is_released and row.id not in proved) == ""


def test_the_code_cites_no_requirement():
    """The test of a requirement names it. The contract says which ones fall if an entry is wrong, as data."""
    cited = {file: _listed(ids) for file, ids in citations_by_file().items() if ids}
    assert cited.keys() <= {"sbpair/contract/__init__.py"}, cited


def test_the_tests_cite_no_unknown_id():
    known = {row.id for row in spec_rows()}
    unknown = {file: _listed(ids - known) for file, (ids, _) in marks_by_file().items() if ids - known}
    assert unknown == {}


def test_every_spec_mark_is_well_formed():
    assert {file: wrong for file, (_, wrong) in marks_by_file().items() if wrong} == {}


def test_every_proof_names_a_known_client():
    assert {proof.client for proof in all_proofs()} - set(CLIENTS) == set()


def _listed(ids) -> str:
    return " ".join(sorted(ids, key=lambda name: (name[0], int(name[2:]))))


# --- the readers themselves: a check that cannot fail proves nothing


def test_only_whole_words_are_ids():
    assert ids_in("UTF-8, RFC-3986, PT-1S, X-P-3, P-3b, AMQP-1") == set()
    assert ids_in("see P-3, (T-10) and F-01.") == {"P-3", "T-10", "F-1"}


def test_only_tables_with_id_and_since_are_read():
    requirements = "| id | what | since |\n|---|---|---|\n| P-1 | a \\| b | 0.1 |\n"
    something_else = "| id | what |\n|---|---|\n| P-2 | c |\n"
    assert list(rows_of(f"{requirements}\n{something_else}")) == [Row(("P-1", "a \\| b", "0.1"), "")]


def test_a_mark_on_a_test_proves_its_ids():
    source = (
        '@pytest.mark.spec("P-1", "F-02")\nasync def test_it(): ...\npytestmark = [pytest.mark.spec("T-3")]\n'
    )
    assert marks_of(source) == ({"P-1", "F-2", "T-3"}, [])


def test_a_mark_on_a_skipped_test_proves_nothing():
    source = '@pytest.mark.spec("P-1")\n@pytest.mark.skip\ndef test_it(): ...\n'
    assert marks_of(source) == (set(), [])


def test_a_mark_on_a_non_test_or_with_an_unknown_name_is_reported():
    source = '@pytest.mark.spec("P-1")\ndef fixture(): ...\n@pytest.mark.spec("2.6.7")\ndef test_it(): ...\n'
    assert len(marks_of(source)[1]) == 2


def test_only_comments_and_docstrings_count_as_citations():
    source = '"""Obeys P-1."""\nx = "P-2"  # P-3\nclass A:\n    field: int\n    """From P-4."""\n'
    assert citations_of(source) == {"P-1", "P-3", "P-4"}


def test_the_client_of_a_test_is_inferred_or_stated():
    source = (
        '@pytest.mark.spec("T-1")\ndef test_model(queue): ...\n'
        '@pytest.mark.spec("T-1")\ndef test_by_hand(lab): ...\n'
        '@pytest.mark.client("java")\n@pytest.mark.spec("T-1")\ndef test_said(lab): ...\n'
    )
    assert proofs_of(source, "broker/test_it.py") == [
        Proof("T-1", "broker/test_it.py", "test_model", "model"),
        Proof("T-1", "broker/test_it.py", "test_by_hand", "amqp"),
        Proof("T-1", "broker/test_it.py", "test_said", "java"),
    ]
    at_work = '@pytest.mark.spec("T-1")\nasync def test_it(): ...\n'
    assert [proof.client for proof in proofs_of(at_work, "wire/test_it.py")] == ["azure-servicebus.aio"]


def test_marks_of_a_class_and_of_a_file_apply_to_its_tests():
    source = (
        'pytestmark = [pytest.mark.client("proton")]\n'
        '@pytest.mark.spec("T-1")\nclass TestIt:\n'
        '    @pytest.mark.spec("T-02")\n    def test_both(self): ...\n'
        '    @pytest.mark.client("rhea")\n    def test_nearer(self): ...\n'
    )
    assert [(proof.id, proof.client) for proof in proofs_of(source, "wire/test_it.py")] == [
        ("T-2", "proton"),
        ("T-1", "proton"),
        ("T-1", "rhea"),
    ]


def test_a_mark_on_a_parameter_proves_unless_skipped():
    source = (
        '@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.spec("T-1"))])\n'
        "def test_one(n): ...\n"
        '@pytest.mark.skip\n@pytest.mark.spec("T-2")\ndef test_two(): ...\n'
    )
    assert [proof.id for proof in proofs_of(source, "broker/test_it.py")] == ["T-1"]


@pytest.mark.spec("R-86")
def test_the_page_of_proofs_lists_every_requirement_that_a_test_proves() -> None:
    page = (ROOT / "docs" / "evidence" / "proofs.md").read_text("utf-8")
    listed = {line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")}

    assert {proof.id for proof in all_proofs()} - listed == set()


@pytest.mark.spec("R-86")
def test_every_requirement_on_partitioned_entities_is_proved_on_the_wire() -> None:
    on_the_model = {proof.id for proof in all_proofs() if proof.id[0] == "Q"}
    on_the_wire = {proof.id for proof in all_proofs() if proof.client != "model"}

    assert on_the_model - on_the_wire == set()
