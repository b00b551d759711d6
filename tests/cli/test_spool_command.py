"""`sbpair spool` counts the messages on disk and, on explicit request, deletes them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sbpair.pairing.spool.store import Entry, Spool


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A spool without an owner, with messages for two destinations."""
    file = tmp_path / "spool"
    spool, now = Spool(file, primary="contoso"), time.time_ns() // 1_000_000
    spool.append("orders", [Entry("a", b"x" * 10), Entry("b", b"y" * 20)], now - 90_000)
    spool.append("invoices", [Entry("huge", b"z")], now)
    spool.refuse("invoices", spool.oldest("invoices", 1)[0], "MessageSizeExceededError: too large")
    spool.close()
    return str(file)


def test_list_counts_by_destination_and_says_how_old_the_oldest_is(sbpair, path):
    done = sbpair("spool", "list", path)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("invoices: 0 waiting, 1 refused, 1 bytes, oldest ")
    assert lines[1].startswith("orders: 2 waiting, 0 refused, 30 bytes, oldest 9")
    assert lines[2:] == [
        "refused: invoices 'huge': MessageSizeExceededError: too large",
        "2 waiting, 1 refused",
    ]


def test_list_as_json_is_one_object_a_line(sbpair, path):
    lines = sbpair("spool", "list", "--json", path).stdout.splitlines()

    found = {each["path"]: each for each in map(json.loads, lines)}
    assert found["orders"]["waiting"] == 2
    assert 90 <= found["orders"]["oldest_age_seconds"] < 150


def test_purge_needs_yes_and_says_what_it_would_do(sbpair, path):
    done = sbpair("spool", "purge", path)

    assert done.returncode == 2
    assert "would permanently delete 3 messages; add --yes" in done.stderr
    assert "2 waiting, 1 refused" in sbpair("spool", "list", path).stdout


@pytest.mark.parametrize(
    ("flags", "deleted", "left"),
    [
        ((), 3, "0 waiting, 0 refused"),
        (("--path", "ORDERS"), 2, "0 waiting, 1 refused"),
        (("--refused",), 1, "2 waiting, 0 refused"),
        (("--path", "orders", "--refused"), 0, "2 waiting, 1 refused"),
    ],
)
def test_purge_deletes_what_was_chosen(sbpair, path, flags, deleted, left):
    done = sbpair("spool", "purge", path, *flags, "--yes")

    assert (done.returncode, done.stdout) == (0, f"deleted {deleted}\n")
    assert left in sbpair("spool", "list", path).stdout


@pytest.mark.spec("R-2")
@pytest.mark.parametrize(
    ("flags", "said", "left"),
    [
        ((), "1 waiting again\n", "3 waiting, 0 refused"),
        (("--path", "Invoices"), "1 waiting again\n", "3 waiting, 0 refused"),
        (("--path", "orders"), "0 waiting again\n", "2 waiting, 1 refused"),
    ],
)
def test_redrive_lets_what_was_set_aside_wait_again(sbpair, path, flags, said, left):
    done = sbpair("spool", "redrive", path, *flags)

    assert (done.returncode, done.stdout) == (0, said)
    assert left in sbpair("spool", "list", path).stdout


def test_a_spool_in_use_is_left_alone_and_its_owner_named(sbpair, path):
    owner = Spool(path, primary="contoso")
    try:
        done = sbpair("spool", "purge", path, "--yes")
    finally:
        owner.close()

    assert done.returncode == 3
    assert f"{path} is in use by process " in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_is_not_there_or_no_spool_is_a_configuration_error(sbpair, tmp_path):
    missing = sbpair("spool", "list", str(tmp_path / "missing"))
    assert (missing.returncode, "does not exist" in missing.stderr) == (3, True)
    assert not (tmp_path / "missing").exists()
    (tmp_path / "text").write_text("not a spool\n" * 100)
    other = sbpair("spool", "list", str(tmp_path / "text"))
    assert (other.returncode, "is not a spool" in other.stderr) == (3, True)
