"""A newcomer that has the genesis: by entries to where a member is, as long as they are there and few."""

from __future__ import annotations

import asyncio
import random

import numpy as np

from p2pnode.circles.members import CurrentCircle
from p2pnode.discovery.reputation import PartnerRecord
from p2pnode.discovery.services import make_services
from p2pnode.jobs.model.exchange import PartnerExchange
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.policy import PolicySetup, RoundFacts
from p2pnode.network.sim import SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.runtime.calls import JobCalls
from p2pnode.runtime.seams import Seams, inline
from p2pnode.simulate import SimClock
from p2pnode.storage.files import MemoryStorage
from p2pnode.training.progress import TrainProgress
from p2pnode.wire.errors import PeerUnreachable
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.run import RunAccess
from tests.merging.snapshots.test_snapshot_driver import in_order

RUN = RunAccess.parse("abcdefghijklmnopqrstuvwxyz")
SIZE = 20_000
GENESIS = np.random.Generator(np.random.PCG64(5)).normal(0, 1 << 20, SIZE).astype(np.int32)
NEWCOMER = Identity(b"\7" * 32)


def policy_of(identity: Identity) -> DeltaSetPolicy:
    return DeltaSetPolicy(PolicySetup(GENESIS, identity, "ab" * 32, "main", "layout", {}, 0))


def member(number: int, rounds: int) -> DeltaSetPolicy:
    policy = policy_of(Identity(bytes([number]) * 32))
    publish(policy, rounds)
    return policy


def publish(policy: DeltaSetPolicy, rounds: int) -> None:
    for seed in range(rounds):
        begun = policy.start()
        progress = np.random.default_rng(seed).standard_normal(SIZE, np.float32) * np.float32(0.01)
        policy.publish(policy.record(begun, begun + progress, RoundFacts(5, 1.0, 160, 4)))


class Arriving(PartnerExchange):
    """Asks members directly; those that are not there are silent."""

    def __init__(self, policy: DeltaSetPolicy, members: list[DeltaSetPolicy]) -> None:
        world = Seams(SimClock(0.0), random.Random(1), MemoryStorage(), inline)
        self.services = make_services(NEWCOMER, world, SimSwarm(1).network(NEWCOMER.peer_id))
        in_order(world.rng)
        calls = JobCalls(self.services.calls, RUN, NEWCOMER.peer_id, "main")
        super().__init__(self.services, calls, policy, TrainProgress(), CurrentCircle(), PartnerRecord())
        self.members_by_id = {one.author.identity.peer_id: one for one in members}
        self.received: list[int] = []

    async def _ask(self, partner: PeerId, body: bytes, push: bool) -> bytes:
        if partner not in self.members_by_id:
            raise PeerUnreachable("nobody there")
        answer = self.members_by_id[partner].answer(NEWCOMER.peer_id, body)
        self.received.append(len(answer))
        return answer


def arrives(policy: DeltaSetPolicy, members: list[DeltaSetPolicy], silent: int = 0) -> tuple[bool, Arriving]:
    async def main() -> tuple[bool, Arriving]:
        arriving = Arriving(policy, members)
        ids = [Identity(bytes([200 + number]) * 32).peer_id for number in range(silent)]
        async with asyncio.timeout(60):
            return await arriving.catch_up_by_entries([*ids, *arriving.members_by_id]), arriving

    return run_virtual(main())


def test_it_stands_where_the_member_stands() -> None:
    ann, newcomer = member(1, 5), policy_of(NEWCOMER)
    done, _ = arrives(newcomer, [ann])
    assert done
    assert newcomer.set.hash() == ann.set.hash()
    assert np.array_equal(newcomer.readout(), newcomer.weights())


def test_at_the_very_beginning_nothing_is_sent() -> None:
    done, arriving = arrives(policy_of(NEWCOMER), [member(1, 0)])
    assert done
    assert sum(arriving.received) < 200


def test_entries_that_are_no_longer_kept_need_a_snapshot_and_are_not_sent() -> None:
    ann, newcomer = member(1, 5), policy_of(NEWCOMER)
    ann.set.log.drop(dict.fromkeys(ann.set.heads, 2))
    done, arriving = arrives(newcomer, [ann])
    assert not done
    assert sum(arriving.received) < 500


def test_entries_that_cost_more_than_a_snapshot_are_not_sent() -> None:
    done, arriving = arrives(policy_of(NEWCOMER), [member(1, 400)])
    assert not done
    assert sum(arriving.received) < 500


def test_one_that_lost_its_log_begins_another() -> None:
    """Members may know more of the old one than the member that was asked."""
    before, ann = policy_of(NEWCOMER), member(1, 2)
    publish(before, 3)
    ann.take(NEWCOMER.peer_id, before.answer(PeerId("ann"), ann.ask(NEWCOMER.peer_id)))
    newcomer = policy_of(NEWCOMER)
    done, _ = arrives(newcomer, [ann])
    assert done
    publish(newcomer, 1)
    assert sorted(chain.incarnation for chain in newcomer.set.heads if chain.peer == NEWCOMER.peer_id) == [0, 1]


def test_silent_members_are_passed_over() -> None:
    done, _ = arrives(policy_of(NEWCOMER), [member(1, 2)], silent=2)
    assert done


def test_nonsense_costs_standing_and_another_is_asked() -> None:
    class Babbling(DeltaSetPolicy):
        def answer(self, partner: PeerId, request: bytes) -> bytes:
            return b"nonsense"

    bad = Babbling(PolicySetup(GENESIS, Identity(b"\1" * 32), "ab" * 32, "main", "layout", {}, 0))
    done, arriving = arrives(policy_of(NEWCOMER), [bad, member(2, 2)])
    assert done
    assert arriving.services.reputation.faults_of(bad.author.identity.peer_id) == 1
