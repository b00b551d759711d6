"""What lives and ends with a client, beside its senders? (P-1, P-40) The syphon, and those who watch.

They come from rooms above this one. Their homes are named here, and nowhere else in pairing; they are loaded
when the options of a client ask for them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from .core import Core

SYPHON, WATCH = "sbpair.hosting.syphon", "sbpair.hosting.watch"


class Companion(Protocol):
    """One that lives in a blocking client. All but ``close`` return at once."""

    def start(self) -> None:
        """Begin, unless it has begun. Raises ValueError for what the options say wrongly."""

    def abort(self) -> None:
        """End at once: the pair is faulted (P-50)."""

    def close(self) -> None:
        """Finish what is under way, for a few seconds at most, and end."""

    def renew(self) -> None:
        """After a fork, in the child: what runs is the parent's; :meth:`start` begins anew."""


class AsyncCompanion(Protocol):
    """The same in a client of asyncio; called in its loop."""

    async def start(self) -> None: ...
    def abort(self) -> None: ...
    async def close(self) -> None: ...
    def renew(self) -> None: ...


def companions(core: Core) -> tuple[Companion | None, Companion | None]:
    """The hosted syphon and the watch of a blocking client, where its options ask for them."""
    return cast("tuple[Companion | None, Companion | None]", _made(core, "blocking"))


def async_companions(core: Core) -> tuple[AsyncCompanion | None, AsyncCompanion | None]:
    """The same for asyncio."""
    return cast("tuple[AsyncCompanion | None, AsyncCompanion | None]", _made(core, "asynchronous"))


def _made(core: Core, kind: str) -> tuple[object, object]:
    syphon = watch = None
    if core.options.enable_syphon and not core.is_disabled:
        syphon = _factory(SYPHON, kind)(core)
    if core.options.observation is not None:
        watch = _factory(WATCH, kind)(core, syphon)
    return syphon, watch


def _factory(home: str, kind: str) -> Callable[..., object]:
    return cast("Callable[..., object]", getattr(import_module(home), kind))
