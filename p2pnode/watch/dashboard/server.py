"""The page's server: static files, the latest picture, the past, a stream of server-sent events. In the node's loop.

Reading needs no token: `/api/view`, `/api/past`, `/api/live`, `/metrics`, `/health`, and what `details` serves.
Steering needs the token as `Authorization: Bearer TOKEN`, and answers {"said": text} or 400 with {"problem": text}:

    POST /api/pause    /api/resume    /api/leave
    POST /api/limits   a JSON object of the limits to change, by the names of their flags, with the flags' values:
                       {"max-upload": "500k", "max-download": "off", "max-cpu": "50%", "pause-on-battery": true,
                        "idle-only": false, "schedule": "22:00-07:00"}
                       The limits, and why the node is paused, are `limits` and `paused` of each picture.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from importlib import resources

import msgspec
import psutil
from aiohttp import web

from ...storage.files import Storage
from ...wire.control import ControlRequest
from ...wire.errors import LocalProblem, UsageError
from ..show import Watched
from .details import Details
from .feed import Feed
from .guard import EVERYWHERE, HEADERS, LOOPBACK, KnownHosts, known_hosts, refusal, url_host
from .metrics import health, metrics

STATIC = {"/": "index.html", **{f"/{name}": name for name in ("page.js", "figures.js", "page.css", "icon.svg")}}
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
MAX_WATCHERS = 32
AGAIN_AFTER_MS = 1000  # until a page that lost its stream opens it again
MAX_BODY = 4096
MAX_CONNECTIONS = 96  # at once; when there are more, those that ask for nothing are closed, the oldest first
HEAD_SECONDS = 15.0  # for a whole request, and between two of a connection
ANSWER_SECONDS = 60.0  # for the other side to take an answer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class PageAddress:
    """Where the page is. The address alone allows reading; the link with the token also allows steering."""

    address: str
    token: str
    network: str = ""  # the address for others in the network; "" where only this machine can open the page

    @property
    def link(self) -> str:
        return f"{self.address}#token={self.token}"


class Page:
    """The page of one node."""

    def __init__(self, node: Watched, storage: Storage | None = None) -> None:
        self._node = node
        self.feed = Feed(node, storage)
        self._details = Details(node, self.feed)

    def routes(self) -> list[web.RouteDef]:
        static = [web.get(path, _static(name)) for path, name in STATIC.items()]
        return [
            *static,
            *self._details.routes(),
            web.get("/api/view", self._view),
            web.get("/api/past", self._past),
            web.get("/api/live", self._live),
            web.get("/metrics", self._metrics),
            web.get("/health", self._health),
            web.post("/api/leave", self._leave),
            web.post("/api/pause", self._pause),
            web.post("/api/resume", self._resume),
            web.post("/api/limits", self._limits),
        ]

    async def _view(self, request: web.Request) -> web.Response:
        self.feed.look()
        return web.Response(body=self.feed.latest, content_type="application/json")

    async def _past(self, request: web.Request) -> web.Response:
        return web.Response(body=await asyncio.to_thread(self.feed.past), content_type="application/json")

    async def _live(self, request: web.Request) -> web.StreamResponse:
        if self.feed.watchers >= MAX_WATCHERS:
            raise web.HTTPServiceUnavailable(text="too many are watching this node; close a page")
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"retry: %d\n\n" % AGAIN_AFTER_MS)
        async with contextlib.aclosing(self.feed.pictures()) as pictures:
            with contextlib.suppress(ConnectionError):  # the page was closed
                async for picture in pictures:
                    async with taken_in_time(request):
                        await response.write(b"event: view\ndata: " + picture + b"\n\n")
        return response

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=metrics(self._node.status()), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _health(self, request: web.Request) -> web.Response:
        """200 when the node is well, else 503 with the reasons; also why the node is paused, if it is."""
        status = self._node.status()
        reasons = health(status)
        answer = {"well": not reasons, "reasons": reasons, "paused": status.paused}
        return web.json_response(answer, status=503 if reasons else 200)

    async def _pause(self, request: web.Request) -> web.Response:
        return await self._execute(ControlRequest("pause"))

    async def _resume(self, request: web.Request) -> web.Response:
        return await self._execute(ControlRequest("resume"))

    async def _limits(self, request: web.Request) -> web.Response:
        try:
            limits = msgspec.json.decode(await request.read(), type=dict[str, str | bool | float])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return web.json_response({"problem": f"not limits: {str(error)[:200]}"}, status=400)
        return await self._execute(ControlRequest("limits", limits=limits))

    async def _execute(self, request: ControlRequest) -> web.Response:
        try:
            return web.json_response({"said": (await self._node.execute(request)).said})
        except (LocalProblem, UsageError) as problem:
            return web.json_response({"problem": str(problem)}, status=400)

    async def _leave(self, request: web.Request) -> web.Response:
        self._node.leave()
        return web.json_response({"said": "leaving"})


def _static(name: str) -> Handler:
    async def serve(request: web.Request) -> web.StreamResponse:
        content = await asyncio.to_thread(lambda: resources.files(__package__).joinpath("static", name).read_bytes())
        return web.Response(body=content, content_type=TYPES[name.rpartition(".")[2]], charset="utf-8")

    return serve


def _guarded(place: Callable[[], tuple[KnownHosts, str]]) -> Callable[..., Awaitable[web.StreamResponse]]:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        reason = refusal(request.method, request.headers, *place())
        if reason:
            return web.Response(status=403, text=f"{reason}\n", headers=HEADERS)
        response = await handler(request)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    return guard


@contextlib.asynccontextmanager
async def taken_in_time(request: web.Request) -> AsyncIterator[asyncio.WriteTransport]:
    """Close the connection when the other side does not take what the block writes. ConnectionError when it is gone."""
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the connection is closed")
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            yield transport
    except TimeoutError:
        transport.abort()
        raise ConnectionResetError("the answer was not taken") from None


class Connections:
    """Bounds how many connections there are, and for how long the other side may take to read an answer."""

    def __init__(self) -> None:
        self._asking: set[object] = set()  # connections with a request that is being answered

    @web.middleware
    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._asking.add(request.protocol)
        try:
            response = await handler(request)
            with contextlib.suppress(ConnectionError):  # then nobody is left to read the answer
                async with taken_in_time(request) as transport:
                    await response.prepare(request)
                    await response.write_eof()
                    while transport.get_write_buffer_size():  # noqa: ASYNC110 - a transport has no event for it
                        await asyncio.sleep(0.05)
            return response
        finally:
            self._asking.discard(request.protocol)

    def accept(self, server: web.Server) -> asyncio.Protocol:
        """The protocol of a new connection. Where there are too many, one that asks for nothing makes room."""
        if len(open_now := server.connections) >= MAX_CONNECTIONS:
            idle = (connection for connection in open_now if connection not in self._asking)
            if (oldest := next(idle, None)) is None:
                return _Busy()
            oldest.force_close()
        return server()


class _Busy(asyncio.Protocol):
    """Answers that there are too many connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        transport.close()


