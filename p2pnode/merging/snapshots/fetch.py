"""Fetches a snapshot: its outline, its chunks from every member that has the same one, and the entries kept with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...network.base import MemorySink, StreamLimits
from ...runtime.calls import JobCalls
from ...wire.errors import NetworkDown, PeerError, PeerMisbehaved
from ...wire.ids import PeerId
from .messages import GetChunks, GetKept, GetSnapshot
from .outline import Assembly, ChunkSink, Outline, decode_outline

LARGE = 4 << 20  # bytes from which several members are asked at once
PIECE = 4  # chunks asked for at a time, when several members are asked
STREAMS = 2  # in parallel, when one member is asked: while one waits for its turn, the other goes on
_MAX_OUTLINE_BYTES = 4 << 20
_MAX_KEPT_SHARE = 4  # kept entries are at most a quarter of the content,
_MAX_KEPT_BYTES = 1 << 20  # or this


class Fetching:
    """Asks members for snapshots of one model. A member whose content is wrong is reported to `fault`."""

    def __init__(self, calls: JobCalls, fault: Callable[[PeerId, str], None]) -> None:
        self._calls = calls
        self._fault = fault

    async def outline(self, peer: PeerId, max_size: int, circle: str, at: bytes = b"") -> Outline:
        """The outline of a member's snapshot, now or at a position. PeerError or NetworkDown when there is none."""
        sink = MemorySink()
        limits = StreamLimits(_MAX_OUTLINE_BYTES)
        try:
            await self._calls.fetch(peer, GetSnapshot(at, circle), sink, limits)
            return decode_outline(sink.content(), max_size)
        except ValueError as error:
            self._fault(peer, f"snapshot: {error}")
            raise PeerMisbehaved(str(error)) from None
        except PeerMisbehaved as fault:
            self._fault(peer, f"snapshot: {fault}")
            raise

    async def fill(self, assembly: Assembly, sources: list[PeerId]) -> None:
        """Fetch the missing chunks, from all sources at once if there are many, as long as one of them serves."""
        while sources and not assembly.complete:
            if assembly.outline.size > LARGE and len(sources) > 1:
                at_once, limit = sources, PIECE
            else:
                at_once, limit = sources[:1] * STREAMS, -(-assembly.outline.count // STREAMS)
            served = await asyncio.gather(*(self._fill_from(peer, assembly, limit) for peer in at_once))
            failed = {peer for peer, succeeded in zip(at_once, served, strict=True) if not succeeded}
            sources = [peer for peer in sources if peer not in failed]

    async def kept(self, peer: PeerId, outline: Outline) -> bytes:
        """The entries kept with a snapshot; empty when the peer does not give them."""
        sink = MemorySink()
        limits = StreamLimits(max(_MAX_KEPT_BYTES, outline.size // _MAX_KEPT_SHARE))
        try:
            await self._calls.fetch(peer, GetKept(outline.name), sink, limits)
        except (PeerError, NetworkDown):
            return b""
        return sink.content()

    async def _fill_from(self, peer: PeerId, assembly: Assembly, limit: int) -> bool:
        """Fetch from one member until no chunk is left to claim; False when it fails."""
        while (span := assembly.claim(limit)) is not None:
            try:
                await self._chunks(peer, assembly, span)
            except PeerMisbehaved as fault:
                self._fault(peer, f"snapshot: {fault}")
                return False
            except (PeerError, NetworkDown):
                return False
            finally:
                assembly.give_back(span)
        return True

    async def _chunks(self, peer: PeerId, assembly: Assembly, span: range) -> None:
        outline = assembly.outline
        place = outline.place_of(span)
        limits = StreamLimits(place.stop - place.start, expected_digest=outline.digest(span))
        request = GetChunks(outline.name, span.start, span.stop)
        await self._calls.fetch(peer, request, ChunkSink(assembly, span), limits)
