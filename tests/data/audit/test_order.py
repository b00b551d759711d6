"""The order of sessions, from journals and compared with brute force."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.data.audit.engine import LocalPackets, Packets, WorkOnPart
from sbpair.data.audit.judge.folding import Fold
from sbpair.data.audit.judge.order import Order, OrderVerdict, order
from sbpair.data.audit.read.mentions import POSITIONS
from sbpair.data.audit.result.report import headline, order_of_sessions
from tests.data.audit.audited import Audited, audited
from tests.data.audit.story import Story


class Cast:
    """One sender, one syphon and one receiver of session "s", whose journals are all complete."""

    def __init__(self, directory: Path) -> None:
        self.story = Story(directory)
        self.sender, self.syphon = self.story.sender(), self.story.syphon()
        self._receiver = self.story.receiver()

    def received(self, *ids: str, session: str = "s") -> None:
        """Receive messages in this order."""
        self._receiver.received(*ids, numbers=tuple(range(1, len(ids) + 1)), session=session)

    def audit(self) -> Audited:
        self.story.end()
        return audited(self.story.directory, self.story.directory.parent / "out")


@pytest.fixture
def cast(tmp_path: Path) -> Cast:
    return Cast(tmp_path / "journals")


def only(found: Audited) -> SimpleNamespace:
    """The one session of an audit."""
    (row,) = found.rows("order")
    return row


@pytest.mark.parametrize(("session", "steps"), [("s", [Fold, Order]), ("", [Fold])])
def test_only_session_messages_are_regrouped_by_session(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, session: str, steps: list[type]
) -> None:
    done: list[type] = []
    regroup = LocalPackets.regroup

    def noted(packets: LocalPackets, work: WorkOnPart) -> Packets:
        done.append(type(work))
        return regroup(packets, work)

    monkeypatch.setattr(LocalPackets, "regroup", noted)
    cast.sender.parked("1", session=session)
    cast.syphon.forwarded("1")
    cast.received("1", session=session)
    found = cast.audit()
    assert done == steps
    assert len(found.rows("order")) == found.summary.sessions == len(steps) - 1


@pytest.mark.spec("O-7")
def test_an_overtaken_session_fails_the_audit_if_order_was_promised(cast: Cast) -> None:
    cast.sender.sent("1")
    cast.sender.parked("2", "3", session="s")
    cast.syphon.forwarded("2", "3")
    cast.sender.sent("4")
    cast.received("1", "4", "2", "3")
    found = cast.audit()
    row = only(found)

    assert (row.verdict, row.is_promised, row.inversions) == ("out of order", True, 1)
    assert (row.overtaking, row.overtaken) == ("4", "3")
    assert not found.summary.is_conserved
    assert headline(found.summary) == "4 messages: lost 0, waiting 0, 1 ordered sessions out of order"
    assert order_of_sessions(found.summary) == "1 sessions: 1 out of order"
    assert "<td>4 before 3</td>" in (found.out / "report.html").read_text("utf-8")


@pytest.mark.spec("G-8", "O-7")
def test_an_out_of_order_session_without_an_ordering_promise_is_no_error(cast: Cast) -> None:
    cast.sender.parked("1")
    cast.syphon.forwarded("1")
    cast.sender.sent("2")
    cast.received("2", "1")
    found = cast.audit()

    assert (only(found).verdict, only(found).is_promised) == ("out of order", False)
    assert found.summary.is_conserved


@pytest.mark.spec("O-1", "O-7")
def test_a_session_in_order_is_reported_as_such_with_or_without_copies(cast: Cast) -> None:
    cast.sender.sent("5", "6")
    cast.sender.spooled("7", session="s")
    cast.received("5", "6", "5", "6", "7")
    found = cast.audit()

    assert (only(found).verdict, only(found).messages, only(found).is_promised) == ("in order", 3, True)
    assert order_of_sessions(found.summary) == "1 sessions: 1 in order"


@pytest.mark.spec("O-7")
def test_an_undelivered_parked_message_is_a_gap_if_a_later_one_arrived(cast: Cast) -> None:
    cast.sender.parked("1", "2", "3", "4", session="s")
    cast.syphon.forwarded("1", "3")
    cast.syphon.set_aside("2", reason="MissingPath")
    cast.received("1", "3")
    found = cast.audit()

    assert (only(found).verdict, only(found).gaps, only(found).messages) == ("in order, with gaps", 1, 4)
    assert order_of_sessions(found.summary) == "1 sessions: 1 in order with gaps"


@pytest.mark.spec("O-7")
def test_an_order_without_broker_numbers_is_unproven(cast: Cast) -> None:
    cast.sender.parked("1", "2", session="s")
    cast.syphon.forwarded("1", "2")
    found = cast.audit()

    assert only(found).verdict == "unproven"
    assert (found.summary.sessions_unproven, found.summary.is_conserved) == (1, True)


@pytest.mark.spec("O-1", "O-7")
def test_a_failed_send_repeated_at_once_keeps_its_position(cast: Cast) -> None:
    cast.sender.raised("1", "2", ambiguous=True)
    cast.sender.parked("1", "2", session="s")
    cast.sender.sent("3")
    cast.received("1", "3", "2")

    assert (only(cast.audit()).overtaking, only(cast.audit()).overtaken) == ("3", "2")


@pytest.mark.spec("O-1", "O-7")
def test_a_failed_send_repeated_after_another_has_no_position(cast: Cast) -> None:
    cast.sender.raised("1", ambiguous=True)
    cast.sender.sent("2")
    cast.sender.parked("1", session="s")
    cast.received("1", "2")

    assert only(cast.audit()).verdict == "in order"


def test_the_session_of_a_message_differs_from_that_of_its_parked_copy(cast: Cast) -> None:
    """A parked copy has a session id made of hexadecimal digits, which may sort behind the original."""
    broker = cast.story.broker("contoso-dr")
    for number, parked_id in enumerate(("00ff", "ffee")):
        cast.sender.parked(str(number), session="s")
        broker.stored(str(number), number=4, session=parked_id)
        cast.syphon.forwarded(str(number), number=4)
    cast.received("0", "1")

    assert (only(cast.audit()).session_id, only(cast.audit()).messages) == ("s", 2)


def test_sequence_numbers_of_different_namespaces_are_not_compared(cast: Cast) -> None:
    cast.sender.sent("1")
    cast.sender.parked("2")
    cast.syphon.landed("2")
    cast.received("2", "1")

    assert (only(cast.audit()).verdict, only(cast.audit()).gaps) == ("in order", 0)


# The function, by brute force.

MESSAGE = st.tuples(
    st.sampled_from("ab"),  # session
    st.one_of(st.none(), st.integers(1, 30)),  # number
    st.integers(0, 20),  # how many events before its own a send of it raised; 0: none did
)


def rows(messages: list[tuple[str, int | None, int]]) -> pa.RecordBatch:
    """The messages of one sender, each sent by an event of its own with an even ordinal."""
    places = [2 * (index + 1) * POSITIONS for index in range(len(messages))]
    return pa.record_batch(
        {
            "primary": ["contoso"] * len(messages),
            "path_key": ["orders"] * len(messages),
            "session_id": [session for session, _, _ in messages],
            "sender": ["w"] * len(messages),
            "message_id": [f"m{index}" for index in range(len(messages))],
            "sent_in": places,
            "raised_in": pa.array(
                [
                    max(0, place - (2 * ago + 1) * POSITIONS) if ago else None
                    for place, (_, _, ago) in zip(places, messages, strict=True)
                ],
                pa.int64(),
            ),
            "number": pa.array([number for _, number, _ in messages], pa.int64()),
            "has_arrived": [number is not None for _, number, _ in messages],
            "is_parked": [False] * len(messages),
            "is_promised": [False] * len(messages),
        }
    )


@given(st.lists(MESSAGE, min_size=1, max_size=20))
def test_inversions_and_gaps_equal_those_found_message_by_message(messages) -> None:
    found = {row["session_id"]: row for row in order(rows(messages)).to_pylist()}

    for session in found:
        own = [(index, number, ago) for index, (s, number, ago) in enumerate(messages) if s == session]
        placed = [
            (index, number)
            for index, number, ago in own
            if number is not None and not any(index - ago <= other < index for other, _, _ in own)
        ]
        late = [
            index for index, number in placed if any(o < index and n > number for o, n in placed)
        ]  # fmt: skip
        arrived = [index for index, number, _ in own if number is not None]
        gaps = [index for index, number, _ in own if number is None and arrived and index < arrived[-1]]
        row = found[session]
        assert (row["messages"], row["inversions"], row["gaps"]) == (len(own), len(late), len(gaps))
        assert row["overtaking"] == (f"m{late[0]}" if late else None)
        if not late and not gaps:
            expected = OrderVerdict.IN_ORDER if placed else OrderVerdict.UNPROVEN
            assert row["verdict"] == expected.value
