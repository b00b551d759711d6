"""Sockets, clocks and the broker's thread: they carry the pure frontends to real clients and decide nothing."""

from __future__ import annotations

from .broker import Broker
from .control import NamespaceControl

__all__ = ["Broker", "NamespaceControl"]
