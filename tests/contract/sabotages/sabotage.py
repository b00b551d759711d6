"""What a sabotage is: one way to behave otherwise, and what the entries say that find it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from pkgutil import resolve_name
from unittest.mock import patch

from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import Broker, Effect, ManualClock
from sbpair.contract.entry import Entity, Entry, Queue, Subscription, Topic
from sbpair.contract.target import Target
from tests.contract.conftest import NAMES, over

DEFAULTS = {kind: kind() for kind in (Queue, Topic, Subscription)}
Administration = Callable[[ServiceBusAdministrationClient], ServiceBusAdministrationClient]


class Around:
    """A patch that is handed what it replaces, before its other arguments."""

    def __init__(self, act: Callable[..., object]) -> None:
        self._act = act

    def __call__(self, original: Callable[..., object]) -> Callable[..., object]:
        def patched(*given: object, **named: object) -> object:
            return self._act(original, *given, **named)

        return patched


@dataclass(frozen=True, slots=True)
class Sabotage:
    """One way to behave otherwise."""

    shows: Mapping[str, str]
    """The entries that it shows to be able to fail, each with a part of what it says then."""

    patches: Mapping[str, object] = field(default_factory=dict)
    """What takes the place of parts of the broker, by their dotted name."""

    effect: Effect | None = None
    operation: str | None = None
    ignores: tuple[str, ...] = ()
    """Settings of entities that are as if they had not been asked for."""

    stands: bool = False
    """The clock of the broker stands."""

    is_open: bool = False
    """The broker takes any token."""

    administration: Administration | None = None
    """What takes the place of the administration API."""

    over_tls: bool = False
    """The namespaces are reached over TLS."""

    @contextmanager
    def broker(self, directory: Path) -> Iterator[Broker]:
        """A broker at which it is at work; certificates are in ``directory``."""
        with ExitStack() as stack:
            for name, other in self.patches.items():
                made = other(resolve_name(name)) if isinstance(other, Around) else other
                stack.enter_context(patch(name, made))
            broker = stack.enter_context(
                Broker(
                    dict.fromkeys(NAMES.values(), 0),
                    tls_directory=directory,
                    clock=ManualClock() if self.stands else None,
                    open_access=self.is_open,
                )
            )
            if self.effect is not None:
                for name in NAMES.values():
                    namespace = broker.namespace(name)
                    stack.enter_context(namespace.fault(None, self.effect, operation=self.operation))
            yield broker

    def target(self, target: Target) -> Target:
        target = over(target, tls=self.over_tls)
        if self.administration is None:
            return target
        make, other = target.administration, self.administration
        return replace(target, administration=lambda exchanged=None: other(make(exchanged)))

    def entry(self, each: Entry) -> Entry:
        """The entry, with entities that lack what is ignored."""
        return replace(each, entities=tuple(self._entity(entity) for entity in each.entities))

    def _entity(self, entity: Entity) -> Entity:
        known = {each.name for each in fields(entity)}
        default = DEFAULTS[type(entity)]
        return replace(entity, **{name: getattr(default, name) for name in self.ignores if name in known})
