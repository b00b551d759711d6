"""The API of a paired client compared with the SDK's classes, and of the blocking client with the asyncio one."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable

import azure.servicebus
import azure.servicebus.aio
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage, TransportType

import sbpair
import sbpair.aio
from sbpair.pair.auth.route import Route
from tests.pair.runtimes import runtime_of

SKINS = {
    "blocking": (sbpair, azure.servicebus),
    "asyncio": (sbpair.aio, azure.servicebus.aio),
}

# Members of the SDK's class that the paired client lacks, with the reason.
NOT_OURS = {
    "PairedServiceBusClient": {
        "from_connection_string": "a pair has two: from_connection_strings; stand_in() has it for libraries",
    },
    "PairedServiceBusSender": {},
}
# Additional members of the paired client.
ONLY_OURS = {
    "PairedServiceBusClient": {
        "between",
        "fail_over",
        "from_connection_strings",
        "from_environment",
        "get_queue_processor",
        "get_subscription_processor",
        "hold",
        "mark_path_healthy",
        "on_event",
        "pings_sent",
        "primary",
        "release",
        "secondary",
        "count_spooled",
        "stand_in",
        "state_of",
    },
    "PairedServiceBusSender": set(),
}
# Parameters that the paired client leaves out, with the reason.
LEFT_OUT = {
    "kwargs": "ours are named: a misspelt one is an error, not a warning",
    "args": "ours are named",
}
PAIRED = {"PairedServiceBusClient": "ServiceBusClient", "PairedServiceBusSender": "ServiceBusSender"}
DUNDERS = {
    "blocking": ["__enter__", "__exit__", "__str__"],
    "asyncio": ["__aenter__", "__aexit__", "__str__"],
}
# The SDK sets these in __init__, so the class does not show them.
IN_INSTANCES = {
    "PairedServiceBusClient": {"fully_qualified_namespace"},
    "PairedServiceBusSender": {"entity_name", "fully_qualified_namespace"},
}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def parameters(member: object) -> dict[str, inspect.Parameter]:
    assert callable(member)
    return dict(inspect.signature(member).parameters)


def classes(skin: str, ours: str) -> tuple[type, type]:
    module, sdk = SKINS[skin]
    return getattr(module, ours), getattr(sdk, PAIRED[ours])


@pytest.mark.parametrize("ours", PAIRED)
@pytest.mark.parametrize("skin", SKINS)
def test_every_name_of_the_sdk_exists_or_its_absence_has_a_reason(skin: str, ours: str) -> None:
    paired, sdk = (
        getattr(module, name) for module, name in zip(SKINS[skin], (ours, PAIRED[ours]), strict=True)
    )
    assert public(sdk) - public(paired) == NOT_OURS[ours].keys()
    assert public(paired) - public(sdk) - IN_INSTANCES[ours] == ONLY_OURS[ours]


@pytest.mark.parametrize("ours", PAIRED)
@pytest.mark.parametrize("skin", SKINS)
def test_every_method_accepts_the_parameters_of_the_sdk(skin: str, ours: str) -> None:
    paired, sdk = (
        getattr(module, name) for module, name in zip(SKINS[skin], (ours, PAIRED[ours]), strict=True)
    )
    for name in sorted(public(sdk) & public(paired)):
        theirs, mine = inspect.getattr_static(sdk, name), inspect.getattr_static(paired, name)
        assert isinstance(theirs, property) == isinstance(mine, property), name
        if isinstance(theirs, property):
            continue
        asked, taken = parameters(theirs), parameters(mine)
        assert list(asked.keys() - taken.keys() - LEFT_OUT.keys()) == [], name
        for parameter in asked.keys() & taken.keys():
            assert asked[parameter].kind is taken[parameter].kind, (name, parameter)
            assert asked[parameter].default == taken[parameter].default, (name, parameter)
        assert inspect.iscoroutinefunction(theirs) == inspect.iscoroutinefunction(mine), name


@pytest.mark.parametrize("ours", PAIRED)
@pytest.mark.parametrize("skin", SKINS)
def test_clients_and_senders_are_context_managers_like_those_of_the_sdk(skin: str, ours: str) -> None:
    paired = getattr(SKINS[skin][0], ours)
    for name in DUNDERS[skin]:
        assert callable(getattr(paired, name)), name


@pytest.mark.parametrize("ours", PAIRED)
def test_the_two_clients_differ_only_in_await(ours: str) -> None:
    blocking, asynchronous = getattr(sbpair, ours), getattr(sbpair.aio, ours)
    assert public(blocking) == public(asynchronous)
    for name in public(blocking):
        one, other = inspect.getattr_static(blocking, name), inspect.getattr_static(asynchronous, name)
        if isinstance(one, property):
            assert isinstance(other, property), name
            continue
        one, other = getattr(blocking, name), getattr(asynchronous, name)
        asynchronously = str(inspect.signature(other)).replace("Async", "")  # what is returned, by its name
        assert str(inspect.signature(one)) == asynchronously, name


@pytest.mark.parametrize("ours", PAIRED)
def test_no_method_accepts_undeclared_arguments(ours: str) -> None:
    for module in (sbpair, sbpair.aio):
        kind = getattr(module, ours)
        for name in public(kind):
            member = getattr(kind, name)
            if callable(member):
                kinds = {each.kind for each in parameters(member).values()}
                assert inspect.Parameter.VAR_KEYWORD not in kinds, name


def test_both_modules_export_the_same_names() -> None:
    assert sorted(sbpair.aio.__all__) == sorted(sbpair.__all__)
    differing = {name for name in sbpair.__all__ if getattr(sbpair, name) is not getattr(sbpair.aio, name)}
    assert differing == set(PAIRED)


# What the SDK's constructor calls otherwise, and what it takes without a word in its documentation.
RENAMED = {"fully_qualified_namespace": "primary_namespace", "conn_str": "primary"}
IN_PASSING = {"keep_alive"}  # of a sender or receiver; kombu gives it


def documented(sdk_method: object) -> set[str]:
    """Return the keywords that the SDK documents for a method, many of which pass through **kwargs."""
    return set(re.findall(r":keyword(?: [\w\[\], ~.]+?)? (\w+):", inspect.getdoc(sdk_method) or ""))


@pytest.mark.spec("R-15")
@pytest.mark.parametrize("skin", SKINS)
@pytest.mark.parametrize(
    ("theirs", "ours"), [("__init__", "__init__"), ("from_connection_string", "from_connection_strings")]
)
def test_a_client_is_made_with_every_keyword_of_the_sdk_and_the_same_defaults(
    skin: str, theirs: str, ours: str
) -> None:
    paired, sdk = classes(skin, "PairedServiceBusClient")
    asked, taken = parameters(getattr(sdk, theirs)), parameters(getattr(paired, ours))
    names = (
        asked.keys() | documented(sdk if theirs == "__init__" else getattr(sdk, theirs))
    ) - LEFT_OUT.keys()
    assert {"try_timeout", "uamqp_transport", "http_proxy", "ssl_context"} <= names  # the reading works
    assert {RENAMED.get(name, name) for name in names} - taken.keys() == set()
    for name in asked.keys() & taken.keys():
        assert asked[name].default == taken[name].default, name


@pytest.mark.spec("R-15")
@pytest.mark.parametrize("skin", SKINS)
@pytest.mark.parametrize(
    "method", ["get_queue_sender", "get_topic_sender", "get_queue_receiver", "get_subscription_receiver"]
)
def test_senders_and_receivers_take_every_keyword_of_the_sdk(skin: str, method: str) -> None:
    paired, sdk = classes(skin, "PairedServiceBusClient")
    names = parameters(getattr(sdk, method)).keys() | documented(getattr(sdk, method)) | IN_PASSING
    assert names - LEFT_OUT.keys() - parameters(getattr(paired, method)).keys() == set()


@pytest.mark.spec("R-15")
@pytest.mark.parametrize("skin", SKINS)
def test_proxy_authority_transport_and_tls_can_differ_for_the_secondary(skin: str) -> None:
    paired = SKINS[skin][0].PairedServiceBusClient
    client = paired(
        "contoso.servicebus.windows.net",
        "fabrikam.servicebus.windows.net",
        KEY,
        http_proxy={"proxy_hostname": "proxy", "proxy_port": 8080},
        connection_verify="one.pem",
        secondary_http_proxy=None,
        secondary_transport_type=TransportType.AmqpOverWebsocket,
        secondary_connection_verify="other.pem",
        secondary_use_tls=False,
    )
    one, other = (side.access() for side in runtime_of(client).namespaces)
    assert (one.route, one.uses_tls) == (Route("one.pem", True, "http://proxy:8080"), True)
    assert (other.route, other.uses_tls) == (Route("other.pem", True), False)
    same = paired("contoso", "fabrikam", KEY, connection_verify="one.pem", use_tls=False)
    one, other = (side.access() for side in runtime_of(same).namespaces)
    assert (one.route, one.uses_tls) == (other.route, other.uses_tls)
    for each in (client, same):
        ended(each)


KEY = AzureNamedKeyCredential("name", "key")
KEYED = "SharedAccessKeyName=name;SharedAccessKey=key"
BOTH = f"Endpoint=sb://contoso/;{KEYED}", f"Endpoint=sb://fabrikam/;{KEYED}"
BAD_CLIENTS: dict[str, dict[str, object]] = {
    "a try_timeout of zero": {"try_timeout": 0},
    "a try_timeout without an end": {"try_timeout": float("inf")},
    "an unknown retry_mode": {"retry_mode": "now and then"},
    "a transport that is not installed": {"uamqp_transport": True},
}
BAD_RECEIVERS: dict[str, dict[str, object]] = {
    "a session of a sub-queue": {"session_id": "s", "sub_queue": "deadletter"},
    "an unknown sub-queue": {"sub_queue": "nowhere"},
    "an unknown mode": {"receive_mode": "loudly"},
    "no time to wait": {"max_wait_time": 0},
    "a negative prefetch": {"prefetch_count": -1},
}
BAD_SENDS: dict[str, tuple[object, dict[str, object]]] = {
    "text": ("an order", {}),
    "a number": (7, {}),
    "a list of text": (["an order"], {}),
    "a mapping that is no message": ({"nonsense": 1}, {}),
    "no time": (ServiceBusMessage("x"), {"timeout": 0}),
    "less than no time": (ServiceBusMessage("x"), {"timeout": -1}),
}


def ended(client: object) -> None:
    closing = client.close()  # type: ignore[attr-defined]
    if inspect.isawaitable(closing):
        asyncio.run(closing)


def raised_by(call: Callable[[], object]) -> type[BaseException] | None:
    """Return the error that a call raises, awaiting it if necessary, or None."""

    async def awaited(answer: object) -> None:
        await answer  # type: ignore[misc]

    try:
        answer = call()
        if inspect.isawaitable(answer):
            asyncio.run(awaited(answer))
    except Exception as error:
        return type(error)
    return None


@pytest.mark.spec("R-15")
@pytest.mark.parametrize("keywords", BAD_CLIENTS.values(), ids=BAD_CLIENTS)
@pytest.mark.parametrize("skin", SKINS)
def test_a_client_that_the_sdk_refuses_is_refused_with_the_same_error(
    skin: str, keywords: dict[str, object]
) -> None:
    paired, sdk = classes(skin, "PairedServiceBusClient")
    theirs = raised_by(lambda: sdk.from_connection_string(BOTH[0], **keywords))
    assert theirs is not None
    assert raised_by(lambda: paired.from_connection_strings(*BOTH, **keywords)) is theirs


@pytest.mark.spec("R-15")
@pytest.mark.parametrize("keywords", BAD_RECEIVERS.values(), ids=BAD_RECEIVERS)
@pytest.mark.parametrize("skin", SKINS)
def test_a_receiver_that_the_sdk_refuses_is_refused_with_the_same_error(
    skin: str, keywords: dict[str, object]
) -> None:
    paired, sdk = classes(skin, "PairedServiceBusClient")
    client, own = paired.from_connection_strings(*BOTH), sdk.from_connection_string(BOTH[0])
    theirs = raised_by(lambda: own.get_queue_receiver("orders", **keywords))
    assert raised_by(lambda: client.get_queue_receiver("orders", **keywords)) is theirs
    ended(client)


@pytest.mark.spec("R-15")
@pytest.mark.parametrize("given", BAD_SENDS.values(), ids=BAD_SENDS)
@pytest.mark.parametrize("skin", SKINS)
def test_a_send_that_the_sdk_refuses_is_refused_with_the_same_error(
    skin: str, given: tuple[object, dict[str, object]]
) -> None:
    paired, sdk = classes(skin, "PairedServiceBusClient")
    client, own = paired.from_connection_strings(*BOTH), sdk.from_connection_string(BOTH[0])
    message, keywords = given
    theirs = raised_by(lambda: own.get_queue_sender("orders").send_messages(message, **keywords))
    assert theirs is not None
    assert raised_by(lambda: client.get_queue_sender("orders").send_messages(message, **keywords)) is theirs
    ended(client)
