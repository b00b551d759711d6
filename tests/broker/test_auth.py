"""SAS tokens prove exactly the rights that they name."""

from __future__ import annotations

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.broker import auth
from sbpair.broker.access import OpenAccess, SharedAccess
from sbpair.broker.auth import Grant, InvalidTokenError, Right, SharedAccessPolicy

NOW = 1_800_000_000
LATER = NOW + 3600
KEY = "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE="
OTHER_KEY = "b3RoZXJvdGhlcm90aGVyb3RoZXJvdGhlcm90aGVybzE="
URI = "sb://contoso.servicebus.windows.net/orders"
ROOT = SharedAccessPolicy("RootManageSharedAccessKey", KEY, OTHER_KEY)
SENDER = SharedAccessPolicy("sender", KEY, OTHER_KEY, frozenset({Right.SEND}))


def token(uri: str = URI, name: str = ROOT.name, key: str = KEY, expires: int = LATER) -> str:
    return auth.make_token(uri, name, key, expires)


def grant_of(uri: str, policy: SharedAccessPolicy = ROOT) -> Grant:
    return auth.verify(token(uri, policy.name), [policy], NOW)


def reason_for(refused: str, now_s: int = NOW) -> str:
    with pytest.raises(InvalidTokenError) as caught:
        auth.verify(refused, [ROOT], now_s)
    return caught.value.reason


def fields_of(text: str) -> list[str]:
    return text.removeprefix("SharedAccessSignature ").split("&")


@pytest.mark.spec("S-1")
def test_the_signature_equals_the_recorded_vector() -> None:
    made = auth.make_token(URI, "policy", KEY, 1893456000)
    assert "sig=CVi%2Fl3eCfBw31xDEndK8WCjbno6aksWua5PfKXruqEs%3D" in made
    assert "sr=sb%3A%2F%2Fcontoso.servicebus.windows.net%2Forders" in made


@pytest.mark.spec("S-1")
def test_a_token_of_the_sdk_passes() -> None:
    from azure.servicebus._base_handler import _generate_sas_token

    made = _generate_sas_token("sb://localhost:5672/orders", ROOT.name, KEY)
    grant = auth.verify(made.token, [ROOT], made.expires_on - 10)
    assert grant == Grant("localhost:5672", "orders", auth.ALL_RIGHTS, made.expires_on)


def test_the_fields_may_come_in_any_order() -> None:
    for rotation in range(4):
        fields = fields_of(token())
        shuffled = "SharedAccessSignature " + "&".join(fields[rotation:] + fields[:rotation])
        assert auth.verify(shuffled, [ROOT], NOW).path == "orders"


def test_the_audience_is_signed_as_it_was_sent() -> None:
    raw = (
        "sb%3a%2f%2fcontoso.servicebus.windows.net%2forders"  # lower-case escapes, as some clients send them
    )
    digest = hmac.digest(KEY.encode(), f"{raw}\n{LATER}".encode(), "sha256")
    signature = auth.quote_plus(base64.b64encode(digest))
    grant = auth.verify(
        f"SharedAccessSignature sr={raw}&sig={signature}&se={LATER}&skn={ROOT.name}", [ROOT], NOW
    )
    assert (grant.host, grant.path) == ("contoso.servicebus.windows.net", "orders")


@pytest.mark.spec("S-3")
def test_both_keys_are_valid_and_a_third_is_not() -> None:
    assert auth.verify(token(key=KEY), [ROOT], NOW) == auth.verify(token(key=OTHER_KEY), [ROOT], NOW)
    assert "does not match" in reason_for(token(key="c29tZXRoaW5nIGVsc2U="))


@pytest.mark.spec("S-1")
def test_an_unknown_policy_and_a_wrong_signature_get_the_same_refusal() -> None:
    assert reason_for(token(name="nobody")) == reason_for(token(key="d3Jvbmc="))


