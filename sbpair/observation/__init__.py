"""Seen from outside: journal, metrics, webhooks, status and logs.

Each takes events, of whatever room: ``attach(client, journal, metrics, webhook)``. The libraries they need
(prometheus-client, httpx, aiohttp) are loaded when they are first used.
"""

from __future__ import annotations

from .attach import attach
from .backlog_age import BacklogAged, BacklogAges
from .entities import EntityStates
from .journal import Fsync, Journal
from .journal_reading import JournalError, journal_files, read
from .logs import JsonFormatter, use_json_logs
from .metrics import Metrics
from .notice import WebhookKind
from .post import Patience
from .receives import EntityEmptied, MessagesReceived, messages_received
from .record import PairLabels, Role
from .sends import SendAccepted, send_accepted
from .signature import SignatureRefused, verify
from .status import Status, StatusError, StatusServer, StatusThread
from .webhook import Webhook

__all__ = [
    "BacklogAged",
    "BacklogAges",
    "EntityEmptied",
    "EntityStates",
    "Fsync",
    "Journal",
    "JournalError",
    "JsonFormatter",
    "MessagesReceived",
    "Metrics",
    "PairLabels",
    "Patience",
    "Role",
    "SendAccepted",
    "SignatureRefused",
    "Status",
    "StatusError",
    "StatusServer",
    "StatusThread",
    "Webhook",
    "WebhookKind",
    "attach",
    "journal_files",
    "messages_received",
    "read",
    "send_accepted",
    "use_json_logs",
    "verify",
]
