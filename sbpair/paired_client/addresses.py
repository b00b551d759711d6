"""The namespaces of a paired client as our own AMQP client reaches them."""

from __future__ import annotations

from azure.servicebus import TransportType

from sbpair.auth.connection_string import NamespaceAccess, at_host, parse
from sbpair.auth.credential import token_source
from sbpair.auth.route import Route
from sbpair.pairing.address import Access, proxy_url


def address_of(access: Access) -> NamespaceAccess:
    """The namespace of one side and the route to it, with the client's credential and settings (C-18)."""
    settings = access.settings
    over_websocket = settings.http_proxy is not None
    over_websocket = over_websocket or settings.transport_type is TransportType.AmqpOverWebsocket
    route = Route(
        settings.connection_verify,
        over_websocket,
        None if settings.http_proxy is None else proxy_url(settings.http_proxy),
        settings.ssl_context,
    )
    return _namespace(access).along(route)


def _namespace(access: Access) -> NamespaceAccess:
    if access.connection_string is not None:
        namespace = parse(access.connection_string)
    else:
        credential = access.credential
        assert credential is not None  # noqa: S101  (a side has one or the other)
        namespace = at_host(access.endpoint, token_source(credential), uses_tls=access.use_tls)
    address = access.custom_endpoint_address
    return namespace if address is None else namespace.dial_at(address)
