"""A network that repairs itself: it watches one link at a time, and replaces it when it dies or hangs.

A link is everything that dies with the daemon: the process, the connection to it, the DHT and the handlers. Without a
link operations fail with NetworkDown; those under way when it dies fail at once instead of hanging.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from ...wire.addresses import Address, parse_address
from ...wire.bounded import put_bounded
from ...wire.errors import (
    LocalProblem,
    NetworkDown,
    P2pnodeError,
    PeerError,
    PeerTimeout,
    PeerUnreachable,
    UsageError,
)
from ...wire.ids import PeerId, short
from ...wire.messages import MAX_ADDRESSES, MAX_CALL_BYTES
from ...wire.types import Seconds
from ..base import Health, NetworkState, Server, Sink, StreamLimits, StreamResult, cancel_and_wait
from .frames import FrameReader, FrameWriter, fetch_stream

CHECK_EVERY: Seconds = 2.0
CHECK_LIMIT: Seconds = 3.0
FAILURES_TO_DEATH = 2  # so a hung daemon is noticed after 2 + 3 + 3 seconds
LAG_ALLOWED: Seconds = 0.5  # a check that ends later than this was delayed by our own loop, and proves nothing
FIRST_REOPEN_PAUSE: Seconds = 0.5
START_TRIES = 5  # daemons that may be lost while they start; then something here is wrong
LONGEST_REOPEN_PAUSE: Seconds = 10.0
DIAL_LIMIT: Seconds = 5.0
CLOSE_LIMIT: Seconds = 2.5
CLOSED_TRANSPORT = "handler is closed"  # in the error of uvloop for a write to a closed connection
MAX_HINTED_PEERS = 1000
MAX_RECONTACTS = 32
RECONTACTS_AT_ONCE = 8

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Hints:
    """Addresses at which peers may be dialled, because they answered there or were announced; of the latest peers."""

    def __init__(self) -> None:
        self._by_peer: dict[PeerId, tuple[str, ...]] = {}

    def heard(self, peer: PeerId, addresses: Iterable[str]) -> None:
        """Remember reported addresses of a peer; what is not an address of that peer is ignored."""
        good = []
        for text in list(addresses)[:MAX_ADDRESSES]:
            with contextlib.suppress(UsageError):
                address = parse_address(text)
                if address.peer == peer:
                    good.append(address.text)
        if good:
            self._remember(peer, good)

    def reached(self, address: Address) -> None:
        """Put an address first, because the peer answered there."""
        self._remember(address.peer, (address.text, *self._by_peer.get(address.peer, ())))

    def transports(self, peer: PeerId) -> tuple[str, ...]:
        """The addresses of a peer, without its id."""
        return tuple(Address(text, peer).transport for text in self._by_peer.get(peer, ()))

    def latest(self, count: int) -> list[PeerId]:
        """The peers remembered last, latest first."""
        return list(reversed(self._by_peer))[:count]

    def _remember(self, peer: PeerId, addresses: Iterable[str]) -> None:
        put_bounded(self._by_peer, peer, tuple(dict.fromkeys(addresses))[:MAX_ADDRESSES], MAX_HINTED_PEERS)


class Link(Protocol):
    """One generation of the network. The caller sets all time limits."""

    async def wait_dead(self) -> str: ...
    async def check(self) -> None: ...
    async def connect(self, peer: PeerId, transports: tuple[str, ...]) -> None: ...
    async def join_routing(self, peer: PeerId) -> None: ...
    async def call(self, peer: PeerId, request: bytes) -> bytes: ...
    async def open_stream(self, peer: PeerId) -> tuple[FrameReader, FrameWriter]: ...
    async def nearest(self, key: str, count: int) -> list[PeerId]: ...
    async def addresses(self) -> tuple[str, ...]: ...
    def kill(self) -> None: ...
    async def close(self) -> None: ...


OpenLink = Callable[[Server], Awaitable[Link]]


class SupervisedNetwork:
    """Implements `Network` over links that `open_link` makes."""

    def __init__(self, peer: PeerId, open_link: OpenLink) -> None:
        self.peer = peer
        self._open_link = open_link
        self._health = Health("starting")
        self._listeners: list[Callable[[Health], None]] = []
        self._server: Server | None = None
        self._link: Link | None = None
        self._reached: set[PeerId] = set()  # peers that answered over this link
        self._hints = Hints()
        self._scopes: set[asyncio.Timeout] = set()
        self._supervisor: asyncio.Task[None] | None = None

    # ---- life ----

    @property
    def health(self) -> Health:
        return self._health

    def on_change(self, listener: Callable[[Health], None]) -> None:
        self._listeners.append(listener)

    async def start(self, server: Server) -> None:
        if self._supervisor is not None or self._health.state == "closed":
            raise RuntimeError("a network starts once")
        self._server = server
        self._link = await self._open_first(server)
        self._change("up", generation=1)
        self._supervisor = asyncio.create_task(self._supervise(self._link), name="network supervisor")

    async def _open_first(self, server: Server) -> Link:
        """The first link. A daemon that is lost while it starts is replaced, like any later one, a few times."""
        pause = FIRST_REOPEN_PAUSE
        for tries in range(1, START_TRIES + 1):
            try:
                return await self._open_link(server)
            except NetworkDown as problem:
                if tries == START_TRIES:
                    raise LocalProblem(f"{problem}; that happened {tries} times, so something here ends it") from None
                logger.warning("the network did not start: %s; trying again", problem)
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        """Close everything within 3 s, in whatever state it is."""
        if self._health.state == "closed":
            return
        self._change("closed")
        link = self._drop_link()
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait({self._supervisor}, timeout=CLOSE_LIMIT)
        if link is not None:
            await _close(link)

    def _change(self, state: NetworkState, reason: str = "", generation: int | None = None) -> None:
        self._health = Health(state, self._health.generation if generation is None else generation, reason)
        for listener in tuple(self._listeners):
            try:
                listener(self._health)
            except Exception:  # the other listeners must be called, and the network goes on
                logger.exception("a listener to the network's health failed")

    def _drop_link(self) -> Link | None:
        """Forget the link, and fail the operations that wait for it."""
        link, self._link = self._link, None
        self._reached.clear()
        now = asyncio.get_running_loop().time()
        for scope in tuple(self._scopes):
            with contextlib.suppress(RuntimeError):  # it is ending already
                scope.reschedule(now)
        return link

    # ---- supervision ----

    async def _supervise(self, link: Link) -> None:
        while True:
            reason = await self._death(link)
            logger.warning("the network is down: %s", reason)
            self._drop_link()
            self._change("down", reason)
            link.kill()
            await _close(link)
            link = await self._reopen()
            self._link = link
            self._change("up", generation=self._health.generation + 1)
            logger.warning("the network is up again (generation %d)", self._health.generation)

    async def _death(self, link: Link) -> str:
        """Wait until the link is dead; returns the reason. Meanwhile contact known peers again."""
        exit_ = asyncio.create_task(link.wait_dead())
        hang = asyncio.create_task(_hang(link))
        recontact = asyncio.create_task(self._contact_again(link))
        try:
            done, _ = await asyncio.wait({exit_, hang}, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            await cancel_and_wait(exit_, hang, recontact)

    async def _reopen(self) -> Link:
        assert self._server is not None
        pause = FIRST_REOPEN_PAUSE
        while True:
            try:
                return await self._open_link(self._server)
            except Exception as error:  # a node without a network is of no use: try forever
                if not isinstance(error, P2pnodeError | OSError | EOFError):
                    logger.exception("the network could not be replaced")
                self._change("down", str(error) or type(error).__name__)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_REOPEN_PAUSE)

    async def _contact_again(self, link: Link) -> None:
        """Dials the peers that were known before the daemon was replaced, the latest first."""
        turns = asyncio.Semaphore(RECONTACTS_AT_ONCE)

        async def dial(peer: PeerId) -> None:
            async with turns:
                with contextlib.suppress(PeerError, LocalProblem, TimeoutError):
                    async with asyncio.timeout(DIAL_LIMIT):
                        await link.connect(peer, self._hints.transports(peer))
                        await link.join_routing(peer)

        if self._health.generation > 1:
            async with asyncio.TaskGroup() as group:
                for peer in self._hints.latest(MAX_RECONTACTS):
                    group.create_task(dial(peer))

    # ---- operations ----

    @contextlib.asynccontextmanager
    async def _operation(self, what: str, timeout: Seconds | None) -> AsyncIterator[Link]:
        """An operation over the link within a time limit; NetworkDown as soon as the link is gone."""
        link = self._link
        if link is None:
            raise self._down()
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                self._scopes.add(scope)
                yield link
        except TimeoutError:
            if self._link is not link:
                raise self._down() from None
            raise PeerTimeout(f"{what}: nothing within {timeout} s") from None
        except PeerUnreachable:
            if self._link is not link or not await _responds(link):
                raise self._down() from None
            raise
        except (OSError, EOFError):  # the daemon closed the connection; the supervisor deals with it
            raise self._down() from None
        except RuntimeError as error:
            if CLOSED_TRANSPORT not in str(error):
                raise
            raise self._down() from None
        finally:
            self._scopes.discard(scope)

    def _down(self) -> NetworkDown:
        return NetworkDown("the network is closed" if self._health.state == "closed" else "our own daemon is down")

    async def contact(self, address: Address, timeout: Seconds) -> None:
        async with self._operation(f"dialling {address}", timeout) as link:
            await link.connect(address.peer, (address.transport,))
            await link.join_routing(address.peer)
        self._reached.add(address.peer)
        self._hints.reached(address)

    def learn(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        if peer != self.peer:
            self._hints.heard(peer, addresses)

    async def call(self, peer: PeerId, request: bytes, timeout: Seconds) -> bytes:
        if len(request) > MAX_CALL_BYTES:
            raise ValueError(f"a request of {len(request)} bytes; at most {MAX_CALL_BYTES} go into a call")
        async with self._operation(f"calling {short(peer)}", timeout) as link:
            return await self._reach(link, peer, lambda: link.call(peer, request), timeout / 2)

    async def fetch(self, peer: PeerId, request: bytes, sink: Sink, limits: StreamLimits) -> StreamResult:
        async with self._operation(f"streaming from {short(peer)}", None) as link:
            try:
                async with asyncio.timeout(limits.first_byte):
                    open_stream = self._reach(link, peer, lambda: link.open_stream(peer), limits.first_byte / 2)
                    reader, writer = await open_stream
            except TimeoutError:
                if self._link is not link:
                    raise self._down() from None
                raise PeerTimeout(f"{short(peer)} opened no stream within {limits.first_byte} s") from None
            return await fetch_stream(reader, writer, request, sink, limits)

    async def _reach(self, link: Link, peer: PeerId, attempt: Callable[[], Awaitable[T]], dial_limit: Seconds) -> T:
        """Attempt something with a peer. Its hints are dialled once: before the first contact, or after a lost one."""
        dialled = peer not in self._reached and await self._dial_hints(link, peer, dial_limit)
        try:
            result = await attempt()
        except PeerUnreachable:
            self._reached.discard(peer)
            if dialled or not await self._dial_hints(link, peer, dial_limit):
                raise
            result = await attempt()
        if self._link is link:
            self._reached.add(peer)
        return result

    async def _dial_hints(self, link: Link, peer: PeerId, limit: Seconds) -> bool:
        transports = self._hints.transports(peer)
        if not transports:
            return False
        with contextlib.suppress(PeerError, TimeoutError):  # the attempt that follows shows whether it helped
            async with asyncio.timeout(min(limit, DIAL_LIMIT)):
                await link.connect(peer, transports)
        return True

    async def nearest(self, key: str, count: int) -> list[PeerId]:
        async with self._operation("looking for peers", DIAL_LIMIT * 2) as link:
            return await link.nearest(key, count)

    async def addresses(self) -> tuple[str, ...]:
        async with self._operation("asking p2pd", CHECK_LIMIT) as link:
            return await link.addresses()


async def _hang(link: Link) -> str:
    """Wait until the link stops answering."""
    loop = asyncio.get_running_loop()
    failures = 0
    while failures < FAILURES_TO_DEATH:
        if not failures:
            await asyncio.sleep(CHECK_EVERY)
        begun = loop.time()
        failures = 0 if await _responds(link) else failures + (loop.time() - begun < CHECK_LIMIT + LAG_ALLOWED)
    return "p2pd does not answer"


async def _responds(link: Link) -> bool:
    try:
        async with asyncio.timeout(CHECK_LIMIT):
            await link.check()
    except (TimeoutError, OSError, EOFError, LocalProblem):
        return False
    return True


async def _close(link: Link) -> None:
    try:
        async with asyncio.timeout(CLOSE_LIMIT):
            await link.close()
    except TimeoutError:
        logger.warning("the link took too long to close")
    except Exception:  # it is killed all the same
        logger.exception("closing the link failed")
    finally:
        link.kill()
