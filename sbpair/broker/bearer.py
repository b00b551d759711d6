"""A substitute for Entra ID: bearer tokens (JWT, RFC 7519) signed with a policy's own key.

    header {"alg": "HS256", "kid": policy} . payload {"aud": audience, "exp": seconds} . HMAC-SHA256

Entra ID signs with its own keys (RS256) and knows principals and roles. Here the policy is the principal and
its rights are the roles, so that code which takes a ``TokenCredential`` can be tested with nothing but a
broker. Signature, audience, ``nbf`` and ``exp`` are checked; any other algorithm, and ``none``, is rejected.

No clock is read, and a rejection never repeats any part of the token.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
from collections.abc import Iterable, Mapping

from .auth import (
    MAX_TOKEN_LENGTH,
    ExpiredTokenError,
    Grant,
    InvalidTokenError,
    SharedAccessPolicy,
    split_audience,
)

AUDIENCE = "https://servicebus.azure.net"  # the whole service, as in Entra ID's tokens
ALGORITHM = "HS256"

_SERVICE = "servicebus.azure.net"
_FORM = re.compile(r"(?:Bearer )?([\w-]+)\.([\w-]+)\.([\w-]*)", re.IGNORECASE | re.ASCII)
_UNKNOWN_NAME_OR_KEY = "the policy is unknown or the signature does not match"


def is_bearer(token: str) -> bool:
    """Whether ``token`` has the form of a JWT, optionally preceded by the word Bearer."""
    return len(token) <= MAX_TOKEN_LENGTH and _FORM.fullmatch(token) is not None


def verify_bearer(token: str, policies: Iterable[SharedAccessPolicy], now_s: int) -> Grant:
    """Return the grant that ``token`` proves under one of ``policies`` at ``now_s`` (seconds since the epoch).

    Raises InvalidTokenError. An unknown policy and a wrong signature have the same reason, so that policy names cannot
    be probed.
    """
    if len(token) > MAX_TOKEN_LENGTH:
        raise InvalidTokenError(f"the token is longer than {MAX_TOKEN_LENGTH} characters")
    parts = _FORM.fullmatch(token)
    if parts is None:
        raise InvalidTokenError("the token is not a JWT")
    header, payload = _object(parts[1], "header"), _object(parts[2], "payload")
    policy = _signer(header, f"{parts[1]}.{parts[2]}", parts[3], policies)
    expires = _seconds(payload, "exp")
    if "nbf" in payload and _seconds(payload, "nbf") > now_s:
        raise InvalidTokenError("the token is not valid yet")
    grant = Grant(_host(payload.get("aud")), "", policy.rights, expires)
    if grant.is_expired(now_s):
        raise ExpiredTokenError(expires, is_bearer=True)
    return grant


def make_bearer(policy_name: str, key: str, expires: int, audience: str = AUDIENCE) -> str:
    """Return a token for ``audience`` that ends at ``expires`` (seconds since the epoch)."""
    header = {"alg": ALGORITHM, "typ": "JWT", "kid": policy_name}
    signed = f"{_encode_part(header)}.{_encode_part({'aud': audience, 'exp': expires})}"
    return f"{signed}.{_text(_signature(key, signed))}"


def _object(part: str, what: str) -> Mapping[str, object]:
    try:
        found = json.loads(_bytes(part))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidTokenError(f"the token's {what} is not a JSON object")
    return found


def _signer(
    header: Mapping[str, object], signed: str, signature: str, policies: Iterable[SharedAccessPolicy]
) -> SharedAccessPolicy:
    if header.get("alg") != ALGORITHM:
        raise InvalidTokenError(f"the token is not signed with {ALGORITHM}")
    # An unknown name costs the same two comparisons as a wrong key, made against a random policy.
    known = {policy.name: policy for policy in policies}
    name = header.get("kid")
    policy = known.get(name) if isinstance(name, str) else None
    tried = policy or SharedAccessPolicy.generate(rights=frozenset())
    try:
        offered = _bytes(signature)
    except ValueError:
        offered = b""
    keys = (tried.primary_key, tried.secondary_key)
    matches = [hmac.compare_digest(offered, _signature(key, signed)) for key in keys]
    if policy is None or not any(matches):
        raise InvalidTokenError(_UNKNOWN_NAME_OR_KEY)
    return policy


def _seconds(payload: Mapping[str, object], name: str) -> int:
    value = payload.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise InvalidTokenError(f"the token's {name} is not a count of seconds since 1970")
    return int(value)


def _host(audience: object) -> str:
    """Return the host that the audience names; "" for the whole service."""
    host = split_audience(audience)[0].lower() if isinstance(audience, str) else ""
    if not host:
        raise InvalidTokenError("the token's audience (aud) names no host")
    return "" if host == _SERVICE else host


def _signature(key: str, signed: str) -> bytes:
    return hmac.digest(key.encode(), signed.encode(), "sha256")


def _encode_part(value: Mapping[str, object]) -> str:
    return _text(json.dumps(value, separators=(",", ":")).encode())


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def _bytes(text: str) -> bytes:
    """Decode base64url without padding (RFC 7515). Raises ValueError."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error
