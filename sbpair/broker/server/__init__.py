"""Sockets, clocks and a thread: what carries the pure faces to real clients. Nothing is decided here."""

from __future__ import annotations

from .broker import Broker
from .control import NamespaceControl

__all__ = ["Broker", "NamespaceControl"]