@pytest.mark.spec("S-1")
@pytest.mark.parametrize(
    ("broken", "part"),
    [
        ("", "not a SharedAccessSignature"),
        ("Bearer eyJhbGciOiJub25lIn0.e30.", "not a SharedAccessSignature"),
        ("SharedAccessSignature", "a field other than"),
        ("SharedAccessSignature sr", "a field other than"),
        (token() + "&sr=sb%3A%2F%2Felse", "sr twice"),
        (token() + "&sig=AAAA", "sig twice"),
        (token() + "&se=1893456000", "se twice"),
        (token() + "&skn=root", "skn twice"),
        (token() + "&extra=1", "a field other than"),
        ("SharedAccessSignature " + "&".join(fields_of(token())[:3]), "lacks the field skn"),
        ("SharedAccessSignature sr=a&sig=&se=1&skn=b", "sig is empty"),
        ("SharedAccessSignature sr=&sig=a&se=1&skn=b", "sr is empty"),
        ("SharedAccessSignature sr=a&sig=a&se=-1&skn=b", "expiry"),
        ("SharedAccessSignature sr=a&sig=a&se=1.5&skn=b", "expiry"),
        ("SharedAccessSignature sr=a&sig=a&se=1e9&skn=b", "expiry"),
        ("SharedAccessSignature sr=a&sig=a&se=١٢٣&skn=b", "expiry"),
        ("SharedAccessSignature sr=a&sig=a&se=" + "9" * 30 + "&skn=b", "expiry"),
        ("SharedAccessSignature sr=" + "a" * 20_000 + "&sig=a&se=1&skn=b", "longer than"),
        (auth.make_token("sb:///orders", ROOT.name, KEY, LATER), "names no host"),
    ],
)
def test_a_malformed_token_is_refused_for_its_fault(broken: str, part: str) -> None:
    assert part in reason_for(broken)


@pytest.mark.spec("S-1")
def test_a_token_expires_in_the_second_it_names() -> None:
    assert auth.verify(token(expires=NOW + 1), [ROOT], NOW)
    assert "expired" in reason_for(token(expires=NOW))


@pytest.mark.spec("S-1")
def test_an_altered_audience_or_expiry_breaks_the_signature() -> None:
    assert "does not match" in reason_for(token().replace("orders", "invoices"))
    assert "does not match" in reason_for(token().replace(f"se={LATER}", f"se={LATER + 1}"))


@given(st.text(max_size=200))
def test_any_malformed_token_is_refused(rest: str) -> None:
    for text in (rest, "SharedAccessSignature " + rest, token() + rest + "&"):
        with pytest.raises(InvalidTokenError):
            auth.verify(text, [ROOT], NOW)


def test_a_refusal_contains_no_part_of_the_token() -> None:
    canary = "CANARY+/=%"
    for refused in (token(name=canary), token(key=canary), token(uri="sb://" + canary), token(expires=1)):
        assert "CANARY" not in reason_for(refused + "x")


@pytest.mark.spec("S-2")
@pytest.mark.parametrize(
    ("granted", "asked", "covered"),
    [
        ("orders", "orders", True),
        ("orders", "ORDERS", True),
        ("orders", "orders/$management", True),
        ("orders", "/orders/Subscriptions/x/", True),
        ("orders", "orders2", False),
        ("orders", "orders-dlq", False),
        ("orders", "", False),
        ("contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/0", True),
        ("contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/01", False),
        ("contoso", "contoso/x-servicebus-transfer/0", True),
        ("", "anything/at/all", True),
    ],
)
def test_a_grant_matches_whole_path_segments(granted: str, asked: str, covered: bool) -> None:
    assert grant_of(f"sb://localhost/{granted}").covers("localhost", asked, Right.SEND) is covered


