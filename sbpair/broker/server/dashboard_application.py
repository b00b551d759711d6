"""The dashboard's web application: views of the broker as JSON, and a few static files.

    /?token=T            opens a session: sets its cookie, and redirects to / with its proof
    /  /page.css  /page.js ...
    /api/overview        namespaces, their recent operations, the history of the pair
    /api/entities        a page of entities           ?namespace &skip &find
    /api/entity          one entity                   ?namespace &path
    /api/messages        a page of its messages       ?namespace &path &from &find
    /api/faults          the faults that are set      ?namespace
    /api/message         one message with its body    ?namespace &path &number
    /api/sessions        a page of its sessions       ?namespace &path &skip
    /api/connections     ?namespace
    /api/rejections      ?namespace
    POST /api/send  /api/purge  /api/resubmit      see dashboard_actions
    POST /api/take-down ... /api/delete            see page_operations

The page needs the token or the cookie; everything under /api the token, or the cookie and its proof
(see PageSessions). Views change nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from itertools import islice

from aiohttp import web

from ..entities.queue_context import OperationCounts
from ..errors import BrokerError, EntityNotFoundError, InvalidArgumentError, NoSuchMessageError
from ..frontends.dashboard import views as page_views
from ..frontends.dashboard.message import message_view
from ..frontends.dashboard.timeline import PairTimeline, Records
from ..frontends.dashboard.views import EntityRow, History
from ..frontends.delivered_message import encode_peeked
from .broker import Broker
from .control import NamespaceControl
from .dashboard_actions import INTENT, MAX_REQUEST, PageActions, body_of, is_intended
from .http_endpoint import HttpEndpoint
from .namespace_server import NamespaceServer
from .page_operations import PageOperations
from .page_requests import Given
from .wire import AmqpWire

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Row = dict[str, object]

SCRIPT = "text/javascript"
FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/page.js": ("page.js", SCRIPT),
    "/ask.js": ("ask.js", SCRIPT),
    "/operate.js": ("operate.js", SCRIPT),
    "/act.js": ("act.js", SCRIPT),
    "/draw.js": ("draw.js", SCRIPT),
    "/story.js": ("story.js", SCRIPT),
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
MAX_NUMBER = 2**63 - 1
MAX_DIGITS = 19
MAX_CONNECTIONS = 100  # shown for each namespace
MAX_SEARCHED = 10_000  # messages of one search; the next continues
MAX_SESSIONS = 64  # the oldest ends when another is opened


class PageApplication:
    """The request handlers, with the state kept between requests: samples and the history of the pair."""

    def __init__(self, broker: Broker, endpoint: HttpEndpoint, records: Records | None) -> None:
        self._broker = broker
        self._endpoint = endpoint
        self._cookie = (
            f"sbpair-{endpoint.port}"  # the port in the name, since all ports of a host share cookies
        )
        self._opened = PageSessions()
        self._records = records
        self._story = PairTimeline()
        self._history = History()
        self._actions = PageActions(broker)
        self._operations = PageOperations(broker)
        folder = files("sbpair.broker") / "page"
        self._files = {path: (folder / name).read_bytes() for path, (name, _) in FILES.items()}

    def application(self) -> web.Application:
        """Return the application to serve."""
        made = web.Application(middlewares=[self._guard], client_max_size=MAX_REQUEST)
        for path in FILES:
            made.router.add_get(path, self._file)
        for name, view in (
            ("overview", self._overview),
            ("entities", self._entities),
            ("entity", self._entity),
            ("messages", self._messages),
            ("message", self._message),
            ("sessions", self._sessions),
            ("connections", self._connections),
            ("rejections", self._rejections),
            ("faults", lambda request: self._operations.faults(self._control(request))),
        ):
            made.router.add_get(f"/api/{name}", _as_json(view))
        for name, action in (self._actions.by_name | self._operations.by_name).items():
            made.router.add_post(f"/api/{name}", self._acting(action))
        return made

    # -- access

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        shown = request.query.get("token") if request.path == "/" else None
        if shown is not None and self._endpoint.is_token(shown):
            cookie, proof = self._opened.open()
            answer: web.StreamResponse = web.Response(status=303, headers={"Location": f"/?proof={proof}"})
            answer.set_cookie(self._cookie, cookie, httponly=True, samesite="Strict", path="/")
        elif (request.path in FILES and request.path != "/") or self._is_authorized(request):
            try:
                answer = await handler(request)
            except web.HTTPException as refusal:
                answer = web.Response(status=refusal.status, text=f"{refusal.status} {refusal.reason}")
        else:
            answer = web.Response(
                status=401, text="Open the address that was printed at start: it has a token."
            )
        answer.headers.update(HEADERS)
        return answer

    def _acting(self, action: Callable[[Given], Row]) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            if not (self._endpoint.has_token(request) or is_intended(request)):
                text = (
                    f"Only the page itself may do this: the header {INTENT} or the page's origin is missing."
                )
                return web.json_response({"error": text}, status=403)
            try:
                given = await body_of(request)
            except InvalidArgumentError as error:
                return web.json_response({"error": str(error)}, status=400)
            return await asyncio.to_thread(_answer, lambda: action(given))

        return answer

    def _is_authorized(self, request: web.Request) -> bool:
        if self._endpoint.has_token(request):
            return True
        cookie = request.cookies.get(self._cookie, "")
        if request.path == "/":
            return self._opened.knows(cookie)
        return self._opened.is_proven(cookie, request.headers.get(INTENT, ""))

    async def _file(self, request: web.Request) -> web.StreamResponse:
        kind = FILES[request.path][1]
        return web.Response(body=self._files[request.path], content_type=kind, charset="utf-8")

    # -- views

    def _overview(self, request: web.Request) -> Row:
        if self._records is not None:
            self._story.take(self._records())
        rows = [self._namespace(control) for control in self._broker.namespaces]
        story = None if self._records is None else self._story.view()
        return {"namespaces": rows, "story": story}

    def _namespace(self, control: NamespaceControl) -> Row:
        row, operations, connections, rejected = control.inspect(_summary)
        values = (operations.sends, operations.receives, rejected)
        more = {"operations": asdict(operations), "connections": connections, "port": control.port}
        return row | more | {"history": self._history.add(f"\0{control.name}", _now(), values)}

    def _entities(self, request: web.Request) -> Row:
        control, skip = self._control(request), _number(request, "skip")
        find = request.query.get("find", "")
        total, rows = control.inspect(
            lambda server: page_views.entities(server.frontend, server.read_clocks().entity, skip, find)
        )
        shown = [self._with_history(control, row) for row in rows]
        return {"total": total, "skip": skip, "most": page_views.MAX_ROWS, "rows": shown}

    def _with_history(self, control: NamespaceControl, row: EntityRow) -> Row:
        values = (row.counts.active, row.counts.dead_letter)
        return asdict(row) | {"history": self._history.add(f"{control.name}/{row.path}", _now(), values)}

    def _entity(self, request: web.Request) -> Row:
        control, path = self._control(request), request.query.get("path", "")
        row, more = control.inspect(
            lambda server: page_views.detail(server.frontend, path, server.read_clocks().entity)
        )
        return self._with_history(control, row) | more

    def _messages(self, request: web.Request) -> Row:
        path, start = request.query.get("path", ""), _number(request, "from", 1)
        if find := request.query.get("find", ""):
            return self._find(self._control(request), path, start, find)

        def view(server: NamespaceServer) -> list[Row]:
            return page_views.messages(server.frontend.namespace.queue(path), start)

        return {"messages": self._control(request).inspect(view), "most": page_views.MAX_MESSAGES}

    def _find(self, control: NamespaceControl, path: str, start: int, find: str) -> Row:
        """Search in several turns of the broker's loop; ``next`` continues, and is None at the end."""
        found: list[Row] = []
        last = start + MAX_SEARCHED
        following: int | None = start
        while following is not None and following < last and len(found) < page_views.MAX_MESSAGES:
            rows, following = control.inspect(partial(_search, path=path, start=following, find=find))
            found += rows
        return {"messages": found, "most": page_views.MAX_MESSAGES, "next": following}

    def _message(self, request: web.Request) -> Row:
        path, number = request.query.get("path", ""), _number(request, "number")

        def view(server: NamespaceServer) -> tuple[Row, bytes]:
            message = page_views.message_of(server.frontend.namespace.queue(path), number)
            if message is None:
                raise NoSuchMessageError(number)
            return page_views.message_row(message), encode_peeked(message)

        row, encoded = self._control(request).inspect(view)
        return row | message_view(encoded)  # decoded outside the broker's loop

    def _sessions(self, request: web.Request) -> Row:
        path, skip = request.query.get("path", ""), _number(request, "skip")

        def view(server: NamespaceServer) -> tuple[int, list[Row]]:
            return page_views.sessions(server.frontend, server.frontend.namespace.queue(path), skip)

        total, rows = self._control(request).inspect(view)
        return {"total": total, "skip": skip, "most": page_views.MAX_ROWS, "rows": rows}

    def _connections(self, request: web.Request) -> Row:
        return self._control(request).inspect(_connections)

    def _rejections(self, request: web.Request) -> Row:
        return self._control(request).inspect(
            lambda server: page_views.rejections(server.frontend, server.read_clocks().entity)
        )

    def _control(self, request: web.Request) -> NamespaceControl:
        return self._broker.namespace(request.query.get("namespace", ""))


