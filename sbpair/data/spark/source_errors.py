"""The errors of the message source: which of them end it, which it retries, and the next step for the user."""

from __future__ import annotations

from sbpair.pair.amqp.errors import (
    ARGUMENT_ERROR,
    ARGUMENT_OUT_OF_RANGE,
    AUTH_FAILED,
    DECODE_ERROR,
    ENTITY_DISABLED,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RESOURCE_DELETED,
    SERVER_BUSY,
    UNAUTHORIZED_ACCESS,
)
from sbpair.pair.client.errors import (
    ClientError,
    ConnectionLostError,
    NamespaceUnusableError,
    TokenRefusedError,
    condition_text,
)

from .outage import pause_of


class SourceError(RuntimeError):
    """The namespace cannot be read; the message names the entity, the reason and the next step."""


class NoAnswerError(SourceError):
    """The namespace does not respond or throttles, so a retry may succeed.

    ``pause`` is the delay in seconds that the namespace requested, 0 if none.
    """

    def __init__(self, text: str, pause: float = 0.0) -> None:
        super().__init__(text)
        self.pause = pause


STEPS = {
    NOT_FOUND: "check its name",
    UNAUTHORIZED_ACCESS: "check the key: it needs the Listen right",
}


# Permanent conditions. All others are retried, unknown ones included.
PERMANENT = frozenset(
    {
        NOT_FOUND,
        UNAUTHORIZED_ACCESS,
        NOT_ALLOWED,
        NOT_IMPLEMENTED,
        INVALID_FIELD,
        DECODE_ERROR,
        RESOURCE_DELETED,
        ENTITY_DISABLED,
        AUTH_FAILED,
        ARGUMENT_ERROR,
        ARGUMENT_OUT_OF_RANGE,
    }
)


def is_transient(error: BaseException) -> bool:
    """Whether a retry may succeed."""
    if isinstance(error, NamespaceUnusableError):
        return False
    if isinstance(error, ConnectionLostError | TimeoutError):
        return True
    return (
        isinstance(error, ClientError)
        and error.condition is not None
        and error.condition.symbol not in PERMANENT
    )


def to_source_error(error: BaseException, what: str) -> SourceError:
    """The SourceError for ``error``, a NoAnswerError if it is transient.

    Its message is one line: ``what`` cannot be read, the reason and the next step.
    """
    if isinstance(error, SourceError):
        return error
    condition = error.condition if isinstance(error, ClientError) else None
    step = STEPS.get(str(condition.symbol)) if condition is not None else None
    if isinstance(error, ConnectionLostError | NamespaceUnusableError | TimeoutError):
        step = step or "check the address and the network"
    if isinstance(error, TokenRefusedError) and not has_condition(error, NOT_FOUND):
        step = "check the key and its rights"
    why = str(error) or "no response in time"
    if condition is not None and condition_text(condition) not in why:
        why = f"{why}: {condition_text(condition)}"
    text = " ".join(f"sbpair: {what}: {why}".split())
    text = text if step is None else f"{text}; {step}"
    if not is_transient(error):
        return SourceError(text)
    is_busy = condition is not None and condition.symbol == SERVER_BUSY
    return NoAnswerError(text, pause_of(why) if is_busy else 0.0)


def has_condition(error: ClientError, symbol: str) -> bool:
    return error.condition is not None and error.condition.symbol == symbol
