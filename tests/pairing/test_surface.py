"""Is a paired client what its users' fingers know? Compared with the SDK's classes, and skin with skin."""

from __future__ import annotations

import inspect

import azure.servicebus
import azure.servicebus.aio
import pytest

import sbpair
import sbpair.aio

SKINS = {
    "blocking": (sbpair, azure.servicebus),
    "asyncio": (sbpair.aio, azure.servicebus.aio),
}

# What the SDK's class has and ours has not, with the reason.
NOT_OURS = {
    "PairedServiceBusClient": {
        "from_connection_string": "a pair has two: from_connection_strings",
        "list_queue_sessions": "looks at the primary only: ask the SDK's own client",
        "list_subscription_sessions": "looks at the primary only: ask the SDK's own client",
    },
    "PairedServiceBusSender": {},
}
# What ours has beside.
ONLY_OURS = {
    "PairedServiceBusClient": {
        "fail_over",
        "from_connection_strings",
        "hold",
        "mark_path_healthy",
        "on_event",
        "pings_sent",
        "primary",
        "release",
        "secondary",
        "spooled",
        "state_of",
    },
    "PairedServiceBusSender": set(),
}
# Parameters that ours leaves out, with the reason.
LEFT_OUT = {
    "kwargs": "ours are named: a misspelt one is an error, not a warning",
    "args": "ours are named",
    "client_identifier": "a paired sender has many SDK senders over time, each with a name of its own",
    "socket_timeout": "given to the client, for all that it opens",
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
def test_every_name_of_the_sdk_is_there_or_its_absence_has_a_reason(skin: str, ours: str) -> None:
    paired, sdk = (
        getattr(module, name) for module, name in zip(SKINS[skin], (ours, PAIRED[ours]), strict=True)
    )
    assert public(sdk) - public(paired) == NOT_OURS[ours].keys()
    assert public(paired) - public(sdk) - IN_INSTANCES[ours] == ONLY_OURS[ours]


@pytest.mark.parametrize("ours", PAIRED)
@pytest.mark.parametrize("skin", SKINS)
def test_every_method_takes_what_the_sdks_takes(skin: str, ours: str) -> None:
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
            assert asked[parameter].default in (taken[parameter].default, inspect.Parameter.empty) or (
                taken[parameter].default is not inspect.Parameter.empty
            ), (name, parameter)
        assert inspect.iscoroutinefunction(theirs) == inspect.iscoroutinefunction(mine), name


@pytest.mark.parametrize("ours", PAIRED)
@pytest.mark.parametrize("skin", SKINS)
def test_they_are_context_managers_of_the_same_kind(skin: str, ours: str) -> None:
    paired = getattr(SKINS[skin][0], ours)
    for name in DUNDERS[skin]:
        assert callable(getattr(paired, name)), name


@pytest.mark.parametrize("ours", PAIRED)
def test_the_two_skins_differ_in_nothing_but_await(ours: str) -> None:
    blocking, asynchronous = getattr(sbpair, ours), getattr(sbpair.aio, ours)
    assert public(blocking) == public(asynchronous)
    for name in public(blocking):
        one, other = inspect.getattr_static(blocking, name), inspect.getattr_static(asynchronous, name)
        if isinstance(one, property):
            assert isinstance(other, property), name
            continue
        one, other = getattr(blocking, name), getattr(asynchronous, name)
        assert str(inspect.signature(one)) == str(inspect.signature(other)), name


@pytest.mark.parametrize("ours", PAIRED)
def test_no_method_takes_arguments_it_does_not_name(ours: str) -> None:
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
