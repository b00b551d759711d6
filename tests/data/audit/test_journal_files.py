"""Which bytes of a journal file are readable, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.data.audit.read.journal_files import FileRange, admit, cut, pack, whole_lines

LINES = [b'{"n": %d}\n' % n for n in range(200)]


def content(piece: FileRange) -> bytes:
    with piece.open() as file:
        file.seek(piece.start)
        return file.read(piece.end - piece.start)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    (tmp_path / "sender-a-000001.jsonl").write_bytes(b"".join(LINES[:100]))
    (tmp_path / "_open-sender-a-000002.jsonl").write_bytes(b"".join(LINES[100:]) + b'{"torn": ')
    (tmp_path / "notes.txt").write_text("not a journal")
    return str(tmp_path)


@pytest.mark.spec("F-90")
def test_a_torn_last_line_is_not_read_yet(directory: str) -> None:
    there = whole_lines(directory)

    assert there == {
        "sender-a-000001.jsonl": len(b"".join(LINES[:100])),
        "sender-a-000002.jsonl": len(b"".join(LINES[100:])),
    }


def test_a_file_with_only_an_overlong_torn_line_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "_open-sender-a-000001.jsonl").write_bytes(b"x" * 200_000)

    assert whole_lines(str(tmp_path)) == {"sender-a-000001.jsonl": 0}


@given(most=st.integers(1, 3000), start=st.integers(0, 99), data=st.data())
def test_the_pieces_of_a_range_contain_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, most: int, start: int, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("pieces")
    (directory / "f.jsonl").write_bytes(b"".join(LINES))
    stop = data.draw(st.integers(start, len(LINES)))
    begun, end = len(b"".join(LINES[:start])), len(b"".join(LINES[:stop]))

    pieces = list(cut(str(directory), "f.jsonl", begun, end, most))

    assert b"".join(map(content, pieces)) == b"".join(LINES[start:stop])
    assert all(content(piece).endswith(b"\n") for piece in pieces)


@given(sizes=st.lists(st.integers(1, 500), max_size=50), most=st.integers(1, 1000))
def test_small_pieces_are_read_together_once_and_in_order(sizes: list[int], most: int) -> None:
    pieces = [FileRange("d", str(n), 0, size) for n, size in enumerate(sizes)]

    tasks = list(pack(pieces, most))

    assert [piece for task in tasks for piece in task] == pieces
    assert all(len(task) == 1 or sum(piece.end for piece in task) <= most for task in tasks)


def test_a_closed_and_renamed_file_is_found_again(directory: str) -> None:
    name = "sender-a-000002.jsonl"
    piece = FileRange(directory, name, 0, len(LINES[100]))
    Path(directory, f"_open-{name}").rename(Path(directory, name))

    assert content(piece) == LINES[100]


def test_a_deleted_file_is_named(directory: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"sender-b-000001\.jsonl is no longer in"):
        FileRange(directory, "sender-b-000001.jsonl", 0, 1).open()


def test_without_a_limit_all_available_lines_are_read(directory: str) -> None:
    there = whole_lines(directory)

    assert admit(directory, {}.get, there, None) == there


def test_a_directory_named_like_a_journal_is_not_a_journal(directory: str) -> None:
    there = whole_lines(directory)
    Path(directory, "old.jsonl").mkdir()

    assert whole_lines(directory) == there


def test_a_limit_reads_whole_lines_and_eventually_everything(directory: str) -> None:
    there, start, read = whole_lines(directory), {}, []
    for _ in range(100):
        end = start | admit(directory, start.get, there, 300)
        for name, stop in sorted(end.items()):
            if stop > start.get(name, 0):
                read.append(content(FileRange(directory, name, start.get(name, 0), stop)))
        start = end
        if end == there:
            break

    assert b"".join(read) == b"".join(LINES)
    assert max(map(len, read)) < 300 + 2 * len(LINES[-1])


def test_only_files_with_new_lines_are_read(directory: str) -> None:
    there = whole_lines(directory)
    (first, end), (second, _) = there.items()

    assert admit(directory, {"gone.jsonl": 7, first: end}.get, there, None) == {second: there[second]}
