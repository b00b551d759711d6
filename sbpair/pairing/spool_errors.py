"""Which errors does a spool add? (moved into errors.py with the integration)"""

from __future__ import annotations

from .errors import PairingError


class SpoolError(PairingError):
    """The spool cannot be used: another process owns it, the file is damaged or cannot be written."""


class SpoolFullError(SpoolError):
    """The message rests nowhere: the spool has no room for it."""
