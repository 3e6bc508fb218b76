"""Taking over where members are, in virtual time: from several at once, whoever lies, dies or moves on meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
import pytest

from p2pnode.compression.weights import Units
from p2pnode.discovery.services import make_services
from p2pnode.jobs.train.prepare import catch_up
from p2pnode.merging.deltaset.entry import encode_entry
from p2pnode.merging.deltaset.exchange import EntryBatch, encode_deltas, push
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.policy import PolicySetup, RoundFacts
from p2pnode.merging.snapshots.driver import Snapshots
from p2pnode.merging.snapshots.messages import GetChunks, GetKept, GetSnapshot, SnapshotRequest
from p2pnode.merging.snapshots.outline import CHUNK_BYTES, Snapshot, outline_of
from p2pnode.network.base import Payload
from p2pnode.network.sim import Links, SimNetwork, SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.runtime.calls import JobCalls
from p2pnode.runtime.events import Events
from p2pnode.runtime.seams import Seams, inline
from p2pnode.simulate import SimClock
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.addresses import Address
from p2pnode.wire.envelope import seal, unseal
from p2pnode.wire.errors import PeerMisbehaved, PeerRefused
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.run import RunAccess
from p2pnode.wire.status import NodeEvent
from tests.known import known

RUN = RunAccess.parse("abcdefghijklmnopqrstuvwxyz")
SMALL, LARGE = 600, 6 * CHUNK_BYTES // 4 + 50
T = TypeVar("T")


@cache
def genesis(size: int) -> Units:
    return np.random.Generator(np.random.PCG64(5)).normal(0, 1 << 20, size).astype(np.int32)


class Member:
    """A node with a policy and snapshots, and a server that can be made to misbehave."""

    def __init__(self, swarm: SimSwarm, number: int, size: int) -> None:
        self.identity = Identity(bytes([number]) * 32)
        self.network: SimNetwork = swarm.network(self.identity.peer_id)
        origin = PolicySetup(genesis(size), self.identity, "ab" * 32, "main", "layout", {}, number)
        self.policy = DeltaSetPolicy(origin)
        world = Seams(SimClock(0.0), random.Random(number), MemoryStorage(), inline)
        self.services = make_services(self.identity, world, self.network)
        self.events: list[NodeEvent] = []
        self.services.events.listen(self.events.append)
        calls = JobCalls(self.services.calls, RUN, self.peer, "main")
        self.snapshots = Snapshots(self.services, calls, self.policy, lambda: "")
        self.served: list[SnapshotRequest] = []
        self.bend: Callable[[SnapshotRequest, Payload], Payload] = lambda request, payload: payload

    @property
    def peer(self) -> PeerId:
        return self.identity.peer_id

    def publish(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            begun = self.policy.start()
            rng = np.random.default_rng(self.policy.author.rounds)
            progress = rng.standard_normal(len(begun), np.float32) * np.float32(0.01)
            self.policy.publish(self.policy.record(begun, begun + progress, RoundFacts(5, 1.0, 160, 4)))

    def chunks(self) -> list[int]:
        """Those that this node was asked for."""
        spans = [range(one.first, one.stop) for one in self.served if isinstance(one, GetChunks)]
        return [number for span in spans for number in span]

    def warnings(self) -> list[str]:
        return [event.text for event in self.events if event.warning]

    def faults(self, other: Member) -> int:
        return self.services.reputation.faults_of(other.peer)

    # ---- network.base.Server ----

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        raise PeerRefused("no", "calls are not part of this")

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        message = unseal(request, GetSnapshot, GetChunks, GetKept)
        assert isinstance(message, GetSnapshot | GetChunks | GetKept)
        self.served.append(message)
        return self.bend(message, await self.snapshots.payload(peer, message))

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        self.services.reputation.fault(peer, reason, 0.0)


def in_order(rng: Any) -> None:
    """Let samples be the first of what there is."""
    rng.sample = lambda population, count: list(population)[:count]


class Swarm:
    """Members that know each other; the last one is the newcomer."""

    def __init__(self, count: int, size: int) -> None:
        self.swarm = SimSwarm(1, Links(latency=0.02, jitter=0.0, rate=4e6))
        self.members = [Member(self.swarm, number + 1, size) for number in range(count)]
        self.newcomer = self.members[-1]

    async def start(self) -> None:
        for member in self.members:
            await member.network.start(member)
        for member in self.members[1:]:
            await member.network.contact(Address(self.swarm.hosts[0].address, self.members[0].peer), 5.0)

    def meet(self, *pairs: tuple[int, int]) -> None:
        """Let members exchange entries, in both directions."""
        for one, other in pairs:
            a, b = self.members[one], self.members[other]
            push = a.policy.take(b.peer, b.policy.answer(a.peer, a.policy.ask(b.peer)))
            if push:
                b.policy.take(a.peer, push)

    async def join(self, *givers: int) -> bool:
        """The newcomer takes over from a member; the first of `givers` is asked first."""
        order = list(givers)
        in_order(self.newcomer.services.seams.rng)
        return await self.newcomer.snapshots.adopt_from([self.members[index].peer for index in order])


def in_swarm(count: int, size: int, test: Callable[[Swarm], Awaitable[T]]) -> T:
    async def main() -> T:
        swarm = Swarm(count, size)
        await swarm.start()
        async with asyncio.timeout(600):
            result = await test(swarm)
        for member in swarm.members:
            await member.network.close()
        return result

    return run_virtual(main())


async def under_way(giver: Member) -> None:
    """Wait until a member is asked for chunks."""
    for _ in range(1000):
        if giver.chunks():
            return
        await asyncio.sleep(0.01)


def busy(swarm: Swarm) -> None:
    """Three members that know each other's entries, each with a few since."""
    for member in swarm.members[:3]:
        member.publish(3)
    swarm.meet((0, 1), (1, 2), (0, 1), (0, 2))


