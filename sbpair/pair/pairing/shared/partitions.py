"""Creating an entity where the namespace decides whether it is partitioned (Premium)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from azure.core.exceptions import HttpResponseError

Created = TypeVar("Created")

ONLY_PARTITIONED = "non-partitioned entities are not allowed"
"""A part of the service's refusal, in lower case: the namespace is a partitioned Premium one."""


def create_as_the_namespace_asks(create: Callable[[bool | None], Created]) -> Created:
    """Call ``create`` with None, and again with True if the namespace has partitioned entities only.

    ``create`` passes its argument on as ``enable_partitioning``; None leaves the choice to the namespace. The
    administration API does not tell whether a namespace is partitioned, except by refusing the first call. Raises the
    errors of ``create``.
    """
    try:
        return create(None)
    except HttpResponseError as refusal:
        if ONLY_PARTITIONED not in str(refusal).casefold():
            raise
    return create(True)
