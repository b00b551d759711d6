"""The services that run beside the senders of a client: a hosted syphon and an observer, as used by a runtime."""

from __future__ import annotations

from typing import Protocol


class BackgroundService(Protocol):
    """A service that runs beside the senders of a blocking client. Only ``close`` may block."""

    def start(self) -> None:
        """Begin, unless already running. Raises OSError or ValueError when an option cannot be met."""

    def abort(self) -> None:
        """End at once, without finishing operations in progress: the pair is faulted."""

    def close(self) -> None:
        """Finish operations in progress within a few seconds, and end."""

    def reset_in_child(self) -> None:
        """After a fork, in the child: drop the parent's threads and connections, so that :meth:`start` works again."""


Services = tuple[BackgroundService | None, BackgroundService | None]
"""The hosted syphon and the observer of a client, each None unless enabled in the options."""


class AsyncBackgroundService(Protocol):
    """The asyncio twin of :class:`BackgroundService`; called in the client's loop."""

    async def start(self) -> None: ...
    def abort(self) -> None: ...
    async def close(self) -> None: ...
    def reset_in_child(self) -> None: ...


AsyncServices = tuple[AsyncBackgroundService | None, AsyncBackgroundService | None]
"""The hosted syphon and the observer of a client, each None unless enabled in the options."""
