"""Durability: random work on entities, with crashes between commits, restores exactly what was committed (G-26)."""

from __future__ import annotations

import random
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sbpair.broker.auth import Right, SharedAccessPolicy
from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage
from sbpair.broker.entities.change_log import ChangeLog
from sbpair.broker.entities.descriptions import SubscriptionDescription, TopicDescription
from sbpair.broker.entities.partition import Layout
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.entities.rule_operations import add_rule, remove_rule
from sbpair.broker.entities.rules import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter
from sbpair.broker.entities.transaction import Anchor, Settlement, SettlementVerb, Transaction
from sbpair.broker.errors import BrokerError, StoreDamagedError, StoreError, StoreInUseError
from sbpair.broker.store import message_rows
from sbpair.broker.store.disk import Disk
from sbpair.broker.store.integrity import mark_path
from sbpair.broker.store.schema import MIGRATIONS, prepare
from tests.broker.store.kept import NOON, SMALL, Kept, contents

PATHS = ("plain", "keyed", "sessions", "spread", "events", "moving")


def furnished(namespace: Namespace, now: int) -> None:
    namespace.create_queue("plain", QueueDescription(max_delivery_count=2), now)
    namespace.create_queue("keyed", QueueDescription(requires_duplicate_detection=True), now)
    namespace.create_queue("sessions", QueueDescription(requires_session=True), now)
    namespace.create_queue("spread", QueueDescription(enable_partitioning=True), now)
    namespace.create_topic("events", TopicDescription(), now)
    namespace.create_subscription("events", "all", SubscriptionDescription(), now)
    namespace.create_subscription("events", "dead", SubscriptionDescription(requires_session=True), now)
    namespace.create_queue("moving", QueueDescription(forward_to="plain"), now)


class Worker:
    """Performs random operations on a namespace, reproducibly for a seed."""

    def __init__(self, namespace: Namespace, seed: int) -> None:
        self.namespace = namespace
        self.random = random.Random(seed)
        self.now = NOON
        self.held: list[tuple[object, bytes]] = []

    def step(self) -> None:
        self.now += self.random.choice((0, 1, 500, 40_000))
        self.namespace.handle_timer(self.now)
        works = (self.send, self.take, self.settle, self.session, self.transact, self.manage)
        (work,) = self.random.choices(works, (8, 5, 6, 2, 2, 0.4))
        try:
            work()
        except BrokerError:
            pass  # refused: nothing was changed
        self.namespace.forward(self.now)

    def message(self) -> StoredMessage:
        roll = self.random.randrange
        return StoredMessage(
            bare=bytes(roll(256) for _ in range(roll(40))),
            annotations=b"\x00S\x72\xc1\x01\x00" if roll(2) else b"",
            message_id=self.random.choice((None, f"m{roll(20)}", roll(20), bytes((roll(20),))))
            or f"x{roll(9**9)}",
            session_id=self.random.choice((None, "s1", "s2")),
            time_to_live=self.random.choice((None, 30_000, 2**40)),
            scheduled_for=self.random.choice((None, None, self.now + 60_000)),
            durable=self.random.choice((None, True, False)),
            priority=self.random.choice((None, 4)),
            is_ping=roll(12) == 0,
            overhead=64,
        )

    def send(self) -> None:
        path = self.random.choice(PATHS)
        count = self.random.choice((1, 1, 3))
        messages = [self.message() for _ in range(count)]
        if path == "spread":
            for each in messages:
                each.session_id, each.partition_key = None, messages[0].session_id
        self.namespace.queue(path).enqueue_all(messages, self.now)

    def take(self) -> None:
        queue = self.namespace.queue(
            self.random.choice(
                ("plain", "keyed", "spread", "events/Subscriptions/all", "plain/$DeadLetterQueue")
            )
        )
        message = queue.receive(self.now)
        if message is not None:
            self.held.append((queue, message.lock_token))

    def settle(self) -> None:
        if not self.held:
            return
        queue, token = self.held.pop(self.random.randrange(len(self.held)))
        Settlement(queue, token, self.random.choice(list(SettlementVerb)), self.properties()).apply(self.now)

    def properties(self) -> dict[str, object]:
        return self.random.choice(({}, {"why": "so", "number": 7}))

    def session(self) -> None:
        sessions = self.namespace.queue("sessions").sessions
        lock = sessions.accept(self.random.choice(("s1", "s2")), self.now)
        if self.random.randrange(2):
            sessions.set_state(lock, self.random.choice((None, b"", b"state")), self.now)
        message = lock.queue.receive(self.now, lock)
        if message is not None and self.random.randrange(2):
            lock.queue.complete(message.lock_token, self.now)
        sessions.release(lock, self.now)

    def transact(self) -> None:
        plain = self.namespace.queue("plain")
        transaction = Transaction(self.namespace, Anchor(plain))
        transaction.send(plain, [self.message(), self.message()], self.now)
        for queue, token in list(self.held):
            if queue is plain:
                transaction.settle(Settlement(queue, token, SettlementVerb.COMPLETE), self.now)
                self.held.remove((queue, token))
                break
        transaction.send(self.namespace.queue("keyed"), [self.message()], self.now)  # via plain
        transaction.commit(self.now)

    def manage(self) -> None:
        name = self.random.choice(("spare", "events/Subscriptions/spare"))
        try:
            self.namespace.delete(name)
        except BrokerError:
            if name == "spare":
                self.namespace.create_queue(name, QueueDescription(), self.now)
            else:
                self.namespace.create_subscription("events", "spare", SubscriptionDescription(), self.now)
        self.namespace.update_queue(
            "plain", QueueDescription(max_delivery_count=self.random.randrange(2, 5)), self.now
        )


