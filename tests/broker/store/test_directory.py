"""The data directory: ownership, file names, and the reserve."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sbpair.broker.errors import StoreError, StoreInUseError
from sbpair.broker.store.directory import DataDirectory, make_private
from tests.broker.store.kept import SMALL

OPEN_FILES = Path("/proc/self/fd")


def times_open(file: Path) -> int:
    """Count the descriptors of this process that refer to the file."""
    found = 0
    for descriptor in OPEN_FILES.iterdir():
        with suppress(OSError):
            found += os.readlink(descriptor) == str(file)
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    directory = DataDirectory(tmp_path / "far" / "below", SMALL)
    yield directory
    directory.close()


@pytest.mark.spec("R-66", "F-90")
def test_a_directory_is_created_with_its_parents_and_owner_only_access(directory: DataDirectory) -> None:
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    assert {each.name for each in directory.path.iterdir()} == {"owner.lock", "reserve"}
    assert (directory.path / "reserve").stat().st_size == SMALL


@pytest.mark.spec("R-66", "F-90")
def test_a_directory_names_its_owner_until_it_is_released(directory: DataDirectory) -> None:
    assert (directory.path / "owner.lock").read_text() == f"{os.getpid()}\n"
    with pytest.raises(StoreInUseError, match=rf"{directory.path} is in use by process {os.getpid()}: one"):
        DataDirectory(directory.path, SMALL)
    directory.close()
    again = DataDirectory(directory.path, SMALL)
    for _ in range(3):
        with pytest.raises(StoreInUseError):
            DataDirectory(directory.path, SMALL)
    if OPEN_FILES.is_dir():
        assert times_open(directory.path / "owner.lock") == 1  # refused attempts leak no descriptors
    directory._lock = again._lock  # closed by the fixture


@pytest.mark.spec("R-66", "F-90")
def test_a_shorter_process_id_replaces_a_longer_one_completely(tmp_path: Path) -> None:
    (tmp_path / "owner.lock").write_text("123456789012345678\n")
    directory = DataDirectory(tmp_path, SMALL)
    assert (tmp_path / "owner.lock").read_text() == f"{os.getpid()}\n"
    directory.close()


@pytest.mark.spec("R-66", "F-90")
def test_a_path_of_a_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(
        StoreError, match=rf"^The data directory {tmp_path}/data cannot be used: File exists\.$"
    ):
        DataDirectory(tmp_path / "data", SMALL)


@pytest.mark.spec("R-66")
@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "x" * 101, "ä", "a b"])
def test_a_namespace_name_that_is_no_valid_file_name_is_refused(directory: DataDirectory, name: str) -> None:
    with pytest.raises(
        StoreError, match=r"^The namespace name '.*' cannot be a file name: use at most 100 letters, digits"
    ):
        directory.file_of(name)


@pytest.mark.spec("R-66")
def test_the_file_name_of_a_namespace_is_case_insensitive(directory: DataDirectory) -> None:
    assert directory.file_of("Contoso-1._") == directory.path / "contoso-1._.sqlite"
    assert directory.file_of("x" * 100).name == "x" * 100 + ".sqlite"
    assert directory.file_of("7").name == "7.sqlite"


@pytest.mark.spec("R-66", "F-89")
@pytest.mark.parametrize(("free", "has_room"), [(2 * SMALL, True), (2 * SMALL - 1, False)])
def test_the_reserve_is_allocated_if_twice_its_size_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, has_room: bool
) -> None:
    monkeypatch.setattr(DataDirectory, "_free", lambda _: free)
    directory = DataDirectory(tmp_path, SMALL)
    assert directory.has_room() is has_room
    assert (tmp_path / "reserve").exists() is has_room
    directory.close()


@pytest.mark.spec("R-66", "R-42")
@pytest.mark.parametrize(
    ("unused", "free", "has_room"),
    [
        (SMALL, SMALL // 4, True),
        (SMALL - 1, SMALL // 4, False),  # not enough free space in the database
        (SMALL, SMALL // 4 - 1, False),  # not enough space on the disk for the log
        (0, 2 * SMALL - 1, False),
        (0, 2 * SMALL, True),  # the reserve is allocated again
    ],
)
def test_free_pages_of_the_database_count_if_there_is_no_reserve(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch, unused: int, free: int, has_room: bool
) -> None:
    assert directory.release_reserve()
    assert not (directory.path / "reserve").exists()
    assert not directory.release_reserve()  # released only once
    monkeypatch.setattr(directory, "_free", lambda: free)
    assert directory.has_room(unused) is has_room


@pytest.mark.spec("R-66", "F-89")
def test_a_reserve_that_is_too_small_is_enlarged(tmp_path: Path) -> None:
    (tmp_path / "reserve").write_bytes(bytes(SMALL - 1))
    directory = DataDirectory(tmp_path, SMALL)
    assert (tmp_path / "reserve").stat().st_size == SMALL
    directory.close()


@pytest.mark.spec("R-66", "F-89")
def test_an_existing_reserve_is_used_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DataDirectory(tmp_path, SMALL).close()
    monkeypatch.setattr(DataDirectory, "_free", lambda _: 0)
    directory = DataDirectory(tmp_path, SMALL)
    assert directory.has_room()
    directory.close()


@pytest.mark.spec("R-66", "F-89")
def test_a_reserve_that_does_not_fit_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sbpair.broker.store.directory._allocate", full)
    directory = DataDirectory(tmp_path, SMALL)
    assert not directory.has_room()
    assert not (tmp_path / "reserve").exists()
    monkeypatch.undo()
    assert directory.has_room()
    directory.close()


@pytest.mark.spec("R-66", "F-89")
def test_the_reserve_is_written_where_posix_fallocate_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    for size in (SMALL, 3 * 2**20):
        directory = DataDirectory(tmp_path / str(size), size)
        reserve = (tmp_path / str(size) / "reserve").stat()
        assert (reserve.st_size, stat.S_IMODE(reserve.st_mode)) == (size, 0o600)
        assert reserve.st_blocks * 512 >= size  # not sparse: the space is allocated
        directory.close()


@pytest.mark.spec("R-66", "S-10")
def test_a_file_readable_by_others_is_made_private_and_symbolic_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "open").write_bytes(b"kept")
    (tmp_path / "open").chmod(0o644)
    make_private(tmp_path / "open")
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o600
    assert (tmp_path / "open").read_bytes() == b"kept"
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.raises(StoreError, match=rf"^The file {tmp_path}/link cannot be used: .+\.$"):
        make_private(tmp_path / "link")
