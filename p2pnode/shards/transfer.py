"""Moving the samples of shards between nodes: packing them for a peer, fetching them from peers, and checking both."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..discovery.services import Services
from ..network.base import MemorySink, Payload, StreamLimits
from ..runtime.calls import JobCalls
from ..wire.errors import NetworkDown, PeerError, PeerMisbehaved
from ..wire.ids import PeerId
from ..wire.types import Seconds, decoded
from .handoff.certificate import Certificate, check_offer, is_offer
from .handoff.messages import Certified, check_handoff
from .messages import GetShard
from .samples import MAX_SHARD_BYTES, SampleLayout, decode_samples
from .visits import MAX_BYTES as MAX_HISTORY_BYTES
from .visits import VisitHistory, check_history, check_nothing_left_out, decode_history, encode_history

STREAMS = 8  # shards fetched at the same time
MAX_PEERS_ASKED = 8  # for one shard
ASK_PAUSES: tuple[Seconds, ...] = (0.3, 1.0, 0.0)  # after each round of asking all peers in turn
_LENGTH = struct.Struct(">I")
_decoder = msgspec.msgpack.Decoder(Certificate)
_encoder = msgspec.msgpack.Encoder()


class FetchedShard(NamedTuple):
    """A shard as a peer sent it, checked."""

    content: bytes  # the encoded samples
    history: VisitHistory


def shown_certificate(request: GetShard, run: str, peer: PeerId, me: PeerId, known: Certificate | None) -> Certificate:
    """The certificate a peer shows when it asks for a shard; PeerMisbehaved when it is not valid.

    `known` is the highest certificate of the shard on this node.
    """
    try:
        shown = decoded(_decoder, request.certificate, "certificate")
        if (shown.run, shown.shard) != (run, request.shard):
            raise ValueError("the certificate is for another shard")
        if is_offer(shown):
            check_offer(shown, shown.giver, peer)
        else:
            check_handoff(Certified(shown), peer, me, known)
    except ValueError as error:
        raise PeerMisbehaved(f"shard: {str(error)[:120]}") from None
    return shown


def pack(history: VisitHistory, content: bytes) -> Payload:
    """A shard's visit history and samples, as `GetShard` is answered."""
    encoded = encode_history(history)
    return Payload.of(b"".join([_LENGTH.pack(len(encoded)), encoded, content]))


def unpack(data: bytes, shard: str, layout: SampleLayout, now: float) -> FetchedShard:
    """What `pack` made, sent by a peer; ValueError when it is not that shard or its history is not true."""
    if len(data) < _LENGTH.size:
        raise ValueError("a shard without content")
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    content = data[end:]
    decode_samples(content, layout, shard)
    history = decode_history(data[_LENGTH.size : end])
    check_history(history, shard, now)
    return FetchedShard(content, history)


class ShardTransfer:
    """Fetches samples from peers. Peers that send wrong bytes lose reputation."""

    def __init__(self, services: Services, calls: JobCalls, layout: SampleLayout) -> None:
        self._services = services
        self._calls = calls
        self._layout = layout
        self._streams = asyncio.Semaphore(STREAMS)

    async def fetch(
        self, shard: str, peers: Sequence[str], wanted: Certificate | None, known: VisitHistory, room_bytes: int
    ) -> FetchedShard | None:
        """A shard from the first of the peers that sends it; None when none does.

        `wanted` shows the peers why this node may have it; `known` is the visit history that this node has.
        """
        asked = peers[:MAX_PEERS_ASKED]
        for pause in ASK_PAUSES if asked else ():  # a peer may be busy, or just restarting
            async with self._streams:
                for peer in asked:
                    fetched = await self._fetch_from(PeerId(peer), shard, wanted, known, room_bytes)
                    if fetched is not None:
                        return fetched
            await asyncio.sleep(pause)
        return None

    async def _fetch_from(
        self, peer: PeerId, shard: str, wanted: Certificate | None, known: VisitHistory, room_bytes: int
    ) -> FetchedShard | None:
        request = GetShard(shard, _encoder.encode(wanted))
        limits = StreamLimits(min(room_bytes, MAX_SHARD_BYTES) + MAX_HISTORY_BYTES + _LENGTH.size)
        sink, now = MemorySink(), self._services.clock.now
        try:
            await self._calls.fetch(peer, request, sink, limits)
            fetched = await self._services.seams.background(
                lambda: unpack(sink.content(), shard, self._layout, now()),
            )
            for visit in [visit for visit in known.visits if visit.peer == peer][-1:]:
                check_nothing_left_out(fetched.history, visit)
            return fetched
        except ValueError as fault:
            self._services.fault(peer, f"shard: {fault}")
        except PeerMisbehaved as fault:
            if room_bytes >= MAX_SHARD_BYTES:  # else it may only be too large for this node
                self._services.fault(peer, f"shard: {fault}")
        except (PeerError, NetworkDown):
            pass
        return None
