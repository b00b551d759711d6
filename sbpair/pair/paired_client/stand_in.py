"""Stand-ins for ``ServiceBusClient``, for a library that makes its own.

    client = PairedServiceBusClient.from_connection_strings(primary, secondary)
    some_library.ServiceBusClient = client.stand_in()   # in place of the SDK's class

Calling the stand-in or its ``from_connection_string`` lends the paired client. All loans share the health of
the entities; closing one closes only the senders and receivers obtained through it. Arguments of the library
(a connection string, retries) are ignored: the paired client already has its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from .administration import AdministrationStandIn

LoanT = TypeVar("LoanT")


class Lendable(Protocol):
    """A blocking client that can be entered."""

    def __enter__(self) -> object: ...


class AsyncLendable(Protocol):
    """An asyncio client that can be entered."""

    async def __aenter__(self) -> object: ...


class _Loan:
    """Delegates to the client and tracks the senders and receivers obtained through this loan."""

    def __init__(self, client: object) -> None:
        self._client = client
        self._given: weakref.WeakSet[object] = weakref.WeakSet()

    def __getattr__(self, name: str) -> object:
        found = getattr(self._client, name)
        if not name.startswith("get_"):
            return found

        def call_found(*args: object, **keywords: object) -> object:
            handler = found(*args, **keywords)
            self._given.add(handler)
            return handler

        return call_found

    def _take(self) -> list[object]:
        given = list(self._given)
        self._given.clear()
        return given


class Loan(_Loan):
    """A blocking paired client on loan."""

    _client: Lendable

    def close(self) -> None:
        """Close the senders and receivers obtained through this loan; the client stays open."""
        for handler in self._take():
            handler.close()  # type: ignore[attr-defined]

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncLoan(_Loan):
    """An asyncio paired client on loan."""

    _client: AsyncLendable

    async def close(self) -> None:
        """Close the senders and receivers obtained through this loan; the client stays open."""
        for handler in self._take():
            await handler.close()  # type: ignore[attr-defined]

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class StandIn(Generic[LoanT]):
    """Takes the place of the class ``ServiceBusClient``; arguments are ignored."""

    def __init__(self, lend: Callable[[], LoanT], administration: AdministrationStandIn) -> None:
        self._lend = lend
        self.administration = administration
        """A stand-in for the class ``ServiceBusAdministrationClient``, always blocking."""

    def __call__(self, *args: object, **keywords: object) -> LoanT:
        return self._lend()

    def from_connection_string(self, *args: object, **keywords: object) -> LoanT:
        """Return a borrowed client, as :meth:`__call__`."""
        return self._lend()
