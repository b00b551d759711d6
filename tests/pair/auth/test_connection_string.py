"""Parsing connection strings, and signing tokens."""

from __future__ import annotations

import pytest

from sbpair import PairedServiceBusClient
from sbpair.pair.auth.connection_string import ConnectionStringError, parse
from sbpair.pair.auth.credential import sign
from sbpair.pair.cli.errors import ConfigurationError
from sbpair.pair.cli.namespaces import parse_fields

KEY = "SharedAccessKeyName=Root;SharedAccessKey=S3cretS3cret="
SIGNATURE = (
    "SharedAccessSignature=SharedAccessSignature sr=sb%3A%2F%2Fc%2F&sig=S3cret%3D&se=1893456000&skn=Root"
)


def test_the_emulator_flag_means_plain_tcp_on_the_port_of_the_endpoint() -> None:
    namespace = parse(f"Endpoint=sb://localhost:5673/;{KEY};UseDevelopmentEmulator=true")

    assert (namespace.host, namespace.port, namespace.uses_tls) == ("localhost", 5673, False)
    assert namespace.audience("orders") == "sb://localhost:5673/orders"
    assert namespace.address("orders") == "amqps://localhost:5673/orders"


def test_the_emulator_flag_without_a_port_means_5672() -> None:
    assert parse(f"Endpoint=sb://localhost;{KEY};UseDevelopmentEmulator=true").port == 5672


@pytest.mark.spec("S-6")
@pytest.mark.parametrize("flag", ["", ";UseDevelopmentEmulator=True", ";UseDevelopmentEmulator=false"])
def test_connection_strings_without_the_emulator_flag_use_tls_on_5671(flag: str) -> None:
    namespace = parse(f"endpoint=sb://contoso.servicebus.windows.net/;{KEY}{flag}")

    assert (namespace.port, namespace.uses_tls) == (5671, True)


def test_a_custom_endpoint_changes_the_dialled_address_and_not_the_namespace() -> None:
    namespace = parse(f"Endpoint=sb://contoso.example/;{KEY}").dial_at("127.0.0.1:9000")

    assert (namespace.host, namespace.port) == ("127.0.0.1", 9000)
    assert namespace.audience("q") == "sb://contoso.example/q"


async def test_a_given_signature_is_used_with_its_own_expiry() -> None:
    token = await parse(f"Endpoint=sb://c/;{SIGNATURE}").tokens.token("sb://c/orders")

    assert token.text.startswith("SharedAccessSignature sr=")
    assert token.expires == 1_893_456_000
    assert "S3cret" not in repr(token)


@pytest.mark.spec("S-1")
def test_the_published_signature_vector_is_reproduced() -> None:
    token = sign(
        "sb://contoso.servicebus.windows.net/orders",
        "Root",
        "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE=",
        1_893_456_000,
    )
    assert "sig=CVi%2Fl3eCfBw31xDEndK8WCjbno6aksWua5PfKXruqEs%3D" in token


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        (KEY, "Endpoint"),
        ("Endpoint=sb:///;" + KEY, "host"),
        ("Endpoint=sb://c/", "SharedAccessKeyName"),
        ("Endpoint=sb://c/;SharedAccessKeyName=Root", "SharedAccessKey"),
        (f"Endpoint=sb://c/;{KEY};{SIGNATURE}", "both"),
        ("Endpoint=sb://c/;Endpoint=sb://d/;" + KEY, "twice"),
        ("Endpoint=sb://c/;S3cret;" + KEY, "="),
        ("Endpoint=sb://c:port/;" + KEY, "address"),
    ],
)
def test_an_unusable_connection_string_is_explained_without_its_secret(text: str, says: str) -> None:
    with pytest.raises(ConnectionStringError, match=says) as raised:
        parse(text)
    assert "S3cret" not in str(raised.value)


def test_the_secret_is_not_in_the_repr() -> None:
    assert "S3cret" not in repr(parse(f"Endpoint=sb://c/;{KEY}")) + repr(
        parse(f"Endpoint=sb://c/;{SIGNATURE}")
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        KEY,
        "Endpoint=contoso;" + KEY,
        "Endpoint=sb://c:0/;" + KEY,
        "Endpoint=sb://c/",
        "Endpoint=sb://c/;SharedAccessKeyName=Root",
        f"Endpoint=sb://c/;{KEY};{SIGNATURE}",
        "Endpoint=sb://c/;Endpoint=sb://d/;" + KEY,
    ],
)
def test_client_syphon_and_command_line_refuse_the_same_strings_for_the_same_reason(text: str) -> None:
    """There is one checker; each of them only says which string it means."""
    good, said = f"Endpoint=sb://other/;{KEY}", []
    with pytest.raises(ConnectionStringError) as of_syphon:
        parse(text)
    said.append(str(of_syphon.value).replace("the connection string", "it"))
    with pytest.raises(ConnectionStringError) as of_client:
        PairedServiceBusClient.from_connection_strings(text, good)
    said.append(str(of_client.value).replace("the primary connection string", "it"))
    with pytest.raises(ConfigurationError) as of_command:
        parse_fields(text, "--primary")
    said.append(str(of_command.value).split("; expected")[0].replace("--primary", "it"))
    assert len(set(said)) == 1, said
