"""Claims-based security: put a token for a path on the connection's ``$cbs`` node, and hear whether it holds.

The answer's ``status-code`` says 200 or 202, or why not.
"""

from __future__ import annotations

from sbpair.amqp.message import Message
from sbpair.amqp.performatives import Condition
from sbpair.amqp.types import Timestamp

from .credential import Token
from .errors import TokenRefused
from .request import RequestNode

NODE = "$cbs"

# status-code: the condition that says the same on a link
CONDITIONS = {
    401: "amqp:unauthorized-access",
    403: "amqp:unauthorized-access",
    404: "amqp:not-found",
    408: "com.microsoft:timeout",
    503: "com.microsoft:server-busy",
}


async def put_token(node: RequestNode, audience: str, token: Token) -> None:
    """Put ``token`` for ``audience``. Raises TokenRefused, LinkRefused, ConnectionLost."""
    properties: dict[object, object] = {
        "operation": "put-token",
        "type": token.kind,
        "name": audience,
        "expiration": Timestamp(token.expires * 1000),
    }
    check(audience, await node.ask(properties, token.text))


def check(audience: str, answer: Message) -> None:
    """Raise TokenRefused unless ``answer`` says the token holds."""
    said = answer.application_properties
    status, description = said.get("status-code"), said.get("status-description")
    if status in (200, 202):
        return
    symbol = CONDITIONS.get(status) if isinstance(status, int) else None
    shown = int(status) if isinstance(status, int) else status  # to people, not as an AMQP type
    condition = Condition(symbol or "amqp:internal-error", f"status {shown}: {description}")
    raise TokenRefused(f"no access to {audience}", condition)
