"""The score of a round of :mod:`tests.trials.clients`, from made-up facts; and the table and page it is part of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.trials.clients import page
from tests.trials.clients.contestants import CONTESTANTS
from tests.trials.clients.faults import BY_NAME, FAULTS, Side
from tests.trials.clients.rounds import Facts, Operation, Outcome, Step
from tests.trials.clients.score import score

pytestmark = pytest.mark.spec("E-7")


def sent(
    number: int,
    outcome: Outcome = Outcome.OK,
    *,
    in_fault: bool = False,
    copies: int = 0,
    ended: float | None = None,
) -> Step:
    end = number + 0.5 if ended is None else ended
    operation = Operation("send", f"m{number}", float(number), end, outcome, "Error", copies)
    return Step((operation,), in_fault)


def handled(number: int, outcome: Outcome = Outcome.OK, *, in_fault: bool = False, at: float = 0.0) -> Step:
    name = f"m{number}"
    received = Operation("receive", name, at, at + 0.1, Outcome.OK)
    return Step((received, Operation("complete", name, at + 0.1, at + 0.2, outcome, "Error")), in_fault)


def of_sender(steps: Iterable[Step], left: dict[str, int], over: float | None = 1.0) -> Facts:
    return Facts(Side.SEND, list(steps), over, True, left=Counter(left))


def of_receiver(steps: Iterable[Step], put: Iterable[str], left: dict[str, int]) -> Facts:
    return Facts(Side.RECEIVE, list(steps), 0.0, True, put=tuple(put), left=Counter(left))


def test_a_sender_whose_messages_all_arrive_once_is_unharmed() -> None:
    found = score(of_sender([sent(0), sent(1, in_fault=True), sent(2)], {"m0": 1, "m1": 1, "m2": 1}))
    assert found.is_clean
    assert found.symbols == "· 0.5"


def test_an_acknowledged_message_that_never_arrives_is_lost() -> None:
    found = score(of_sender([sent(1), sent(2)], {"m2": 1}))
    assert (found.lost, found.is_clean) == (1, False)
    assert found.symbols.startswith("L")


def test_a_refused_message_is_uncertain_if_it_arrives_and_not_lost_if_it_does_not() -> None:
    steps = [sent(1, Outcome.ERROR, in_fault=True), sent(2, Outcome.ERROR, in_fault=True), sent(3)]
    found = score(of_sender(steps, {"m2": 1, "m3": 1}))
    assert (found.lost, found.uncertain, found.failed, found.duplicates) == (0, 1, 2, 0)
    assert found.is_clean
    assert found.symbols == "f 2.5"


def test_copies_are_duplicates_unless_the_client_announced_them() -> None:
    steps = [sent(1), sent(2, copies=1), sent(3, copies=1)]
    found = score(of_sender(steps, {"m1": 2, "m2": 2, "m3": 1}))
    assert (found.duplicates, found.reported) == (1, 1)
    assert found.symbols.startswith("Dd")


def test_the_first_copy_of_a_refused_message_is_no_duplicate() -> None:
    assert (
        score(of_sender([sent(1, Outcome.ERROR, in_fault=True), sent(2)], {"m1": 2, "m2": 1})).duplicates == 1
    )


def test_an_error_is_unexplained_only_when_its_step_began_after_the_fault() -> None:
    steps = [sent(1, Outcome.ERROR, in_fault=True), sent(2, Outcome.ERROR), sent(3)]
    found = score(of_sender(steps, {"m3": 1}))
    assert (found.failed, found.unexplained, found.is_clean) == (1, 1, False)
    assert found.errors == ("Error",)


def test_the_recovery_is_the_first_step_that_succeeds_after_the_fault() -> None:
    found = score(of_sender([sent(0, in_fault=True, ended=1.75), sent(2)], {"m0": 1, "m2": 1}))
    assert found.recovery == 0.75


def test_a_client_that_never_recovers_is_reported_unless_it_hangs() -> None:
    assert score(of_sender([sent(1, Outcome.ERROR, in_fault=True)], {}, over=9.0)).symbols == "Nf"
    assert score(of_sender([sent(1, Outcome.HANG, in_fault=True)], {}, over=9.0)).symbols == "H"


def test_a_permanent_fault_requires_no_recovery() -> None:
    facts = of_sender([sent(1, Outcome.ERROR, in_fault=True)], {}, over=None)
    facts.is_endless = True
    assert score(facts).is_clean


def test_a_fault_that_did_not_strike_says_nothing() -> None:
    facts = of_sender([sent(1)], {"m1": 1})
    facts.has_struck = False
    assert score(facts).symbols == "-"


def test_a_waiting_message_neither_received_nor_left_is_lost() -> None:
    found = score(of_receiver([handled(1)], ["m1", "m2", "m3"], {"m2": 1}))
    assert found.lost == 1


@pytest.mark.parametrize("left", [{"m1": 1}, {}])
def test_a_completed_message_that_returns_or_remains_counts_once(left: dict[str, int]) -> None:
    steps = [handled(1), handled(1, at=1.0)] if not left else [handled(1)]
    found = score(of_receiver(steps, ["m1"], left))
    assert (found.again, found.is_clean) == (1, False)


def test_a_message_whose_completion_failed_may_be_redelivered() -> None:
    steps = [handled(1, Outcome.ERROR, in_fault=True), handled(1, at=1.0)]
    found = score(of_receiver(steps, ["m1"], {}))
    assert (found.again, found.failed, found.is_clean) == (0, 1, True)


def test_there_are_forty_faults_with_unique_names() -> None:
    assert len(FAULTS) == len(BY_NAME) == 40
    assert len({fault.title for fault in FAULTS if fault.role is Side.SEND}) == 26


def test_the_page_has_a_run_of_every_fault_and_client() -> None:
    played = {(each["fault"], each["client"]) for each in page.stored()["rounds"]}
    assert played == {(fault.name, client.name) for fault in FAULTS for client in CONTESTANTS}
