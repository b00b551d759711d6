"""The ``$management`` node of an entity, used throughout a connection even if its links are lost.

request --links lost--> the next request opens other links; the old are detached after the requests that still use them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .connection import NamespaceConnection
from .errors import ClientError, ConnectionLostError
from .request import RequestNode

T = TypeVar("T")


class ManagementNode:
    """Makes requests to the node of one entity over one connection."""

    def __init__(self, connection: NamespaceConnection, path: str) -> None:
        self._connection = connection
        self._address = connection.namespace.address(f"{path}/$management")
        self._node: RequestNode | None = None
        self._requests: Counter[RequestNode] = Counter()

    async def ask(self, request: Callable[[RequestNode], Awaitable[T]]) -> T:
        """Make a request over the current links and return its answer. Raises the errors of ``request``.

        After a ConnectionLostError, or once one of the links has ended, the next request opens new links. A node that
        refuses one request can serve the next.
        """
        node = self._node
        if node is None:
            node = self._node = RequestNode(self._connection, self._address)
        self._requests[node] += 1
        try:
            return await request(node)
        except ClientError as error:
            if node is self._node and (isinstance(error, ConnectionLostError) or not node.is_open):
                self._node = None
            raise
        finally:
            self._requests[node] -= 1
            if not self._requests[node]:
                del self._requests[node]
                if node is not self._node:
                    node.abandon()

    async def close(self) -> None:
        """Detach the links. Never raises; requests in flight fail."""
        for node in self._nodes():
            await node.close()

    def abandon(self) -> None:
        """Detach without waiting: the connection is no longer used. Requests in flight fail."""
        for node in self._nodes():
            node.abandon()

    def _nodes(self) -> set[RequestNode]:
        return {*self._requests, *([] if self._node is None else [self._node])}
