"""Keys and tokens that a peer echoes are blanked in every form (S-12, S-15, R-197)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from sbpair.pair.auth.redaction import BLANK, blank_keys
from sbpair.pair.observation.record import scrub

pytestmark = pytest.mark.spec("S-12", "S-15", "R-197")

KEY = base64.b64encode(bytes(range(130, 162))).decode()
JWT = ".".join(
    base64.urlsafe_b64encode(part).decode().rstrip("=")
    for part in (b'{"alg":"RS256","typ":"JWT"}', b'{"aud":"https://servicebus.azure.net"}', bytes(range(40)))
)
SECRETS = {
    "token": f"SharedAccessSignature sr=sb%3A%2F%2Fhost&sig={quote(KEY, safe='')}&se=1795564800&skn=Root",
    "string": f"Endpoint=sb://host/;SharedAccessKeyName=Root;SharedAccessKey={KEY}",
    "signed string": f"Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=h&sig={quote(KEY, safe='')}",
    "entra": f"Bearer {JWT}",
}
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "percent": quote,
    "percent of all": lambda text: quote(text, safe=""),
    "form": quote_plus,
    "percent twice": lambda text: quote(quote(text)),
    "json": lambda text: json.dumps({"refused": text}),
    "json in json": lambda text: json.dumps(json.dumps({"refused": text})),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 behind one byte": lambda text: base64.b64encode(b"x" + text.encode()).decode(),
    "base64 behind two bytes": lambda text: base64.urlsafe_b64encode(b"xy" + text.encode()).decode(),
    "base64 without its padding": lambda text: base64.b64encode(text.encode()).decode().rstrip("="),
    "base64 of percent": lambda text: base64.b64encode(quote(text).encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "hex in capitals": lambda text: text.encode().hex().upper(),
    "bytes": lambda text: repr(text.encode()),
}


def traces_of(secret: str) -> list[str]:
    """Pieces of the secret part of ``secret``, in all forms, any of which would give it away."""
    core = KEY if KEY in secret or quote(KEY, safe="") in secret else JWT.split(".")[2]
    plain = (core, quote(core, safe=""), quote(quote(core, safe="")), core[:20])
    return [*plain, core[:24].encode().hex(), core[:24].encode().hex().upper()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", SECRETS)
def test_an_echoed_secret_is_redacted_in_every_form(secret: str, form: str) -> None:
    echoed = FORMS[form](SECRETS[secret])
    for text in (echoed, f"the peer said: {echoed}; try again", f"x {echoed}\nand {echoed}"):
        for blanked in (blank_keys(text), scrub(text)):
            assert BLANK in blanked
            assert [trace for trace in traces_of(SECRETS[secret]) if trace in blanked] == []
            encoded = [
                base64.b64encode(b"xy"[:n] + SECRETS[secret].encode()).decode()[8:40] for n in range(3)
            ]
            assert [trace for trace in encoded if trace in blanked] == []


@pytest.mark.parametrize(
    "text",
    [
        "orders",
        "0f8fad5b-d9cb-469f-a165-70867728950e",
        "0123456789abcdef0123456789abcdef0123456789abcdef",
        "contoso/x-servicebus-transfer/0: amqp:not-found: The messaging entity could not be found.",
        "a design=good and SIGNAL=9 and https://host/path?page=2&size=10",
        base64.b64encode(bytes(range(256))).decode(),
    ],
)
def test_a_text_without_a_secret_is_unchanged(text: str) -> None:
    assert blank_keys(text) == text == scrub(text)
