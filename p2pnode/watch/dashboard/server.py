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
    page, token = Page(node, storage), secrets.token_urlsafe(18)
    hosts = known_hosts(host, port)
    app = web.Application(middlewares=[_guarded(lambda: (hosts, token))], client_max_size=MAX_BODY)
    app.add_routes(page.routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise LocalProblem(f"the page cannot be served on {host}:{port}: {error.strerror or error}") from None
        bound = runner.addresses[0][1]
        hosts = known_hosts(host, bound)
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(page.feed.run())
            try:
                yield page_address(host, bound, token, lambda: address_in_network(host))
            finally:
                looking.cancel()
                await page.feed.save()
    finally:
        await runner.cleanup()
