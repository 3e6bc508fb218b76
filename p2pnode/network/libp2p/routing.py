"""Finds the peers nearest to a key, with hivemind's Kademlia routing, restricted to lookups and bound to peer ids.

The position of a node in the DHT is the SHA-1 of its peer id, and peers that claim another position are ignored. So an
attacker who wants positions around a key must search for matching identities. Values are neither stored nor read, and
the clocks of peers are not used.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import math
from typing import Any

from ...wire.ids import PeerId
from ...wire.types import Seconds

BUCKET = 20  # Kademlia's k
RPC_LIMIT: Seconds = 2.0
LOOKUP_LIMIT: Seconds = 6.0
MAX_RPCS = 32
MAX_LOOKUPS = 64
MAX_KEYS_PER_FIND = 16
FIRST_SUSPENSION: Seconds = 5.0
LONGEST_SUSPENSION: Seconds = 60.0
NODE_ID_BYTES = 20
_ED25519_PEER_ID = bytes([0x00, 0x24, 0x08, 0x01, 0x12, 0x20])
_ED25519_PEER_ID_BYTES = 38

_deadline: contextvars.ContextVar[float] = contextvars.ContextVar("lookup deadline", default=math.inf)


def place_of(peer_id: bytes) -> bytes:
    """The position of a peer in the DHT."""
    return hashlib.sha1(peer_id, usedforsecurity=False).digest()


def is_in_place(node_id: bytes, peer_id: bytes) -> bool:
    """Whether a peer has an id like ours (Ed25519) and the position that follows from it."""
    return (
        len(peer_id) == _ED25519_PEER_ID_BYTES and peer_id.startswith(_ED25519_PEER_ID) and node_id == place_of(peer_id)
    )


def may_ask(request: Any) -> bool:
    """Whether a DHT request of a peer is answered: pings and finds of a sensible size, never a store."""
    kind = request.DESCRIPTOR.name
    if kind not in ("PingRequest", "FindRequest") or len(request.peer.node_id) not in (0, NODE_ID_BYTES):
        return False
    if kind == "PingRequest":
        return not request.validate  # that would make us dial back for anyone who asks
    return len(request.keys) <= MAX_KEYS_PER_FIND and all(len(key) == NODE_ID_BYTES for key in request.keys)


def clean_answer(response: Any) -> bool:
    """Whether a DHT answer of a peer is usable. Removes all values, and all peers whose position is wrong.

    This happens before hivemind sees the answer, because it encodes peer ids of any length in quadratic time.
    """
    if len(response.peer.node_id) not in (0, NODE_ID_BYTES):
        return False
    for result in getattr(response, "results", ()):
        pairs = list(zip(result.nearest_node_ids[:BUCKET], result.nearest_peer_ids[:BUCKET], strict=False))
        good = [pair for pair in pairs if is_in_place(*pair)]
        result.Clear()  # leaves type NOT_FOUND, without a value
        result.nearest_node_ids.extend(node_id for node_id, _ in good)
        result.nearest_peer_ids.extend(peer_id for _, peer_id in good)
    return True


class Suspended:
    """Peers that did not answer are not asked for a while, which doubles. hivemind's own list uses the wall clock."""

    def __init__(self, limit: int = 1000) -> None:
        self._until: dict[Any, tuple[float, float]] = {}
        self._limit = limit

    def __contains__(self, peer: Any) -> bool:
        return self._until.get(peer, (0.0, 0.0))[0] > asyncio.get_running_loop().time()

    def register_failure(self, peer: Any) -> None:
        if peer in self:
            return
        length = min(2 * self._until.get(peer, (0.0, FIRST_SUSPENSION / 2))[1], LONGEST_SUSPENSION)
        if len(self._until) >= self._limit:
            self._until.clear()
        self._until[peer] = (asyncio.get_running_loop().time() + length, length)

    def register_success(self, peer: Any) -> None:
        self._until.pop(peer, None)


