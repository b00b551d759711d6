"""The base class of the errors raised while sending, and the error of parking itself."""

from __future__ import annotations

from collections.abc import Mapping

from azure.servicebus.exceptions import ServiceBusError

_OF_THIS_PROCESS = frozenset({"inner_exception", "exc_type", "exc_value", "exc_traceback"})  # azure-core's
_PLAIN = (str, int, float, bool, type(None))

_Parts = tuple[type[BaseException], tuple[object, ...], dict[str, object]]


class PairingError(ServiceBusError):
    """The base of everything sbpair itself raises while sending.

    Instances can be pickled, for example by a process pool. SDK errors in ``causes`` keep their type and text.
    """

    def __reduce__(self) -> tuple[object, _Parts]:
        kept = {name: value for name, value in vars(self).items() if name not in _OF_THIS_PROCESS}
        if "causes" in kept:
            kept["causes"] = [_parts(cause) for cause in kept["causes"]]
        return _rebuild, (type(self), self.args, kept)


class ReservedPropertyError(PairingError):
    """An application property uses a name reserved for parking; nothing was sent."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The application property {name!r} is reserved for parked messages; rename it. Nothing was sent."
        )
        self.name = name


def _parts(error: BaseException) -> _Parts:
    """Return the parts of any error that can be pickled."""
    kept: dict[str, object] = {
        name: value for name, value in vars(error).items() if isinstance(value, _PLAIN)
    }
    return type(error), tuple(each if isinstance(each, _PLAIN) else str(each) for each in error.args), kept


def _rebuild(
    kind: type[BaseException], args: tuple[object, ...], state: Mapping[str, object]
) -> BaseException:
    """Rebuild a pickled error without its ``__init__``, which would compose a different text."""
    error = kind.__new__(kind, *args)
    vars(error).update(dict.fromkeys(_OF_THIS_PROCESS), **state)
    causes = state.get("causes")
    if isinstance(causes, list):
        vars(error)["causes"] = tuple(_rebuild(*parts) for parts in causes)
    return error
