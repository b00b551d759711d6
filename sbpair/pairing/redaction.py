"""What looks like a key, in text that people will read?"""

from __future__ import annotations

import re

BLANK = "***"
_FIELDS = re.compile(r"(?i)\b(SharedAccessKey|SharedAccessSignature|sig)\s*=\s*[^;&\s'\",)]+")


def blank_keys(text: str) -> str:
    """``text`` with the values of a connection string's and a token's secret fields blanked (S-12, S-15)."""
    return _FIELDS.sub(lambda found: f"{found[1]}={BLANK}", text)
