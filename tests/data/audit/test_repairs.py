"""A daily audit after accidents of collection and their repairs says what one audit of everything says."""

from __future__ import annotations

import gzip
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from sbpair.audit import audit
from sbpair.data.audit import job
from sbpair.data.audit.daily import Terms, UnknownFileError, audit_daily
from sbpair.data.audit.daily import job as daily_job
from sbpair.data.audit.result.report import headline
from sbpair.data.audit.result.summary import Summary
from tests.data.audit.world import a_day


class Collected:
    """Journals that were collected in a directory, of which the right copies are kept elsewhere."""

    def __init__(self, place: Path, luck: random.Random, shape: str = "cloud") -> None:
        self.luck, self.journals, self.right = luck, place / "journals", place / "right"
        self.state, self.out = place / "state", place / "out"
        a_day().write(self.right, shape, files=2)
        shutil.copytree(self.right, self.journals)

    def files(self) -> list[Path]:
        return sorted(self.journals.rglob("*.jsonl"))

    def some(self) -> Path:
        return self.luck.choice(self.files())

    def repair(self) -> None:
        """Collect the right copies anew, and nothing else."""
        shutil.rmtree(self.journals)
        shutil.copytree(self.right, self.journals, copy_function=shutil.copy)

    def daily(self, **terms: object) -> Summary:
        return audit_daily(self.journals, self.state, terms=Terms(**terms)).summary  # type: ignore[arg-type]

    def once(self) -> Summary:
        return audit(self.journals, self.out)


def rows(table: Path) -> list[str]:
    return sorted(map(repr, ds.dataset(table, format="parquet").to_table().to_pylist()))


Accident = Callable[[Collected], None]


def _moved(at: Collected) -> None:
    (at.journals / "old").mkdir(exist_ok=True)
    file = at.some()
    file.rename(at.journals / "old" / file.name)


def _zeroed(at: Collected) -> None:
    file = at.some()
    content, start = bytearray(file.read_bytes()), at.luck.randrange(file.stat().st_size)
    content[start : start + 4096] = bytes(len(content[start : start + 4096]))
    file.write_bytes(content)


def _cut(at: Collected) -> None:
    file = at.some()
    file.write_bytes(file.read_bytes()[: at.luck.randrange(1, file.stat().st_size)])


def _copied(at: Collected) -> None:
    (at.journals / "copy").mkdir(exist_ok=True)
    shutil.copy(at.some(), at.journals / "copy")


def _copied_under_another_name(at: Collected) -> None:
    file = at.some()
    shutil.copy(file, file.with_name(f"copy-of-{file.name}"))


def _mixed(at: Collected) -> None:
    one, other = at.some(), at.some()
    if one != other:
        one.write_bytes(one.read_bytes() + other.read_bytes())


def _beside_another(at: Collected) -> None:
    (at.journals / "other.jsonl").write_text('{"a":1}\n')


def _late(at: Collected) -> None:
    at.some().unlink()


def _packed(at: Collected) -> None:
    file = at.some()
    file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()


ACCIDENTS: tuple[Accident, ...] = (
    _moved, _zeroed, _cut, _copied, _copied_under_another_name, _mixed, _beside_another, _late, _packed,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time, and nothing here is about them."""
    monkeypatch.setattr(job, "page", lambda *given: "")
    monkeypatch.setattr(daily_job, "page", lambda *given: "")


@pytest.mark.spec("R-228")
@pytest.mark.parametrize("seed", range(12))
def test_a_daily_audit_equals_a_single_one_once_the_right_files_are_present(
    seed: int, tmp_path: Path
) -> None:
    """Several days of accidents, each repaired or not; on the last one the right files are there."""
    luck = random.Random(seed)
    at = Collected(tmp_path, luck, luck.choice(("all", "cloud")))
    for _ in range(luck.randint(1, 3)):
        for accident in luck.sample(ACCIDENTS, luck.randint(1, 2)):
            if at.files():
                accident(at)
        at.daily()
        if luck.random() < 0.6:
            at.repair()
            at.daily()
    at.repair()
    daily, once = at.daily(), at.once()

    assert headline(daily) == headline(once)
    assert daily.is_conserved
    assert rows(at.state / "current" / "messages") == rows(at.out / "messages")


@pytest.mark.spec("R-228")
@pytest.mark.parametrize("accident", ACCIDENTS, ids=lambda each: each.__name__.strip("_"))
def test_a_faulty_daily_audit_is_green_after_the_repair(accident: Accident, tmp_path: Path) -> None:
    at = Collected(tmp_path, random.Random(accident.__name__))
    at.daily()
    accident(at)
    once, daily = at.once(), at.daily()
    at.repair()

    assert daily.is_conserved or not once.is_conserved
    assert at.daily().is_conserved


@pytest.mark.spec("R-228")
def test_a_damaged_file_without_an_intact_copy_is_forgotten_only_with_a_reason(tmp_path: Path) -> None:
    at = Collected(tmp_path, random.Random(1))
    at.daily()
    (file,) = [each for each in at.files() if each.name.startswith("syphon-") and "000002" in each.name]
    file.write_bytes(file.read_bytes().replace(b'"event":', b'"tneve":'))
    (at.journals / "notes.zip").write_bytes(b"PK\x03\x04\xff\xfe")
    shutil.rmtree(at.state)
    damaged = at.daily()
    forgotten = at.daily(forget=(file.name, "notes.zip"), reason="the disk of host-7 died")
    later = at.daily()

    assert (damaged.holed != [], len(damaged.unread)) == (True, 1)
    assert forgotten.forgotten == later.forgotten == {
        file.name: "the disk of host-7 died", "notes.zip": "the disk of host-7 died",
    }  # fmt: skip
    assert (later.holed, later.unread, later.unfinished) == ([], [], [])
    (writer,) = [each for each in later.writers if each.role == "syphon"]
    assert writer.reason == "a file of it was forgotten"


@pytest.mark.spec("R-228")
def test_a_file_that_never_existed_cannot_be_forgotten(tmp_path: Path) -> None:
    at = Collected(tmp_path, random.Random(1))
    with pytest.raises(UnknownFileError, match="no-such-file is no file of these journals"):
        at.daily(forget=("no-such-file",), reason="none")
