"""What is remembered of a credential: its token until it expires, and its failure for a moment that grows."""

from __future__ import annotations

import errno
import random
from typing import NamedTuple

import pytest

from sbpair.pair.auth.held_failure import JITTER, MAX_SECONDS, HeldFailure
from sbpair.pair.auth.token_memory import TokenMemory
from sbpair.pair.auth.transient import TokenUnavailableError


class Given(NamedTuple):
    token: str
    expires_on: int


@pytest.fixture
def rng() -> random.Random:
    return random.Random(7)


@pytest.fixture
def memory(rng: random.Random) -> TokenMemory:
    return TokenMemory(rng)


@pytest.mark.spec("H-31")
def test_a_token_is_used_until_it_expires_and_renewed_from_four_fifths_of_its_life(
    memory: TokenMemory,
) -> None:
    memory.gained(Given("first", 1100), wall=1000.0)
    assert memory.answer(0.0, 1079.9).is_due is False
    late = memory.answer(0.0, 1080.0)
    assert (late.token, late.is_due) == (Given("first", 1100), True)
    over = memory.answer(0.0, 1100.0)
    assert (over.token, over.error, over.is_due) == (None, None, True)


@pytest.mark.spec("H-23", "H-31")
def test_a_failed_renewal_is_not_repeated_per_request(memory: TokenMemory) -> None:
    memory.gained(Given("first", 1100), wall=1000.0)
    memory.failed(OSError("away"), now=50.0)
    soon = memory.answer(50.1, 1080.1)
    assert (soon.token, soon.is_due) == (Given("first", 1100), False)
    assert memory.answer(52.0, 1082.0).is_due


@pytest.mark.spec("R-108", "H-23")
@pytest.mark.parametrize("has_a_cause", [False, True])
def test_a_local_shortage_is_not_held_against_the_service(memory: TokenMemory, has_a_cause: bool) -> None:
    error: Exception = OSError(errno.EMFILE, "Too many open files")
    if has_a_cause:
        try:
            raise error
        except OSError as cause:
            error = ValueError("the credential failed")
            error.__context__ = cause
    memory.failed(error, now=50.0)
    assert memory.answer(50.0, 1000.0).is_due


@pytest.mark.spec("H-23")
def test_a_remembered_failure_is_raised_without_a_new_request(memory: TokenMemory) -> None:
    error = memory.failed(OSError("away"), now=50.0)
    held = memory.answer(50.5, 1000.0)
    assert (held.token, held.error, held.is_due) == (None, error, False)
    over = memory.answer(52.0, 1000.0)
    assert (over.error, over.is_due) == (None, True)


@pytest.mark.spec("H-23")
def test_a_failure_is_remembered_for_one_second_doubling_up_to_thirty(rng: random.Random) -> None:
    failure, now, spans = HeldFailure(rng), 0.0, []
    for _ in range(8):
        failure.failed(OSError("away"), now)
        began = now
        while failure.at(now) is not None:
            now += 0.01
        spans.append(now - began)
    for span, nominal in zip(spans, [1, 2, 4, 8, 16, MAX_SECONDS, MAX_SECONDS, MAX_SECONDS], strict=True):
        assert nominal * (1 - JITTER) <= span <= nominal * (1 + JITTER) + 0.02
    assert spans[5] != spans[6]  # many clients do not march
    failure.succeeded()
    failure.failed(OSError("away"), now)
    assert failure.at(now + 1.3) is None


@pytest.mark.spec("H-23")
def test_concurrent_failures_count_as_one(rng: random.Random) -> None:
    failure = HeldFailure(rng)
    for number in range(50):
        failure.failed(OSError(str(number)), 0.0)
    assert str(failure.at(0.0)) == "49"
    assert failure.at(1.3) is None


@pytest.mark.spec("H-30")
@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("DefaultAzureCredential failed to retrieve a token from the included credentials", True),
        ("AADSTS50196: the server terminated an operation", True),
        ("AADSTS7000215: Invalid client secret provided", False),
        ("AADSTS700016: Application not found", False),
        ('{"error": "invalid_client"}', False),
        ("the client secret has expired", False),
    ],
)
def test_a_working_credential_that_fails_is_unavailable_unless_its_client_or_secret_is_wrong(
    memory: TokenMemory, text: str, passes: bool
) -> None:
    told = RuntimeError(text)
    assert memory.failed(told, now=0.0) is told  # it never worked
    memory.gained(Given("first", 1100), wall=1000.0)
    error = memory.failed(told, now=10.0)
    assert isinstance(error, TokenUnavailableError) is passes
    assert text in str(error)
    assert error is told or error.__cause__ is told
