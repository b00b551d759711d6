"""$cbs: a client shows a token and is granted what it proves (claims-based security).

Python says ``type`` jwt even for a shared access signature, so the token itself is asked, not its type. A
bad token is answered 401, a name of no entity 404: never both hints at once, for the token is judged first.
"""

from __future__ import annotations

from ....amqp.message import Message, ValueBody
from ...auth import TokenRefused, split_audience
from ...entities.entity import Entity
from ...errors import EntityNotFound
from ..address import parse_address
from ..moment import Moment
from ..wording import tracked
from .host import LinkHost
from .request_node import Answer, State, status

_NAMES = ("status-code", "status-description")


def put_token(
    connection: LinkHost, queue: Entity | None, request: Message, state: State, moment: Moment
) -> Answer:
    """Answer a put-token request: 202, 400, 401 or 404."""
    asked = request.application_properties
    audience, operation = asked.get("name"), asked.get("operation")
    token = request.body.value if isinstance(request.body, ValueBody) else None
    face = connection.face

    def refused(code: int, words: str) -> Answer:
        face.rejections.note(moment.entity, "$cbs", f"{code}", words)
        return Answer(status(code, tracked(words, face.tracker("$cbs"), moment.entity), names=_NAMES))

    if operation != "put-token":
        return refused(400, f"The operation {operation!r:.60} is not put-token.")
    if not isinstance(audience, str) or not isinstance(token, str):
        return refused(400, "put-token needs the property name and a body of text.")
    try:
        connection.claims.put(audience, token, moment.wall)
    except TokenRefused as refusal:
        return refused(401, f"Unauthorized access: {refusal.reason}.")
    path = parse_address(split_audience(audience)[1]).path
    try:
        if path:
            face.namespace.queue(path)
    except EntityNotFound as missing:
        return refused(404, str(missing))
    return Answer(status(202, "Accepted", names=_NAMES))
