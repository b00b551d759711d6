"""The ``$management`` node of an entity, for as long as the connection: its links may end before.

request --fails--> the next request opens other links; these are detached after the requests that still use them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sbpair.client.connection import NamespaceConnection
from sbpair.client.errors import ClientError
from sbpair.client.request import RequestNode

T = TypeVar("T")


class ManagementNode:
    """Makes requests to the node of one entity over one connection."""

    def __init__(self, connection: NamespaceConnection, path: str) -> None:
        self._connection = connection
        self._address = connection.namespace.address(f"{path}/$management")
        self._node: RequestNode | None = None
        self._requests: Counter[RequestNode] = Counter()

    async def ask(self, request: Callable[[RequestNode], Awaitable[T]]) -> T:
        """Make a request over the current links, and return its answer; raises the errors of ``request``.

        After a ClientError, even a refusal, the next request uses other links: the error does not tell whether these
        still work.
        """
        node = self._node
        if node is None:
            node = self._node = RequestNode(self._connection, self._address)
        self._requests[node] += 1
        try:
            return await request(node)
        except ClientError:
            if node is self._node:
                self._node = None
            raise
        finally:
            self._requests[node] -= 1
            if not self._requests[node]:
                del self._requests[node]
                if node is not self._node:
                    node.abandon()

    def abandon(self) -> None:
        """Detach without waiting: the connection is no longer used. Requests in flight fail."""
        for node in {*self._requests, *([] if self._node is None else [self._node])}:
            node.abandon()
