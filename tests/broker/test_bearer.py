"""Bearer tokens prove exactly the rights that they name."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.broker.access import SharedAccess
from sbpair.broker.auth import InvalidTokenError, Right, SharedAccessPolicy, make_token
from sbpair.broker.bearer import AUDIENCE, is_bearer, make_bearer, verify_bearer
from sbpair.broker.testing.pair import BearerCredential

NOW = 1_800_000_000
LATER = NOW + 3600
READER = SharedAccessPolicy.generate("reader", frozenset({Right.LISTEN}))
ACCESS = SharedAccess((SharedAccessPolicy.generate(), READER))
GOOD = {"alg": "HS256", "kid": "reader"}, {"aud": AUDIENCE, "exp": LATER}


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def signed(header: object, payload: object, key: str = READER.primary_key) -> str:
    """Sign a token by hand, independently of the code under test."""
    text = f"{encoded(header)}.{encoded(payload)}"
    digest = hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def reason_for(token: str, now_s: int = NOW) -> str:
    with pytest.raises(InvalidTokenError) as caught:
        ACCESS.verify(token, now_s)
    return caught.value.reason


@pytest.mark.parametrize("prefix", ["", "Bearer "])
@pytest.mark.parametrize("key", [READER.primary_key, READER.secondary_key], ids=["primary", "secondary"])
def test_a_token_grants_the_rights_of_its_policy_until_it_expires(prefix: str, key: str) -> None:
    grant = ACCESS.verify(prefix + signed(*GOOD, key=key), NOW)
    assert grant.covers("any.host", "any/path", Right.LISTEN)
    assert not grant.covers("any.host", "any/path", Right.SEND)
    assert grant.expires == LATER


def test_a_generated_token_equals_a_hand_made_one() -> None:
    assert verify_bearer(make_bearer("reader", READER.primary_key, LATER), [READER], NOW) == verify_bearer(
        signed(*GOOD), [READER], NOW
    )


def test_an_audience_of_one_host_is_valid_only_for_that_host() -> None:
    grant = ACCESS.verify(signed(GOOD[0], GOOD[1] | {"aud": "sb://contoso.example/"}), NOW)
    assert grant.covers("contoso.example", "orders", Right.LISTEN)
    assert not grant.covers("other.example", "orders", Right.LISTEN)


@pytest.mark.spec("S-4")
@pytest.mark.parametrize("algorithm", ["none", "None", "hs256", "RS256", "HS512", "", None, ["HS256"]])
def test_other_algorithms_are_refused_including_none(algorithm: object) -> None:
    token = signed(GOOD[0] | {"alg": algorithm}, GOOD[1])
    assert reason_for(token) == "the token is not signed with HS256"
    assert reason_for(token.rpartition(".")[0] + ".") == "the token is not signed with HS256"


@pytest.mark.parametrize("kid", ["nobody", None, 7, ["reader"], "RootManageSharedAccessKey"])
def test_an_unknown_policy_and_a_wrong_key_get_the_same_refusal(kid: object) -> None:
    assert reason_for(signed(GOOD[0] | {"kid": kid}, GOOD[1])) == reason_for(signed(*GOOD, key="wrong"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"exp": NOW}, "has expired"),
        ({"exp": None}, "exp is not a count"),
        ({"exp": "2099"}, "exp is not a count"),
        ({"exp": True}, "exp is not a count"),
        ({"exp": float("inf")}, "exp is not a count"),
        ({"nbf": NOW + 1}, "not valid yet"),
        ({"nbf": "soon"}, "nbf is not a count"),
        ({"aud": None}, "names no host"),
        ({"aud": [AUDIENCE]}, "names no host"),
        ({"aud": ""}, "names no host"),
    ],
    ids=str,
)
def test_a_missing_or_invalid_claim_is_named(change: dict[str, object], why: str) -> None:
    assert why in reason_for(signed(GOOD[0], GOOD[1] | change))


@pytest.mark.spec("S-4")
def test_a_changed_token_is_refused() -> None:
    header, payload, signature = signed(*GOOD).split(".")
    assert "signature" in reason_for(f"{header}.{encoded(GOOD[1] | {'exp': LATER + 1})}.{signature}")
    assert "signature" in reason_for(f"{header}.{payload}.")


def test_the_token_type_is_decided_by_its_form_not_by_its_label() -> None:
    signature = make_token("sb://localhost/orders", "reader", READER.primary_key, LATER)
    assert not is_bearer(signature)
    assert ACCESS.verify(signature, NOW).path == "orders"
    assert is_bearer(signed(*GOOD))


@given(st.text() | st.from_regex(r"(Bearer )?[\w-]{1,40}\.[\w-]{1,40}\.[\w-]{0,40}", fullmatch=True))
def test_a_nonsensical_token_is_refused_and_never_repeated(nonsense: str) -> None:
    reason = reason_for(nonsense)
    assert len(nonsense) < 8 or nonsense not in reason


def test_a_credential_shows_no_key_and_takes_the_services_scopes() -> None:
    credential = BearerCredential("reader", READER.primary_key)
    assert READER.primary_key not in repr(credential)
    token, expires = credential.get_token("https://servicebus.azure.net//.default")
    assert verify_bearer(token, [READER], expires - 10).expires == expires
    with pytest.raises(ValueError, match="scope"):
        credential.get_token("https://servicebus.azure.net/")
