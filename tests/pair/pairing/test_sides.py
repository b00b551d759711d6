"""The arguments for the SDK for each of the two namespaces."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from azure.core.credentials import AzureSasCredential
from azure.servicebus import TransportType

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.pair.auth.route import Proxy
from sbpair.pair.pairing.decide.retry import RetryPolicy
from sbpair.pair.pairing.shared.address import LinkSettings, SdkNamespace, SdkSettings
from sbpair.syphon import Syphon, SyphonOptions

KEYS = "SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0"
CONTOSO = f"Endpoint=sb://contoso.servicebus.windows.net;{KEYS}"
EMULATOR = f"Endpoint=sb://Localhost:5001;{KEYS};UseDevelopmentEmulator=true"
PROXY = {"proxy_hostname": "proxy.example", "proxy_port": 3128}


def side(text: str = CONTOSO, custom: str | None = None, **settings: Any) -> SdkNamespace:
    return SdkNamespace.from_connection_string("primary", text, SdkSettings(**settings), custom)


def by_credential(endpoint: str = "sb://contoso.servicebus.windows.net/", **settings: Any) -> SdkNamespace:
    return SdkNamespace("secondary", endpoint, SdkSettings(), credential=AzureSasCredential("s"), **settings)


@pytest.mark.spec("R-66")
async def test_both_sdk_clients_get_every_setting_and_no_retries() -> None:
    given = side(
        custom="sb://gate.example:5671", user_agent="tests", socket_timeout=7.5, logging_enable=True,
        transport_type=TransportType.AmqpOverWebsocket, try_timeout=9.0,
    )  # fmt: skip
    for client in (given.client(), given.asyncio_client()):
        config = client._config
        assert config.retry_total == 0
        assert config.user_agent == "tests"
        assert config.socket_timeout == 7.5
        assert config.logging_enable is True
        assert config.transport_type is TransportType.AmqpOverWebsocket
        assert config.custom_endpoint_hostname == "gate.example"
        assert client.fully_qualified_namespace == "contoso.servicebus.windows.net"


@pytest.mark.spec("R-66", "R-7")
async def test_the_sdk_gets_the_retry_policy_where_it_is_to_retry() -> None:
    policy = RetryPolicy(5, 0.25, 30.0, "fixed")
    given = side(retry=policy)
    for client in (given.client(retry_total=None), given.asyncio_client(retry_total=None)):
        config = client._config
        assert (config.retry_total, config.retry_backoff_factor) == (5, 0.25)
        assert config.retry_backoff_max == 30.0
        assert config.retry_mode.value == "fixed"
    assert given.retry is policy


@pytest.mark.spec("R-66")
async def test_a_credential_is_sent_only_to_its_host_over_tls_except_to_an_emulator() -> None:
    for use_tls in (True, False):
        given = by_credential(use_tls=use_tls)
        for client in (given.client(), given.asyncio_client()):
            assert client.fully_qualified_namespace == "contoso.servicebus.windows.net"
            assert client._config.use_tls is use_tls
    with pytest.raises(ValueError, match=r"^the secondary namespace has no host name$"):
        by_credential("sb:///")


@pytest.mark.spec("R-66")
def test_secondary_settings_default_to_those_of_the_primary() -> None:
    from sbpair.pair.pairing.shared.address import SAME

    context = ssl.create_default_context()
    both = SdkSettings(http_proxy=PROXY, ssl_context=context, user_agent="tests")
    assert both.for_secondary(SAME, SAME, SAME, SAME) == both
    other = both.for_secondary(TransportType.AmqpOverWebsocket, None, "other.pem", SAME)
    assert (other.transport_type, other.http_proxy) == (TransportType.AmqpOverWebsocket, None)
    assert (other.connection_verify, other.ssl_context) == ("other.pem", None)  # it would hide the file
    assert other.user_agent == "tests"
    kept = both.for_secondary(SAME, SAME, "other.pem", context)
    assert kept.ssl_context is context


@pytest.mark.spec("R-66")
@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_try_timeout_is_finite_and_positive(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"^try_timeout must be a finite number of seconds above 0, not "):
        SdkSettings(try_timeout=seconds)


@pytest.mark.spec("R-66")
def test_unset_link_settings_are_omitted() -> None:
    assert LinkSettings().keywords() == {}
    given = {"client_identifier": "me", "socket_timeout": 2.0, "keep_alive": 3.0}
    assert LinkSettings(**given).keywords() == given


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    ("text", "custom", "location", "host"),
    [
        (CONTOSO, None, "contoso.servicebus.windows.net", "contoso.servicebus.windows.net"),
        (CONTOSO.replace(".net", ".NET:5671"), None, "contoso.servicebus.windows.net",
         "contoso.servicebus.windows.net"),
        (EMULATOR, None, "localhost:5001", "localhost"),
        (f"Endpoint=sb://[::1];{KEYS}", None, "[::1]", "::1"),
        (CONTOSO, "sb://Gate.example:5671", "gate.example:5671", "gate.example"),
        (CONTOSO, "Gate.example:5671", "gate.example:5671", "gate.example"),
    ],
)  # fmt: skip
def test_two_spellings_of_one_address_are_the_same_location(
    text: str, custom: str | None, location: str, host: str
) -> None:
    assert side(text, custom).location() == location
    assert side(text, custom).hosts() == host
    assert side(text, custom, http_proxy=PROXY).hosts() is None  # the proxy looks it up


@pytest.mark.spec("R-66", "S-6")
def test_the_repr_of_a_namespace_address_contains_no_secret() -> None:
    access = side(custom="sb://gate.example").access()
    assert (access.netloc, access.uses_tls) == ("contoso.servicebus.windows.net", True)
    assert (access.host, access.port) == ("gate.example", 5671)
    assert "c2VjcmV0" not in repr(access)
    secret = {**PROXY, "username": "me", "password": "c2VjcmV0"}
    given = side(http_proxy=secret).access()
    assert given.route.http_proxy == "http://me:c2VjcmV0@proxy.example:3128"
    assert "c2VjcmV0" not in repr(given)


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    ("more", "url"),
    [
        ({}, "http://proxy.example:3128"),
        ({"username": "me", "password": "a/b@c"}, "http://me:a%2Fb%40c@proxy.example:3128"),
        ({"username": "m@e"}, "http://m%40e:@proxy.example:3128"),
        ({"password": "alone"}, "http://proxy.example:3128"),
    ],
)
def test_a_proxy_is_a_url_with_quoted_parts(more: dict[str, str], url: str) -> None:
    assert Proxy.of_settings({**PROXY, **more}).url == url


@pytest.mark.spec("R-66")
def test_a_credential_of_the_other_client_kind_is_refused_by_its_side() -> None:
    class Blocking:
        def get_token(self) -> None: ...

    class Asking:
        async def get_token(self) -> None: ...

    class Neither: ...

    def of(credential: object) -> SdkNamespace:
        return SdkNamespace("primary", "contoso.example", SdkSettings(), credential=credential)  # type: ignore[arg-type]

    of(Blocking()).check_credential(is_asyncio=False)
    of(Asking()).check_credential(is_asyncio=True)
    by_credential().check_credential(is_asyncio=True)
    side().check_credential(is_asyncio=True)
    with pytest.raises(TypeError, match=r"^the primary credential is blocking; with sbpair.aio use one"):
        of(Blocking()).check_credential(is_asyncio=True)
    with pytest.raises(TypeError, match=r"^the primary credential is for asyncio; use the client of sbpair"):
        of(Asking()).check_credential(is_asyncio=False)
    with pytest.raises(
        TypeError, match=r"^the primary credential must be a TokenCredential, .*, not Neither$"
    ):
        of(Neither()).check_credential(is_asyncio=False)


@pytest.mark.spec("X-29")
def test_options_of_the_wrong_type_are_refused_at_once() -> None:
    primary, secondary = CONTOSO, CONTOSO.replace("contoso.", "contoso-dr.")
    for wrong in ({"failover_interval": 1}, SyphonOptions()):
        with pytest.raises(
            TypeError, match=f"^options must be PairedNamespaceOptions, not {type(wrong).__name__}$"
        ):
            PairedServiceBusClient.from_connection_strings(primary, secondary, options=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^options must be SyphonOptions, not PairedNamespaceOptions$"):
        Syphon.from_connection_strings(primary, secondary, options=PairedNamespaceOptions())  # type: ignore[arg-type]
    with (
        PairedServiceBusClient.from_connection_strings(primary, secondary) as client,
        pytest.raises(TypeError, match=r"^options must be ProcessorOptions, not dict$"),
    ):
        client.get_queue_processor("orders", print, options={"deduplicate": 1})  # type: ignore[arg-type]
