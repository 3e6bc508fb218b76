"""The network seam: what a node may ask of a network, whichever network it is.

Implementations: `hivemind` (libp2p daemons) and `sim` (in memory, virtual time); tests/network/test_conformance.py says
what both keep. Every method that waits for a peer has a limit, and fails with PeerUnreachable, PeerTimeout, PeerRefused
or PeerMisbehaved, or with NetworkDown when our own side is the one that is gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from blake3 import blake3

from ..wire.addresses import Address
from ..wire.ids import PeerId
from ..wire.types import Seconds

KIB = 1024
CHUNK_BYTES = 512 * KIB
MAX_CHUNK_BYTES = 1024 * KIB

NetworkState = Literal["starting", "up", "down", "closed"]


@dataclass(frozen=True)
class Health:
    """What the network knows of its own machinery (not of peers). `generation` rises with every new daemon."""

    state: NetworkState
    generation: int = 0
    why: str = ""


class Throttle(Protocol):
    """Slows a stream down to what this node may send or receive."""

    def piece(self, most: int) -> int:
        """How much to send at once, at most `most`."""
        ...

    async def spend(self, count: int) -> None:
        """So many bytes went; returns when more may."""
        ...

    def turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Before the first byte: to be held while the stream goes on; PeerRefused when there is no room for it."""
        ...


@dataclass(frozen=True)
class Payload:
    """Something to stream to a peer: its size and content hash (BLAKE3), and how to read a piece of it."""

    size: int
    digest: bytes
    read: Callable[[int, int], bytes | memoryview]  # (offset, length) -> exactly those bytes
    throttle: Throttle | None = None

    @classmethod
    def of(cls, data: bytes) -> Payload:
        view = memoryview(data)
        return cls(len(data), blake3(data).digest(), lambda offset, length: view[offset : offset + length])


@dataclass(frozen=True)
class StreamLimits:
    """What a receiver puts up with."""

    max_bytes: int
    first_byte: Seconds = 10.0
    min_rate: float = 16 * KIB  # bytes per second, after `grace`
    grace: Seconds = 10.0
    expected_digest: bytes = b""  # refuse at once what announces another content hash
    throttle: Throttle | None = None  # the time it takes is not held against the sender


class Hasher(Protocol):
    def digest(self) -> bytes: ...


class Sink(Protocol):
    """Where a stream goes. `offset` bytes are there already, hashed into `hasher`; `write` appends and hashes.

    `write` may raise PeerMisbehaved when it sees that a piece is wrong.
    """

    @property
    def offset(self) -> int: ...
    @property
    def hasher(self) -> Hasher: ...
    def write(self, piece: bytes) -> None: ...


class MemorySink:
    """A sink for things small enough to keep in memory. Use it again to resume."""

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
    """A completed stream: the payload's size and verified content hash, and how many bytes of it came this time."""

    size: int
    digest: bytes
    received: int


class Server(Protocol):
    """The node's side of incoming traffic. `peer` is authenticated by the network."""

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        """Answer a call. Whatever it raises reaches the caller as PeerRefused("failed")."""
        ...

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        """What to stream for a request; PeerRefused to say no."""
        ...

    def misbehaved(self, peer: PeerId, why: str) -> None:
        """The network saw the peer break the framing."""
        ...


class Network(Protocol):
    """One node's network. `peer` is its own id."""

    peer: PeerId

    @property
    def health(self) -> Health: ...

    async def start(self, server: Server) -> None:
        """Come up and serve. LocalProblem with a remedy when that is impossible here."""
        ...

    async def contact(self, address: Address, timeout: Seconds) -> None:
        """Dial an address, so that its peer and the DHT behind it become known.

        PeerMisbehaved when another peer answers there than the address names.
        """
        ...

    def learn(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        """Remember where a peer says it can be dialled (hints; never trusted)."""
        ...

    async def call(self, peer: PeerId, request: bytes, timeout: Seconds) -> bytes: ...

    async def fetch(self, peer: PeerId, request: bytes, sink: Sink, limits: StreamLimits) -> StreamResult:
        """Stream the answer to `request` into `sink`, from `sink.offset` on, hash-checked at the end."""
        ...

    async def nearest(self, key: str, count: int) -> list[PeerId]:
        """The peers whose ids lie nearest to a key, this node included when it is one of them."""
        ...

    async def addresses(self) -> tuple[str, ...]:
        """Where this node can be dialled now, with its peer id."""
        ...

    def on_change(self, listener: Callable[[Health], None]) -> None:
        """Be told when `health` changes."""
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Wall and monotonic time. Waiting is asyncio's, whose loop the simulator replaces."""

    def time(self) -> float: ...
    def monotonic(self) -> float: ...
