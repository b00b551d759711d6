"""The errors of a settlement by hand; a lost lock is the SDK's ``MessageLockLostError``."""

from __future__ import annotations

from azure.servicebus.exceptions import ServiceBusError


class SettlementUnknownError(ServiceBusError):
    """The link was lost before the settlement was confirmed: it took effect, or the message will be delivered again."""

    def __init__(self, verb: str) -> None:
        super().__init__(
            f"The link was lost before the broker confirmed to {verb} the message: it may be delivered again."
        )


class SettlementRefusedError(ServiceBusError):
    """The broker refused the settlement, although the lock is held; the event SettlementRefused has the cause."""

    def __init__(self, verb: str) -> None:
        super().__init__(
            f"The broker refused to {verb} the message: it will be delivered again when its lock ends."
        )
