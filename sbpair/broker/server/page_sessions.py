"""The sessions of the page: what a browser gets for the token, and must show with each request.

    the cookie    opens the page itself, which shows nothing; a browser sends it to every port of the host
    the proof     every request for data or an action; the page keeps it in storage that only its own origin can read

Neither is the token: a server on another port that sees the cookie can neither read nor change anything with it.
"""

from __future__ import annotations

import hmac
import secrets

MAX_SESSIONS = 64  # the oldest ends when another is opened


class PageSessions:
    """The open sessions of one page, which end with it."""

    def __init__(self) -> None:
        self._proofs: dict[str, str] = {}

    def open(self) -> tuple[str, str]:
        """Open a session; returns its cookie and its proof."""
        if len(self._proofs) >= MAX_SESSIONS:
            del self._proofs[next(iter(self._proofs))]
        cookie, proof = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._proofs[cookie] = proof
        return cookie, proof

    def knows(self, cookie: str) -> bool:
        """Whether this is the cookie of a session."""
        return cookie in self._proofs

    def is_proven(self, cookie: str, proof: str) -> bool:
        """Whether this is the cookie of a session and its proof; the proof is compared in constant time."""
        known = self._proofs.get(cookie)
        return known is not None and hmac.compare_digest(known.encode(), proof.encode("utf-8", "replace"))
