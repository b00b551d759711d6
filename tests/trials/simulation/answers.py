"""What a simulated service says to a send, and what the SDK makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

BY_CONDITION: dict[str, type[ServiceBusError]] = {
    "amqp:resource-limit-exceeded": ServiceBusQuotaExceededError,
    "amqp:not-found": MessagingEntityNotFoundError,
    "com.microsoft:server-busy": ServiceBusServerBusyError,
    "com.microsoft:entity-disabled": MessagingEntityDisabledError,
    "com.microsoft:timeout": OperationTimeoutError,
    "amqp:link:message-size-exceeded": MessageSizeExceededError,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a broker says to a send: stored without a condition; ``after`` so many seconds, infinity for never."""

    condition: str | None = None
    text: str = ""
    after: float = 0.0


STORED, LOST, LATER = Answer(), Answer("lost"), Answer("later")
"""Stored; the connection is gone before an answer; it is re-routed."""


class CredentialUnavailableError(ClientAuthenticationError):
    """Stands for the error of azure-identity, which is known by its name (H-30)."""


class OpeningError(Exception):
    """The link could not be opened, for this reason."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


def sdk_error(condition: str, text: str = "") -> ServiceBusError:
    """What the SDK raises for a rejected condition (F2)."""
    error = BY_CONDITION.get(condition, ServiceBusError)(message=text or condition)
    error._condition = condition.encode()  # type: ignore[attr-defined]
    return error
