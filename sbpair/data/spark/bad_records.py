"""Rows that cannot be sent, kept as lines of JSON in a directory: the sink's dead letters.

    {"reason": "the message_id of a row is null or empty", "at": "...", "row": {"body": "...", "subject": "s"}}

One file per task that has any. A body that is not UTF-8 is given as ``body_base64``. A task that runs again writes
its rows again, in a file of its own. Directories are local paths or URIs of a file system that Arrow knows.
"""

from __future__ import annotations

import base64
import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from .outgoing import OutgoingRow

if TYPE_CHECKING:
    from .format_options import FormatOptions


def bad_records_path(given: FormatOptions) -> str | None:
    """The option ``badRecordsPath``. Raises ValueError for a relative path."""
    path = given.text("badRecordsPath")
    if path is not None and "://" not in path and not os.path.isabs(path):
        raise given.wrong(
            "badRecordsPath must be an absolute path or a URI: tasks run in directories of their own"
        )
    return path


class BadRecords:
    """The bad rows of one task; close it before the task ends, or they are lost with it."""

    def __init__(self, directory: str, task: str) -> None:
        self._directory = directory
        self._name = f"{task.replace(':', '-')}-{uuid4().hex}.jsonl"
        self._stream: Any = None

    def write(self, row: OutgoingRow, error: Exception) -> None:
        """Record ``row`` and the reason for which it cannot be sent. Raises OSError when it cannot be written."""
        if self._stream is None:
            self._stream = self._create()
        reason = " ".join(str(error).split()).removeprefix("sbpair: ")
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"reason": reason, "at": at, "row": _record(row)}, default=str)
        self._stream.write(line.encode() + b"\n")

    def close(self) -> None:
        """Complete the file, if there is one. Raises OSError."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _create(self) -> Any:  # noqa: ANN401 - pyarrow has no annotations
        from pyarrow import fs

        system, path = fs.FileSystem.from_uri(self._directory)
        system.create_dir(path, recursive=True)
        return system.open_output_stream(f"{path.rstrip('/')}/{self._name}")


def _record(row: OutgoingRow) -> dict[str, object]:
    try:
        body: dict[str, object] = {"body": row.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(row.body).decode()}
    return {**body, **row.values}
