"""Shared access signatures: creation, verification, and the rights they grant.

    SharedAccessSignature sr=<audience>&sig=<HMAC>&se=<expiry>&skn=<policy>
                             |                         |            |
                             '-- what the token covers '-- until    '-- which key signed it

The signed text is the audience exactly as it appears in the token (still URL-encoded), a newline, and the
expiry. The HMAC key is the text of the key as the connection string shows it: its base64 is never decoded.

No clock is read and no token is stored: times are arguments, in seconds since the epoch, and a ``Grant``
records what a token proved. A rejection never repeats any part of the token.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from urllib.parse import quote_plus, unquote, unquote_plus

from .entities.descriptions import MAX_ADDRESS, split_address, without_alias

SCHEME = "SharedAccessSignature"
ROOT_POLICY_NAME = "RootManageSharedAccessKey"
EMULATOR_KEY = "SAS_KEY_VALUE"  # the placeholder key that the emulator's published connection string carries
NEVER_S = 253_402_300_799  # 9999-12-31T23:59:59Z, the last instant an SDK can parse
CLOCK_SKEW_S = 0  # a token expires exactly at its expiry: both ends share one machine's clock
MAX_TOKEN_LENGTH = 16 * 1024

_FIELDS = frozenset({"sr", "sig", "se", "skn"})
_PORT = re.compile(r":([0-9]{1,5})\Z")
_AUDIENCE = re.compile(r"[ &]sr=([^&]*)")
_UNKNOWN_NAME_OR_KEY = "the policy is unknown or the signature does not match"


class Right(Enum):
    """A right of a policy; the values are the names that the service uses."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


ALL_RIGHTS = frozenset(Right)


class InvalidTokenError(Exception):
    """The token proves nothing; ``reason`` is safe to show to the peer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ExpiredTokenError(InvalidTokenError):
    """The token ended at ``expires``, in seconds since the epoch; ``is_bearer``: it is a JWT, not a signature."""

    def __init__(self, expires: int, *, is_bearer: bool = False) -> None:
        super().__init__("the token has expired")
        self.expires = min(expires, NEVER_S)
        self._is_bearer = is_bearer

    @property
    def words(self) -> str:
        """What the service says: when a signature ended, and of a JWT only that it did."""
        if self._is_bearer:
            return "ExpiredToken: The token is expired."
        at = datetime.fromtimestamp(self.expires, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        return f"ExpiredToken: The token is expired. Expiration time: '{at}'."


@dataclass(frozen=True, slots=True)
class SharedAccessPolicy:
    """A named pair of keys with rights. Both keys are valid, so that one can be rotated; repr shows neither.

    ``entity``: the path the policy applies to, with everything below it; empty for the whole namespace.
    """

    name: str
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    rights: frozenset[Right] = ALL_RIGHTS
    entity: str = ""

    @classmethod
    def generate(
        cls, name: str = ROOT_POLICY_NAME, rights: frozenset[Right] = ALL_RIGHTS
    ) -> SharedAccessPolicy:
        """Return a policy with two fresh random keys of 32 bytes, base64."""
        return cls(name, _random_key(), _random_key(), rights)


@dataclass(frozen=True, slots=True)
class Grant:
    """The proof of a token: ``rights`` on everything at or under ``path`` of ``host``, until ``expires``.

    ``host`` is lower case and may carry a port; empty means any host. ``path`` is lower case without outer slashes;
    empty means the whole namespace. ``expires`` is in seconds since the epoch.
    """

    host: str
    path: str
    rights: frozenset[Right]
    expires: int

    def covers(self, host: str, path: str, right: Right) -> bool:
        """Whether the grant includes ``right`` on ``path`` at ``host``.

        Paths are compared segment by segment, without regard to case. Manage implies Send and Listen. Ports are
        compared only when both sides name one.
        """
        if right not in self.rights and Right.MANAGE not in self.rights:
            return False
        return _same_host(self.host, host) and _is_under(path, self.path)

    def is_expired(self, now_s: int) -> bool:
        """Whether the grant has ended at ``now_s``."""
        return now_s >= self.expires + CLOCK_SKEW_S


EMULATOR_POLICY = SharedAccessPolicy(ROOT_POLICY_NAME, EMULATOR_KEY, EMULATOR_KEY)


def verify(token: str, policies: Iterable[SharedAccessPolicy], now_s: int) -> Grant:
    """Return the grant that ``token`` proves under one of ``policies`` at ``now_s`` (seconds since the epoch).

    Raises InvalidTokenError. An unknown policy and a wrong signature have the same reason, so that policy names cannot
    be probed.
    """
    fields = _parse(token)
    audience = unquote_plus(fields["sr"])
    if len(audience) > MAX_ADDRESS:
        raise InvalidTokenError(f"the token's audience (sr) is longer than {MAX_ADDRESS} characters")
    host, path = split_audience(audience)
    policy = _signer(fields, [policy for policy in policies if _is_under(path, policy.entity)])
    expires = int(fields["se"])
    if not host:
        raise InvalidTokenError("the token's audience (sr) names no host")
    grant = Grant(host.lower(), path.strip("/").lower(), policy.rights, expires)
    if grant.is_expired(now_s):
        raise ExpiredTokenError(expires)
    return grant


def audience_path(token: str) -> str:
    """Return the path that a shared access signature claims, unverified; "" without one or when it is malformed."""
    found = _AUDIENCE.search(token[:MAX_TOKEN_LENGTH])
    audience = "" if found is None else unquote_plus(found[1])
    return "" if len(audience) > MAX_ADDRESS else split_audience(audience)[1]


def make_token(uri: str, policy_name: str, key: str, expires: int) -> str:
    """Return a shared access signature for ``uri`` that ends at ``expires`` (seconds since the epoch)."""
    audience = quote_plus(uri)
    signature = quote_plus(_signature(key, audience, str(expires)))
    return f"{SCHEME} sr={audience}&sig={signature}&se={expires}&skn={quote_plus(policy_name)}"


def connection_string(host: str, port: int, policy: SharedAccessPolicy) -> str:
    """Return the connection string for plain TCP to ``host``:``port`` with the primary key of ``policy``."""
    return (
        f"Endpoint=sb://{host}:{port};SharedAccessKeyName={policy.name};"
        f"SharedAccessKey={policy.primary_key};UseDevelopmentEmulator=true"
    )


def cloud_connection_string(name: str, policy: SharedAccessPolicy) -> str:
    """Return the connection string for the namespace's cloud host name over TLS."""
    return (
        f"Endpoint=sb://{name}.servicebus.windows.net/;SharedAccessKeyName={policy.name};"
        f"SharedAccessKey={policy.primary_key}"
    )


