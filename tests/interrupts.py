"""Exceptions of signals, raised at chosen places of chosen functions."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import CO_GENERATOR
from types import CodeType, FrameType, FunctionType, ModuleType

CALLS = {dis.opmap[name] for name in ("CALL", "CALL_FUNCTION_EX", "CALL_KW") if name in dis.opmap}

Place = Callable[[FrameType, str], bool]
"""Whether an event of the trace, within the functions, is a place."""


class Interrupt(BaseException):
    """Stands for Ctrl-C."""


def at_bytecodes() -> Place:
    """Every bytecode."""
    return lambda _, event: event == "opcode"


def at_signals() -> Place:
    """The places where CPython handles signals: the begin of a call, or its end.

    The end of a call counts as a part of the instruction that calls, so it is the callee that raises.
    """
    latest: dict[FrameType, int] = {}

    def is_place(frame: FrameType, event: str) -> bool:
        if event == "call":
            return True
        if event == "return":  # of a generator it is also each yield, which is no such place
            return not frame.f_code.co_flags & CO_GENERATOR
        if event == "exception":  # a call that raises goes to the handler without a look at signals
            latest[frame] = -1
        if event != "opcode":
            return False
        before, latest[frame] = latest.get(frame, -1), frame.f_code.co_code[frame.f_lasti]
        return before in CALLS

    return is_place


@contextmanager
def interrupted_after(places: int, inside: set[CodeType], is_place: Place) -> Iterator[None]:
    """Raise an Interrupt at the last of so many places of these functions."""
    left = places

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., object] | None:
        nonlocal left
        if frame.f_code not in inside:
            return None
        frame.f_trace_opcodes = True
        if is_place(frame, event):
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def codes_of(thing: object) -> Iterator[CodeType]:
    """The code of all functions of a module, those of its classes and those in functions."""
    for each in vars(thing).values():
        function = getattr(each, "fget", None) or getattr(each, "__func__", None) or each
        if isinstance(function, FunctionType):
            pending = [function.__code__]
            while pending:
                code = pending.pop()
                yield code
                pending += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        elif isinstance(each, type) and isinstance(thing, ModuleType) and each.__module__ == thing.__name__:
            yield from codes_of(each)