class DhtRouting:
    """The routing table and lookups of one node, over a hivemind `DHTNode`."""

    def __init__(self, dht: Any, make_id: Any) -> None:
        self._dht = dht
        self._make_id = make_id  # hivemind's DHTID
        self._closed = False
        self._lookups: dict[str, asyncio.Task[list[PeerId]]] = {}
        self._bind(dht.protocol)

    def _bind(self, protocol: Any) -> None:
        """Apply our rules to what hivemind does by itself."""
        update, find = protocol.update_routing_table, protocol.call_find
        suspended = self._dht.blacklist = Suspended()

        async def update_routing_table(node_id: Any, peer_id: Any, responded: bool = True) -> None:
            if responded:
                if node_id is None or not is_in_place(node_id.to_bytes(), peer_id.to_bytes()):
                    return
                suspended.register_success(peer_id)
            await update(node_id, peer_id, responded=responded)

        async def call_find(peer: Any, keys: Any) -> Any:
            # A lookup is never cancelled, because hivemind would lose tasks. Instead it gets no more answers.
            if self._closed or asyncio.get_running_loop().time() > _deadline.get():
                return None
            return await find(peer, keys)

        protocol.update_routing_table = update_routing_table
        protocol.call_find = call_find

    async def ping(self, peer: Any) -> bool:
        """Enter each other's routing table. False when the peer does not answer; ValueError for a wrong position."""
        node_id = await self._dht.protocol.call_ping(peer, validate=False, strict=False)
        if node_id is None:
            return False
        if not is_in_place(node_id.to_bytes(), peer.to_bytes()):
            raise ValueError("its position in the DHT does not follow from its peer id")
        return True

    def look_around(self) -> None:
        """Fill the routing table by a lookup of our own id, in the background."""
        self._lookup("", self._dht.node_id)

    async def nearest(self, key: str, count: int) -> list[PeerId]:
        """The peers nearest to a key; only from our routing table when the lookup takes too long."""
        target = self._make_id.generate(key)
        lookup = self._lookup(key, target)
        if lookup is not None:
            await asyncio.wait({lookup}, timeout=LOOKUP_LIMIT)
        if lookup is None or not lookup.done() or lookup.exception() is not None:
            return self._known(target)[:count]
        return lookup.result()[:count]

    def _lookup(self, key: str, target: Any) -> asyncio.Task[list[PeerId]] | None:
        """The lookup for a key, new or already under way; None when there are too many."""
        if key not in self._lookups and len(self._lookups) < MAX_LOOKUPS:
            task = asyncio.create_task(self._look_up(target), name=f"lookup {key}")
            task.add_done_callback(lambda done: self._finished(key, done))
            self._lookups[key] = task
        return self._lookups.get(key)

    def _finished(self, key: str, task: asyncio.Task[list[PeerId]]) -> None:
        self._lookups.pop(key, None)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it; `nearest` uses the table

    async def _look_up(self, target: Any) -> list[PeerId]:
        _deadline.set(asyncio.get_running_loop().time() + LOOKUP_LIMIT - RPC_LIMIT)
        found = await self._dht.find_nearest_nodes([target], k_nearest=BUCKET)
        return [PeerId(str(peer)) for peer in found[target].values() if peer not in self._dht.blacklist]

    def _known(self, target: Any) -> list[PeerId]:
        table = self._dht.protocol.routing_table
        near = [*table.get_nearest_neighbors(target, BUCKET), (self._dht.node_id, self._dht.peer_id)]
        return [PeerId(str(peer)) for _, peer in sorted(near, key=lambda pair: target.xor_distance(pair[0]))]

    async def close(self, limit: Seconds) -> None:
        """Wait for the lookups to end; their calls must have been failed before."""
        self._closed = True
        if self._lookups:
            await asyncio.wait(set(self._lookups.values()), timeout=limit)