def split_audience(uri: str) -> tuple[str, str]:
    """Return the host (with its port, if any) and the path of an audience or address; scheme and query are ignored."""
    # JavaScript's administration client signs the whole URL of each request: encoded path, query and all.
    host, path = split_address(uri.partition("?")[0])
    if host is None:
        host, _, path = path.partition("/")
    return host, without_alias(unquote(path))


def _random_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode("ascii")


def _parse(token: str) -> dict[str, str]:
    if len(token) > MAX_TOKEN_LENGTH:
        raise InvalidTokenError(f"the token is longer than {MAX_TOKEN_LENGTH} characters")
    scheme, _, rest = token.partition(" ")
    if scheme.lower() != SCHEME.lower():
        raise InvalidTokenError(f"the token is not a {SCHEME}")
    fields: dict[str, str] = {}
    for pair in rest.split("&"):
        name, equals, value = pair.partition("=")
        if name not in _FIELDS or not equals:
            raise InvalidTokenError("the token has a field other than sr, sig, se, skn")
        if name in fields:
            raise InvalidTokenError(f"the token has the field {name} twice")
        if not value:
            raise InvalidTokenError(f"the token's field {name} is empty")
        fields[name] = value
    for name in sorted(_FIELDS - fields.keys()):
        raise InvalidTokenError(f"the token lacks the field {name}")
    if not (fields["se"].isascii() and fields["se"].isdigit()) or len(fields["se"]) > 12:
        raise InvalidTokenError("the token's expiry (se) is not a count of seconds since 1970")
    return fields


def _signer(fields: dict[str, str], policies: Iterable[SharedAccessPolicy]) -> SharedAccessPolicy:
    # An unknown name costs the same two comparisons as a wrong key, made against a random policy.
    name = unquote_plus(fields["skn"])
    known = [policy for policy in policies if policy.name == name]
    offered = unquote(fields["sig"]).encode("utf-8", "replace")
    for policy in known or [SharedAccessPolicy.generate(rights=frozenset())]:
        matches = [
            hmac.compare_digest(offered, _signature(key, fields["sr"], fields["se"]).encode("ascii"))
            for key in (policy.primary_key, policy.secondary_key)
        ]
        if any(matches) and known:
            return policy
    raise InvalidTokenError(_UNKNOWN_NAME_OR_KEY)


def _signature(key: str, raw_audience: str, raw_expiry: str) -> str:
    signed = f"{raw_audience}\n{raw_expiry}".encode("utf-8", "replace")
    return base64.b64encode(hmac.digest(key.encode(), signed, "sha256")).decode("ascii")


def _is_under(path: str, entity: str) -> bool:
    theirs, mine = path.strip("/").lower(), entity.strip("/").lower()
    return not mine or theirs == mine or theirs.startswith(f"{mine}/")


def _same_host(granted: str, asked: str) -> bool:
    if not granted:
        return True
    granted_name, granted_port = _split_port(granted.lower())
    asked_name, asked_port = _split_port(asked.lower())
    ports_agree = granted_port == asked_port or not granted_port or not asked_port
    return granted_name == asked_name and ports_agree


def _split_port(host: str) -> tuple[str, str]:
    port = _PORT.search(host)
    return (host[: port.start()], port.group(1)) if port else (host, "")
