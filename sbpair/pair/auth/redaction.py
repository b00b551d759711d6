"""Redaction of keys and tokens in text that people read, in every form in which a peer may echo them.

sig=AbC%3D                              a field of a token or a connection string
sig%3DAbC%253D%26se%3D1                 percent-encoded, once or more often
{"SharedAccessKey": "AbC="}             JSON, also within a string of JSON
eyJhbGciOi....eyJhdWQiOi....c2ln        a token of Entra ID
U2hhcmVkQWNjZXNz..., 5368617265...      base64 or hex of any of these
"""

from __future__ import annotations

import base64
import binascii
import re

BLANK = "***"
_NAMES = "SharedAccessKey|SharedAccessSignature|sig"
_EQUALS = r"\s*(?:=|%(?:25)*3D|\\*[\"']\s*:\s*\\*[\"'])\s*"
_ENDS = r"%(?:25)*(?:20|22|26|2C|3B)"
_BEGINS = r"(?:(?<![A-Za-z0-9])|(?<=%20)|(?<=%22)|(?<=%26)|(?<=%3B)|(?<=2520)|(?<=2522)|(?<=2526)|(?<=253B))"
_FIELDS = re.compile(rf"(?i){_BEGINS}({_NAMES})({_EQUALS})((?:(?!{_ENDS})[^;&\s'\",)\\])+)")
_ENTRA_TOKENS = re.compile(
    r"(?:(?<![\w-])|(?<=%20)|(?<=%22)|(?<=2520)|(?<=2522))eyJ[\w-]{8,}\.[\w-]{2,}\.[\w-]*"
)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2}){16,}")
_SECRET = re.compile(rb"(?i)(?:sharedaccess(?:key|signature)|\bsig)\s*(?:=|%|\\*[\"']\s*:)|eyJ[\w-]{8}")


def _shifted_forms(secret: bytes) -> set[str]:
    """Return the base64 characters that these bytes produce, for each of the three offsets at which they can start."""
    found = set()
    for before in range(3):
        letters = base64.b64encode(b"\0" * before + secret).decode().rstrip("=")
        complete = (before + len(secret)) * 8 // 6
        found.add(letters[-(-before * 8 // 6) : complete])
    return found


_MARKS = sorted(
    {mark for secret in (b"SharedAccess", b"sig=", b"sig%", b"eyJ") for mark in _shifted_forms(secret)}
)
_HEX_MARKS = sorted(secret.hex() for secret in (b"SharedAccess", b"sig=", b"sig%", b"eyJ"))
_SUSPICIOUS = re.compile(
    "|".join([r"(?i:sharedaccess|sig\s*=|sig%|sig\\*[\"'])", "eyJ", *_MARKS, f"(?i:{'|'.join(_HEX_MARKS)})"])
)
"""Matches every text with a secret, and few others, which need a closer look."""


def blank_keys(text: str) -> str:
    """Return ``text`` with the secret fields of connection strings and tokens blanked, however encoded."""
    if _SUSPICIOUS.search(text) is None:
        return text
    text = _FIELDS.sub(lambda found: f"{found[1]}={BLANK}", text)
    text = _ENTRA_TOKENS.sub(BLANK, text)
    text = _HEX.sub(lambda found: BLANK if _SECRET.search(bytes.fromhex(found[0])) else found[0], text)
    return _BASE64.sub(lambda found: BLANK if _hides_a_secret(found[0]) else found[0], text)


def _hides_a_secret(run: str) -> bool:
    """Whether this run of characters is the base64 form of a secret, after at most three unrelated characters."""
    letters = run.rstrip("=").translate(_URL_SAFE)
    return any(_SECRET.search(_decode(letters[start:])) for start in range(4))


_URL_SAFE = str.maketrans("-_", "+/")


def _decode(letters: str) -> bytes:
    whole = letters[: len(letters) - 1] if len(letters) % 4 == 1 else letters
    try:
        return base64.b64decode(whole + "=" * (-len(whole) % 4))
    except binascii.Error:
        return b""