def _summary(server: NamespaceServer) -> tuple[Row, OperationCounts, int, int]:
    row = page_views.summary(server.frontend, server.read_clocks().entity)
    outage = server.outage
    row["state"] = "up" if outage is None else f"down ({outage.value})"
    rejected = server.frontend.rejections.total
    return row, server.frontend.namespace.operations, len(server.wires), rejected


def _search(server: NamespaceServer, *, path: str, start: int, find: str) -> tuple[list[Row], int | None]:
    return page_views.search(server.frontend.namespace.queue(path), start, find)


def _connections(server: NamespaceServer) -> Row:
    shown = [
        page_views.connection(wire.client, _peer(wire))
        for wire in islice(server.wires.values(), MAX_CONNECTIONS)
    ]
    return {"total": len(server.wires), "rows": shown}


def _peer(wire: AmqpWire) -> str:
    name = wire.transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "?"


def _as_json(view: Callable[[web.Request], Row]) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return _answer(lambda: view(request))

    return answer


def _answer(work: Callable[[], Row]) -> web.Response:
    try:
        return web.json_response(work())
    except (EntityNotFoundError, NoSuchMessageError) as missing:
        return web.json_response({"error": str(missing)}, status=404)
    except BrokerError as error:
        return web.json_response({"error": str(error)}, status=400)
    except TimeoutError:
        return web.json_response({"error": "The broker did not answer in time."}, status=503)


