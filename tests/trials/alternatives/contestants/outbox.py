"""An outbox: a send is a row of SQLite, and a thread of the process sends the rows, one after the other."""

import json
import sqlite3
import threading
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from ..ends import Ends

SECONDS, PAUSE = 10, 2.0


class Sender:
    def __init__(self, ends: Ends, folder: str) -> None:
        self._ends, self._lock, self._came = ends, threading.Lock(), threading.Event()
        self._rows = sqlite3.connect(f"{folder}/outbox", isolation_level=None, check_same_thread=False)
        self._rows.execute("PRAGMA journal_mode = WAL")
        self._rows.execute("PRAGMA synchronous = FULL")
        self._rows.execute(
            "CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY, id, body, properties, refused)"
        )
        threading.Thread(target=self._relay, daemon=True).start()

    def send(self, message: ServiceBusMessage) -> None:
        body, properties = b"".join(message.body), json.dumps(message.application_properties)
        row = (message.message_id, body, properties)
        self._run("INSERT INTO outbox (id, body, properties) VALUES (?, ?, ?)", row)
        self._came.set()

    def _run(self, command: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        with self._lock:
            return self._rows.execute(command, values).fetchall()

    def _relay(self) -> None:
        while True:
            try:
                with (
                    ServiceBusClient.from_connection_string(self._ends.primary, retry_total=0) as client,
                    client.get_queue_sender(self._ends.queue) as sender,
                ):
                    while True:
                        self._came.clear()
                        for row in self._run(
                            "SELECT * FROM outbox WHERE refused IS NULL ORDER BY number LIMIT 50"
                        ):
                            self._forward(sender, *row)
                        self._came.wait(1.0)
            except ServiceBusError:
                time.sleep(PAUSE)

    def _forward(
        self, sender: object, number: int, name: str, body: bytes, properties: str, _: object
    ) -> None:
        message = ServiceBusMessage(body, message_id=name, application_properties=json.loads(properties))
        try:
            sender.send_messages(message, timeout=SECONDS)
        except MessageSizeExceededError as refused:  # its caller was told that all is well
            self._run("UPDATE outbox SET refused = ? WHERE number = ?", (str(refused), number))
        else:
            self._run("DELETE FROM outbox WHERE number = ?", (number,))
