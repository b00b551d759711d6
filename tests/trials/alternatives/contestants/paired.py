"""sbpair: two strings in place of one, and a syphon."""

from azure.servicebus import ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient

from ..ends import Ends


class Sender:
    def __init__(self, ends: Ends, folder: str) -> None:
        self._client = PairedServiceBusClient.from_connection_strings(
            ends.primary, ends.secondary, options=self.options(folder)
        )
        self._sender = self._client.get_queue_sender(ends.queue)

    def options(self, folder: str) -> PairedNamespaceOptions:
        return PairedNamespaceOptions()

    def send(self, message: ServiceBusMessage) -> None:
        self._sender.send_messages(message)
