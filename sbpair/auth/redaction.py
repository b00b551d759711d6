"""Redaction of keys in text that people read."""

from __future__ import annotations

import re

BLANK = "***"
_FIELDS = re.compile(r"(?i)\b(SharedAccessKey|SharedAccessSignature|sig)\s*=\s*[^;&\s'\",)]+")


def blank_keys(text: str) -> str:
    """``text`` with the secret fields of connection strings and SAS tokens blanked (S-12, S-15)."""
    return _FIELDS.sub(lambda found: f"{found[1]}={BLANK}", text)
