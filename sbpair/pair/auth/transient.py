"""Transient failures of a credential: the token service or the identity endpoint is unavailable.

Errors are recognised by class name, because azure-identity is optional. No I/O.
"""

from __future__ import annotations

import re

_UNAVAILABLE = (
    "CredentialUnavailableError"  # of azure-identity: no managed identity endpoint answered, for one
)
_PASSING = frozenset({408, 429})
_CODE = re.compile(r"\bAADSTS(\d{5,7})\b")
_PASSING_CODES = frozenset(
    {
        "90006",  # an external server failed, retry
        "90012",  # the request timed out
        "90033",  # the directory is temporarily unavailable
        "90055",  # the tenant is throttled
    }
)
_REFUSING_CODES = frozenset(
    {
        "50034",  # no such account
        "50126",  # a wrong name or password
        "53003",  # blocked by conditional access
        "65001",  # no consent
        "70021",  # no matching federated identity
        "700016",  # no such application
        "700027",  # the certificate's signature is wrong
        "7000112",  # the application is disabled
        "7000215",  # a wrong client secret
        "7000222",  # an expired client secret
        "7000229",  # the application has no service principal
        "90002",  # no such tenant
    }
)
_REFUSING_TEXT = re.compile(
    r"(?i)\b(invalid_client|unauthorized_client|invalid_grant|access_denied)\b"
    r"|\b(invalid|expired|wrong|incorrect|unknown|revoked)\b.{0,40}\b(client|secret|certificate|password)\b"
    r"|\b(client|secret|certificate|password)\b.{0,40}\b(invalid|expired|wrong|incorrect|unknown|revoked|disabled)\b"
)


class TokenUnavailableError(Exception):
    """The credential gives no token now: its token service fails, or does not answer in time."""


def is_transient(error: BaseException) -> bool:
    """Whether this error of a credential is transient: it can end without a change of configuration."""
    if isinstance(error, TokenUnavailableError):
        return True
    codes = _CODE.findall(str(error))
    if codes:
        return all(code in _PASSING_CODES for code in codes)
    status = _status_of(error)
    if status is not None:
        return status in _PASSING or status >= 500
    return any(base.__name__ == _UNAVAILABLE for base in type(error).__mro__)


def names_refusal(error: BaseException) -> bool:
    """Whether the error names something that an operator must correct: an invalid client, secret or certificate."""
    text = str(error)
    if any(code in _REFUSING_CODES for code in _CODE.findall(text)):
        return True
    return _REFUSING_TEXT.search(text) is not None or isinstance(error, FileNotFoundError | ImportError)


def _status_of(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None
