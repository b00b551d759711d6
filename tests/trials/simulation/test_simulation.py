"""A shortened simulation: a seed replays exactly, and the checkers detect deliberate defects."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair.broker.entities.namespace import Namespace
from sbpair.broker.entities.partition import Health
from sbpair.broker.errors import LockLostError, PartitionUnavailableError
from sbpair.broker.server.namespace_server import Commits
from sbpair.broker.store.integrity import mark_path
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.client.claims import Tokens
from sbpair.pair.client.link import Settlements
from sbpair.pair.envelope import copies, park
from sbpair.pair.envelope.aliases import PATH
from sbpair.pair.pairing.decide.fence import Fence
from sbpair.pair.pairing.decide.health import EntityHealth, Input
from sbpair.pair.pairing.decide.pair import Pair, SpoolUse
from sbpair.pair.pairing.decide.primary_breaker import PrimaryBreaker
from sbpair.pair.pairing.request.classify import classify as true_classify
from sbpair.pair.pairing.spool.schedule import ReplaySchedule
from sbpair.pair.processor.credit import ProcessorWindow
from sbpair.pair.processor.deduplication import Deduplication, Sighting
from sbpair.pair.processor.delivery import Delivery
from sbpair.pair.processor.dispatcher import Dispatcher
from sbpair.pair.processor.session_link import SessionLink
from sbpair.pair.processor.settlement import outcome_of
from sbpair.pair.syphon.forward import in_flight
from sbpair.pair.syphon.forward.delivery import Destination
from sbpair.pair.syphon.forward.pump import Pump
from tests.trials.simulation import client, durable, instruments
from tests.trials.simulation.batch import shrunk
from tests.trials.simulation.entities import BACKLOG
from tests.trials.simulation.history import History, Hop
from tests.trials.simulation.network import Network
from tests.trials.simulation.payloads import encoded, stored
from tests.trials.simulation.reached import DEAD_LETTER_REASONS, MUST_REACH, missed
from tests.trials.simulation.run import POISON, run

ROOT = Path(__file__).parents[3]
SEEDS = range(40)


def violations(seeds: range = SEEDS) -> str:
    """What the first seed that is broken has broken, or nothing."""
    for seed in seeds:
        found = run(seed).history.violations
        if found:
            return "\n".join(found)
    return ""


@pytest.mark.spec(
    "G-1", "G-2", "G-3", "G-4", "G-5", "G-12", "G-15", "G-20", "G-22", "G-26", "F-35", "P-20", "P-31", "P-32"
)
@pytest.mark.spec("C-11", "C-13", "C-15", "C-16")
def test_every_acknowledged_message_comes_home_and_only_faults_make_copies():
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        history = run(seed).history
        assert not history.violations, f"python -m tests.trials.simulation --seed {seed}"
        reached.update(history.reached)
    seen_in_few = {"failover", "failback", "eviction", "all backlogs down", "duplicate"}
    seen_in_few |= {"spooled", "replayed from the spool", "sender crashed with messages in its spool"}
    seen_in_few |= {
        "busy",
        "client's answer withheld",
        "syphon's link detached in a send",
        "syphon without a token",
    }
    died = {name for name in MUST_REACH if name.startswith(("broker crashed", "came back"))}
    assert not (seen_in_few | died) & set(missed(reached))


def test_a_seed_replays_exactly_in_another_process_with_another_hash_seed():
    command = [sys.executable, "-m", "tests.trials.simulation", "--seed", "7"]
    told = [
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert f"digest {run(7).digest}" in told[0]


def test_every_dead_letter_reason_of_the_syphon_is_played():
    assert {reason for _, reason in POISON} == DEAD_LETTER_REASONS
    assert {f"dead letter {reason}" for reason in DEAD_LETTER_REASONS} <= set(MUST_REACH)


@pytest.mark.parametrize(
    "seed", [pytest.param(795, id="syphon"), pytest.param(4906, id="processor while it stops")]
)
def test_a_process_that_dies_at_the_end_is_not_restarted(seed):
    assert run(seed).history.violations == []


@pytest.mark.spec("G-4", "Q-4")
def test_a_message_its_partitioned_backlog_cannot_complete_may_arrive_once_more():
    history = History()
    history.hops += [Hop("syphon-0", "m1", 1.0), Hop("syphon-1", "m1", 2.0)]
    assert history.ambiguity("m1") == 0
    kept = history.open_hop("syphon-0", "m1")
    assert (kept, history.open_hop("syphon-2", "m1")) == (history.hops[0], None)
    kept.is_kept = True
    assert history.ambiguity("m1") == 1


@pytest.mark.spec("G-4", "Q-4")
def test_a_refused_completion_is_noted_only_if_its_partition_is_down():
    seen = []

    class Watcher:
        stored = locked = lambda self, *_: None

        def completed(self, queue, message):
            seen.append(("completed", message.message_id))

        def not_completed(self, queue, message):
            seen.append(("not completed", message.message_id))

    with instruments.watching(Watcher()):
        namespace = Namespace("fabrikam", created_at=0)
        queue = namespace.create_queue("backlog", replace(BACKLOG, enable_partitioning=True), 0)
        queue.enqueue(stored(encoded(ServiceBusMessage(b"", message_id="m1"))), 0)
        token = queue.receive(0).lock_token
        namespace.set_health("backlog", token[0], Health.DOWN)
        with pytest.raises(PartitionUnavailableError):
            queue.complete(token, 0)
        namespace.set_health("backlog", token[0], Health.UP)
        queue.complete(token, 0)
        with pytest.raises(LockLostError):
            queue.complete(token, 0)
    assert seen == [("not completed", "m1"), ("completed", "m1")]


@pytest.mark.spec("G-4", "G-15", "Q-4", "C-2")
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(2259, id="the primary is back while an answer to a landing is late"),
        pytest.param(4420, id="the trial of a landing is answered late"),
        pytest.param(4629, id="a partition is down when what was forwarded is to be completed"),
    ],
)
def test_a_recorded_failure_is_replayed(seed):
    assert run(seed).history.violations == []


def test_a_deferred_answer_is_noted_with_its_client_and_time(monkeypatch):
    network = Network(*[None] * 6)
    monkeypatch.setattr(network, "actor", "syphon-1")
    seen = []

    class Watcher:
        def later(self):
            return network.acting(network.actor, 5.0)

    with instruments.watching(Watcher()):
        namespace = Namespace("contoso", created_at=0)
        namespace.call_at(15_000, lambda now: seen.append((network.actor, network.acting_since, now)))
        network.actor = ""
        namespace.handle_timer(15_000)
    assert seen == [("syphon-1", 5.0, 15_000)]
    assert (network.actor, network.acting_since) == ("", None)


# -- mutants: each breaks one thing on purpose, and a checker must see it


def completes_before_it_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    post = Destination.post

    def forwarded_already(self, parcel):
        parcel.origin.forwarded(parcel)
        post(self, parcel)

    monkeypatch.setattr(Destination, "post", forwarded_already)


def takes_an_unsure_send_for_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    def hopeful(*args):
        classification = true_classify(*args)
        return None if classification.is_ambiguous else classification

    monkeypatch.setattr(client, "classify", hopeful)


class Again:
    """A parcel once more, whose outcome nobody waits for."""

    def __init__(self, parcel):
        self._parcel = parcel

    def __getattr__(self, name):
        return getattr(self._parcel, name)

    def answered(self, *_):
        """It is not what was asked for."""


def forwards_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    transfer = Destination._transfer

    def twice(self, parcel):
        if self._sender is not None and self._sender.is_open:
            self._sender.transfer(Again(parcel))
        transfer(self, parcel)

    monkeypatch.setattr(Destination, "_transfer", twice)


def never_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pump, "_settle", lambda self: None)


def parks_with_session_and_time_to_live(monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(message, path, *rest):
        twin = copies.snapshot(message)
        twin.application_properties = {**(twin.application_properties or {}), PATH: path}
        return twin

    monkeypatch.setattr(client.park, "park", bare)


def forgets_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    original = park.park

    def without(message, path, *rest):
        twin = original(message, path, *rest)
        twin.application_properties.pop("x-ms-sessionid", None)
        return twin

    monkeypatch.setattr(client.park, "park", without)


def lets_ordered_sessions_overtake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fence, "lets_pass", lambda self, place: True)


def fails_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = EntityHealth.send_failed
    monkeypatch.setattr(
        EntityHealth, "send_failed", lambda self, now: failed(self, now) + self._feed(Input.ELAPSED, now)
    )


def pings_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    tick = Pair.handle_timer

    def forgetful(self, now):
        self._pings.all_lost()
        return tick(self, now) * 2

    monkeypatch.setattr(Pair, "handle_timer", forgetful)


def leaves_its_renewal_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokens, "stop", lambda self: None)


def never_comes_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EntityHealth, "ping_accepted", lambda self, now: [])


def delivers_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbpair.broker.frontends.received_message.PING", "nothing is a ping")


def loses_a_copy_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue_all = instruments.QueuePartition.enqueue_all

    def forgetful(self, messages, now):
        kept = [each for each in messages if str(each.message_id) != "m2"]
        return enqueue_all(self, kept, now) if kept else [0]

    monkeypatch.setattr(instruments.QueuePartition, "enqueue_all", forgetful)


def gives_what_was_left_when_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "FRESH", float("inf"))


def answers_before_it_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    end_turn = Commits.end_turn

    def hasty(self):
        end_turn(self)
        if self._store is not None and self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._end_turn)

    monkeypatch.setattr(Commits, "is_holding", property(lambda self: False))
    monkeypatch.setattr(Commits, "end_turn", hasty)


def comes_back_without_what_was_written_last(monkeypatch: pytest.MonkeyPatch) -> None:
    image = durable.crash_image

    def without_the_log(path, to):
        image(path, to)
        log = to.with_name(f"{to.name}-wal")
        log.write_bytes(log.read_bytes()[: log.stat().st_size * 9 // 10])
        mark_path(to).unlink()  # with it, it would not start

    monkeypatch.setattr("tests.trials.simulation.world.crash_image", without_the_log)


def leaves_what_one_replay_could_not_send(monkeypatch: pytest.MonkeyPatch) -> None:
    finished = ReplaySchedule.finished

    def for_good(self, path, now, *, is_empty, was_accepted):
        finished(self, path, now, is_empty=True, was_accepted=was_accepted)

    monkeypatch.setattr(ReplaySchedule, "finished", for_good)


def spools_what_a_broker_has(monkeypatch: pytest.MonkeyPatch) -> None:
    send_flow = Pair._send

    def and_spool(self, send, now, first, spool):
        outcome = yield from send_flow(self, send, now, first, spool)
        return self._spool_result(send, (yield send.spool_step())) if spool is SpoolUse.AT_ONCE else outcome

    monkeypatch.setattr(Pair, "_send", and_spool)


def keeps_its_spool_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    crash = client.Client.crash

    def and_forget(self):
        crash(self)
        if self._spool is not None:
            self._spool._disk.rows.clear()

    monkeypatch.setattr(client.Client, "crash", and_forget)


def judges_everything_unavailable_final(monkeypatch: pytest.MonkeyPatch) -> None:
    from sbpair.pair.syphon.forward.in_flight import DEAD_LETTER_REASONS

    monkeypatch.setitem(DEAD_LETTER_REASONS, "com.microsoft:server-busy", "DestinationRefused")
    monkeypatch.setitem(DEAD_LETTER_REASONS, "amqp:internal-error", "DestinationRefused")
    monkeypatch.setitem(DEAD_LETTER_REASONS, "com.microsoft:partition-not-available", "DestinationRefused")


def completes_what_lands_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(self, messages, txn_id):
        for message in messages:
            await self._receiver.settle_and_wait(message.delivery_id, Accepted())
        return True

    monkeypatch.setattr(Pump, "complete_in", at_once)


def lands_and_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self, messages, txn_id):
        return True

    monkeypatch.setattr(Pump, "complete_in", never)


def lands_and_goes_home(monkeypatch: pytest.MonkeyPatch) -> None:
    divert = Destination.divert

    def both(self, detour):
        kept = dict(self._queue)
        divert(self, detour)
        self._queue.update(kept)

    monkeypatch.setattr(Destination, "divert", both)


def completes_without_its_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip(self, delivery):
        delivery.link.settle(delivery, *outcome_of(None))

    monkeypatch.setattr(Dispatcher, "_start", skip)


def forgets_what_it_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deduplication, "begin", lambda self, name, now: Sighting.NEW)


def leaves_a_settlement_unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = Settlements.flush

    def forgetful(self, receiver):
        for number, item in list(self._due.items()):
            if isinstance(item, Delivery) and str(item.message.message_id) == "m2":
                del self._due[number]
        flush(self, receiver)

    monkeypatch.setattr(Settlements, "flush", forgetful)


def handles_a_session_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self, delivery):
        self._context.dispatcher.take(delivery)

    monkeypatch.setattr(SessionLink, "_admit", at_once)
    monkeypatch.setattr(ProcessorWindow, "limit", 20)


def sends_again_what_is_answered_late(monkeypatch: pytest.MonkeyPatch) -> None:
    stall = Destination._stall

    def impatient(self, sender, still):
        late = [Again(each) for each in sender.unanswered_messages() if not isinstance(each, Again)]
        stall(self, sender, still)
        if sender.is_open:
            for each in late:
                sender.transfer(each)

    monkeypatch.setattr(Destination, "_stall", impatient)


def takes_no_answer_for_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = Destination.answered

    def hopeful(self, message, state):
        answered(self, message, Accepted() if state is None else state)

    monkeypatch.setattr(Destination, "answered", hopeful)


def waits_as_long_as_a_hint_says_whatever_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pair, "_primary_until", lambda self, send, health, now: now + 30.0)


def waits_for_an_answer_as_long_as_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrimaryBreaker, "seconds", lambda self: 60.0)


def never_asks_again_for_a_token_that_did_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokens, "_was_put", lambda self, path, task: task.exception())


def judges_by_share_before_an_interval_of_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        EntityHealth,
        "_judge_share",
        lambda self, now: self._feed(Input.SHARE, now) if self._attempts.is_bad(0.5, now) else [],
    )


def raises_what_a_trial_could_not_send(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(self, send, health, why, now):
        raise ConnectionError(why)

    monkeypatch.setattr(Pair, "_end_return", raising)


MUTANTS: tuple[tuple[Callable[[pytest.MonkeyPatch], None], str], ...] = (
    (completes_before_it_is_accepted, "G-20"),
    (takes_an_unsure_send_for_accepted, "G-1"),
    (forwards_twice, "G-4"),
    (never_completes, "liveness"),
    (parks_with_session_and_time_to_live, "P-20"),
    (forgets_the_session, "G-2"),
    (fails_over_at_once, "G-12"),
    (pings_without_end, "P-32"),
    (never_comes_home, "liveness"),
    (delivers_pings, "P-31"),
    (loses_a_copy_at_rest, "G-1"),
    (judges_everything_unavailable_final, "G-2"),
    (gives_what_was_left_when_it_came, "G-15"),
    (answers_before_it_is_on_disk, "G-1"),
    (comes_back_without_what_was_written_last, "G-1 or G-4"),  # a send is lost, or a completion
    (leaves_what_one_replay_could_not_send, "liveness"),
    (spools_what_a_broker_has, "G-4"),
    (keeps_its_spool_in_memory, "G-1"),
    (lets_ordered_sessions_overtake, "O-1"),
    (completes_what_lands_on_its_own, "G-20"),
    (lands_and_completes_nothing, "G-4"),
    (
        lands_and_goes_home,
        "G-4 or left behind or unheard",
    ),  # one message in two hands: twice, or settled by neither
    (completes_without_its_handler, "C-11"),
    (forgets_what_it_handled, "C-15"),
    (leaves_a_settlement_unsent, "C-13"),
    (handles_a_session_in_parallel, "C-16"),
    (leaves_its_renewal_of_tokens, "left behind: Tokens._refresh"),
    (sends_again_what_is_answered_late, "G-4"),
    (takes_no_answer_for_accepted, "G-20"),
    (waits_as_long_as_a_hint_says_whatever_time_is_left, "G-18"),
    (waits_for_an_answer_as_long_as_there_is_time, "H-56"),
    (never_asks_again_for_a_token_that_did_not_come, "liveness"),
    (judges_by_share_before_an_interval_of_trouble, "G-12"),
    (raises_what_a_trial_could_not_send, "failed: ConnectionError"),
)


SHOWN_BY = {
    gives_what_was_left_when_it_came: 10,
    leaves_what_one_replay_could_not_send: 13,
    keeps_its_spool_in_memory: 22,
    lets_ordered_sessions_overtake: 46,
    completes_what_lands_on_its_own: 6,
    lands_and_completes_nothing: 10,
    lands_and_goes_home: 6,
    waits_as_long_as_a_hint_says_whatever_time_is_left: 170,
    waits_for_an_answer_as_long_as_there_is_time: 192,
    never_asks_again_for_a_token_that_did_not_come: 31,
    judges_by_share_before_an_interval_of_trouble: 5,
    raises_what_a_trial_could_not_send: 42,
}
"""Seeds that show what few show: the search begins there. The first do for the others."""


@pytest.mark.parametrize(("mutant", "seen"), [pytest.param(*each, id=each[0].__name__) for each in MUTANTS])
def test_a_deliberately_broken_program_is_caught(mutant, seen, monkeypatch):
    mutant(monkeypatch)
    found = violations(range(SHOWN_BY.get(mutant, 0), 240))
    assert any(promise in found for promise in seen.split(" or ")), found


def test_a_violation_is_shown_with_only_the_necessary_faults(monkeypatch):
    takes_an_unsure_send_for_accepted(monkeypatch)
    seed = next(seed for seed in range(36, 96) if run(seed).history.violations)  # one of few faults
    smaller = shrunk(seed)
    assert smaller.history.violations
    assert len(smaller.plan) <= len(run(seed).plan)
    assert replace(smaller.shape) == run(seed).shape
