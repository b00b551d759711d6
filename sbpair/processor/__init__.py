"""Receive from an entity on both namespaces of a pair."""

from .message import ReceivedMessage

__all__ = ["ReceivedMessage"]
