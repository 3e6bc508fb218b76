"""What a node asks of a swarm that is larger than its peer table.

    python -m benchmarks.directory_load [--peers 100,500,2000,5000] [--json] [--quick]

The unmodified Membership and Directory run over the simulated network. A swarm fills the directory and keeps announcing
itself. Then some nodes join whose tables hold 500 peers. Once they have settled, everything they ask for is counted per
node and minute: reads of the directory, records in the answers, lookups of the peers nearest to a key (also for
announcing), greetings, pings, questions for peers, and bytes in both directions. The other members only answer.
`peers_known` is how many peers a node knows at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from statistics import mean

from benchmarks.common import Figures, progress, read_sizes, run
from benchmarks.directory_members import TAG, Member
from p2pnode.discovery.announcing import ANNOUNCE_TTL, SelfDescription
from p2pnode.discovery.membership import ANNOUNCE_PERIOD, Membership
from p2pnode.discovery.services import make_services
from p2pnode.network.sim import SimNetwork, SimSwarm
from p2pnode.runtime.seams import Seams, inline
from p2pnode.similarity.fingerprint import FINGERPRINT_BYTES
from p2pnode.simulate import SimClock, identity_of, run_sim
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.addresses import Address
from p2pnode.wire.envelope import unseal
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.messages import (
    MAX_PEERS_PER_ANSWER,
    PROTOCOL,
    Announcement,
    Find,
    FoundRecords,
    GetPeers,
    Hello,
    JobAnnouncement,
    Peers,
    Ping,
    Pong,
    Store,
    Welcome,
    decode_answer,
    encode_message,
)
from p2pnode.wire.records import SignedRecord
from p2pnode.wire.types import Seconds

ASKED = (Ping, Hello, GetPeers, Find, Store)  # what members ask of each other
SIZES = (100, 500, 2_000, 5_000)
SIZES_QUICK = (100, 1_000)
TABLE = 500
WATCHED = 3  # nodes
SETTLING: Seconds = 240.0
WATCHING: Seconds = 360.0
COUNTED = {
    "reads": "reads",
    "records": "records",
    "lookups": "lookups",
    "Hello": "greetings",
    "Ping": "pings",
    "GetPeers": "asked_for_peers",
    "bytes": "bytes",
}


class Neighbour(Member):
    """A member that goes on announcing itself, and answers what a node asks who keeps in touch."""

    def __init__(self, crowd: Crowd, network: SimNetwork, identity: Identity) -> None:
        super().__init__(network, identity)
        self.record: SignedRecord | None = None
        self._crowd = crowd

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        now = self._crowd.clock.time()
        match unseal(request, *ASKED):
            case Ping():
                return encode_message(Pong(now, MAX_PEERS_PER_ANSWER))
            case Hello():
                return encode_message(Welcome(PROTOCOL, now, TAG, announcement=self.record))
            case GetPeers():
                return encode_message(Peers(self._crowd.some_records()))
        return await super().answer(peer, request)

    async def live(self, when: Seconds = 0.0) -> None:
        await asyncio.sleep(when)
        await self.network.start(self)
        if self._crowd.first.peer != self.network.peer:
            await self.network.contact(self._crowd.first, 30.0)
        while True:
            await self.announce()
            await asyncio.sleep(ANNOUNCE_PERIOD)

    async def announce(self) -> None:
        addresses = await self.network.addresses()
        word = Announcement(
            self.network.peer[-8:], TAG, addresses, jobs=(JobAnnouncement("main", "", bytes(FINGERPRINT_BYTES)),)
        )
        self.record = (await self.directory.announce(word, ANNOUNCE_TTL)).record


class Crowd:
    """Members that go on announcing themselves."""

    def __init__(self, peers: int, seed: int = 1) -> None:
        self.clock = SimClock(0.0)
        self.swarm = SimSwarm(seed)
        self._seed = seed
        self._count = 0
        self._rng = random.Random(seed)
        self.members = [self.member() for _ in range(peers)]
        host = self.swarm.hosts[0]
        self.first = Address(host.address, host.peer)

    def identity(self) -> Identity:
        """Somebody not there yet."""
        self._count += 1
        return identity_of(self._seed, self._count)

    def member(self) -> Neighbour:
        identity = self.identity()
        return Neighbour(self, self.swarm.network(identity.peer_id), identity)

    def some_records(self) -> tuple[SignedRecord, ...]:
        some = self._rng.sample(self.members, min(MAX_PEERS_PER_ANSWER, len(self.members)))
        return tuple(member.record for member in some if member.record is not None)

    @contextlib.asynccontextmanager
    async def there(self) -> AsyncIterator[None]:
        """All announced, at different times, twice, since by then others are nearest to their keys."""
        late = ANNOUNCE_PERIOD / len(self.members)
        lives = [asyncio.create_task(member.live(number * late)) for number, member in enumerate(self.members)]
        try:
            await asyncio.sleep(2 * ANNOUNCE_PERIOD)
            yield
        finally:
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)


class CountedNetwork(SimNetwork):
    """Counts what its node asks for."""

    def __init__(self, swarm: SimSwarm, peer: PeerId) -> None:
        super().__init__(swarm, swarm.add_host(peer))
        self.host.network = self
        self.counts: Counter[str] = Counter()

    async def nearest(self, key: str, count: int) -> list[PeerId]:
        self.counts["lookups"] += 1
        return await super().nearest(key, count)

    async def call(self, peer: PeerId, request: bytes, timeout: Seconds) -> bytes:
        asked = type(unseal(request, *ASKED)).__name__
        self.counts[asked] += 1
        answer = await super().call(peer, request, timeout)
        self.counts["bytes"] += len(request) + len(answer)
        if asked == "Find":
            self.counts["records"] += len(decode_answer(answer, FoundRecords).records)
        return answer


class Watched(Membership):
    """The membership of a node that joins a crowd with a table of its own size. `counts`: what it has asked for."""

    def __init__(self, crowd: Crowd, table: int) -> None:
        identity = crowd.identity()
        self.network = CountedNetwork(crowd.swarm, identity.peer_id)
        self.counts = self.network.counts
        world = Seams(crowd.clock, random.Random(identity.peer_id), MemoryStorage(), inline)
        services = make_services(identity, world, self.network)
        super().__init__(SelfDescription("watched", "node", TAG, (crowd.first,)), services)
        self.table = services.table
        self.table.max_peers = table
        self._server = Neighbour(crowd, self.network, identity)
        self._server.records = services.records

    async def live(self) -> None:
        await self.network.start(self._server)
        await self.run()

    async def read_directory(self, thorough: bool = True) -> bool:
        self.counts["reads"] += 1
        return await super().read_directory(thorough)


async def counted(nodes: list[Watched], settling: Seconds = SETTLING, watching: Seconds = WATCHING) -> Figures:
    """What the nodes ask for a minute, in the mean, once they have joined and settled; they live on."""
    await asyncio.sleep(settling)
    before = [node.counts.copy() for node in nodes]
    await asyncio.sleep(watching)
    figures: Figures = {"peers_known": mean(len(node.table) for node in nodes)}
    for name, called in COUNTED.items():
        asked = mean(node.counts[name] - first[name] for node, first in zip(nodes, before, strict=True))
        figures[f"{called}_per_minute"] = asked * 60 / watching
    return figures


async def measured(peers: int) -> Figures:
    crowd = Crowd(peers)
    async with crowd.there():
        nodes = [Watched(crowd, TABLE) for _ in range(WATCHED)]
        lives = [asyncio.create_task(node.live()) for node in nodes]
        found = await counted(nodes)
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
    return found


def figures(sizes: tuple[int, ...]) -> Figures:
    """All figures; those of a size end in `@` and the size."""
    found: Figures = {}
    for peers in sizes:
        begun = time.perf_counter()
        rows = run_sim(measured(peers))
        found.update({f"{name}@{peers}": value for name, value in rows.items()})
        shown = ", ".join(f"{name} {value:.4g}" for name, value in rows.items() if isinstance(value, float))
        progress(f"{peers} peers: {shown}; {time.perf_counter() - begun:.0f} s")
    return found


def measure(arguments: argparse.Namespace) -> Figures:
    return figures(arguments.peers or (SIZES_QUICK if arguments.quick else SIZES))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", type=read_sizes, default=(), help="sizes, with commas between")
    run("directory_load", measure, parser)


if __name__ == "__main__":
    main()
