"""Which namespace does a client mean that has come by a port of several?

    sasl-init with a host name, or ``open``     the one of that name
    SASL PLAIN, and no name that means one      the one that alone has the policy and the key

A key that several have leaves it to the host name of ``open``; one that nobody has is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..namespace_face import NamespaceFace
from .claims import Claims


class SharedPort(Protocol):
    """Moves its client's connection to a namespace."""

    def faces(self) -> Sequence[NamespaceFace]:
        """All namespaces of the port."""

    def move(self, hostname: str | None) -> NamespaceFace | None:
        """From now on the connection is that namespace's; None where the name means none."""


def owners(port: SharedPort, plain: bytes, now_s: int) -> list[NamespaceFace]:
    """The namespaces whose keys a response of SASL PLAIN shows; ``now_s``: epoch seconds."""
    return [face for face in port.faces() if Claims(face.verifier, now_s).put_plain(plain, now_s)]


def names(faces: Sequence[NamespaceFace]) -> str:
    """Their names, for who has to choose."""
    return ", ".join(face.namespace.name for face in faces)
