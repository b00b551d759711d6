"""Parameter types of `sbpair broker`: namespaces, queues, topics, partitions and the address of the page."""

from __future__ import annotations

import re

import click

SUBSCRIPTIONS = re.compile("/subscriptions/", re.IGNORECASE)
PARTITIONED = ",partitioned"
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


class ParameterType(click.ParamType[tuple[str, str]]):
    """`name=value`, a parameter of a template; the template declares its type."""

    name = "name=value"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        name, equals, text = value.partition("=")
        if not name or not equals:
            self.fail(f"{value!r:.60} is not NAME=VALUE", param, ctx)
        return name, text


class PartitionsOfNamespace(click.ParamType[tuple[str, int]]):
    """`contoso:4`: a Premium namespace of 1, 2 or 4 partitions (Q-2)."""

    name = "name:partitions"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        name, _, count = value.rpartition(":")
        if count not in ("1", "2", "4") or not name:
            self.fail(f"{value!r} is not NAME:1, NAME:2 or NAME:4", param, ctx)
        return name, int(count)


class QueueInNamespace(click.ParamType[tuple[str, str, bool]]):
    """`contoso/orders`, or `contoso/orders,partitioned`."""

    name = "namespace/queue[,partitioned]"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str, bool]:
        path, is_partitioned = _without_partitioned(value)
        namespace, _, queue = path.partition("/")
        if not namespace or not queue or "," in queue:
            self.fail(f"{value!r} is not NAMESPACE/QUEUE or NAMESPACE/QUEUE,partitioned", param, ctx)
        return namespace, queue, is_partitioned


class TopicInNamespace(click.ParamType[tuple[str, str, str | None, bool]]):
    """`contoso/events`, or `contoso/events/Subscriptions/billing`; either may end with `,partitioned`."""

    name = "namespace/topic[/Subscriptions/name][,partitioned]"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str, str | None, bool]:
        whole, is_partitioned = _without_partitioned(value)
        namespace, _, path = whole.partition("/")
        topic, *subscription = SUBSCRIPTIONS.split(path, maxsplit=1)
        if not namespace or not topic or "," in path or subscription == [""]:
            self.fail(
                f"{value!r} is not NAMESPACE/TOPIC or NAMESPACE/TOPIC/Subscriptions/NAME",
                param,
                ctx,
            )
        return namespace, topic, subscription[0] if subscription else None, is_partitioned


def _without_partitioned(value: str) -> tuple[str, bool]:
    path = value.removesuffix(PARTITIONED)
    return path, path != value


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
