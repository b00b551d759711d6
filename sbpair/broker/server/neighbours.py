"""Which of the namespaces behind one port does a client mean? The one whose name begins its host name.

    contoso.servicebus.windows.net, contoso:5672, CONTOSO        contoso
    localhost, 127.0.0.1, nothing                                nobody, unless there is only one

AMQP says it in ``open`` (and may in ``sasl-init``), HTTP in ``Host``.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from ..faces.namespace_face import NamespaceFace


class Neighbour(Protocol):
    """What has a namespace."""

    face: NamespaceFace


N = TypeVar("N", bound=Neighbour)


class Neighbours(Generic[N]):
    """Those who share a port; the first has it."""

    def __init__(self) -> None:
        self.all: list[N] = []

    @property
    def are_several(self) -> bool:
        """Clients must say whom they mean."""
        return len(self.all) > 1

    @property
    def names(self) -> str:
        """The names, for who asked for another."""
        return ", ".join(each.face.namespace.name for each in self.all)

    def named(self, hostname: str | None) -> N | None:
        """Who is meant; None when nobody is."""
        if not self.are_several:
            return self.all[0]
        label = (hostname or "").partition(":")[0].partition(".")[0].casefold()
        return next((each for each in self.all if each.face.namespace.name.casefold() == label), None)
