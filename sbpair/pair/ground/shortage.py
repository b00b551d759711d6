"""Shortages of this machine: no descriptor, buffer or memory is free. They say nothing about a broker."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable

_LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def is_shortage(errors: Iterable[BaseException]) -> bool:
    """Whether one of these errors came of a shortage of this machine.

    A name that is not resolved may be one: without a free descriptor the resolver reads no file and opens no socket,
    and says that the name is unknown, or that something is busy. Then this tries to open a descriptor.
    """
    for error in errors:
        if isinstance(error, OSError) and error.errno in _LACKING:
            return True
        if isinstance(error, socket.gaierror) or (isinstance(error, OSError) and error.errno == errno.EBUSY):
            return _lacks_descriptor()
    return False


def came_of_shortage(error: BaseException) -> bool:
    """Whether this error, or one that it was raised from, came of a shortage of this machine."""
    causes, each = [error], error.__cause__
    while each is not None and each not in causes:
        causes.append(each)
        each = each.__cause__
    return is_shortage(causes)


def _lacks_descriptor() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in _LACKING
    return False