@pytest.mark.slow
@pytest.mark.spec("G-26", "F-12", "F-13", "F-14", "F-15")
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(each, marks=pytest.mark.trial) for each in range(2, 6))]
)
def test_a_crash_after_any_commit_leaves_exactly_what_was_committed(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(message_rows, "ALLOWED_WASTE", -(2**40))  # every sparse segment is rewritten
    kept = Kept(tmp_path / "data")
    furnished(kept.namespace, NOON)
    worker, chance = Worker(kept.namespace, seed), random.Random(seed)
    kept.store.commit()
    committed, at, crashes = contents(kept.namespace, NOON), NOON, 0
    for step in range(400):
        worker.step()
        if chance.random() < 0.5:
            kept.store.commit()
            at = worker.now
            committed = contents(kept.namespace, at)
        if chance.random() < 0.03:  # killed, with or without work that is not committed
            crashes += 1
            found = kept.crashed_copy(tmp_path / f"crash {step}", worker.now)
            assert contents(found.namespace, at) == committed
            found.close()
    assert crashes >= 5
    kept.store.commit()
    committed = contents(kept.namespace, worker.now)
    kept.reopen(worker.now)
    assert contents(kept.namespace, worker.now) == committed
    kept.close()


@pytest.mark.slow
@pytest.mark.spec("G-26")
def test_restarts_do_not_change_the_outcome(tmp_path: Path) -> None:
    """With and without a restart every few steps, the same messages remain."""
    outcomes = []
    for restarts in (False, True):
        kept = Kept(tmp_path / str(restarts))
        furnished(kept.namespace, NOON)
        worker = Worker(kept.namespace, 5)
        for step in range(300):
            worker.step()
            if step % 10 == 9:
                for queue, token in worker.held:
                    try:
                        queue.release(token, worker.now)  # type: ignore[attr-defined]
                    except BrokerError:
                        pass
                worker.held.clear()
                if restarts:
                    kept.reopen(worker.now)
                    worker.namespace = kept.namespace
        outcomes.append(
            {
                path: found
                for path, found in contents(kept.namespace, worker.now).items()
                if "spread" not in path
            }
        )
        kept.close()
    assert outcomes[0] == outcomes[1]


@pytest.mark.spec("G-26")
def test_the_end_of_the_process_releases_locks_without_counting_a_delivery(kept: Kept) -> None:
    queue = kept.namespace.create_queue("orders", QueueDescription(), NOON)
    queue.enqueue(StoredMessage(bare=b"x"), NOON)
    message = queue.receive(NOON)
    queue.abandon(message.lock_token, NOON)
    assert queue.receive(NOON).delivery_count == 1
    kept.reopen()
    message = kept.namespace.queue("orders").receive(NOON)
    assert (message.sequence_number, message.delivery_count) == (1, 1)


def test_sequence_numbers_continue_after_a_restart_without_messages(kept: Kept) -> None:
    queue = kept.namespace.create_queue("orders", QueueDescription(), NOON)
    for _ in range(3):
        queue.enqueue(StoredMessage(bare=b"x"), NOON)
        queue.receive_and_delete(NOON)
    queue.reserve(StoredMessage(bare=b"x"))  # reserved, never sent
    kept.reopen()
    assert kept.namespace.queue("orders").enqueue(StoredMessage(bare=b"x"), NOON) == 5


def test_a_restart_keeps_ids_within_the_duplicate_detection_window_only(
    kept: Kept,
) -> None:
    queue = kept.namespace.create_queue(
        "orders",
        QueueDescription(requires_duplicate_detection=True, duplicate_detection_history_time_window=20_000),
        NOON,
    )
    queue.enqueue(StoredMessage(bare=b"x", message_id="old"), NOON)
    kept.store.commit()
    queue.enqueue(StoredMessage(bare=b"x", message_id="new"), NOON + 20_000)
    kept.reopen(NOON + 20_000)
    queue = kept.namespace.queue("orders")
    assert queue.enqueue(StoredMessage(bare=b"x", message_id="new"), NOON + 20_001) == 2
    assert kept.store.connection.execute("SELECT count(*) FROM accepted").fetchone() == (1,)
    assert queue.enqueue(StoredMessage(bare=b"x", message_id="old"), NOON + 20_001) == 3


def test_time_without_a_broker_does_not_count_as_idle(kept: Kept) -> None:
    kept.namespace.create_queue("orders", QueueDescription(auto_delete_on_idle=300_000), NOON)
    later = NOON + 86_400_000
    kept.reopen(later)
    kept.namespace.handle_timer(later)
    assert [queue.path for queue in kept.namespace.queues()] == ["orders"]
    kept.namespace.handle_timer(later + 300_001)
    assert kept.namespace.queues() == []
    kept.reopen(later)
    assert kept.namespace.queues() == []


def test_an_entity_is_restored_although_its_forwarding_target_was_deleted(kept: Kept) -> None:
    kept.namespace.create_queue("archive", QueueDescription(), NOON)
    kept.namespace.create_queue("orders", QueueDescription(forward_to="archive"), NOON)
    kept.namespace.delete("archive")
    kept.reopen()
    assert kept.namespace.queue("orders").description.forward_to == "archive"


def test_a_partition_key_of_arbitrary_bytes_is_restored(kept: Kept) -> None:
    key = b"\xff\x00".decode("utf-8", "surrogateescape")
    kept.namespace.create_queue("orders", QueueDescription(), NOON).enqueue(
        StoredMessage(bare=b"x", partition_key=key, via_partition_key=key), NOON
    )
    kept.reopen()
    (message,) = kept.namespace.queue("orders").peek(0, 1, NOON)
    assert (message.partition_key, message.via_partition_key) == (key, key)


def test_a_time_to_live_above_the_maximum_is_stored_as_the_maximum(kept: Kept) -> None:
    kept.namespace.create_queue("orders", QueueDescription(), NOON).enqueue(
        StoredMessage(bare=b"x", time_to_live=2**64 - 1), NOON
    )
    kept.reopen()
    (message,) = kept.namespace.queue("orders").peek(0, 1, NOON)
    assert (message.time_to_live, message.expires_at) == (2**63 - 1, 2**63 - 1)


def test_the_rules_of_a_subscription_are_restored(kept: Kept) -> None:
    namespace = kept.namespace
    furnished(namespace, NOON)
    parameters = {"@a": 5, "@b": 2.5, "@c": "text", "@d": True, "@e": datetime(2026, 1, 2, tzinfo=UTC),
                  "@f": timedelta(seconds=3)}  # fmt: skip
    subscription = namespace.subscription("events", "all")
    add_rule(
        subscription,
        Rule("sql", SqlFilter("a = @a", parameters), SqlAction("SET b = @b", parameters), 7),
        NOON,
    )
    add_rule(subscription, Rule("mail", CorrelationFilter(to="you", properties={"n": 1})), NOON)
    add_rule(subscription, Rule("never", FalseFilter()), NOON)
    remove_rule(subscription, "$default")
    for name in [rule.name for rule in namespace.subscription("events", "dead").rules]:
        remove_rule(namespace.subscription("events", "dead"), name)
    before = [list(each.rules) for each in namespace.subscriptions("events")]
    kept.reopen()
    assert [list(each.rules) for each in kept.namespace.subscriptions("events")] == before
    assert [len(each) for each in before] == [3, 0]
    subscription = kept.namespace.subscription("events", "all")
    kept.namespace.delete("events/Subscriptions/all")
    remove_rule(subscription, "never")  # through a link that was attached before
    kept.reopen()
    assert [each.name for each in kept.namespace.subscriptions("events")] == ["dead"]


# -- the data directory and its files


@pytest.mark.spec("S-10")
def test_the_files_are_readable_by_their_owner_only(kept: Kept) -> None:
    kept.namespace.create_queue("orders", QueueDescription(), NOON)
    kept.store.commit()
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o700
    files = list(kept.path.iterdir())
    beside = {f"contoso.sqlite{each}" for each in ("", "-wal", "-mark")}
    assert {file.name for file in files} == {"owner.lock", "reserve", *beside}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@pytest.mark.spec("R-66", "G-26")
def test_the_database_has_the_expected_settings(kept: Kept) -> None:
    def setting(name: str) -> object:
        return kept.store.connection.execute(f"PRAGMA {name}").fetchone()[0]

    names = ("journal_mode", "locking_mode", "synchronous", "fullfsync", "secure_delete", "page_size")
    assert [setting(name) for name in names] == ["wal", "exclusive", 2, 1, 0, 8192]
    assert setting("wal_autocheckpoint") == 1024  # pages: 8 MiB
    assert setting("busy_timeout") == 0  # a second process fails at once
    assert setting("application_id") == 0x53424252


@pytest.mark.spec("R-66", "G-26")
def test_a_restart_keeps_the_creation_time_of_a_namespace(kept: Kept) -> None:
    kept.reopen(NOON + 5000)
    assert kept.namespace.created_at == NOON


@pytest.mark.spec("R-66", "G-26")
def test_additional_policies_are_restored(kept: Kept) -> None:
    assert kept.store.policies() == []
    reader = SharedAccessPolicy("reader", "one", "other", frozenset({Right.LISTEN}))
    both = SharedAccessPolicy("both", "a", "b", frozenset({Right.SEND, Right.LISTEN}))
    root = kept.store.policy()
    kept.store.save_policies([reader, both])
    assert not kept.store.has_pending_changes
    kept.reopen()
    assert kept.store.policies() == [reader, both]
    kept.store.save_policies([both])
    kept.reopen()
    assert kept.store.policies() == [both]
    assert kept.store.policy() == root


@pytest.mark.spec("R-66", "F-90")
def test_two_namespaces_whose_names_differ_by_case_are_refused(kept: Kept) -> None:
    other = Namespace("Contoso", created_at=NOON, change_log=ChangeLog())
    with pytest.raises(StoreError, match=rf"^Two namespaces would share the file {kept.file}: their names"):
        kept.disk.attach(other, NOON)


@pytest.mark.spec("R-66", "F-90")
def test_a_detached_namespace_can_be_attached_again(kept: Kept) -> None:
    kept.namespace.create_queue("orders", QueueDescription(), NOON)
    kept.disk.detach("Contoso")
    again = Namespace("contoso", created_at=NOON, change_log=ChangeLog())
    kept.disk.attach(again, NOON)
    assert [queue.path for queue in again.queues()] == ["orders"]
    kept.close()
    kept.close()  # idempotent


@pytest.mark.spec("F-90")
def test_a_second_broker_on_the_directory_is_refused_with_the_process_id_of_the_first(kept: Kept) -> None:
    with pytest.raises(StoreInUseError, match=r"in use by process \d+: one broker owns it at a time"):
        Kept(kept.path)


@pytest.mark.spec("F-90")
def test_a_database_with_a_newer_layout_is_refused_unchanged(kept: Kept) -> None:
    kept.close()
    connection = sqlite3.connect(kept.file)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    mark_path(kept.file).unlink()
    with pytest.raises(
        StoreError,
        match=rf"has layout {len(MIGRATIONS) + 1}; this version of sbpair supports up to {len(MIGRATIONS)}: use",
    ):
        kept.open()
    with closing(sqlite3.connect(kept.file)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)


def test_migrations_run_in_order_and_a_failed_one_changes_nothing(kept: Kept) -> None:
    kept.namespace.create_queue("orders", QueueDescription(), NOON)
    kept.close()
    connection, more = sqlite3.connect(kept.file, isolation_level=None), "ALTER TABLE entity ADD COLUMN more"
    with pytest.raises(sqlite3.OperationalError):
        prepare(connection, (*MIGRATIONS, (more, "SELECT nonsense")))
    connection.close()
    connection = sqlite3.connect(kept.file, isolation_level=None)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    prepare(connection, (*MIGRATIONS, (more,)))
    assert connection.execute("SELECT name, more FROM entity").fetchall() == [("orders", None)]
    connection.close()


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    connection = sqlite3.connect(tmp_path / "data" / "contoso.sqlite")
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    with pytest.raises(StoreError, match="a database of another program"):
        Kept(tmp_path / "data")


@pytest.mark.slow
@pytest.mark.spec("F-90")
def test_a_flipped_bit_anywhere_is_detected_or_harmless(kept: Kept, tmp_path: Path) -> None:
    namespace = kept.namespace
    furnished(namespace, NOON)
    worker = Worker(namespace, 1)
    for _ in range(150):
        worker.step()
    committed = contents(namespace, worker.now)
    kept.close()
    whole, chance = kept.file.read_bytes(), random.Random(3)
    found = 0
    for attempt in range(75):
        at = chance.randrange(len(whole) * 8)
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        where = tmp_path / f"flipped {attempt}"
        where.mkdir()
        (where / "contoso.sqlite").write_bytes(flipped)
        try:
            again = Kept(where, worker.now)
        except StoreError:
            found += 1
            assert (where / "contoso.sqlite").read_bytes() == flipped  # nothing of a damaged file is changed
            continue
        assert (
            contents(again.namespace, worker.now) == committed
        )  # in a free page, or in what SQLite does not use
        again.close()
    assert found >= 10


def test_a_flipped_bit_in_a_body_is_reported_with_entity_and_file(kept: Kept) -> None:
    queue = kept.namespace.create_queue("orders", QueueDescription(), NOON)
    queue.enqueue(StoredMessage(bare=b"a well-known body"), NOON)
    kept.close()
    kept.file.write_bytes(kept.file.read_bytes().replace(b"a well-known body", b"a well-knowm body"))
    with pytest.raises(StoreDamagedError, match=r"contoso.sqlite is damaged: a message of 'orders' differs"):
        kept.open()


@pytest.mark.slow
@pytest.mark.spec("F-90")
def test_a_torn_or_zeroed_end_of_the_log_loses_unfinished_commits_only(kept: Kept, tmp_path: Path) -> None:
    queue = kept.namespace.create_queue("orders", QueueDescription(), NOON)
    kept.store.commit()
    log = kept.file.with_name("contoso.sqlite-wal")
    ends, marks = [log.stat().st_size], [mark_path(kept.file).read_bytes()]
    for n in range(5):
        queue.enqueue(StoredMessage(bare=b"%d" % n), NOON)
        kept.store.commit()
        ends.append(log.stat().st_size)
        marks.append(mark_path(kept.file).read_bytes())
    whole = log.read_bytes()
    for at in range(ends[0], len(whole) + 1, 2503):
        finished = sum(end <= at for end in ends) - 1
        for kind, torn in (("cut", whole[:at]), ("zero", whole[:at] + bytes(len(whole) - at))):
            where = tmp_path / f"{kind} {at}"
            where.mkdir()
            (where / "contoso.sqlite").write_bytes(kept.file.read_bytes())
            (where / "contoso.sqlite-wal").write_bytes(torn)
            mark_path(where / "contoso.sqlite").write_bytes(marks[finished])
            again = Kept(where)
            assert again.namespace.queue("orders").counts(NOON).active == finished
            again.close()


def test_a_damaged_file_is_left_unchanged_and_can_be_attached_once_repaired(kept: Kept) -> None:
    queue = kept.namespace.create_queue("orders", QueueDescription(), NOON)
    queue.enqueue(StoredMessage(bare=b"a well-known body"), NOON)
    kept.close()
    whole = kept.file.read_bytes()
    damaged = whole.replace(b"a well-known body", b"a well-knowm body")
    disk = Disk(kept.path, SMALL)
    try:
        kept.file.write_bytes(damaged)
        for _ in range(2):
            with pytest.raises(StoreDamagedError):
                disk.attach(Namespace("contoso", created_at=NOON, change_log=ChangeLog()), NOON)
        assert kept.file.read_bytes() == damaged
        kept.file.write_bytes(whole)
        again = Namespace("contoso", created_at=NOON, change_log=ChangeLog())
        disk.attach(again, NOON)
        assert again.queue("orders").counts(NOON).active == 1
    finally:
        disk.close()


@pytest.mark.parametrize("settings", [{"tier": Tier.BASIC}, {"layout": Layout(2)}])
def test_a_namespace_of_another_kind_is_refused(tmp_path: Path, settings: dict[str, object]) -> None:
    Kept(tmp_path / "data").close()
    with pytest.raises(
        StoreError, match=r"is Standard with 16 partitions, not .*: start the broker with the settings"
    ):
        Kept(tmp_path / "data", **settings)


@pytest.mark.spec("G-26", "R-66")
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_deleting_a_queue_deletes_all_of_its_rows_and_the_name_can_be_reused(
    kept: Kept, is_partitioned: bool
) -> None:
    asked = QueueDescription(
        requires_session=True, requires_duplicate_detection=True, enable_partitioning=is_partitioned
    )
    for round_ in range(2):
        queue = kept.namespace.create_queue("orders", asked, NOON)
        first = StoredMessage(bare=b"x", message_id="m", session_id="s")
        assert queue.enqueue(first, NOON) & 0xFF == 1  # not a duplicate in either round
        lock = queue.sessions.accept("s", NOON)
        assert queue.sessions.state(lock, NOON) is None
        queue.sessions.set_state(lock, b"state", NOON)
        queue.enqueue(StoredMessage(bare=b"y", message_id="n", session_id="s"), NOON)
        lock.queue.defer(lock.queue.receive(NOON, lock).lock_token, NOON)
        kept.store.commit()
        kept.namespace.delete("orders")
        kept.reopen()
        assert kept.namespace.queues() == []
        for table in ("entity", "part", "segment", "settled", "amendment", "accepted", "session"):
            count = kept.store.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert count == (0,), (table, round_)