def _number(request: web.Request, name: str, default: int = 0) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS and int(text) <= MAX_NUMBER):
        raise InvalidArgumentError(f"{name} is {text[:40]!r}: use a whole number from 0 to {MAX_NUMBER}.")
    return int(text)


def _now() -> int:
    return time.time_ns() // 1_000_000


class PageSessions:
    """The open sessions of one page: the cookie and the proof that a browser gets in exchange for the token.

        the cookie    opens the page itself, which shows nothing; a browser sends it to every port of the host
        the proof     every request for data or an action; the page keeps it in storage that only its origin can read

    Neither is the token: a server on another port that sees the cookie can neither read nor change anything with it.
    """

    def __init__(self) -> None:
        self._proofs: dict[str, str] = {}

    def open(self) -> tuple[str, str]:
        """Open a session; returns its cookie and its proof."""
        if len(self._proofs) >= MAX_SESSIONS:
            del self._proofs[next(iter(self._proofs))]
        cookie, proof = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._proofs[cookie] = proof
        return cookie, proof

    def knows(self, cookie: str) -> bool:
        """Whether this is the cookie of a session."""
        return cookie in self._proofs

    def is_proven(self, cookie: str, proof: str) -> bool:
        """Whether this is the cookie of a session and its proof; the proof is compared in constant time."""
        known = self._proofs.get(cookie)
        return known is not None and hmac.compare_digest(known.encode(), proof.encode("utf-8", "replace"))
