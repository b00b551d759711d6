"""The texts of the service's errors over HTTP, as data: by error, kind of request, and api-version.

Taken from answers of the service that were published, 2014 to 2021. The first row that fits an error gives its text. An
error without a row keeps the broker's own words, behind its sub-code. ``{entity}`` is the address of a subscription or
rule as the service writes it, ``contoso:Topic:news|all|$Default``; ``{url}`` the requested one; ``{text}`` the text of
the error itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from uuid import uuid4

from ...errors import (
    BrokerError,
    EntityAlreadyExistsError,
    EntityNotFoundError,
    FieldOutOfRangeError,
    FixedAtCreationError,
    ForwardingSessionsError,
    InvalidNameError,
    InvalidPageError,
    InvalidRuleNameError,
    ManageRequiredError,
    MessageSizeNotOfferedError,
    OperationInProgressError,
    OperationUnauthorizedError,
    TargetNotFoundError,
    TargetTokenError,
    TokenEndedError,
    TokenRefusedError,
    UnsupportedElementError,
)

MORE = " To know more visit https://aka.ms/sbResourceMgrExceptions. "


class Asked(Enum):
    """The kind of thing that a path names."""

    ENTITY = "a queue or topic, or a list"
    SUBSCRIPTION = "a subscription"
    RULE = "a rule"
    ORPHAN = "a subscription or rule of a topic that does not exist"
    MESSAGES = "messages, over REST"


class Tracker(Enum):
    """The SystemTracker of an error, and the letter of its node in the tracking id: gateway or broker."""

    ADDRESS = "G"  # the host and the path
    NONE = "B"  # NoSystemTracker
    TOPIC = "T"  # the topic's address, by a gateway


@dataclass(frozen=True, slots=True)
class Row:
    """The text of an error, for requests of these methods (all: "") for such entities, of these api-versions.

    ``reason``: the status line, in place of the usual one; such an answer has no body.
    """

    error: type[BrokerError]
    asked: tuple[Asked, ...]
    text: str
    tracker: Tracker = Tracker.ADDRESS
    methods: tuple[str, ...] = ()
    is_oldest: bool | None = None  # only without an api-version; None: any
    reason: str | None = None

    def fits(self, error: BrokerError, asked: Asked, method: str, version: str) -> bool:
        """Whether this row is for that error."""
        return (
            isinstance(error, self.error)
            and asked in self.asked
            and (not self.methods or method in self.methods)
            and (self.is_oldest is None or self.is_oldest == (version == ""))
        )


_BELOW = (Asked.SUBSCRIPTION, Asked.RULE)
_ANY = (Asked.ENTITY, *_BELOW, Asked.ORPHAN)
_UNFIT_NAME = (
    "'{url}' contains character(s) that is not allowed by Service Bus. Entity segments can contain only letters, "
    "numbers, periods (.), hyphens (-), and underscores (_)."
)
ROWS: Sequence[Row] = (
    Row(TargetNotFoundError, _ANY, "SubCode=40400. {text}"),
    # entities that exist already
    Row(EntityAlreadyExistsError, (Asked.ENTITY,), "SubCode=40900. Conflict.", is_oldest=True),
    Row(
        EntityAlreadyExistsError,
        (Asked.ENTITY,),
        "SubCode=40900. Conflict. You're requesting an operation that isn't allowed in the resource's current state."
        f"{MORE}.",
    ),
    Row(
        EntityAlreadyExistsError,
        _BELOW,
        "The messaging entity '{entity}' already exists.",
        Tracker.NONE,
        is_oldest=True,
    ),
    Row(
        EntityAlreadyExistsError,
        _BELOW,
        f"The messaging entity '{{entity}}' already exists.{MORE}",
        Tracker.NONE,
    ),
    # entities that do not exist
    Row(
        EntityNotFoundError,
        (Asked.ENTITY,),
        f"SubCode=40400. Not Found. The Operation doesn't exist.{MORE}.",
        methods=("PUT",),
    ),
    Row(EntityNotFoundError, (Asked.ENTITY,), "No service is hosted at the specified address."),
    Row(
        EntityNotFoundError,
        (Asked.ORPHAN,),
        f"The incoming request is not recognized as a namespace policy put request.{MORE.rstrip()}",
        methods=("PUT",),
    ),
    Row(
        EntityNotFoundError,
        (Asked.ORPHAN,),
        f"Entity '{{entity}}' was not found.{MORE}",
        Tracker.NONE,
        methods=("GET",),
    ),
    Row(EntityNotFoundError, (Asked.ORPHAN,), "No service is hosted at the specified address."),
    Row(EntityNotFoundError, _BELOW, "", is_oldest=True, reason="40400: Endpoint not found."),
    Row(
        EntityNotFoundError,
        _BELOW,
        f"The messaging entity '{{entity}}' could not be found.{MORE}",
        Tracker.NONE,
        methods=("DELETE",),
    ),
    Row(EntityNotFoundError, _BELOW, f"Entity '{{entity}}' was not found.{MORE}", Tracker.NONE),
    # requests that are not allowed
    Row(InvalidNameError, (Asked.ENTITY,), "Incorrect request Uri format."),
    Row(InvalidNameError, (*_BELOW, Asked.ORPHAN), _UNFIT_NAME, Tracker.TOPIC),
    Row(InvalidRuleNameError, (Asked.RULE, Asked.ORPHAN), _UNFIT_NAME, Tracker.TOPIC),
    Row(InvalidPageError, _ANY, "{text}"),
    Row(MessageSizeNotOfferedError, _ANY, f"SubCode=40000. Bad Request.{MORE}."),
    Row(ForwardingSessionsError, _ANY, "SubCode=40000. Bad Request."),
    Row(UnsupportedElementError, _ANY, "SubCode=40000. {text}"),
    Row(FieldOutOfRangeError, (Asked.ENTITY,), "SubCode=40000. {text}"),
    Row(FieldOutOfRangeError, _ANY, "{text}", Tracker.TOPIC),
    Row(FixedAtCreationError, (Asked.ENTITY,), f"SubCode=40000. {{text}}{MORE}."),
    Row(OperationInProgressError, (Asked.ENTITY,), "SubCode=40901. {text}"),
    Row(
        OperationInProgressError,
        _ANY,
        "Resource Conflict Occurred. Another conflicting operation may be in progress.",
        Tracker.NONE,
    ),
    # callers without the right
    Row(
        TargetTokenError,
        _ANY,
        f"MissingToken: The authorization header was not found.{MORE}.",
    ),
    Row(TokenEndedError, _ANY, "{text}"),
    Row(TokenRefusedError, _ANY, "claim is empty or token is invalid."),
    Row(ManageRequiredError, _ANY, "{text}"),
    Row(OperationUnauthorizedError, _ANY, "SubCode=40100. Unauthorized. {text}"),
)
_USUAL = Row(BrokerError, (), "SubCode={sub_code}. {text}")


@dataclass(frozen=True, slots=True)
class Place:
    """The target of a request: the kind its path names, the namespace's name and host, and the path as written."""

    asked: Asked
    namespace: str
    host: str
    path: str
    target: str  # as it was requested, with the query
    method: str
    version: str

    def address(self) -> str:
        """Return the address of a subscription or rule as the service writes it."""
        segments = self.path.split("/")
        folded = [segment.lower() for segment in segments]
        at = folded.index("subscriptions") if "subscriptions" in folded else len(segments)
        names = ["/".join(segments[:at]), *segments[at + 1 : at + 2], *segments[at + 3 : at + 4]]
        return f"{self.namespace}:Topic:{'|'.join(names)}"