def alike(one: Member, other: Member) -> bool:
    same_place = one.policy.set.log.digest() == other.policy.set.log.digest()
    return same_place and np.array_equal(one.policy.set.units, other.policy.set.units)


def test_chunks_come_from_all_who_know_that_place_though_they_have_moved_on() -> None:
    async def test(swarm: Swarm) -> None:
        first, second, third, newcomer = swarm.members
        busy(swarm)
        second.publish(2)
        third.publish(1)
        assert await swarm.join(0, 1, 2)
        assert alike(newcomer, first)
        assert not alike(second, first)
        assert sorted(first.chunks() + second.chunks() + third.chunks()) == list(range(7))
        assert min(len(first.chunks()), len(second.chunks()) + len(third.chunks())) > 0
        assert newcomer.warnings() == []
        assert list(newcomer.policy.set.log) == list(first.policy.set.log), "kept entries came along"
        assert newcomer.services.calls.traffic.received_bytes > 4 * LARGE

    in_swarm(4, LARGE, test)


def test_little_comes_from_one() -> None:
    async def test(swarm: Swarm) -> None:
        busy(swarm)
        assert await swarm.join(0, 1, 2)
        assert [member.chunks() for member in swarm.members[:3]] == [[0], [], []]

    in_swarm(4, SMALL, test)


def test_a_giver_that_dies_half_way_is_replaced_and_nothing_comes_twice() -> None:
    async def test(swarm: Swarm) -> None:
        first, second, third, newcomer = swarm.members
        busy(swarm)
        third.publish(1)
        reference = first.policy.set.units.copy()

        async def die() -> None:
            await under_way(first)
            await asyncio.sleep(0.6)  # 4 MB/s: about two chunks of each have come
            await first.network.close()
            await second.network.close()

        dying = asyncio.ensure_future(die())
        assert await swarm.join(0, 1, 2)
        await dying
        assert np.array_equal(newcomer.policy.set.units, reference)
        received = newcomer.services.calls.traffic.received_bytes
        assert received < 4 * LARGE + 2.5 * CHUNK_BYTES, "whole chunks are never fetched again; what was under way is"
        assert len(third.chunks()) > 0
        assert newcomer.faults(first) == newcomer.faults(second) == 0

    in_swarm(4, LARGE, test)


def test_when_all_who_gave_are_gone_another_that_can_make_the_same_goes_on() -> None:
    """The one that had confirmed goes too; the third did not know the place then."""

    async def test(swarm: Swarm) -> None:
        first, second, third, newcomer = swarm.members
        busy(swarm)
        first.publish(1)
        swarm.meet((0, 1))
        reference = first.policy.set.units.copy()

        async def die() -> None:
            await under_way(first)
            swarm.meet((1, 2))
            third.publish(1)
            await asyncio.sleep(0.6)
            await first.network.close()
            await second.network.close()

        dying = asyncio.ensure_future(die())
        assert await swarm.join(0, 1, 2)
        await dying
        assert np.array_equal(newcomer.policy.set.units, reference)
        assert 0 < len(third.chunks()) < 7, "only the rest came from it"

    in_swarm(4, LARGE, test)


