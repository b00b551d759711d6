"""Write journals by hand, as sender, syphon and receiver would have written them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sbpair.broker.entities.audit_recorder import (
    Arrival,
    DuplicatesDropped,
    MessagesRemoved,
    MessagesStored,
    Removal,
)
from sbpair.observation import EntityEmptied, Journal, MessagesReceived, PairLabels, SendAccepted, WriterRole
from sbpair.pair.observation.record import Instant
from sbpair.pair.pairing.events import (
    MessageParked,
    MessageSpooled,
    SendRaised,
    SpooledMessageRefused,
    SpoolReplayed,
)
from sbpair.pair.syphon.events import (
    BacklogsDrained,
    BacklogStranded,
    MessageSetAside,
    MessagesForwarded,
)

NOON = 1_795_262_400.0  # 2026-11-21T12:00:00Z
EXPIRED = "TTLExpiredException"


def backlog(number: int, primary: str = "contoso") -> str:
    return f"{primary}/x-servicebus-transfer/{number}"


@dataclass
class Story:
    """Writers that share one clock of seconds since noon, which the test moves."""

    directory: Path
    primary: str = "contoso"
    now: float = 0.0
    secondary: str = ""
    journals: list[Journal] = field(default_factory=list)

    @property
    def pair(self) -> PairLabels:
        return PairLabels(self.primary, self.secondary or f"{self.primary}-dr")

    def journal(self, role: WriterRole, pair: PairLabels | None = None) -> Journal:
        journal = Journal(
            self.directory,
            role=role,
            pair=pair or self.pair,
            clock=lambda: Instant(NOON + self.now, 1000.0 + self.now),
        )
        self.journals.append(journal)
        return journal

    def sender(self) -> Sender:
        return Sender(self, self.journal(WriterRole.SENDER))

    def syphon(self) -> Syphon:
        return Syphon(self, self.journal(WriterRole.SYPHON))

    def broker(self, namespace: str = "") -> Broker:
        name = PairLabels(namespace or self.primary, "")
        return Broker(self.journal(WriterRole.BROKER, name), self.primary)

    def receiver(self) -> Receiver:
        return Receiver(self.journal(WriterRole.RECEIVER))

    def pause(self) -> None:
        self.now += 5.0

    def end(self, but: tuple[Journal, ...] = ()) -> None:
        """Close all journals except these, which remain as a killed writer leaves them."""
        for journal in self.journals:
            if journal in but:
                journal.abandon()
            else:
                journal.close()

    def file_of(self, role: WriterRole) -> Path:
        """Of the one writer of this role, closed or open."""
        (writer,) = [journal.writer for journal in self.journals if journal.role is role]
        (file,) = self.directory.glob(f"*{writer}*")
        return file


@dataclass
class Sender:
    story: Story
    journal: Journal

    @property
    def at(self) -> float:
        return 1000.0 + self.story.now

    def told_parked(self, *ids: str, path: str = "orders", ambiguous: bool = False) -> None:
        self.journal.write(SendAccepted(path, "backlog", 0, ids, ambiguous))

    def sent(self, *ids: str, path: str = "orders", ambiguous: bool = False) -> None:
        self.journal.write(SendAccepted(path, "primary", None, ids, ambiguous))

    def parked(
        self, *ids: str, number: int = 0, path: str = "orders", ambiguous: bool = False, session: str = ""
    ) -> None:
        self.journal.write(MessageParked(self.at, path, number, len(ids), ids, ambiguous, session))

    def raised(self, *ids: str, path: str = "orders", ambiguous: bool = False) -> None:
        self.journal.write(SendRaised(self.at, path, "OperationTimeoutError", ids, ambiguous))

    def spooled(self, *ids: str, path: str = "orders", session: str = "") -> None:
        self.journal.write(MessageSpooled(self.at, path, len(ids), ids, session_id=session))

    def replayed(self, *ids: str, path: str = "orders") -> None:
        self.journal.write(SpoolReplayed(self.at, path, None, len(ids), 0, ids))

    def refused(self, message_id: str, path: str = "orders") -> None:
        self.journal.write(SpooledMessageRefused(self.at, path, message_id, "MessageSizeExceededError"))


@dataclass
class Syphon:
    story: Story
    journal: Journal

    @property
    def at(self) -> float:
        return NOON + self.story.now

    def forwarded(self, *ids: str, number: int = 0, path: str = "orders") -> None:
        self.journal.write(MessagesForwarded(self.at, backlog(number), path, ids))

    def landed(self, *ids: str, number: int = 0, path: str = "orders") -> None:
        self.journal.write(MessagesForwarded(self.at, backlog(number), path, ids, "secondary"))

    def set_aside(self, message_id: str, reason: str = "MissingPath", path: str | None = "orders") -> None:
        self.journal.write(MessageSetAside(self.at, backlog(0), path, reason, "why", message_id))

    def stranded(self, number: int) -> None:
        self.journal.write(BacklogStranded(self.at, backlog(number), True))

    def drained(self) -> None:
        self.journal.write(BacklogsDrained(self.at))


@dataclass
class Receiver:
    journal: Journal

    def received(
        self, *ids: str, numbers: tuple[int, ...] = (), session: str = "", path: str = "orders"
    ) -> None:
        given = numbers or tuple(0 for _ in ids)
        self.journal.write(MessagesReceived(path, ids, tuple(session for _ in ids), given))

    def emptied(self, path: str = "orders") -> None:
        self.journal.write(EntityEmptied(path))


@dataclass
class Broker:
    """One namespace's journal; with the ``number`` of a backlog queue, of what is parked there."""

    journal: Journal
    primary: str

    def stored(
        self, *ids: str, path: str | None = "orders", number: int | None = None,
        how: Arrival = Arrival.SENT, session: str = "",
    ) -> None:  # fmt: skip
        queue = "" if number is None else backlog(number, self.primary)
        sessions = tuple(session for _ in ids) if session else ()
        first = self.journal.written  # a number that no other message has
        self.journal.write(
            MessagesStored(path, queue, how, ids, sessions, tuple(first + n for n in range(len(ids))))
        )

    def removed(
        self, *ids: str, how: Removal = Removal.COMPLETED, path: str | None = "orders",
        number: int | None = None, reason: str = "", dead: bool = False,
    ) -> None:  # fmt: skip
        sub_queue = "/$DeadLetterQueue" if dead else ""
        queue = "" if number is None else backlog(number, self.primary) + sub_queue
        where = path if number is not None else f"{path}{sub_queue}"
        self.journal.write(MessagesRemoved(where, queue, how, reason, ids, tuple(1 for _ in ids)))

    def dropped(self, *ids: str, path: str = "orders") -> None:
        self.journal.write(DuplicatesDropped(path, "", ids))


@dataclass
class Cast:
    """The sender, syphon and receiver of one pair; each story has a primary of its own."""

    story: Story
    sender: Sender
    syphon: Syphon
    receiver: Receiver

    @classmethod
    def of(cls, directory: Path, primary: str = "contoso") -> Cast:
        story = Story(directory, primary)
        return cls(story, story.sender(), story.syphon(), story.receiver())
