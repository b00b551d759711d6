"""How the Python drivers address a namespace: plain through the connection string, or TLS to a port."""

from __future__ import annotations

from typing import Any

from azure.servicebus import TransportType


def address(command: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The connection string and the keywords of a client of the SDK."""
    if command["tls_port"] is None:
        return command["connection_string"], {}
    where = f"sb://localhost:{command['tls_port']}"
    keywords = {"custom_endpoint_address": where, "transport_type": TransportType.Amqp}
    return command["connection_string"], {"connection_verify": command["ca_file"], **keywords}
