"""Damage in a data directory: everything acknowledged is restored, or the broker refuses to start."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from sbpair.broker.entities import QueueDescription, StoredMessage
from sbpair.broker.errors import StoreDamagedError, StoreError
from sbpair.broker.store.integrity import DatabaseMark
from sbpair.broker.store.schema import MIGRATIONS
from tests.broker.store.kept import NOON, Kept, contents

DATABASE, LOG, MARK = "contoso.sqlite", "contoso.sqlite-wal", "contoso.sqlite-mark"
SENDS = 40


@pytest.fixture
def used(kept: Kept) -> Kept:
    """A namespace after some commits, as left by a killed process: database, log and mark."""
    queue = kept.namespace.create_queue("orders", QueueDescription(), NOON)
    kept.store.policy()
    for number in range(SENDS):
        queue.enqueue_all([StoredMessage(bare=b"%d" % number * 50) for _ in range(3)], NOON)
        kept.store.commit()
        if number % 7 == 0:
            queue.receive_and_delete(NOON)
            kept.store.commit()
        if number == SENDS // 2:
            kept.store.connection.execute(
                "PRAGMA wal_checkpoint"
            )  # so that both database and log have contents
    return kept


def left_by(kept: Kept, where: Path) -> Path:
    shutil.copytree(kept.path, where, ignore=shutil.ignore_patterns("reserve", "owner.lock"))
    return where


def bytes_of(where: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in where.glob("contoso.*")}


@pytest.mark.spec("R-41", "F-90")
@pytest.mark.parametrize("name", [DATABASE, LOG, MARK])
@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_is_refused_or_loses_no_message(
    used: Kept, tmp_path: Path, name: str, seed: int
) -> None:
    committed, keys = contents(used.namespace, NOON), used.store.policy()
    chance, refused = random.Random(f"{name} {seed}"), 0
    whole = (used.path / name).read_bytes()
    for attempt in range(30):
        where = left_by(used, tmp_path / f"{attempt}")
        damaged = bytearray(whole)
        at = chance.randrange(8 * len(whole))
        damaged[at // 8] ^= 1 << at % 8
        (where / name).write_bytes(damaged)
        before = bytes_of(where)
        try:
            again = Kept(where)
        except StoreDamagedError as error:
            refused += str(where / DATABASE) in str(error)  # or the log, or the mark
            assert bytes_of(where) == before  # left unchanged for repair
            continue
        assert contents(again.namespace, NOON) == committed
        assert again.store.policy() == keys
        again.close()
        shutil.rmtree(where)
    assert refused or name == DATABASE  # pages that are also in the log are not read


@pytest.mark.spec("R-41")
@pytest.mark.parametrize("what", ["gone", "empty", "cut"])
@pytest.mark.parametrize("name", [DATABASE, LOG])
def test_a_missing_empty_or_truncated_file_is_refused_by_name(
    used: Kept, tmp_path: Path, name: str, what: str
) -> None:
    where = left_by(used, tmp_path / "left")
    file = where / name
    if what == "gone":
        file.unlink()
    else:
        file.write_bytes(b"" if what == "empty" else file.read_bytes()[: 8192 * 3])
    before = bytes_of(where)
    with pytest.raises(StoreDamagedError, match=r"contoso\.sqlite"):
        Kept(where)
    assert bytes_of(where) == before


@pytest.mark.spec("R-41")
def test_a_missing_database_is_refused_after_a_clean_shutdown(used: Kept) -> None:
    used.close()
    used.file.unlink()
    with pytest.raises(
        StoreDamagedError, match=r"contoso.sqlite is damaged: it is missing, though \d+ commits"
    ):
        used.open()
    assert not used.file.exists()


@pytest.mark.spec("R-41")
def test_an_older_copy_of_the_database_is_refused_and_says_how_much_is_missing(
    used: Kept, tmp_path: Path
) -> None:
    older = left_by(used, tmp_path / "older")
    (older / MARK).unlink()
    Kept(older).close()
    used.namespace.queue("orders").enqueue(StoredMessage(bare=b"later"), NOON)
    used.close()
    shutil.copyfile(older / DATABASE, used.file)
    with pytest.raises(StoreDamagedError, match=r"the last 1 of \d+ commits is missing"):
        used.open()


@pytest.mark.spec("R-41")
def test_a_database_copied_from_another_directory_is_refused(used: Kept, tmp_path: Path) -> None:
    other = Kept(tmp_path / "other")
    other.namespace.create_queue("orders", QueueDescription(), NOON)
    other.close()
    used.close()
    shutil.copyfile(other.file, used.file)
    with pytest.raises(StoreDamagedError, match=r"is not the database that contoso\.sqlite-mark belongs to"):
        used.open()


@pytest.mark.spec("R-41")
def test_deleting_the_mark_accepts_the_database_as_it_is(used: Kept, tmp_path: Path) -> None:
    where = left_by(used, tmp_path / "left")
    (where / LOG).unlink()
    with pytest.raises(StoreDamagedError):
        Kept(where)
    (where / MARK).unlink()
    again = Kept(where)
    assert 0 < again.namespace.queue("orders").counts(NOON).active < 3 * SENDS
    again.namespace.queue("orders").enqueue(StoredMessage(bare=b"on"), NOON)
    again.reopen()
    again.close()
    (where / DATABASE).unlink()
    with pytest.raises(StoreDamagedError, match="it is missing"):
        Kept(where)


@pytest.mark.spec("R-41", "G-26")
def test_a_commit_not_yet_recorded_by_the_mark_is_kept(used: Kept, tmp_path: Path) -> None:
    """After a kill between sync and mark, or a power failure, the mark may lag by some commits."""
    marks = []
    queue = used.namespace.queue("orders")
    for _ in range(3):
        marks.append((used.path / MARK).read_bytes())
        queue.enqueue(StoredMessage(bare=b"x"), NOON)
        used.store.commit()
    committed = contents(used.namespace, NOON)
    for number, mark in enumerate(marks):
        where = left_by(used, tmp_path / f"{number}")
        (where / MARK).write_bytes(mark)
        again = Kept(where)
        assert contents(again.namespace, NOON) == committed
        again.close()


@pytest.mark.spec("R-41")
def test_a_deleted_namespace_starts_empty(used: Kept) -> None:
    used.disk.delete("contoso")
    assert not list(used.path.glob("contoso.*"))
    used.reopen()
    assert used.namespace.queues() == []


@pytest.mark.spec("R-41", "G-26")
def test_files_of_a_process_killed_before_its_first_commit_are_accepted(tmp_path: Path) -> None:
    mark = DatabaseMark.fresh(len(MIGRATIONS))
    lefts: list[dict[str, bytes]] = [
        {MARK: b""},
        {MARK: mark.line()},
        {MARK: mark.line(), DATABASE: b""},
        {MARK: mark.line(), DATABASE: b"", LOG: b""},
    ]
    for number, left in enumerate(lefts):
        where = tmp_path / f"{number}"
        where.mkdir()
        for name, written in left.items():
            (where / name).write_bytes(written)
        Kept(where).close()


@pytest.mark.spec("R-41", "G-26")
def test_the_directory_is_synced_after_database_and_mark_are_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure, a file whose directory was not synced may be missing."""
    fsync, named = os.fsync, set[str]()

    def recorded(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            named.update(os.listdir(descriptor))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    Kept(tmp_path / "data").close()
    assert {DATABASE, MARK} <= named


@pytest.mark.spec("R-66", "R-41")
@pytest.mark.parametrize(
    ("pragma", "told"),
    [
        ("application_id = 7", "its application id is no longer the broker's"),
        ("application_id = 0", "its application id is no longer the broker's"),
        (
            f"user_version = {len(MIGRATIONS) + 1}",
            f"its layout is {len(MIGRATIONS) + 1}, but was {len(MIGRATIONS)}",
        ),
        (
            f"user_version = {len(MIGRATIONS) - 1}",
            f"its layout is {len(MIGRATIONS) - 1}, but was {len(MIGRATIONS)}",
        ),
    ],
)
def test_a_database_with_a_changed_kind_or_layout_is_reported_as_damaged(
    used: Kept, pragma: str, told: str
) -> None:
    used.close()
    with closing(sqlite3.connect(used.file)) as connection:
        connection.execute(f"PRAGMA {pragma}")
    before = bytes_of(used.path)
    with pytest.raises(StoreDamagedError, match=rf"^The file {used.file} is damaged: {told}\. Nothing in it"):
        used.open()
    assert bytes_of(used.path) == before


@pytest.mark.spec("R-66", "R-41")
@pytest.mark.parametrize("behind", [1, 3])
def test_the_number_of_missing_commits_is_reported_with_the_name_of_the_log(used: Kept, behind: int) -> None:
    identity = used.store.settings()["identity"]
    used.close()
    commits = used.store.commits
    (used.path / MARK).write_bytes(DatabaseMark(identity, len(MIGRATIONS), commits + behind).line())
    verb = "is" if behind == 1 else "are"
    with pytest.raises(
        StoreDamagedError,
        match=rf"the last {behind} of {commits + behind} commits {verb} missing: the file is an older copy, "
        rf"or its write-ahead log {LOG} is damaged or missing",
    ):
        used.open()


@pytest.mark.spec("R-66", "R-41")
def test_an_unreadable_mark_is_reported_with_the_reason(used: Kept) -> None:
    used.close()
    (used.path / MARK).unlink()
    (used.path / MARK).mkdir()
    with pytest.raises(StoreError, match=rf"^The file {used.path / MARK} cannot be read: Is a directory\.$"):
        used.open()


@pytest.mark.spec("R-66", "R-41")
def test_a_file_that_is_not_a_database_is_damage_only_if_there_was_a_mark(used: Kept) -> None:
    used.close()
    used.file.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreDamagedError, match="file is not a database"):
        used.open()
    (used.path / MARK).unlink()
    with pytest.raises(StoreError, match="cannot be used: file is not a database") as told:
        used.open()
    assert not isinstance(told.value, StoreDamagedError)