def page_address(host: str, port: int, token: str, own: Callable[[], str]) -> PageAddress:
    """Where a page is that listens there. `own` returns this machine's address in its network."""
    bare = url_host(host)
    if bare in LOOPBACK:
        return PageAddress(f"http://{bare}:{port}/", token)
    if bare not in EVERYWHERE:
        return PageAddress(f"http://{bare}:{port}/", token, f"http://{bare}:{port}/")
    here = "127.0.0.1" if bare == "0.0.0.0" else "[::1]"
    network = own()
    return PageAddress(f"http://{here}:{port}/", token, f"http://{url_host(network)}:{port}/" if network else "")


def address_in_network(host: str) -> str:
    """This machine's address in the network that leads outside, of the family of `host`; "" where there is none."""
    family, outside = (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "203.0.113.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((outside, 9))  # sends nothing: only the route is looked up
            return str(probe.getsockname()[0])
        except OSError:
            return _first_address(family)


def _first_address(family: socket.AddressFamily) -> str:
    found = (card.address for cards in psutil.net_if_addrs().values() for card in cards if card.family == family)
    usable = (ip for ip in map(ipaddress.ip_address, found) if not ip.is_loopback and not ip.is_link_local)
    return str(next(usable, ""))


@contextlib.asynccontextmanager
async def served(node: Watched, host: str, port: int, storage: Storage | None = None) -> AsyncIterator[PageAddress]:
    """Serve the node's page while the block runs. LocalProblem when it cannot listen there.

    The past that it shows is kept in `storage`; without one it begins with this start of the node.
    """
    page, token, connections = Page(node, storage), secrets.token_urlsafe(18), Connections()
    hosts = known_hosts(host, port)
    app = web.Application(
        middlewares=[connections.answer, _guarded(lambda: (hosts, token))], client_max_size=MAX_BODY
    )  # fmt: skip
    app.add_routes(page.routes())
    runner = web.AppRunner(
        app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True, keepalive_timeout=HEAD_SECONDS
    )
    await runner.setup()
    server = runner.server
    assert server is not None
    try:
        try:
            listening = await asyncio.get_running_loop().create_server(lambda: connections.accept(server), host, port)
        except OSError as error:
            raise LocalProblem(f"the page cannot be served on {host}:{port}: {error.strerror or error}") from None
        bound = listening.sockets[0].getsockname()[1]
        hosts = known_hosts(host, bound)
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(page.feed.run())
            try:
                yield page_address(host, bound, token, lambda: address_in_network(host))
            finally:
                looking.cancel()
                listening.close()
                await page.feed.save()
    finally:
        await runner.cleanup()