def test_a_wrong_chunk_costs_its_sender_standing_and_comes_from_elsewhere() -> None:
    async def test(swarm: Swarm) -> None:
        first, second, _, newcomer = swarm.members
        busy(swarm)

        def bend(request: SnapshotRequest, payload: Payload) -> Payload:
            if not isinstance(request, GetChunks):
                return payload
            spoiled = bytearray(payload.read(0, payload.size))
            spoiled[-7] ^= 1
            return replace(payload, read=lambda offset, length: bytes(spoiled[offset : offset + length]))

        second.bend = bend
        assert await swarm.join(0, 1, 2)
        assert alike(newcomer, first)
        assert newcomer.faults(second) == 1
        assert newcomer.faults(first) == 0

    in_swarm(4, LARGE, test)


def test_weights_that_two_others_do_not_have_are_refused() -> None:
    """The giver's outline and chunks fit together; only the others can tell."""

    async def test(swarm: Swarm) -> None:
        liar, second, third, newcomer = swarm.members
        busy(swarm)
        second.publish(1)
        third.publish(2)
        liar.policy.set.units[99] += 5
        assert await swarm.join(0, 1, 2)
        assert alike(newcomer, second)
        assert newcomer.faults(liar) == 1
        assert newcomer.faults(second) == newcomer.faults(third) == 0
        assert "differs from what" in newcomer.warnings()[0]
        assert liar.chunks() == [], "not even fetched"

    in_swarm(4, SMALL, test)


def test_a_place_that_nobody_else_knows_is_not_preferred() -> None:
    async def test(swarm: Swarm) -> None:
        first, second, third, newcomer = swarm.members
        busy(swarm)
        first.publish(1)  # nobody has heard of it yet
        second.publish(1)
        swarm.meet((1, 2))
        assert await swarm.join(0, 1, 2)
        assert alike(newcomer, third)
        assert newcomer.warnings() == []

    in_swarm(4, SMALL, test)


def test_where_nobody_can_confirm_it_is_taken_with_a_warning() -> None:
    async def test(swarm: Swarm) -> None:
        first, second, newcomer = swarm.members
        first.publish(2)
        second.publish(2)
        assert await swarm.join(0, 1)
        assert alike(newcomer, first)
        assert "could confirm" in newcomer.warnings()[0]

    in_swarm(3, SMALL, test)


def test_one_other_is_enough_to_confirm_and_none_at_all_ends_in_false() -> None:
    async def test(swarm: Swarm) -> None:
        first, _, newcomer = swarm.members
        first.publish(2)
        swarm.meet((0, 1))
        assert not await swarm.join()
        assert await swarm.join(0, 1)
        assert alike(newcomer, first)
        assert newcomer.warnings() == []

    in_swarm(3, SMALL, test)


class Alone:
    """A learning in one circle, with nobody there until `after` asks; then its snapshots work."""

    circle_driver = None

    def __init__(self, after: int) -> None:
        self.asked = 0
        self._after = after
        self.members = self.partner_exchange = self.snapshots = self

    def newcomer_probe(self) -> None: ...

    def in_circle(self) -> list[str]:
        self.asked += 1
        return ["somebody"] if self.asked > self._after else []

    async def adopt_from(self, members: list[str]) -> bool:
        return True


@pytest.mark.parametrize("genesis", [True, False])
def test_with_all_members_gone_one_with_the_genesis_begins_and_one_without_waits_and_says_so(genesis: bool) -> None:
    async def main() -> tuple[bool, int, list[str]]:
        alone, said, events = Alone(20), [], Events(SimClock(0.0))
        events.listen(lambda event: said.append(event.text))
        caught_up = await catch_up(alone, genesis, events)  # type: ignore[arg-type]
        return caught_up, alone.asked, said

    caught_up, asked, said = run_virtual(main())
    if genesis:
        assert (caught_up, asked, said) == (False, 1, [])
    else:
        assert (caught_up, asked, len(said)) == (True, 21, 1)
        assert "waiting" in said[0]


def test_rubbish_is_blamed_and_another_is_asked() -> None:
    async def test(swarm: Swarm) -> None:
        liar, second, _, newcomer = swarm.members
        busy(swarm)
        liar.bend = lambda request, payload: Payload.of(b"rubbish")
        assert await swarm.join(0, 1, 2)
        assert alike(newcomer, second)
        assert newcomer.faults(liar) >= 1

    in_swarm(4, SMALL, test)