def row_for(error: BrokerError, place: Place) -> Row:
    """Return the row of data for an error."""
    fitting = (row for row in ROWS if row.fits(error, place.asked, place.method, place.version))
    return next(fitting, _USUAL)


def detail_of(error: BrokerError, place: Place, now: int) -> str:
    """Return the text of an error with its trackers; ``now`` in milliseconds since the epoch."""
    row = row_for(error, place)
    url = f"sb://{place.host}{place.target}"
    text = row.text.format(
        text=error.text_at(place.host), entity=place.address(), url=url, sub_code=error.sub_code
    )
    return f"{text} {_trackers(row.tracker, place, now)}"


def _trackers(tracker: Tracker, place: Place, now: int) -> str:
    at = datetime.fromtimestamp(now / 1000, UTC)
    node = "B0" if tracker is Tracker.NONE else "G0"
    if place.version == "" and place.asked is not Asked.MESSAGES:
        written = at.strftime("%m/%d/%Y %I:%M:%S %p").lstrip("0").replace("/0", "/").replace(" 0", " ")
        stamp = ", Timestamp" if tracker is Tracker.NONE else ",TimeStamp"
        return f"TrackingId:{uuid4()}_{node}{stamp}:{written}"
    system = {
        Tracker.ADDRESS: f"{place.host}:{place.path}",
        Tracker.NONE: "NoSystemTracker",
        Tracker.TOPIC: place.address().partition("|")[0],
    }[tracker]
    return f"TrackingId:{uuid4()}_{node}, SystemTracker:{system}, Timestamp:{at:%Y-%m-%dT%H:%M:%S}"
