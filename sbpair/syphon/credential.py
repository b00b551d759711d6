"""How do we prove who we are? A token for an audience, whatever kind of credential there is.

    a key: connection string, AzureNamedKeyCredential          signed here, good for an hour
    a signature: SharedAccessSignature, AzureSasCredential     used as it is, as long as it lasts
    TokenCredential, blocking or of asyncio                    asked for a JWT, which serves every audience

A credential is read anew for each token: a key or signature that was updated is the one used next. Known by
what they have, not by their class: nothing of azure is loaded but to judge the error of a TokenCredential.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import inspect
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar, cast
from urllib.parse import quote_plus

from sbpair.amqp.errors import UNAUTHORIZED_ACCESS
from sbpair.amqp.performatives import Condition

from .errors import ConnectionLost, SyphonError, TokenRefused

if TYPE_CHECKING:
    from azure.core.credentials import (
        AccessToken,
        AzureNamedKeyCredential,
        AzureSasCredential,
        TokenCredential,
    )
    from azure.core.credentials_async import AsyncTokenCredential

    AnyCredential = AzureNamedKeyCredential | AzureSasCredential | TokenCredential | AsyncTokenCredential

Result = TypeVar("Result")

TOKEN_SPAN = 3600  # seconds a token we sign is good for
SIGNATURE, JWT = "servicebus.windows.net:sastoken", "jwt"  # what $cbs calls them
SCOPE = "https://servicebus.azure.net//.default"  # as the SDK asks for it
SAME_TIME = 1.0  # seconds
ASK_WITHIN = 60.0  # seconds a TokenCredential may take


@dataclass(frozen=True, slots=True)
class Token:
    """What is put on ``$cbs``; ``expires`` in seconds since the epoch."""

    text: str = field(repr=False)
    kind: str
    expires: int


class TokenSource(Protocol):
    """What makes tokens."""

    async def token(self, audience: str) -> Token:
        """A token for ``audience``.

        Raises TokenRefused for what waiting does not cure, ConnectionLost when nobody answers.
        """


class SharedKey:
    """Signs with the policy and key that ``read`` gives."""

    def __init__(self, read: Callable[[], tuple[str, str]]) -> None:
        self._read = read

    async def token(self, audience: str) -> Token:
        policy, key = self._read()
        expires = int(time.time()) + TOKEN_SPAN
        return Token(sign(audience, policy, key, expires), SIGNATURE, expires)


class SharedSignature:
    """Shows the signature that ``read`` gives."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    async def token(self, audience: str) -> Token:
        text = self._read()
        expires = expiry_of(text)
        if expires is None:
            raise _refused("the shared access signature has no expiry (se)")
        return Token(text, SIGNATURE, expires)


class Bearer:
    """Asks a TokenCredential; one answer serves all who ask at the same time, whatever their audience."""

    def __init__(self, credential: TokenCredential | AsyncTokenCredential) -> None:
        self._credential = credential
        self._asking: asyncio.Task[Token] | None = None
        self._asked_at = 0.0

    async def token(self, audience: str) -> Token:
        asking, now = self._asking, time.monotonic()
        if asking is None or not self._serves(asking, now):
            asking = self._asking = asyncio.ensure_future(self._ask())
            self._asked_at = now
        return await asyncio.shield(asking)

    def _serves(self, asking: asyncio.Task[Token], now: float) -> bool:
        """Whether who asks now may have that answer: none that was cancelled, or that another loop owes."""
        if asking.done():
            return not asking.cancelled() and now <= self._asked_at + SAME_TIME
        return asking.get_loop() is asyncio.get_running_loop()

    async def _ask(self) -> Token:
        try:
            async with asyncio.timeout(ASK_WITHIN):
                given = await self._given()
            return Token(given.token, JWT, int(given.expires_on))
        except TimeoutError:
            raise ConnectionLost(f"no token within {ASK_WITHIN:g} s") from None
        except Exception as error:
            raise judged(error) from error

    async def _given(self) -> AccessToken:
        get_token = self._credential.get_token
        given: object = (
            get_token(SCOPE)
            if inspect.iscoroutinefunction(get_token)
            else await _in_thread(lambda: get_token(SCOPE))
        )
        return cast("AccessToken", await given if inspect.isawaitable(given) else given)


def token_source(credential: AnyCredential) -> TokenSource:
    """What makes tokens of a credential of azure-core. Raises TypeError for anything else."""
    if hasattr(credential, "named_key"):
        return SharedKey(lambda: (credential.named_key.name, credential.named_key.key))
    if hasattr(credential, "signature"):
        return SharedSignature(lambda: credential.signature)
    if callable(getattr(credential, "get_token", None)):
        return Bearer(credential)
    kinds = "an AzureNamedKeyCredential, an AzureSasCredential or a TokenCredential"
    raise TypeError(f"the credential must be {kinds}, not {type(credential).__name__}")


def sign(audience: str, policy: str, key: str, expires: int) -> str:
    """A shared access signature; the key is used as the text it is, not as the bytes base64 says."""
    resource = quote_plus(audience)
    digest = hmac.new(key.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn={quote_plus(policy)}"


def expiry_of(signature: str) -> int | None:
    """When a shared access signature ends, in seconds since the epoch; None when it does not say."""
    found = re.search(r"[& ]se=(\d{1,15})(?:&|$)", signature)
    return int(found.group(1)) if found else None


def judged(error: Exception) -> SyphonError:
    """What a TokenCredential's failure means: a refusal, or a token service that is out of reach."""
    from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError

    told = f"{type(error).__name__}: {error}"
    for each in _chain(error):
        status = each.status_code if isinstance(each, HttpResponseError) else None
        if status is not None:
            is_refusal = 400 <= status < 500 and status not in (408, 429)
            return _refused(told) if is_refusal else ConnectionLost(f"the token service failed: {told}")
        if isinstance(each, FileNotFoundError | ImportError):
            return _refused(told)
        if isinstance(each, ServiceRequestError | ServiceResponseError | OSError):
            return ConnectionLost(f"the token service cannot be reached: {told}")
    return _refused(told)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    inner: BaseException | None = error
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        yield inner
        inner = getattr(inner, "inner_exception", None) or inner.__cause__ or inner.__context__


def _refused(why: str) -> TokenRefused:
    return TokenRefused("the credential gives no token", Condition(UNAUTHORIZED_ACCESS, why))


async def _in_thread(call: Callable[[], Result]) -> Result:
    """What ``call`` returns; a thread that never ends does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def tell(result: Result | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(cast("Result", result))
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except Exception as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(tell, result, error)
        except RuntimeError:  # the loop has ended, and with it whoever waited
            return

    threading.Thread(target=run, name="sbpair-credential", daemon=True).start()
    return await done
