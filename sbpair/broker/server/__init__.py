"""Sockets, clocks and the broker's thread: the I/O that connects clients to the frontends."""

from __future__ import annotations

from .broker import Broker
from .control import NamespaceControl

__all__ = ["Broker", "NamespaceControl"]
