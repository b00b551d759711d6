"""Observability: audit journal, metrics, status pages and JSON logs.

Sinks take the events of a paired client or a syphon: ``attach(client, journal, metrics)``. Optional
libraries (prometheus-client, aiohttp) are imported on first use.
"""

from __future__ import annotations

from .journal import Fsync, Journal
from .journal_reading import JournalError, journal_files, read
from .logs import JsonFormatter, TextFormatter, use_json_logs, use_text_logs
from .messages import EntityEmptied, MessagesReceived, SendAccepted, messages_received, send_accepted
from .metrics import Metrics
from .record import PairLabels, WriterRole
from .sinks import EntityStates, attach
from .status import Status, StatusError, StatusServer, StatusThread

__all__ = [
    "EntityEmptied",
    "EntityStates",
    "Fsync",
    "Journal",
    "JournalError",
    "JsonFormatter",
    "MessagesReceived",
    "Metrics",
    "PairLabels",
    "SendAccepted",
    "Status",
    "StatusError",
    "StatusServer",
    "StatusThread",
    "TextFormatter",
    "WriterRole",
    "attach",
    "journal_files",
    "messages_received",
    "read",
    "send_accepted",
    "use_json_logs",
    "use_text_logs",
]
