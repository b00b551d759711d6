"""What the SDK's tests import of Azure's test tools, for a broker on this machine: always live, never played.

A preparer is a decorator: it makes a resource, gives it to the test by keyword, and removes it afterwards.
Nothing is kept from one test to the next, "cached" or not: each begins with entities of its own.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Any

from tests.trials.live.cloud import TESTED, AsyncCredential, the_cloud
from tests.trials.live.resolver import SUFFIX

_NUMBERS = itertools.count(1)
_SUPPLIED = "__supplied_by_preparers__"

Function = Callable[..., Any]


class AzureTestError(Exception):
    """A preparer cannot go on."""


class ReservedResourceNameError(Exception):
    """The name is one that Azure keeps to itself."""


class FakeResource:
    """Something with a name and an id."""

    def __init__(self, name: str, id: str) -> None:
        self.name = name
        self.id = id


class AzureRecordedTestCase:
    """The base of the test classes."""

    is_live = True

    @staticmethod
    def await_prepared_test(function: Function) -> Function:
        """Theirs awaits what preparers would not; ours await themselves."""
        return function


class AzureMgmtRecordedTestCase(AzureRecordedTestCase):
    """The base of those that have preparers."""


class AzureMgmtPreparer:
    """The base of the preparers: subclasses have `create_resource` and `remove_resource`."""

    is_live = True

    def __init__(
        self,
        name_prefix: str = "",
        random_name_length: int = 24,
        playback_fake_resource: object = None,
        disable_recording: bool = True,
        client_kwargs: Mapping[str, object] | None = None,
        random_name_enabled: bool = False,
    ) -> None:
        self.name_prefix = name_prefix
        self.random_name_length = random_name_length
        self.random_name_enabled = random_name_enabled
        self.resource_moniker = name_prefix
        self.resource: Any = None
        self.test_class_instance: Any = None

    @property
    def moniker(self) -> str:
        return self.resource_moniker

    def set_cache(self, enabled: bool, *key: object) -> None:
        """Nothing is cached."""

    def create_mgmt_client(self, client: Callable[[], Any], **_: object) -> Any:
        return client()

    def create_resource(self, name: str, **kwargs: Any) -> dict[str, Any]:
        raise NotImplementedError

    def remove_resource(self, name: str, **kwargs: Any) -> None:
        """Nothing to remove."""

    def __call__(self, function: Function) -> Function:
        def prepared(instance: object, kwargs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
            self.test_class_instance = instance
            name = f"{self.name_prefix}{os.getpid()}-{next(_NUMBERS)}"
            return name, kwargs | self.create_resource(name, **kwargs)

        return _wrapped(function, prepared, self.remove_resource)


class ResourceGroupPreparer(AzureMgmtPreparer):
    """A resource group, of which there is but one."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def create_resource(self, name: str, **kwargs: Any) -> dict[str, Any]:
        return {"resource_group": FakeResource(name, name), "location": "here"}


CachedResourceGroupPreparer = RandomNameResourceGroupPreparer = ResourceGroupPreparer


class PowerShellPreparer(AzureMgmtPreparer):
    """What a script has deployed before the tests: a namespace, and nothing in it."""

    def __init__(self, service: str, **wanted: str) -> None:
        super().__init__()
        self._wanted = wanted

    def create_resource(self, name: str, **kwargs: Any) -> dict[str, Any]:
        cloud = the_cloud()
        policy, key = cloud.key()
        deployed = {
            "servicebus_connection_str": cloud.connection_string(policy, key),
            "servicebus_fully_qualified_namespace": f"{TESTED}{SUFFIX}",
            "servicebus_sas_policy": policy,
            "servicebus_sas_key": key,
        }
        return {name: deployed[name] for name in self._wanted if name in deployed}


def recorded_by_proxy(function: Function) -> Function:
    """Nothing is recorded."""
    return function


def get_region_override(default: str) -> str:
    return default


def get_credential(is_async: bool = False) -> Any:
    """What azure-identity would find."""
    credential = the_cloud().credential()
    return AsyncCredential(credential) if is_async else credential


def add_general_regex_sanitizer(**_: object) -> None:
    """Nothing is recorded."""


def set_custom_default_matcher(**_: object) -> None:
    """Nothing is played back."""


def _wrapped(
    function: Function,
    prepare: Callable[[object, dict[str, Any]], tuple[str, dict[str, Any]]],
    remove: Callable[..., None],
) -> Function:
    """`function`, prepared; for pytest it has the parameters that are left, and the same marks."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(instance: object, *args: Any, **kwargs: Any) -> None:
            name, given = prepare(instance, kwargs)
            try:
                await function(instance, *args, **_accepted(function, given))
            finally:
                remove(name, **given)

    else:

        @functools.wraps(function)
        def wrapper(instance: object, *args: Any, **kwargs: Any) -> None:
            name, given = prepare(instance, kwargs)
            try:
                function(instance, *args, **_accepted(function, given))
            finally:
                remove(name, **given)

    parameters = inspect.signature(function).parameters.values()
    kept = [one for one in parameters if not one.name.startswith("servicebus_")]
    wrapper.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
    setattr(wrapper, _SUPPLIED, function)
    return wrapper


def _accepted(function: Function, given: dict[str, Any]) -> dict[str, Any]:
    inner = getattr(function, _SUPPLIED, None)
    if inner is not None:  # another preparer: it hands on what it was given
        return given
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return given
    names = {one.name for one in parameters}
    return {name: value for name, value in given.items() if name in names}


__all__ = [name for name in globals() if not name.startswith("_") and name != "Any"]
