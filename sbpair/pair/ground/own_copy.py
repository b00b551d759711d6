"""Copies of an error that is raised in several callers."""

from __future__ import annotations

import copy
from typing import TypeVar

ErrorT = TypeVar("ErrorT", bound=BaseException)


def own_copy(error: ErrorT) -> ErrorT:
    """Return a copy of an error that several calls raise, so that each raises its own object.

    Returns ``error`` itself if it cannot be copied.
    """
    try:
        copied = copy.copy(error)
    except Exception:  # of any type: the class belongs to another library
        try:  # without its constructor, which takes other arguments
            copied = type(error).__new__(type(error), *error.args)
            vars(copied).update(vars(error))
        except Exception:
            return error
    copied.__cause__, copied.__context__ = error.__cause__, error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied
