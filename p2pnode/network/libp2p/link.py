"""One generation of the real network: a daemon, our connection to it, the DHT on it and our handlers.

hivemind is passed in as an argument, because it takes seconds to import (it imports torch); that happens in a thread
while p2pd starts. Code that depends on undocumented internals of hivemind is at the end of this file.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from ...wire.addresses import useful
from ...wire.bounded import put_bounded
from ...wire.errors import LocalProblem, NetworkDown, PeerError, PeerMisbehaved, PeerRefused, PeerUnreachable
from ...wire.ids import PeerId, short
from ...wire.messages import MAX_ADDRESSES, MAX_CALL_BYTES
from ...wire.types import Seconds
from ..base import Server, cancel_and_wait
from .daemon import Daemon, DaemonOptions
from .frames import SEND_BUFFER_BYTES, FrameReader, FrameWriter
from .incoming import Incoming
from .pieces import PieceReader
from .routing import BUCKET, MAX_RPCS, RPC_LIMIT, DhtRouting, place_of

CALL_PROTOCOL = "p2pnode/1/call"
STREAM_PROTOCOL = "p2pnode/1/stream"
OPEN_LIMIT: Seconds = 15.0
END_LIMIT: Seconds = 0.5  # for work that is under way when a link closes
DEATH_LIMIT: Seconds = 1.0  # a daemon whose connection broke is usually dead; its end says more about the reason

T = TypeVar("T")


MAX_REASONS = 256
BACKOFF = "dial backoff"  # what p2pd says while it waits before it dials an address again


class HivemindLink:
    """Implements `supervised.Link`: a daemon and everything that dies with it."""

    def __init__(self, peer: PeerId, library: SimpleNamespace, daemon: Daemon, server: Server) -> None:
        self._peer = peer
        self._library = library
        self._daemon = daemon
        self._incoming = Incoming(server)
        self._p2p: Any = None
        self._routing: DhtRouting | None = None
        self._unreachable: dict[PeerId, str] = {}  # why peers could not be reached, the latest last
        self._another_there: dict[PeerId, str] = {}  # who answered instead of a peer, when it was last dialled

    @classmethod
    async def open(
        cls, peer: PeerId, options: DaemonOptions, server: Server, load_library: Callable[[], SimpleNamespace]
    ) -> HivemindLink:
        """Start a daemon and everything on it; LocalProblem when that fails, NetworkDown when the daemon was lost."""
        importing = asyncio.create_task(asyncio.to_thread(load_library))
        try:
            daemon = await Daemon.start(options)
        except BaseException:
            importing.cancel()
            raise
        try:
            library = await importing
            link = cls(peer, library, daemon, server)
        except BaseException:
            await daemon.stop()
            raise
        try:
            async with asyncio.timeout(OPEN_LIMIT):
                await link._connect_daemon()
        except TimeoutError:
            await link.close()
            raise NetworkDown(f"p2pd came up, but did not answer within {OPEN_LIMIT:.0f} s") from None
        except (OSError, EOFError, library.P2PDaemonError) as error:
            await link.close()
            raise NetworkDown(f"p2pd came up and was lost again ({type(error).__name__})") from None
        except Exception as error:  # hivemind's tasks fail in many ways when the daemon dies under them
            lost = daemon.ended
            await link.close()
            if lost and not isinstance(error, LocalProblem):
                raise NetworkDown(f"p2pd came up and ended again ({type(error).__name__})") from None
            raise
        except BaseException:
            await link.close()
            raise
        return link

    async def _connect_daemon(self) -> None:
        library = self._library
        self._p2p = await library.p2p_class(self._daemon.sockets).replicate(_unix(library, self._daemon.control))
        if str(self._p2p.peer_id) != self._peer:
            raise LocalProblem(
                f"the key file is that of {self._p2p.peer_id}, not of {self._peer}; restore the right one"
            )
        _silence(self._p2p)
        _forget_given_up_calls(self._p2p)
        dht = await library.DHTNode.create(
            p2p=self._p2p,
            node_id=library.DHTID.from_bytes(place_of(self._p2p.peer_id.to_bytes())),
            bucket_size=BUCKET,
            parallel_rpc=MAX_RPCS,
            wait_timeout=RPC_LIMIT,
            cache_locally=False,
            cache_nearest=0,
            cache_size=1,
            record_validator=library.NoRecords(),
            authorizer=library.RoutingOnly(),
            ensure_bootstrap_success=False,
            strict=False,
        )
        self._routing = DhtRouting(dht, library.DHTID)
        await self._p2p.add_protobuf_handler(CALL_PROTOCOL, self._on_call, library.BytesValue)
        await self._p2p.add_binary_stream_handler(STREAM_PROTOCOL, self._on_stream)

    # ---- incoming ----

    async def _on_call(self, request: Any, context: Any) -> Any:
        answer = await self._incoming.answer(PeerId(str(context.remote_id)), request.value)
        return self._library.BytesValue(value=answer)

    async def _on_stream(self, info: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=SEND_BUFFER_BYTES)
        await self._incoming.stream(PeerId(str(info.peer_id)), reader, writer)

    # ---- outgoing ----

    async def connect(self, peer: PeerId, transports: tuple[str, ...]) -> None:
        # Not hivemind's own Multiaddr, which encodes the relay's peer id in a way that p2pd does not understand.
        from multiaddr import Multiaddr

        try:
            addresses = [Multiaddr(text) for text in transports]
        except Exception as error:  # py-multiaddr raises many kinds
            raise PeerUnreachable(f"this is not an address: {error}") from None
        before = self._another_there.pop(peer, "")
        try:
            await self._asked(peer, self._p2p._client.connect(self._id(peer), addresses))
        except PeerMisbehaved as error:
            put_bounded(self._another_there, peer, str(error), MAX_REASONS)
            raise
        except PeerUnreachable as error:
            if before and BACKOFF in str(error):  # it was not dialled: what was found before still holds
                put_bounded(self._another_there, peer, before, MAX_REASONS)
                raise PeerMisbehaved(before) from None
            raise

    async def join_routing(self, peer: PeerId) -> None:
        """Enter each other's routing table, and look for more peers."""
        assert self._routing is not None
        try:
            answered = await self._routing.ping(self._id(peer))
        except ValueError as error:
            raise PeerMisbehaved(f"{short(peer)}: {error}") from None
        if not answered:
            raise PeerUnreachable(f"{short(peer)} is connected, but does not answer as a node")
        self._routing.look_around()

    async def call(self, peer: PeerId, request: bytes) -> bytes:
        kind = self._library.BytesValue
        calling = self._p2p.call_protobuf_handler(self._id(peer), CALL_PROTOCOL, kind(value=request), kind)
        answer = (await self._asked(peer, calling)).value
        if len(answer) > MAX_CALL_BYTES:
            raise PeerMisbehaved(f"answered {len(answer)} bytes where {MAX_CALL_BYTES} are allowed")
        return bytes(answer)

    async def open_stream(self, peer: PeerId) -> tuple[FrameReader, FrameWriter]:
        opening = self._p2p.call_binary_stream_handler(self._id(peer), STREAM_PROTOCOL)
        _, reader, writer = await self._asked(peer, opening)
        return PieceReader(reader, writer.transport), writer

    async def nearest(self, key: str, count: int) -> list[PeerId]:
        assert self._routing is not None
        return await self._routing.nearest(key, count)

    async def addresses(self) -> tuple[str, ...]:
        _, visible = await self._p2p._client.identify()
        return useful((f"{text}/p2p/{self._peer}" for text in _texts(visible)), MAX_ADDRESSES)

    def _id(self, peer: PeerId) -> Any:
        return self._library.PeerID.from_base58(peer)

    async def _asked(self, peer: PeerId, work: Awaitable[T]) -> T:
        """Await an operation with a peer; errors of hivemind and p2pd become ours."""
        library = self._library
        try:
            return await work
        except library.P2PHandlerError as error:
            raise PeerRefused("failed", _first_line(error)) from None
        except library.P2PDaemonError as error:
            raise self._translated(peer, str(error)) from None
        except library.DecodeError:
            raise PeerMisbehaved(f"{short(peer)} answered something that is not an answer") from None
        except (
            OSError,
            EOFError,
        ) as error:  # the daemon closed the connection; `supervised` finds out whether it is dead
            raise PeerUnreachable(f"lost p2pd while talking to {short(peer)} ({type(error).__name__})") from None

    def _translated(self, peer: PeerId, text: str) -> PeerError:
        """Our error for an error text of p2pd. While p2pd waits before it dials again, why the last dial failed."""
        error = _translated(peer, text)
        if isinstance(error, PeerUnreachable):
            if str(error).endswith(BACKOFF) and peer in self._unreachable:
                return PeerUnreachable(self._unreachable[peer])
            put_bounded(self._unreachable, peer, str(error), MAX_REASONS)
        return error

    # ---- life ----

    async def wait_dead(self) -> str:
        """Wait until the daemon has ended, or the connection over which all calls go; returns how."""
        daemon = asyncio.create_task(self._daemon.wait_dead())
        connection = _connection_tasks(self._p2p)
        try:
            await asyncio.wait({daemon, *connection}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({daemon}, timeout=DEATH_LIMIT)
            return daemon.result() if daemon.done() else f"the connection to p2pd is lost{_reason_of(connection)}"
        finally:
            await cancel_and_wait(daemon)

    async def check(self) -> None:
        """Ask the daemon for its id. Also removes finished calls, which hivemind would keep forever."""
        await self._p2p._client.identify()
        handling = self._p2p._client.control._handler_tasks
        for call in [call for call, task in handling.items() if task.done()]:
            del handling[call]

    def kill(self) -> None:
        self._daemon.kill()

    async def close(self) -> None:
        """Close everything. Does not wait for hivemind's own shutdown, which hangs if the daemon is dead."""
        try:
            if self._p2p is not None:
                await _end_hivemind(self._p2p, self._incoming, self._routing)
        finally:
            await self._daemon.stop()


def _translated(peer: PeerId, text: str) -> PeerError:
    """Our error for an error text of p2pd."""
    if "peer id mismatch" in text:
        found = text.partition("remote key matches ")[2].split()[:1]
        return PeerMisbehaved(f"another peer answers there: {found[0] if found else 'unknown'}, not {peer}")
    if "protocols not supported" in text:
        return PeerRefused("protocol", f"{short(peer)} is not a p2pnode of this version")
    reason = text.splitlines()[-1].strip(" *")[:200]
    return PeerUnreachable(f"{short(peer)} cannot be reached: {reason}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def _texts(addresses: Any) -> list[str]:
    texts = []
    for address in addresses:
        with contextlib.suppress(Exception):  # protocols that the vendored parser does not know are of no use to it
            texts.append(str(address))
    return texts


def _unix(library: SimpleNamespace, path: Path) -> Any:
    return library.Multiaddr(f"/unix{path}")


# ---- internals of hivemind ----


def _silence(p2p: Any) -> None:
    """Handle streams that break before hivemind has read their header; hivemind lets the exception escape."""
    handle = p2p._client.control._handler

    async def quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        except (OSError, EOFError):
            writer.close()

    p2p._client.control._handler = quiet


class _WaitingCalls(dict[Any, asyncio.Future[Any]]):
    """Calls that wait for an answer, by id. One that was given up does not count, even before it is removed."""

    def __contains__(self, call: object) -> bool:
        return super().__contains__(call) and not self[call].done()


def _forget_given_up_calls(p2p: Any) -> None:
    """Ignore an answer that arrives in the moment in which its call times out.

    hivemind gives the answer to the cancelled call, which raises and ends the task that reads all answers and requests:
    the daemon goes on, and this node hears nothing from anybody any more.
    """
    control = p2p._client.control
    control._pending_calls = _WaitingCalls(control._pending_calls)


def _connection_tasks(p2p: Any) -> set[asyncio.Task[None]]:
    """The tasks that read and write the connection to the daemon over which all calls go."""
    control = p2p._client.control
    return {control._read_task, control._write_task}


def _reason_of(tasks: set[asyncio.Task[None]]) -> str:
    """The errors with which some of the tasks ended, in brackets."""
    ended = [task for task in tasks if task.done() and not task.cancelled()]
    errors = [type(error).__name__ for error in (task.exception() for task in ended) if error is not None]
    return f" ({', '.join(errors)})" if errors else ""


async def _end_hivemind(p2p: Any, incoming: Incoming, routing: DhtRouting | None) -> None:
    """End every task of hivemind on this link, so that none fails later."""
    control = p2p._client.control

    async def refuse_call(*_: object) -> bytes:
        raise ConnectionError("the link is closed")

    control.call_unary_handler = refuse_call
    for call in list(control._pending_calls.values()):
        if not call.done():
            call.set_exception(ConnectionError("the link is closed"))
    await incoming.cancel_all(END_LIMIT)
    if routing is not None:
        await routing.close(END_LIMIT)
    tasks = {control._read_task, control._write_task, p2p._listen_task, *control._handler_tasks.values()} - {None}
    await p2p.shutdown()
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=END_LIMIT)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()