def test_own_later_entries_and_proofs_of_forks_are_kept() -> None:
    async def test(swarm: Swarm) -> None:
        first, _, _, newcomer = swarm.members
        newcomer.publish(1)
        swarm.meet((0, 3))
        busy(swarm)
        forked = Member(SimSwarm(2), 2, SMALL)  # the second's key, with another first entry
        forked.policy.author.rounds = 77
        forked.publish(1)
        newcomer.publish(2)
        batch = encode_deltas(EntryBatch(b"x" * 16, entries=tuple(map(encode_entry, forked.policy.set.log))))
        first.policy.take(newcomer.peer, batch)
        newcomer.policy.take(first.peer, encode_deltas(known(push(first.policy.set, {}))))
        newcomer.policy.take(first.peer, batch)
        proofs = newcomer.policy.set.log.proofs
        assert len(proofs) == 1
        assert await swarm.join(0)
        own = [entry.seq for entry in newcomer.policy.set.log if entry.peer == newcomer.peer]
        assert own == [1, 2, 3]
        assert newcomer.policy.set.log.proofs == proofs
        assert newcomer.policy.set.log.exclusions == first.policy.set.log.exclusions

    in_swarm(4, SMALL, test)


def test_a_snapshot_that_would_unsay_own_entries_is_not_taken_and_nobody_is_blamed() -> None:
    async def test(swarm: Swarm) -> None:
        first, newcomer = swarm.members
        newcomer.publish(5)
        newcomer.policy.set.log.drop({newcomer.policy.author.chain(newcomer.policy.set): 4})
        before = newcomer.policy.set.hash()
        assert not await swarm.join(0)
        assert newcomer.policy.set.hash() == before
        assert newcomer.faults(first) == 0
        assert "entries of our own" in newcomer.warnings()[0]

    in_swarm(2, SMALL, test)


def test_damage_in_memory_is_found_by_oneself_and_mended_by_others() -> None:
    async def test(swarm: Swarm) -> None:
        first, second, third = swarm.members
        busy(swarm)
        third.policy.set.units[123] ^= 1 << 9
        third.policy.merge()
        assert third.policy.agreement.damaged
        with pytest.raises(PeerRefused):
            await third.payload(first.peer, seal(GetSnapshot()))
        await third.snapshots.catch_up([first.peer, second.peer])
        assert alike(third, first)
        assert not third.policy.needs_snapshot
        assert "memory" in third.warnings()[0]
        assert [event.text for event in third.events if event.kind == "caught up"] != []

    in_swarm(3, SMALL, test)


def test_weights_that_differ_at_equal_digests_are_noticed_and_mended_by_the_node_that_is_outvoted() -> None:
    """Its array and its checksum agree with each other: only comparing with others can show it."""

    async def test(swarm: Swarm) -> None:
        first, second, third = swarm.members
        busy(swarm)
        checks = first.policy.agreement.checks
        third.policy.set.units[7] += 1
        third.policy.set.checksum = third.policy._past.checksums()[1]  # type: ignore[index]
        swarm.meet((2, 0), (0, 1), (2, 1))
        assert first.policy.agreement.checks == checks + 2
        assert first.policy.agreement.mismatches == 1
        for member in (first, second, third):
            member.policy.merge()
        assert [member.policy.agreement.damaged for member in (first, second, third)] == [False, False, True]
        await second.snapshots.catch_up([first.peer, third.peer])
        assert "different weights" in second.warnings()[0]
        await third.snapshots.catch_up([first.peer, second.peer])
        assert alike(third, first)
        swarm.meet((2, 0), (2, 1))
        assert third.policy.agreement.differs == set()

    in_swarm(3, SMALL, test)


def test_nonsense_requests_are_refused() -> None:
    async def test(swarm: Swarm) -> None:
        first, newcomer = swarm.members
        first.publish(1)
        given = first.policy.snapshot()
        assert given is not None
        await first.snapshots.payload(newcomer.peer, GetSnapshot())
        name = outline_of(Snapshot(given.place, given.content)).name
        whole = await first.snapshots.payload(newcomer.peer, GetChunks(name, 0, 1))
        assert whole.size == 4 * SMALL
        for bad in (
            GetChunks(name, 0, 2),
            GetChunks(name, 1, 1),
            GetSnapshot(b"nowhere"),
        ):
            with pytest.raises(PeerMisbehaved):
                await first.snapshots.payload(newcomer.peer, bad)
        with pytest.raises(PeerRefused):
            await first.snapshots.payload(newcomer.peer, GetKept(b"x" * 16))

    in_swarm(2, SMALL, test)


def test_what_nobody_fetches_any_more_is_forgotten() -> None:
    async def test(swarm: Swarm) -> None:
        first, newcomer = swarm.members
        first.publish(1)
        assert await swarm.join(0)
        name = first.policy.snapshot()
        assert name is not None
        request = GetKept(outline_of(Snapshot(name.place, name.content)).name)
        await first.snapshots.payload(newcomer.peer, request)
        await asyncio.sleep(61.0)
        await first.snapshots.catch_up([])
        with pytest.raises(PeerRefused, match="no longer"):
            await first.snapshots.payload(newcomer.peer, request)

    in_swarm(2, SMALL, test)