@pytest.mark.spec("S-2")
@pytest.mark.parametrize(
    ("granted", "asked", "same"),
    [
        ("sb://Contoso.ServiceBus.windows.net", "contoso.servicebus.WINDOWS.net", True),
        ("https://localhost:5672", "LOCALHOST:5672", True),
        ("amqps://localhost:5672/", "localhost", True),
        ("localhost", "localhost:5672", True),
        ("sb://localhost:5672", "localhost:5673", False),
        ("sb://[::1]:5672", "[::1]:5672", True),
        ("sb://contoso.example", "contoso.example.evil", False),
        ("sb://contoso", "fabrikam", False),
    ],
)
def test_a_grant_applies_to_one_host(granted: str, asked: str, same: bool) -> None:
    assert grant_of(granted).covers(asked, "orders", Right.LISTEN) is same


@pytest.mark.spec("S-3")
@pytest.mark.parametrize(
    ("held", "right", "covered"),
    [
        ({Right.SEND}, Right.SEND, True),
        ({Right.SEND}, Right.LISTEN, False),
        ({Right.SEND, Right.LISTEN}, Right.MANAGE, False),
        ({Right.MANAGE}, Right.SEND, True),
        ({Right.MANAGE}, Right.LISTEN, True),
        (set(), Right.SEND, False),
    ],
)
def test_manage_implies_the_other_two_rights(held: set[Right], right: Right, covered: bool) -> None:
    policy = SharedAccessPolicy("some", KEY, OTHER_KEY, frozenset(held))
    assert grant_of(URI, policy).covers("contoso.servicebus.windows.net", "orders", right) is covered


@pytest.mark.parametrize(
    ("uri", "host", "path"),
    [
        ("https://localhost:5300/$namespaceinfo?api-version=2021-05", "localhost:5300", "$namespaceinfo"),
        (
            "https://localhost/contoso%2fx-servicebus-transfer%2f0?a=/b",
            "localhost",
            "contoso/x-servicebus-transfer/0",
        ),
        ("https://localhost?x=/orders", "localhost", ""),
        ("amqps://localhost:5671/orders/", "localhost:5671", "orders/"),
        ("localhost/orders", "localhost", "orders"),
        ("", "", ""),
    ],
)
def test_an_audience_may_be_a_whole_url(uri: str, host: str, path: str) -> None:
    assert auth.split_audience(uri) == (host, path)


@pytest.mark.spec("S-3")
def test_rotating_a_key_takes_effect_with_the_next_token() -> None:
    old = token()
    fresh = SharedAccessPolicy.generate()
    rotated = SharedAccess((fresh,))
    with pytest.raises(InvalidTokenError):
        rotated.verify(old, NOW)
    assert rotated.verify(token(key=fresh.primary_key), NOW).rights == auth.ALL_RIGHTS


def test_open_access_accepts_any_token_including_the_published_emulator_key() -> None:
    published = auth.make_token(URI, "RootManageSharedAccessKey", "SAS_KEY_VALUE", LATER)
    for offered in (published, "Bearer whatever", ""):
        assert OpenAccess().verify(offered, NOW).covers("any.host:1", "any/path", Right.MANAGE)


def test_a_generated_policy_has_two_different_32_byte_keys_hidden_from_repr() -> None:
    policy = SharedAccessPolicy.generate()
    keys = {policy.primary_key, policy.secondary_key, SharedAccessPolicy.generate().primary_key}
    assert len(keys) == 3
    assert all(len(auth.base64.b64decode(key)) == 32 for key in keys)
    assert not any(key in repr(policy) + repr(SharedAccess((policy,))) for key in keys)


def test_the_sdk_reads_our_connection_string() -> None:
    from azure.servicebus import ServiceBusClient, parse_connection_string

    text = auth.connection_string("localhost", 5672, SENDER)
    parsed = parse_connection_string(text)
    assert parsed.fully_qualified_namespace == "localhost:5672"
    assert (parsed.shared_access_key_name, parsed.shared_access_key) == ("sender", KEY)
    with ServiceBusClient.from_connection_string(text) as client:
        assert client.fully_qualified_namespace == "localhost:5672"
