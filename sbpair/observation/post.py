"""How is one notice delivered, for all the receiver may answer?

    2xx                                     delivered
    no answer · 408 · 429 · 5xx             again, after a random pause below a growing bound
    any other answer (4xx, redirects)       refused: waiting would not cure it

tenacity retries; every attempt is signed anew, so that a slow delivery does not look like a replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .notice import Notice
from .signature import HEADER_NAME, sign

if TYPE_CHECKING:
    import httpx

_CURABLE = frozenset({408, 429})


class NotDelivered(Exception):
    """The receiver does not take a notice; the text says why, without the URL."""


class TryAgain(NotDelivered):
    """It may take it later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long, in seconds: one request, all attempts for one notice, and the pauses between them."""

    request_timeout: float = 10.0
    give_up_after: float = 300.0
    first_wait: float = 0.5
    longest_wait: float = 30.0

    def __post_init__(self) -> None:
        for name in ("request_timeout", "give_up_after", "first_wait", "longest_wait"):
            if not 0 < getattr(self, name) <= 86_400:
                raise ValueError(f"{name} must be above 0 s and at most a day, not {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where the notices go."""

    url: str = field(repr=False)  # it may hold a token
    secret: str = field(repr=False)
    patience: Patience

    async def deliver(
        self,
        client: httpx.AsyncClient,
        notice: Notice,
        epoch: Callable[[], float],
        on_attempt: Callable[[], None],
    ) -> None:
        """Post a notice until it is taken. Raises NotDelivered when it is refused or patience ends."""
        from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

        patience = self.patience
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(TryAgain),
            wait=wait_random_exponential(multiplier=patience.first_wait, max=patience.longest_wait),
            stop=stop_after_delay(patience.give_up_after),
            reraise=True,
        )

        async def attempt() -> None:
            on_attempt()
            await self._post(client, notice, epoch())

        await retrying(attempt)

    async def _post(self, client: httpx.AsyncClient, notice: Notice, now: float) -> None:
        import httpx

        headers = {
            "Content-Type": "application/json",
            "X-Sbpair-Event": notice.kind.value,
            "X-Sbpair-Delivery": notice.id,
            HEADER_NAME: sign(notice.body, self.secret, now),
        }
        try:
            answer = await client.post(self.url, content=notice.body, headers=headers)
        except httpx.TransportError as error:
            raise TryAgain(type(error).__name__) from error
        except httpx.HTTPError as error:
            raise NotDelivered(type(error).__name__) from error
        if answer.is_success:
            return
        is_curable = answer.is_server_error or answer.status_code in _CURABLE
        raise (TryAgain if is_curable else NotDelivered)(f"HTTP status {answer.status_code}")
