"""The network seam: what a node may ask of a network, whichever network it is.

Every method that waits for a peer has a time limit. It fails with PeerUnreachable, PeerTimeout, PeerRefused or
PeerMisbehaved, or with NetworkDown when our own side is down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from blake3 import blake3

from ..wire.addresses import Address
from ..wire.ids import PeerId
from ..wire.types import Seconds

KIB = 1024
CHUNK_BYTES = 512 * KIB
MAX_CHUNK_BYTES = 1024 * KIB

logger = logging.getLogger(__name__)

NetworkState = Literal["starting", "up", "down", "closed"]


@dataclass(frozen=True)
class Health:
    """The state of the network itself, not of peers. `generation` rises with every new daemon."""

    state: NetworkState
    generation: int = 0
    reason: str = ""


class StreamThrottle(Protocol):
    """Slows a stream down to the rate that this node may send or receive."""

    def piece(self, limit: int) -> int:
        """How many bytes to send at once, at most `limit`."""
        ...

    async def spend(self, count: int) -> None:
        """Note that `count` bytes were transferred; returns when more may follow."""
        ...

    def turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """A slot for one stream, held from its first byte to its last; PeerRefused when too many streams wait."""
        ...


@dataclass(frozen=True)
class Payload:
    """Something to stream to a peer: its size, its content hash (BLAKE3), and a function that reads a piece of it."""

    size: int
    digest: bytes
    read: Callable[[int, int], bytes | memoryview]  # (offset, length) -> exactly those bytes
    throttle: StreamThrottle | None = None

    @classmethod
    def of(cls, data: bytes) -> Payload:
        view = memoryview(data)
        return cls(len(data), blake3(data).digest(), lambda offset, length: view[offset : offset + length])


@dataclass(frozen=True)
class StreamLimits:
    """What a receiver of a stream accepts."""

    max_bytes: int
    first_byte: Seconds = 10.0
    min_rate: float = 16 * KIB  # bytes per second, after `grace`
    grace: Seconds = 10.0
    expected_digest: bytes = b""  # a stream that announces another content hash is refused at once
    throttle: StreamThrottle | None = None  # the time it takes does not count for `min_rate`


class Hasher(Protocol):
    def digest(self) -> bytes: ...


class Sink(Protocol):
    """Takes the bytes of a stream. `offset` bytes are there already, hashed into `hasher`; `write` appends and hashes.

    `write` may raise PeerMisbehaved when a piece is wrong.
    """

    @property
    def offset(self) -> int: ...
    @property
    def hasher(self) -> Hasher: ...
    def write(self, piece: bytes) -> None: ...


class MemorySink:
    """A sink for content that fits into memory. Use it again to resume a stream."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.offset = 0
        self.hasher = blake3()

    def write(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.hasher.update(piece)
        self.offset += len(piece)

    def content(self) -> bytes:
        return b"".join(self._pieces)


@dataclass(frozen=True)
class StreamResult:
    """A completed stream: size and verified content hash of the payload, and how many bytes were received now."""

    size: int
    digest: bytes
    received: int


class Server(Protocol):
    """Answers incoming traffic. The network has authenticated `peer`."""

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        """The answer to a call. The caller sees any exception as PeerRefused("failed")."""
        ...

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        """What to stream for a request; PeerRefused to decline."""
        ...

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        """Called when the peer broke the rules of the network's own protocol."""
        ...


class Network(Protocol):
    """The network of one node, whose id is `peer`."""

    peer: PeerId

    @property
    def health(self) -> Health: ...

    async def start(self, server: Server) -> None:
        """Start serving. LocalProblem with a remedy when that is impossible on this machine."""
        ...

    async def contact(self, address: Address, timeout: Seconds) -> None:
        """Dial an address, so that its peer and the DHT behind it become known.

        PeerMisbehaved when another peer than the one in the address answers there.
        """
        ...

    def learn(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        """Remember addresses at which a peer may be dialled. They are hints and never trusted."""
        ...

    async def call(self, peer: PeerId, request: bytes, timeout: Seconds) -> bytes: ...

    async def fetch(self, peer: PeerId, request: bytes, sink: Sink, limits: StreamLimits) -> StreamResult:
        """Stream the answer to `request` into `sink`, from `sink.offset` on; the content hash is checked at the end."""
        ...

    async def nearest(self, key: str, count: int) -> list[PeerId]:
        """The peers whose ids are nearest to a key, including this node if it is one of them."""
        ...

    async def addresses(self) -> tuple[str, ...]:
        """Addresses at which this node can be dialled now, with its peer id."""
        ...

    def on_change(self, listener: Callable[[Health], None]) -> None:
        """Call `listener` whenever `health` changes."""
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Wall and monotonic time. Waiting is done with asyncio, whose loop the simulator replaces."""

    def time(self) -> float: ...
    def monotonic(self) -> float: ...


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended; errors of theirs are logged. The caller itself can be cancelled."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task failed before it was cancelled", exc_info=error)
