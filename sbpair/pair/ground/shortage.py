"""Shortages of this machine: no descriptor, buffer or memory is free. They say nothing about a broker."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Iterator

_LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def is_shortage(errors: Iterable[BaseException]) -> bool:
    """Whether one of these errors is due to a local resource shortage.

    A failed name resolution may be due to one: without a free file descriptor, the resolver reports that the name is
    unknown or that a resource is busy. In that case this function tries to open a descriptor.
    """
    for error in errors:
        if isinstance(error, OSError) and error.errno in _LACKING:
            return True
        if isinstance(error, socket.gaierror) or (isinstance(error, OSError) and error.errno == errno.EBUSY):
            return lacks_descriptor()
    return False


def came_of_shortage(error: BaseException) -> bool:
    """Whether the error or one of its causes is a local resource shortage."""
    return is_shortage((error, *causes(error)))


def lacks_descriptor() -> bool:
    """Whether this process or this machine has no free descriptor now."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in _LACKING
    return False


def causes(error: BaseException, before: frozenset[int] = frozenset()) -> Iterator[BaseException]:
    """Yield the exceptions that this one wraps, nearest first, then those of its ``__context__``.

    Exceptions whose ``id`` is in ``before`` are skipped.
    """
    seen: set[int] = {id(error), *before}
    wrapped: list[object] = _wrapped_errors(error)
    contexts: list[object] = [error.__context__]
    while wrapped or contexts:
        inner = (wrapped or contexts).pop(0)
        if isinstance(inner, BaseException) and id(inner) not in seen:
            seen.add(id(inner))
            yield inner
            wrapped += _wrapped_errors(inner)
            contexts.append(inner.__context__)


def _wrapped_errors(error: BaseException) -> list[object]:
    """Return the wrapped errors: the attributes in which azure-core, the AMQP layer and Python keep them."""
    named = [getattr(error, "inner_exception", None), getattr(error, "inner_error", None)]
    return [*named, error.__cause__]
