"""Credentials as sources of tokens for ``$cbs``.

    key: connection string, AzureNamedKeyCredential            signed here, valid for an hour
    signature: SharedAccessSignature, AzureSasCredential       used as given, until it expires
    TokenCredential, blocking or asyncio                       asked for a JWT, which serves every audience

A credential is read for each token, so an updated key or signature takes effect with the next one. Credentials
are recognised by their attributes; azure-core is imported only to classify the error of a TokenCredential.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote_plus

from sbpair.pair.ground.daemon_thread import NoThreadError, in_daemon_thread
from sbpair.pair.ground.shared_task import result_of, share

from .transient import TokenUnavailableError, is_transient

if TYPE_CHECKING:
    import asyncio

    from azure.core.credentials import (
        AccessToken,
        AzureNamedKeyCredential,
        AzureSasCredential,
        TokenCredential,
    )
    from azure.core.credentials_async import AsyncTokenCredential

    AnyCredential = AzureNamedKeyCredential | AzureSasCredential | TokenCredential | AsyncTokenCredential

TOKEN_SPAN = 3600  # seconds a token signed here is valid
SIGNATURE, JWT = "servicebus.windows.net:sastoken", "jwt"  # token types of $cbs
SCOPE = "https://servicebus.azure.net//.default"  # as the SDK asks for it
SAME_TIME = 1.0  # seconds
ASK_WITHIN = 60.0  # seconds a TokenCredential may take


class CredentialRefusedError(Exception):
    """The credential gives no token, and waiting will not change that."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token for ``$cbs``; ``expires`` in seconds since the epoch."""

    text: str = field(repr=False)
    kind: str
    expires: int


class TokenSource(Protocol):
    """Makes tokens."""

    async def token(self, audience: str) -> Token:
        """Return a token for ``audience``.

        Raises CredentialRefusedError when waiting will not help, TokenUnavailableError when it may.
        """


class SharedKey:
    """Signs with the policy and key that ``read`` returns."""

    def __init__(self, read: Callable[[], tuple[str, str]]) -> None:
        self._read = read

    async def token(self, audience: str) -> Token:
        return self.token_until(audience, int(time.time()) + TOKEN_SPAN)

    def token_until(self, audience: str, expires: int) -> Token:
        """Return a token that expires at ``expires``, in seconds since the epoch."""
        policy, key = self._read()
        return Token(sign(audience, policy, key, expires), SIGNATURE, expires)


class SharedSignature:
    """Presents the signature that ``read`` returns."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    async def token(self, audience: str) -> Token:
        text = self._read()
        expires = expiry_of(text)
        if expires is None:
            raise CredentialRefusedError("the shared access signature has no expiry (se)")
        return Token(text, SIGNATURE, expires)


class Bearer:
    """Asks a TokenCredential, which is cached; concurrent requests share one answer, whatever their audience."""

    def __init__(self, credential: TokenCredential | AsyncTokenCredential) -> None:
        from .caching import caching  # late: a key needs none

        self._credential = caching(credential)
        self._asking: asyncio.Task[Token] | None = None
        self._asked_at = 0.0

    async def token(self, audience: str) -> Token:
        asking, now = self._asking, time.monotonic()
        if asking is None or not self._serves(asking, now):
            asking = self._asking = share(self._ask())
            self._asked_at = now
        return await result_of(asking)

    def _serves(self, asking: asyncio.Task[Token], now: float) -> bool:
        """Whether a request at ``now`` may share this answer: it is not cancelled, and belongs to this event loop."""
        import asyncio  # late: a blocking client does without

        if asking.done():
            return not asking.cancelled() and now <= self._asked_at + SAME_TIME
        return asking.get_loop() is asyncio.get_running_loop()

    async def _ask(self) -> Token:
        import asyncio

        try:
            async with asyncio.timeout(ASK_WITHIN):
                given = await self._open_credential()
            return Token(given.token, JWT, int(given.expires_on))
        except TimeoutError:
            raise TokenUnavailableError(f"no token within {ASK_WITHIN:g} s") from None
        except TokenUnavailableError:  # it was not asked
            raise
        except Exception as error:
            raise classify_credential_error(error) from error

    async def _open_credential(self) -> AccessToken:
        from .caching import AsyncCachingCredential

        credential = self._credential
        if isinstance(credential, AsyncCachingCredential):
            return await credential.get_token(SCOPE)
        try:
            return await in_daemon_thread(lambda: credential.get_token(SCOPE), "sbpair-credential")
        except NoThreadError as error:
            raise TokenUnavailableError(f"no thread to ask the credential: {error}") from error


def token_source(credential: AnyCredential) -> TokenSource:
    """Return the token source for an azure-core credential. Raises TypeError for any other object."""
    if hasattr(credential, "named_key"):
        return SharedKey(lambda: (credential.named_key.name, credential.named_key.key))
    if hasattr(credential, "signature"):
        return SharedSignature(lambda: credential.signature)
    if callable(getattr(credential, "get_token", None)):
        return Bearer(credential)
    kinds = "an AzureNamedKeyCredential, an AzureSasCredential or a TokenCredential"
    raise TypeError(f"the credential must be {kinds}, not {type(credential).__name__}")


def sign(audience: str, policy: str, key: str, expires: int) -> str:
    """Return a shared access signature. The key is used as text; it is not base64-decoded."""
    resource = quote_plus(audience)
    digest = hmac.new(key.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn={quote_plus(policy)}"


def expiry_of(signature: str) -> int | None:
    """When a shared access signature expires, in seconds since the epoch; None without an expiry."""
    found = re.search(r"[& ]se=(\d{1,15})(?:&|$)", signature)
    return int(found.group(1)) if found else None


def classify_credential_error(error: Exception) -> CredentialRefusedError | TokenUnavailableError:
    """Classify the error of a TokenCredential: a refusal, or an unreachable or failing token service."""
    from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError

    described = f"{type(error).__name__}: {error}"
    for each in _chain(error):
        if is_transient(each):
            return TokenUnavailableError(f"the token service failed: {described}")
        status = each.status_code if isinstance(each, HttpResponseError) else None
        if status is not None:
            is_refusal = 400 <= status < 500 and status not in (408, 429)
            if is_refusal:
                return CredentialRefusedError(described)
            return TokenUnavailableError(f"the token service failed: {described}")
        if isinstance(each, FileNotFoundError | ImportError):
            return CredentialRefusedError(described)
        if isinstance(each, ServiceRequestError | ServiceResponseError | OSError):
            return TokenUnavailableError(f"the token service cannot be reached: {described}")
    return CredentialRefusedError(described)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    inner: BaseException | None = error
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        yield inner
        inner = getattr(inner, "inner_exception", None) or inner.__cause__ or inner.__context__
