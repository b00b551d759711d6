"""Observability: audit journal, metrics, status pages and JSON logs.

Sinks take the events of a paired client or a syphon: ``attach(client, journal, metrics)``. Optional
libraries (prometheus-client, aiohttp) are imported on first use.
"""

from __future__ import annotations

from .pair.observation.journal import Fsync, Journal
from .pair.observation.journal_reading import JournalError, journal_files, read
from .pair.observation.logs import JsonFormatter, TextFormatter, use_json_logs, use_text_logs
from .pair.observation.messages import (
    EntityEmptied,
    MessagesReceived,
    SendAccepted,
    messages_received,
    send_accepted,
)
from .pair.observation.metrics import Metrics
from .pair.observation.record import PairLabels, WriterRole
from .pair.observation.sinks import EntityStates, attach
from .pair.observation.status import Status, StatusError, StatusServer, StatusThread

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
