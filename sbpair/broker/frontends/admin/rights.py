"""The rights that a request to the administration API needs, and how a caller without Manage is refused.

    a queue or topic            GET: of a missing one as without the right, else "Manage,EntityRead claims required"
                                PUT, DELETE: "Authorization failed for specified action"
    a subscription or rule      the status line names the operation: "UnauthorizedError access for 'GetSubscription'"

A caller whose token proves no right on the path at all learns nothing about it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

from ...access import Verifier
from ...auth import Right
from ...entities import Namespace
from ...errors import EntityNotFoundError, ManageRequiredError, OperationUnauthorizedError
from .http_messages import Request, Response, failed, refuse_without, segments_of

_OPERATIONS = {"GET": "Get", "PUT": "CreateOrUpdate", "DELETE": "Delete"}
_UNPRINTABLE = re.compile("[^\x20-\x7e]")


def refusal(request: Request, namespace: Namespace, verifier: Verifier, now_s: int) -> Response | None:
    """Return a 401 response unless the caller has Manage on the request's path, else None.

    ``now_s``: seconds since the epoch.
    """
    unmanaged = refuse_without(request, verifier, Right.MANAGE, now_s)
    if unmanaged is None:
        return None
    if all(refuse_without(request, verifier, right, now_s) for right in (Right.LISTEN, Right.SEND)):
        return unmanaged
    segments = segments_of(request)
    operation = _operation(request.method, [segment.lower() for segment in segments])
    if operation is not None:
        return _unauthorized(request, operation, now_s * 1000)
    if request.method == "GET" and not segments[0].startswith("$") and _is_missing(namespace, segments):
        return None
    return failed(ManageRequiredError(request.method), request, now_s * 1000)


def _operation(method: str, segments: Sequence[str]) -> str | None:
    """Return the service's name for an operation on a subscription or its rules; None for any other entity."""
    verb = _OPERATIONS.get(method, method)
    match [segment for segment in segments if segment]:
        case [*_, "subscriptions", _, "rules"]:
            return "EnumerateRules"
        case [*_, "subscriptions", _, "rules", _]:
            return f"{verb}Rule"
        case [*topic, "subscriptions"] if topic:
            return "EnumerateSubscriptions"
        case [*topic, "subscriptions", _] if topic:
            return f"{verb}Subscription"
    return None


def _unauthorized(request: Request, operation: str, now: int) -> Response:
    url = f"sb://{request.headers.get('host', '')}{request.raw_path}?{request.query}"
    error = OperationUnauthorizedError(operation, _UNPRINTABLE.sub("?", url[:300]))
    return failed(error, request, now).with_reason(
        f"SubCode={error.sub_code}: Unauthorized : {error} Tracking Id: {uuid.uuid4()}_G0"
    )


def _is_missing(namespace: Namespace, segments: Sequence[str]) -> bool:
    try:
        namespace.queue("/".join(segments))
    except EntityNotFoundError:
        return True
    return False
