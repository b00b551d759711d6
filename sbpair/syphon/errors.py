"""The errors of the syphon.

SyphonError
 ├── ConnectionLost    the connection is gone; what was in flight is unknown
 ├── LinkRefused       the peer refused, or detached, a link
 ├── TokenRefused      the peer refused our token for a path
 └── SyphonFaulted     a side cannot be used until somebody changes its configuration
"""

from __future__ import annotations

from sbpair.amqp.performatives import Condition


class SyphonError(Exception):
    """Something the syphon cannot go on with; ``condition`` is the peer's own word, when it gave one."""

    def __init__(self, text: str, condition: Condition | None = None) -> None:
        super().__init__(text if condition is None else f"{text}: {said(condition)}")
        self.condition = condition


class ConnectionLost(SyphonError):
    """The connection is gone, or never came to be."""


class LinkRefused(SyphonError):
    """The peer refused or detached a link."""


class TokenRefused(SyphonError):
    """The peer refused our token for a path."""


class SyphonFaulted(SyphonError):
    """A side refuses us for a reason that waiting does not cure: a credential, an address."""


def said(condition: Condition | None) -> str:
    """A condition for people, on one line and of bounded length."""
    if condition is None:
        return "no condition given"
    text = f"{condition.symbol}: {condition.description}" if condition.description else str(condition.symbol)
    return "".join(c if c.isprintable() else " " for c in text)[:1000]
