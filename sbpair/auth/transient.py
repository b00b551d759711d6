"""Failures of a credential that pass by themselves: the token service, or the identity endpoint, is away (H-30).

By name, since azure-identity is optional. No I/O.
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


def is_transient(error: BaseException) -> bool:
    """Whether a credential failed with this error for a reason that passes without a change of configuration."""
    codes = _CODE.findall(str(error))
    if codes:
        return all(code in _PASSING_CODES for code in codes)
    status = _status_of(error)
    if status is not None:
        return status in _PASSING or status >= 500
    return any(base.__name__ == _UNAVAILABLE for base in type(error).__mro__)


def _status_of(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None
