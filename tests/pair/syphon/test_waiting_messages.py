"""The messages that wait for their destination."""

from __future__ import annotations

import pytest

from sbpair.pair.syphon.forward.waiting import WaitingMessages
from tests.costs import cpu_of


class Message:
    """What a queue of waiting messages needs of one."""

    def resume(self) -> None: ...


@pytest.mark.spec("R-49")
def test_the_cost_of_the_next_message_does_not_depend_on_those_sent_before() -> None:
    def cost(sent: int) -> float:
        waiting = WaitingMessages()
        for _ in range(sent + 300):
            waiting.add(Message())  # type: ignore[arg-type]
        for _ in range(sent):
            waiting.next()
        return cpu_of(lambda: [waiting.next() for _ in range(300)])

    few, many = (min(cost(count) for _ in range(3)) for count in (100, 30_000))
    assert many < 10 * few
