"""The resource manager of the tests: there is one group, and nothing to pay for."""

from types import SimpleNamespace


class _Groups:
    def create_or_update(self, name: str, parameters: object) -> SimpleNamespace:
        return SimpleNamespace(name=name, id=name)

    def begin_delete(self, name: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(result=lambda: None, wait=lambda _: None, done=lambda: True)


class ResourceManagementClient:
    """Groups of resources."""

    def __init__(self) -> None:
        self.resource_groups = _Groups()
