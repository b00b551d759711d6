"""Delivery to the entities of the primary: a destination for each path, with its link, back-off and waiting messages.

    CLOSED --> OPENING --> OPEN <---------------------------------- METERED
       ^          |          | nothing moves for a moment ------------^   ^
       |  refused finally    | message held ---> WAITING ---> PROBING ----'
       '----------'          '--> CLOSED         ^ the back-off |  one accepted
            its link is gone, or was released    '--------------'

A rejected message waits alone, unless the answers show that its entity accepts almost none. While a destination is
WAITING, nothing is sent; then one message probes it. While it is METERED, few messages are in flight, twice as many
after each sign of progress, until all waiting ones have been sent. In every state, messages are sent no faster than the
:class:`~sbpair.pair.syphon.forward.pace.Pace` allows. A destination counts as stalled after a moment that includes two
round trips to its side, so that distance is not mistaken for silence. Only messages in flight count against the window
of a backlog: messages that wait here are held, and leave room for those of other destinations. Every posted message
ends in exactly one call of its :class:`~.in_flight.MessageOrigin`, unless it is withdrawn first.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from enum import Enum
from typing import TypeGuard

from sbpair.pair.amqp.errors import SERVER_BUSY
from sbpair.pair.amqp.performatives import Condition, DeliveryState, Rejected
from sbpair.pair.client.backoff import Backoff
from sbpair.pair.client.errors import ClientError, ConnectionLostError
from sbpair.pair.ground.asked_pause import asked_pause
from sbpair.pair.ground.shortage import came_of_shortage

from ..events import DestinationHeld, DestinationResumed, SyphonEvent
from .destination_host import DeliveryTimeouts, DestinationHost
from .in_flight import (
    DeliveryAction,
    InFlightMessage,
    SendingLink,
    action_for,
    action_for_condition,
    is_answer,
    is_busy,
    reason_of,
)
from .pace import Pace
from .waiting import LATE_AFTER, LONGEST_WAIT, AwaitedAnswers, RecentAnswers, WaitingAlone, WaitingMessages

# Seconds, in addition to ROUND_TRIPS, without an answer or credit after which messages in flight are stalled.
STALLED_AFTER = 0.25
ROUND_TRIPS = 2  # an opening takes a token and an attach; an answer takes one, and may be late by another
SENT_PER_ANSWER = 2  # messages sent at least for each answer of a metered destination
EMIT_HELD_AFTER = 5.0  # seconds of that after which DestinationHeld is emitted
REFILLED = 2.0  # seconds of messages that wait for the pace, below which more are taken from the overflow
DETACHED_WITHIN = 5.0  # seconds for the peer to detach a link without progress


class DestinationState(Enum):
    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"
    METERED = "metered"
    WAITING = "waiting"
    PROBING = "probing"


CLOSED, OPENING, OPEN, METERED, WAITING, PROBING = DestinationState


class Destination:
    """Sends to one path, for the pumps of all backlogs."""

    def __init__(
        self,
        path: str,
        host: DestinationHost[Destination],
        emit: Callable[[SyphonEvent], None],
        timeouts: DeliveryTimeouts,
        pace: Pace | None = None,
    ) -> None:
        self.path = path
        self.state = CLOSED
        self.used_at = 0.0  # seconds, monotonic
        self._host = host
        self._emit = emit
        self._timeouts = timeouts
        self._backoff = Backoff(timeouts.longest_retry)
        self._loop = asyncio.get_running_loop()
        self._queue = WaitingMessages()
        self._alone = WaitingAlone(timeouts.longest_retry, self._waited_alone)
        self._answers = RecentAnswers()
        self._awaited = AwaitedAnswers()
        self._silence_borne = LATE_AFTER  # seconds; doubled each time that another link is used
        self._pace = Pace() if pace is None else pace
        self._doubted_since = 0.0  # when it was last out of reach first; monotonic
        self._left: set[InFlightMessage] = set()  # unanswered on a link that was replaced
        self._sender: SendingLink | None = None
        self._opening: asyncio.Task[None] | None = None
        self._opened_at = 0.0  # when opening the link began; monotonic
        self._retry: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._paced: asyncio.TimerHandle | None = None
        self._last_progress = (-1, 0.0)  # the last progress of the sender, and when it was seen
        self._meter = 1
        self._earned = 0  # messages that may be sent beyond the meter, for answers received while METERED
        self._is_slow = False  # opening takes so long that waiting messages are held
        self._hold_emitted = False
        self._is_stopped = False
        self.is_in_doubt = False
        """Whether it is out of reach, or was and has not answered since: one message probes it first."""
        self.detour: Callable[[InFlightMessage], None] | None = None
        """Receives the messages of a destination that is out of reach, except for occasional probes."""

    @property
    def is_open(self) -> bool:
        """Whether its link is attached."""
        return self._sender is not None and self._sender.is_open

    @property
    def takes_more(self) -> bool:
        """Whether no message waits and new ones are sent at once."""
        if self.state is OPEN and self._queue:
            return not self._pace.is_free and len(self._queue) < REFILLED * self._pace.rate(self._loop.time())
        return (self.detour is not None and not self._queue) or self.state in (OPEN, CLOSED)

    @property
    def waiting(self) -> int:
        """The number of waiting messages."""
        return len(self._queue) + len(self._alone)

    @property
    def in_flight(self) -> int:
        """The number of messages sent without an answer yet."""
        return 0 if self._sender is None else self._sender.in_flight

    @property
    def batch_limits(self) -> tuple[int, int]:
        """The largest number of messages and of bytes for a batch now; one message unless a link is in use."""
        sender = self._sender
        if sender is None or not sender.is_open or self.state not in (OPEN, METERED):
            return 1, 0
        return self._pace.batch(self._loop.time()), sender.largest_batch

    @property
    def is_unused(self) -> bool:
        """Whether there is no link, nothing to send, and no outcome to come."""
        return self.state in (OPEN, CLOSED) and not (self.is_open or self.waiting or self.in_flight)

    def post(self, message: InFlightMessage) -> None:
        """Send ``message``, now or when the destination can take it."""
        self.used_at = message.posted_at
        if self.detour is not None:
            self._post_in_detour(message, self.detour)
            return
        if self.state is OPEN:
            self._post_open(message)
            return
        self._queue.add(message)
        if self.state is CLOSED:
            self._start_opening(PROBING if self.is_in_doubt else OPENING)
        elif self.state is not OPENING or self._is_slow:
            message.hold()

    def _post_open(self, message: InFlightMessage) -> None:
        """Send ``message``, or let it wait if sending it now would be too fast."""
        sender = self._sender
        is_gone = sender is None or not sender.is_open
        if is_gone or (not self._queue and self._pace.room(self._loop.time(), self.in_flight)):
            self._transfer(message)
        else:
            self._queue.add(message)
            self._wait_for_pace()
            if not self._pace.is_free:
                message.hold()

    def _post_in_detour(self, message: InFlightMessage, detour: Callable[[InFlightMessage], None]) -> None:
        """Probe the destination with one message, and pass the others to the detour."""
        if self.state is OPEN and self.is_open and not self.in_flight:
            self.state = PROBING
            self._transfer(message)
            return
        if self.state is CLOSED or (self.state is OPEN and not self.is_open):
            self._start_opening(PROBING)
        if message.stays:
            self._queue.add(message)
            message.hold()
        else:
            detour(message)

    def divert(self, detour: Callable[[InFlightMessage], None]) -> None:
        """Pass waiting messages, and those posted from now on, to ``detour``, until the destination answers."""
        self.detour = detour
        for message in self.take_queue():
            detour(message)
        sender = self._sender
        if self.state is METERED and sender is not None and not sender.in_flight:
            self._give_up_link(sender)  # no message is left that could show whether the link works again

    def take_queue(self) -> list[InFlightMessage]:
        """Remove and return the waiting messages that may go elsewhere, in order."""
        self._queue.add_all(self._alone.take_all())
        return self._queue.take_movable()

    def withdraw(self, message: InFlightMessage) -> None:
        """Remove a waiting message, because its origin takes it back."""
        self._queue.withdraw(message)
        self._alone.withdraw(message)

    def stop(self) -> None:
        """Stop sending; the origins release the queued messages."""
        self._is_stopped = True
        for timer in (self._retry, self._watch, self._paced):
            if timer is not None:
                timer.cancel()
        if self._opening is not None:
            self._opening.cancel()
        self._queue.clear()
        self._alone.take_all()

    def release_link(self) -> None:
        """Close an idle link; the next message opens another."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.let_go()
        if self.state is OPEN and not self._queue:
            self.state = CLOSED
        elif self.state is METERED:
            self._wait("no progress, and its link was released for another destination")

    def _transfer(self, message: InFlightMessage) -> None:
        sender = self._sender
        if sender is None or not sender.is_open:
            self._queue.add(message)
            self._start_opening(OPENING)
            return
        now = self._loop.time()
        self._awaited.sent(message, now)
        self._pace.sent(now, message.count)
        sender.transfer(message)
        if self._watch is None:
            self._start_watch()

    def skipped(self, message: InFlightMessage) -> None:
        """Handle a ``message`` that was not sent: if it was the probe, or metered, another one takes its place."""
        self._awaited.forget(message)
        self._loop.call_soon(self._send_next)

    def _send_next(self) -> None:
        if self.state is PROBING and not self.in_flight:
            self._probe()
        elif self.state is METERED:
            self._send_metered()
        elif self.state is OPEN and self._queue:
            self._send_open()
        elif not self.in_flight and not self._queue:
            self._host.destination_idle(self)

    def answered(self, message: InFlightMessage, state: DeliveryState | None) -> None:
        """Handle the outcome of ``message``; None when it is unknown."""
        verdict = action_for(state)
        is_in_reach = verdict is not DeliveryAction.HOLD or is_busy(state)
        if is_in_reach and self.is_in_doubt:
            self.note_answer()
        now = self._loop.time()
        self._awaited.answered(message, now)
        if state is not None:
            self._silence_borne = LATE_AFTER
            self._answers.note(now, is_rejection=verdict is DeliveryAction.HOLD)
        elif message.is_sent:
            message.origin.unanswered(message)
        message.is_sent = False
        was_left = message in self._left
        self._left.discard(message)
        if verdict is DeliveryAction.HOLD:
            condition = state.error if isinstance(state, Rejected) else None
            asked = self._note_busy(condition)
            if state is None and self.state is not WAITING:
                self._pace.link_lost()
            if (state is None and not was_left) or not self._waits_alone(message, asked):
                reason = reason_of(state, self._sender)
                self._hold(message, reason, is_in_reach=is_in_reach, longest=self._longest_wait(condition))
            return
        if self._hold_emitted:
            self._hold_emitted = False
            self._emit(DestinationResumed(time.time(), self.path))
        if self.state is METERED:
            self._earned += SENT_PER_ANSWER
        elif self.state is PROBING:
            self._meter, self._earned = 2, 0
            self._answers.restart()
            self._answers.note(self._loop.time(), is_rejection=False)
            self.state = METERED
            self._loop.call_soon(self._send_metered)
        self._backoff.succeeded()
        if verdict is DeliveryAction.COMPLETE:
            self._pace.accepted(now, message.count)
            message.origin.forwarded(message)
        else:
            self._refused(message, state.error if isinstance(state, Rejected) else None)

    def _refused(self, message: InFlightMessage, condition: Condition | None) -> None:
        message.origin.refused(message, condition)

    def note_answer(self) -> None:
        """Record that the destination is reachable again; the host ends its detour."""
        self.is_in_doubt = False
        now = self._loop.time()
        if now - self._doubted_since >= EMIT_HELD_AFTER:
            self._pace.was_out_of_reach(now)
        self._host.destination_answered(self)

    def _note_out_of_reach(self, still: float) -> None:
        """Report that nothing was answered for ``still`` seconds; the host may divert the waiting messages."""
        since = self._loop.time() - still
        if not self.is_in_doubt:
            self.is_in_doubt, self._doubted_since = True, since
        self._host.destination_out_of_reach(self, since)

    def _note_busy(self, condition: Condition | None) -> float | None:
        """Record in the pace that the entity is busy; return the requested wait in seconds."""
        if not _is_throttled(condition):
            return None
        was_free, asked = self._pace.is_free, asked_pause(str(condition.description))
        self._pace.was_busy(self._loop.time(), asked)
        if was_free and self.state is OPEN:
            self._queue.hold_all()
        return asked

    def _longest_wait(self, condition: Condition | None) -> float:
        """Return the longest time between two probes, in seconds, which is short for a busy entity."""
        return LONGEST_WAIT if _is_throttled(condition) else self._timeouts.longest_retry

    # Waiting

    def _hold(self, message: InFlightMessage, reason: str, *, is_in_reach: bool, longest: float) -> None:
        self._queue.add(message)
        message.rejections += 1
        message.hold()
        if self.state is not WAITING:
            self._wait(reason, is_in_reach=is_in_reach, longest=longest)
        elif self.detour is not None:
            self.divert(self.detour)
        self._loop.call_soon(self._offer_link)  # after the link has counted the answer

    def _waits_alone(self, message: InFlightMessage, asked: float | None) -> bool:
        """Let a rejected message wait alone for at least ``asked`` seconds; return whether it does.

        It does not wait alone if its entity seems to accept none.
        """
        if self.detour is not None or self.state not in (OPEN, METERED):
            return False
        if self._alone.is_full or not self.is_open:
            return False
        if self._answers.is_refusing(self._loop.time(), self.in_flight):
            return False
        self._alone.begin(message, asked)
        message.hold()
        self._loop.call_soon(self._send_next)
        return True

    def _waited_alone(self, message: InFlightMessage) -> None:
        """Send a rejected message again after its wait, or let it wait with the others."""
        if self.state is OPEN and self.detour is None:
            message.resume()
            self._post_open(message)
            return
        self._queue.add(message)
        self._send_next()

    def _offer_link(self) -> None:
        """Offer an idle link to other destinations."""
        if self.is_open and not self.in_flight and not self._is_stopped:
            self._host.destination_idle(self)

    def _wait(self, reason: str, *, is_in_reach: bool = False, longest: float = math.inf) -> None:
        if self._is_stopped:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._is_slow = False
        self._queue.add_all(self._alone.take_all())
        self._queue.hold_all()
        self.state = WAITING
        span = max(min(longest, self._backoff.next_pause()), self._pace.paused_for(self._loop.time()))
        self._emit_held(reason, span)
        self._retry = self._loop.call_later(span, self._probe)
        if not is_in_reach:
            self._note_out_of_reach(0.0)

    def _emit_held(self, reason: str, span: float) -> None:
        self._hold_emitted = True
        self._emit(DestinationHeld(time.time(), self.path, reason, span))

    # Resuming

    def try_now(self) -> None:
        """End the detour and the back-off; the first waiting message, or else the next one, probes the destination."""
        self.detour = None
        if self.state is WAITING and self._retry is not None:
            self._retry.cancel()
            self.state = CLOSED
            if self._queue:
                self._probe()

    def ask(self) -> None:
        """Open a link without a message, to find out whether the destination accepts it."""
        if self.state is CLOSED:
            self._start_opening(PROBING)

    def probe_now(self) -> None:
        """End the back-off: the first waiting message probes the destination."""
        if self.state is WAITING and self._retry is not None and not self._is_stopped:
            self._retry.cancel()
            self._backoff.succeeded()
            self._probe()

    def _probe(self) -> None:
        if self._sender is None or not self._sender.is_open:
            self._start_opening(PROBING)
            return
        self.state = PROBING
        self._queue.restore_order()
        message = self._queue.next_probe()
        if message is None:
            self._caught_up()  # all were released: the next message posted is the probe
            if self.is_in_doubt:
                self._host.destination_attached(self)
        else:
            self._transfer(message)

    def _progressed(self) -> None:
        """Handle an answer or a credit from the peer."""
        if self.state is METERED:
            self._meter *= 2
            self._send_metered()
        elif self.state is OPEN and self._queue:
            self._send_open()

    def _send_open(self) -> None:
        """Send the messages that wait for the pace."""
        sender = self._sender
        if self._is_stopped:
            return
        if sender is None or not sender.is_open:
            self._start_opening(OPENING)
            return
        room = self._pace.room(self._loop.time(), sender.in_flight)
        while room > 0 and (message := self._queue.next()) is not None:
            self._transfer(message)
            room -= 1
        self._wait_for_pace()

    def _wait_for_pace(self) -> None:
        """Send again once the pace allows it, if anything waits."""
        if self._queue and self._paced is None and not self._is_stopped:
            due = self._pace.due(self._loop.time())
            if due < math.inf:
                self._paced = self._loop.call_at(due, self._pace_allows)

    def _pace_allows(self) -> None:
        self._paced = None
        if not self.in_flight:
            self._last_progress = self._last_progress[0], self._loop.time()
        self._send_next()

    def _send_metered(self) -> None:
        sender = self._sender
        if self.state is not METERED:
            return
        if sender is None or not sender.is_open:
            self._start_opening(METERED)
            return
        # A metered destination may just be far away, so that answers arrive together: each makes room for two messages.
        in_flight = sender.in_flight - self._awaited.late(self._loop.time())
        room = min(max(self._meter - in_flight, self._earned), sender.credit)
        room = min(room, self._pace.room(self._loop.time(), in_flight))
        while room > 0 and (message := self._queue.next()) is not None:
            self._transfer(message)
            self._earned = max(0, self._earned - 1)
            room -= 1
        if not self._queue:
            self._caught_up()
        self._wait_for_pace()

    def _caught_up(self) -> None:
        self.state = OPEN
        self._earned = 0
        self._start_watch()

    # Progress

    def _start_watch(self) -> None:
        if self._watch is None and not self._is_stopped:
            self._last_progress = -1 if self._sender is None else self._sender.progress, self._loop.time()
            self._watch_again(math.inf)

    def _watch_again(self, due: float) -> None:
        """Check progress a moment later, or at ``due`` if that comes first."""
        if self._watch is None and not self._is_stopped:
            now = self._loop.time()
            soon = now + STALLED_AFTER
            self._watch = self._loop.call_at(due if now < due < soon else soon, self._check_progress)

    @property
    def _patience(self) -> float:
        """Return after how many seconds without an answer or credit the messages in flight are stalled."""
        return STALLED_AFTER + ROUND_TRIPS * self._host.round_trip

    def _check_progress(self) -> None:
        self._watch = None
        sender, now = self._sender, self._loop.time()
        if self._is_opening and not self._is_stopped:
            slow_at = self._opened_at + self._patience
            if now >= slow_at:
                self._is_slow = True
                self._queue.hold_all()
            if now - self._opened_at >= EMIT_HELD_AFTER:
                self._note_out_of_reach(now - self._opened_at)
            self._watch_again(slow_at)
            return
        if sender is None or self.state is WAITING:
            return
        if not sender.in_flight and not self._queue:
            self._host.destination_idle(self)
            return
        waits_for_pace = self._paced is not None and not sender.in_flight
        if sender.progress != self._last_progress[0] or waits_for_pace:
            self._last_progress = sender.progress, now
        stalled_at = self._last_progress[1] + self._patience
        if now >= stalled_at:
            self._stall(sender, now - self._last_progress[1])
        elif self._awaited.oldest(now) >= self._timeouts.answer:
            self._replace_link(sender)
        borne = (
            math.inf if self._queue else self._silence_borne
        )  # another is sent soon, and its answer will tell
        if self._sender is sender and self._awaited.is_lost(now, borne):
            self._replace_link(sender)
        self._watch_again(stalled_at)

    def _stall(self, sender: SendingLink, still: float) -> None:
        """Handle ``still`` seconds without progress: messages for this destination no longer count as active."""
        waiting = [message for message in sender.take_waiting() if isinstance(message, InFlightMessage)]
        self._queue.add_first(waiting)
        for each in waiting:
            self._awaited.forget(each)
        self.state, self._meter, self._earned = METERED, 1, 0
        for message in list(sender.unanswered_messages()):
            if isinstance(message, InFlightMessage) and not message.is_stalled:
                message.is_stalled = True
                message.origin.stalled(message)
        self._queue.hold_all()
        if self._queue and self._awaited.late(self._loop.time()):
            self._loop.call_soon(self._send_metered)  # an answer may be lost, and the link work nevertheless
        if still >= self._timeouts.answer:
            self._give_up_link(sender)
        elif still >= EMIT_HELD_AFTER and (not self._hold_emitted or self._queue):
            self._note_out_of_reach(still)
        if EMIT_HELD_AFTER <= still < self._timeouts.answer and not self._hold_emitted:
            what = "does not answer" if sender.in_flight else "gives no credit"
            self._emit_held(f"{self.path} {what}", self._timeouts.answer - still)
        self._offer_link()

    def _give_up_link(self, sender: SendingLink) -> None:
        """Replace the link; if the peer does not even detach the old one, it is unresponsive."""
        still = self._loop.time() - self._last_progress[1]
        reason = f"{self.path} has made no progress for {still:.0f} s"
        self._sender = None
        sender.let_go()
        self._loop.call_later(DETACHED_WITHIN, self._check_detached, sender, reason)
        self._wait(reason)

    def _replace_link(self, sender: SendingLink) -> None:
        """Use another link, because an answer is lost on this one; detach it once its other answers had time to come.

        If the peer detaches the link, no further answer comes; otherwise it has as long as an answer may take.
        """
        awaited = self._awaited.oldest(self._loop.time())
        waiting = [message for message in sender.take_waiting() if isinstance(message, InFlightMessage)]
        self._queue.add_first(waiting)
        self._left.update(each for each in sender.unanswered_messages() if isinstance(each, InFlightMessage))
        for message in (*waiting, *self._left):
            self._awaited.forget(message)
        self._sender, self._meter = None, max(1, len(self._left))
        self._silence_borne = min(2 * self._silence_borne, self._timeouts.answer)
        self._loop.call_later(DETACHED_WITHIN, sender.let_go)
        reason = f"{self.path} does not answer a message"
        given = max(DETACHED_WITHIN, self._timeouts.answer - awaited)
        self._loop.call_later(DETACHED_WITHIN + given, self._check_detached, sender, reason)
        self._start_opening(METERED)

    def _check_detached(self, sender: SendingLink, reason: str) -> None:
        if not sender.detached.done() and not self._is_stopped:
            self._host.unresponsive(reason)

    # The link

    def _start_opening(self, state: DestinationState) -> None:
        if self._is_stopped:
            return
        self.state = state
        if self._is_opening:
            return
        self._opened_at = self._loop.time()
        self._start_watch()
        self._opening = self._loop.create_task(self._open())
        self._opening.add_done_callback(lambda task: task.cancelled() or task.result())

    @property
    def _is_opening(self) -> bool:
        return self._opening is not None and not self._opening.done()

    async def _open(self) -> None:
        try:
            sender = await self._host.open_sender(self)
        except ConnectionLostError as error:
            self._wait(str(error), is_in_reach=came_of_shortage(error))  # or not known to be out of it
        except ClientError as error:
            self._refuse(error)
        else:
            if sender.is_open:
                self._is_opened(sender)
            else:
                self._wait(reason_of(None, sender))

    def _is_opened(self, sender: SendingLink) -> None:
        self._sender = sender
        self._is_slow = False
        self._last_progress = -1, self._loop.time()
        sender.on_progress = self._progressed
        if self.state is PROBING:
            self._probe()
        elif self.state is METERED:
            self._send_metered()
        elif self.state is OPENING:
            self.state = OPEN
            self._send_open()
        self._start_watch()

    def _refuse(self, error: ClientError) -> None:
        """Handle the refusal of a link, whether it is final or temporary."""
        is_final = action_for_condition(error.condition) is DeliveryAction.DEAD_LETTER
        is_in_reach = is_answer(error.condition, is_final=is_final)
        if is_in_reach and self.is_in_doubt:
            self.note_answer()
        if not is_final:
            self._note_busy(error.condition)
            self._wait(str(error), is_in_reach=is_in_reach, longest=self._longest_wait(error.condition))
            return
        self.state = CLOSED
        self._is_slow = False
        for message in self._queue.take_all():
            self._refused(message, error.condition)
        self._host.destination_idle(self)


def _is_throttled(condition: Condition | None) -> TypeGuard[Condition]:
    return condition is not None and condition.symbol == SERVER_BUSY
