"""The mutation command on a project of one function; which mutants count."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("mutmut", reason="it comes with the group mutation")

from tests.trials.mutation.__main__ import Room, _quickest, main
from tests.trials.mutation.equivalents import equivalents

ROOM = {"tiny": Room(("tiny/compare.py",), ("tests",))}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "pyproject.toml": "[tool.pytest.ini_options]\n",
        "tiny/__init__.py": "",
        "tiny/compare.py": "def is_more(one: int, other: int) -> bool:\n    return one > other\n",
        "tests/test_tiny.py": (
            "from tiny.compare import is_more\n\n\ndef test_it():\n    assert is_more(2, 1)\n"
            "    assert not is_more(1, 2)\n"
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.spec("R-66")
@pytest.mark.timeout(300)  # it starts Python with pytest four times
def test_an_unnoticed_mutant_is_shown_and_fails_the_run(project: Path, capfd):
    assert main(["tiny", "--all", "-n", "1"], ROOM, project) == 1
    told = json.loads(capfd.readouterr().out)
    assert told["room"] == "tiny"
    assert told["killed"] < 1
    assert [lines[-1].strip("+ ") for lines in told["survived"].values()] == ["return one >= other"]


@pytest.mark.spec("R-66")
def test_an_equivalent_mutant_does_not_count(tmp_path: Path):
    module = tmp_path / "module.py"
    module.write_text(
        "def x_f__mutmut_orig(a):\n    b: int = cast(int, a)\n    return b.encode('utf-8', 'strict')\n"
        "def x_f__mutmut_1(a):\n    b: int = cast(None, a)\n    return b.encode('utf-8', 'strict')\n"
        "def x_f__mutmut_2(a):\n    b: int = cast(int, a)\n    return b.encode('UTF-8', 'strict')\n"
        "def x_f__mutmut_3(a):\n    b: int = cast(int, None)\n    return b.encode('utf-8', 'strict')\n"
        "def x_f__mutmut_4(a):\n    b: int = cast(int, a)\n    return b.encode('utf-8', 'STRICT')\n"
        "def x_g__mutmut_orig(a):\n    a.execute('PRAGMA b')\n    a.execute(\"SELECT 'B'\")\n    a.send('B')\n"
        "def x_g__mutmut_1(a):\n    a.execute('pragma b')\n    a.execute(\"SELECT 'B'\")\n    a.send('B')\n"
        "def x_g__mutmut_2(a):\n    a.execute('PRAGMA b')\n    a.execute(\"select 'b'\")\n    a.send('B')\n"
        "def x_g__mutmut_3(a):\n    a.execute('PRAGMA b')\n    a.execute(\"SELECT 'B'\")\n    a.send('b')\n"
    )
    assert list(equivalents(module)) == ["x_f__mutmut_1", "x_f__mutmut_2", "x_g__mutmut_1"]


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("raise ValueError('not this one')", "raise ValueError('NOT THIS ONE')", True),
        ("raise ValueError('not this one')", "raise ValueError('XXnot this oneXX')", True),
        ("raise ValueError('not this one')", "raise ValueError(None)", False),
        ("raise ValueError('not this one', code)", "raise ValueError('not this one', )", False),
        ("raise Fault('symbol', code)", "raise Fault('SYMBOL', code)", False),
        ("raise ValueError('not this one')", "raise TypeError('not this one')", False),
        ("return 'not this one'", "return 'NOT THIS ONE'", False),
        ("_logger.debug('so and %s', so)", "_logger.debug(None, so)", True),
        ("_logger.warning('so and %s', so)", "_logger.warning('SO AND %S', so)", True),
        ("_logger.warning('so and %s', so)", "_logger.warning('so and %s', None)", False),
        ("_logger.warning('so and %s', so)", "_logger.warning(None, so)", False),
        ("yield 'DELETE FROM a WHERE b = ?', c", "yield 'delete from a where b = ?', c", True),
        ("yield 'DELETE FROM a WHERE b = ?', c", "yield 'XXDELETE FROM a WHERE b = ?XX', c", False),
        ("execute('SELECT * FROM a')", "execute('SELECT * FROM A')", True),
        ("return a.split('/', 1)[0]", "return a.split('/', )[0]", True),
        ("return a.split('/', 1)[0]", "return a.split('/', 2)[0]", True),
        ("return a.split('/', 1)[1]", "return a.split('/', 2)[1]", False),
        ("return a.split('/', 1)[-1]", "return a.split('/', 2)[-1]", False),
        ("self._is_due = False", "self._is_due = None", True),
        ("self._poll_is_ending = False", "self._poll_is_ending = None", True),
        ("self._is_due = False", "self._is_due = True", False),
        ("self.is_due = False", "self.is_due = None", False),
        ("self._due = False", "self._due = None", False),
        ("for b, c in zip(a, d, strict=True):\n        pass", "for b, c in zip(a, d, ):\n        pass", True),
        ("return zip(a, b, strict=True)", "return zip(a, b, strict=None)", True),
        ("return zip(a, b, strict=True)", "return zip(a, b, strict=False)", True),
        ("return zip(a, b, strict=False)", "return zip(a, b, strict=True)", False),
        ("return zip(a, b, strict=True)", "return zip(a, None, strict=True)", False),
    ],
)
def test_texts_may_be_changed_but_not_removed_by_mutants(
    tmp_path: Path, old: str, new: str, is_same: bool
) -> None:
    module = tmp_path / "module.py"
    module.write_text(f"def x_f__mutmut_orig(a):\n    {old}\ndef x_f__mutmut_1(a):\n    {new}\n")
    assert list(equivalents(module)) == (["x_f__mutmut_1"] if is_same else [])


@pytest.mark.spec("R-66")
def test_every_way_to_take_out_an_assertion_is_the_same_program(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    ways = ("zip(a, b, strict=True)", "zip(a, b, strict=None)", "zip(a, b, )", "zip(b, strict=True)")
    names = ("orig", "1", "2", "3")
    text = "".join(
        f"def x_f__mutmut_{name}(a, b):\n    return {way}\n" for name, way in zip(names, ways, strict=True)
    )
    module.write_text(text)
    assert list(equivalents(module)) == ["x_f__mutmut_1", "x_f__mutmut_2"]


@pytest.mark.spec("R-66")
def test_a_shortcut_does_not_count_while_its_line_exists(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    text = "def x_split__mutmut_orig(a):\n    usual = find(a)\ndef x_split__mutmut_1(a):\n    usual = {}\n"
    module.write_text(text.format("None"))
    assert list(equivalents(module)) == ["x_split__mutmut_1"]
    module.write_text(text.format("other"))
    assert list(equivalents(module)) == []


@pytest.mark.spec("R-66")
def test_the_quickest_tests_that_reach_a_function_are_run():
    durations = {"slow": 9.0, "quick": 0.5, "middling": 1.0}
    assert _quickest(list(durations), durations, 2.0) == ["quick", "middling"]
    assert _quickest(["slow"], durations, 2.0) == ["slow"]
    assert _quickest([], durations, 2.0) == []
