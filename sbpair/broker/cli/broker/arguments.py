"""Parameter types of `sbpair broker`: namespaces, queues, topics, partitions and the address of the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import click

from sbpair.pair.cli.parameters import read_setting

if TYPE_CHECKING:
    from sbpair.broker import QueueDescription, SubscriptionDescription, TopicDescription
    from sbpair.broker.entities.descriptions import AnyDescription

SUBSCRIPTIONS = re.compile("/subscriptions/", re.IGNORECASE)
PARTITIONED, PARTITIONING = "partitioned", "enable_partitioning"
OFF = "off"
ANYWHERE_FREE = "127.0.0.1:0"
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", re.ASCII)
NAME = re.compile("[A-Za-z][A-Za-z0-9-]{0,49}")  # as the service's, except for its minimum length


class NamespaceAtPort(click.ParamType[tuple[str, int]]):
    """`contoso:5672`; port 0 takes any free one."""

    name = "name:port"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        name, _, port = value.rpartition(":")
        if not NAME.fullmatch(name) or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(
                f"{value!r} is not NAME:PORT with a port from 0 to 65535, e.g. contoso:5672", param, ctx
            )
        return name, int(port)


class HostName(click.ParamType[str]):
    """A host name or an address, without a port."""

    name = "host"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not HOST.fullmatch(value):
            self.fail(f"{value!r:.60} is not a host name or an address, without a port", param, ctx)
        return value


class PartitionsOfNamespace(click.ParamType[tuple[str, int]]):
    """`contoso:4`: a Premium namespace of 1, 2 or 4 partitions."""

    name = "name:partitions"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        name, _, count = value.rpartition(":")
        if count not in ("1", "2", "4") or not name:
            self.fail(f"{value!r} is not NAME:1, NAME:2 or NAME:4", param, ctx)
        return name, int(count)


class QueueAtStart(NamedTuple):
    """A queue that --queue names."""

    namespace: str
    path: str
    description: QueueDescription


class TopicAtStart(NamedTuple):
    """A topic that --topic names, and its subscription if it names one."""

    namespace: str
    path: str
    description: TopicDescription
    subscription: str | None
    of_subscription: SubscriptionDescription


class QueueInNamespace(click.ParamType[QueueAtStart]):
    """`contoso/orders`, or with settings `contoso/carts,max_delivery_count=3,partitioned`."""

    name = "namespace/queue[,setting=value]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> QueueAtStart:
        path, settings = _path_and_settings(value)
        namespace, _, queue = path.partition("/")
        if not namespace or not queue:
            self.fail(f"{value!r} is not NAMESPACE/QUEUE or NAMESPACE/QUEUE,SETTING=VALUE", param, ctx)
        from sbpair.broker import BrokerError, QueueDescription

        try:
            return QueueAtStart(namespace, queue, _describe(QueueDescription, path, settings))
        except BrokerError as error:
            self.fail(str(error), param, ctx)


class TopicInNamespace(click.ParamType[TopicAtStart]):
    """`contoso/events`, or `contoso/events/Subscriptions/billing`; settings apply to the last name in the path."""

    name = "namespace/topic[/Subscriptions/name][,setting=value]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> TopicAtStart:
        path, settings = _path_and_settings(value)
        namespace, _, rest = path.partition("/")
        topic, *names = SUBSCRIPTIONS.split(rest, maxsplit=1)
        if not namespace or not topic or names == [""]:
            self.fail(
                f"{value!r} is not NAMESPACE/TOPIC or NAMESPACE/TOPIC/Subscriptions/NAME",
                param,
                ctx,
            )
        from sbpair.broker import BrokerError, SubscriptionDescription, TopicDescription

        of_topic = {each: settings.pop(each) for each in list(settings) if not names or each == PARTITIONING}
        try:
            return TopicAtStart(
                namespace,
                topic,
                _describe(TopicDescription, path, of_topic),
                names[0] if names else None,
                _describe(SubscriptionDescription, path, settings),
            )
        except BrokerError as error:
            self.fail(str(error), param, ctx)


def _path_and_settings(value: str) -> tuple[str, dict[str, object]]:
    path, *words = value.split(",")
    settings = (f"{PARTITIONING}=true" if each == PARTITIONED else each for each in words)
    return path, dict(read_setting(each, f"{path}: ") for each in settings)


def _describe(kind: type[AnyDescription], path: str, settings: dict[str, object]) -> AnyDescription:
    """Return the description with these settings, which are the keys of a configuration file.

    Raises BadConfigurationError.
    """
    if not settings:
        return kind()
    from sbpair.broker.configuration.table import Table

    table = Table(path, "", settings)
    found = table.description(kind)
    table.end()
    return found


class PageAddress(click.ParamType[tuple[str, int] | None]):
    """`127.0.0.1:8080`, `[::1]:0`, or `off` (None)."""

    name = "host:port|off"

    def convert(
        self,
        value: str | tuple[str, int] | None,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, int] | None:
        if not isinstance(value, str):
            return value
        if value == OFF:
            return None
        host, _, port = value.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT, e.g. 127.0.0.1:8080, nor off", param, ctx)
        return host.removeprefix("[").removesuffix("]"), int(port)
