"""A round in slices: what comes in between them is let in, and steps are never lost. And what goes over bridges."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pytest
import torch
from torch import nn

from p2pnode.circles.founding import circle_lineage
from p2pnode.circles.messages import Bridge
from p2pnode.compression.weights import Floats, from_units, to_units
from p2pnode.config.until import Until
from p2pnode.discovery.services import Services, make_services
from p2pnode.discovery.table import Peer
from p2pnode.jobs.train.job import TrainJob
from p2pnode.jobs.train.steps import MOST, RoundSteps, split_steps
from p2pnode.merging.deltaset.entry import BRIDGE, decode_entry, encode_entry
from p2pnode.merging.deltaset.exchange import EntryBatch, encode_deltas
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.messages import Exchanged
from p2pnode.merging.policy import Policy, PolicySetup, RoundFacts
from p2pnode.merging.registry import policy_named
from p2pnode.network.sim import SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.runtime.seams import Seams
from p2pnode.simulate import SimClock
from p2pnode.storage.files import MemoryStorage
from p2pnode.tasks.task import Samples, Task
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.envelope import open_envelope, unseal
from p2pnode.wire.errors import PeerMisbehaved, PeerRefused
from p2pnode.wire.ids import Identity
from p2pnode.wire.messages import Announcement, JobAnnouncement, encode_message
from p2pnode.wire.records import sign_record
from p2pnode.wire.run import RunAccess
from tests.jobs.train.setups import job_context, train_setup

ME, OTHER = Identity(b"\1" * 32), Identity(b"\2" * 32)
RUN = RunAccess.parse("abcdefghijklmnopqrstuvwxyz")
GENESIS = b"g" * 32
T = TypeVar("T")


class Lines(Task):
    """Which side of a line a point is on."""

    name = "lines"
    batch_size = 8
    learning_rate = 0.5

    def model(self) -> nn.Module:
        return nn.Linear(2, 2)

    def data(self) -> Samples:
        x = torch.randn(64, 2, generator=torch.Generator().manual_seed(3))
        return {"x": x, "y": (x[:, 0] > x[:, 1]).long()}

    def test_data(self) -> Samples:
        return self.data()


def policy_of(model_host: ModelHost, identity: Identity, circle: str = "", **settings: float) -> DeltaSetPolicy:
    lineage = circle_lineage(GENESIS, circle).hex()
    return DeltaSetPolicy(
        PolicySetup(to_units(model_host.genesis), identity, lineage, "main", model_host.layout.hash, settings, 1)
    )


def news(model_host: ModelHost, policy: DeltaSetPolicy, size: float) -> bytes:
    """A partner's round that moves the weights by about `size`, as it pushes it."""
    begun = policy.start()
    policy.publish(policy.record(begun, begun + np.float32(size), RoundFacts(3, 0.5, 24, 1)))
    policy.merge()
    return encode_deltas(EntryBatch(b"x" * 16, entries=(encode_entry(list(policy.set.log)[-1]),)))


@dataclass
class Meddling:
    """Compute during which somebody pushes: after each slice the next thing to do is done."""

    then: list[Callable[[], object]] = field(default_factory=list)
    round_steps: list[float] = field(default_factory=list)

    async def __call__(self, work: Callable[[], T], steps: float = 0) -> T:
        done = work()
        if steps:
            self.round_steps.append(steps)
            if self.then:
                self.then.pop(0)()
        return done


def trained(policy: Policy, model_host: ModelHost, compute: Meddling, rounds: int = 1) -> tuple[Floats, Floats]:
    """Where rounds of eight steps started, seen from their end, and what they came to."""

    async def main() -> tuple[Floats, Floats]:
        world = Seams(SimClock(0.0), random.Random(1), MemoryStorage(), compute)
        round_steps = RoundSteps(world, policy, Trainer(model_host, seed=1, declared_speed=4.0), 2.0)
        for _ in range(rounds):
            begun, result = await round_steps.train(8, 1.0)
            assert result.steps == 8
        return begun, result.weights

    return run_virtual(main())


def test_what_came_in_is_under_the_steps_of_the_round() -> None:
    model_host = ModelHost(Lines(), seed=1)
    plain, plain_after = trained(policy_of(model_host, ME), model_host, Meddling())
    policy, partner = policy_of(model_host, ME), policy_of(model_host, OTHER)
    push = news(model_host, partner, 0.01)
    begun, after = trained(policy, model_host, Meddling([lambda: policy.take(OTHER.peer_id, push)]))
    assert np.array_equal(begun, partner.weights())
    assert not np.array_equal(begun, plain)
    assert np.allclose(after - begun, plain_after - plain, atol=0.05)
    assert policy.times_let_in == 1


def test_a_round_begins_with_a_part_of_what_others_do_not_have_yet() -> None:
    """And entries that come in during such a round leave that part where it is."""
    model_host = ModelHost(Lines(), seed=1)
    policy, partner = policy_of(model_host, ME, kappa=0.5), policy_of(model_host, OTHER)
    begun = policy.start()
    policy.publish(policy.record(begun, begun + np.float32(0.01), RoundFacts(3, 0.5, 24, 2)))
    unsent = policy.author.residual.copy()
    assert unsent.any()
    assert np.allclose(policy.start(), policy.weights() + 0.5 * from_units(unsent))
    push = news(model_host, partner, 0.01)
    begun, _ = trained(policy, model_host, Meddling([lambda: policy.take(OTHER.peer_id, push)]))
    assert policy.times_let_in == 1
    assert np.allclose(begun, policy.weights() + 0.5 * from_units(unsent), atol=1e-6)


def test_without_news_nothing_is_touched_and_slices_come_to_the_same() -> None:
    model_host = ModelHost(Lines(), seed=1)
    whole = Trainer(model_host, seed=1).steps(model_host.genesis, 8)
    sliced = Meddling()
    begun, after = trained(policy_of(model_host, ME), model_host, sliced)
    assert sliced.round_steps == [4, 4]
    assert np.allclose(begun, model_host.genesis, atol=1e-7)
    assert np.allclose(after, whole.weights, atol=1e-6)


def test_corrections_that_cost_nothing_are_made_as_often_as_there_are_slices() -> None:
    model_host = ModelHost(Lines(), seed=1)
    policy, partner = policy_of(model_host, ME), policy_of(model_host, OTHER)
    pushes = [news(model_host, partner, 0.01) for _ in range(6)]
    compute = Meddling([lambda push=push: policy.take(OTHER.peer_id, push) for push in pushes])  # type: ignore[misc]
    trained(policy, model_host, compute, rounds=2)
    assert compute.round_steps == [4, 4] + [2] * MOST
    # What comes after a round's last slice is for the next round.
    assert policy.times_let_in == 4


def test_corrections_that_cost_much_are_left_out() -> None:
    model_host = ModelHost(Lines(), seed=1)
    policy, partner = policy_of(model_host, ME), policy_of(model_host, OTHER)
    push = news(model_host, partner, 0.01)
    compute = Meddling([lambda: policy.take(OTHER.peer_id, push)])

    class Slow:
        now = 0.0

        def time(self) -> float:
            return 0.0

        def monotonic(self) -> float:
            self.now += 0.1
            return self.now

    async def main() -> None:
        world = Seams(Slow(), random.Random(1), MemoryStorage(), compute)
        round_steps = RoundSteps(world, policy, Trainer(model_host, seed=1, declared_speed=4.0), 2.0)
        for _ in range(3):
            await round_steps.train(8, 1.0)

    run_virtual(main())
    assert compute.round_steps == [4, 4, 8, 8]


@pytest.mark.parametrize("name", ["average", "gossip", "diloco"])
def test_other_policies_train_in_one_piece(name: str) -> None:
    model_host = ModelHost(Lines(), seed=1)
    origin = PolicySetup(to_units(model_host.genesis), ME, GENESIS.hex(), "main", model_host.layout.hash, {}, 1)
    compute = Meddling()
    trained(policy_named(name)(origin), model_host, compute)
    assert compute.round_steps == [8]


@pytest.mark.parametrize(("steps", "services"), [(1, [1]), (3, [1, 1, 1]), (8, [2, 2, 2, 2]), (10, [3, 3, 2, 2])])
def test_slices_are_nearly_equal_and_never_empty(steps: int, services: list[int]) -> None:
    assert split_steps(steps, 4) == services


# ---- bridges ----


class Node:
    """A learning in one circle, and somebody in another."""

    def __init__(self, policy: str = "deltaset") -> None:
        self.model_host = ModelHost(Lines(), seed=1)
        self.storage = MemoryStorage()
        world = Seams(SimClock(0.0), random.Random(1), self.storage, inline_compute)
        self.services: Services = make_services(ME, world, SimSwarm(1).network(ME.peer_id))
        origin = PolicySetup(
            to_units(self.model_host.genesis),
            ME,
            circle_lineage(GENESIS, "here").hex(),
            "main",
            self.model_host.layout.hash,
            {"bridge": 1.0} if policy == "deltaset" else {},
            1,
        )
        setup = train_setup(rows=np.arange(64), circle="here", genesis=GENESIS, until=Until("rounds", 2))
        context = job_context(self.services, RUN)
        self.learning = TrainJob(context, self.model_host, policy_named(policy)(origin), setup)
        self.other = policy_of(self.model_host, OTHER, "there")

    def meet(self, circle: str = "there") -> Peer:
        word = Announcement("other", RUN.tag, ("/ip4/127.0.0.1/tcp/1",), jobs=(JobAnnouncement("main", circle),))
        record = sign_record(OTHER, "peers/x/p", encode_message(word), 1000.0)
        self.services.table.add(record, word, OTHER.peer_id)
        peer = self.services.table.get(OTHER.peer_id)
        assert peer is not None
        return peer


async def inline_compute(work: Callable[[], T], steps: float = 0) -> T:
    return work()


def test_only_peers_of_other_circles_are_beyond_and_only_for_delta_sets_that_bridge() -> None:
    async def main() -> None:
        node = Node()
        bridging = node.learning.bridging
        assert bridging.peers_of_other_circles() == []
        there = node.meet()
        assert bridging.peers_of_other_circles() == [there.id]
        node.learning.members.circle.name = "there"
        assert bridging.peers_of_other_circles() == []
        average = Node("average")
        average.meet()
        assert average.learning.bridging.peers_of_other_circles() == []

    run_virtual(main())


def test_a_bridge_is_asked_drafted_published_and_on_disk() -> None:
    async def main() -> None:
        node = Node()
        news(node.model_host, node.other, 0.01)

        async def answers(peer: str, request: bytes, kind: type, timeout: float) -> Exchanged:
            envelope = open_envelope(request)
            assert (peer, envelope.run, envelope.job) == (OTHER.peer_id, RUN.tag, "main")
            return Exchanged(node.other.bridges.answer(unseal(request, Bridge).body))

        node.services.calls.call = answers  # type: ignore[method-assign, assignment]
        await node.learning.save()
        await node.learning.bridging.ask(node.meet(), 1)
        await node.learning.run()
        policy = node.learning.policy
        assert isinstance(policy, DeltaSetPolicy)
        bridges = [entry for entry in policy.set.log if entry.kind == BRIDGE]
        assert node.learning.status().training.bridges == len(bridges) == 1
        assert bridges[0].other == circle_lineage(GENESIS, "there")
        journal = [name for name in node.storage._files if "journal" in name]
        noted = b"".join(node.storage.read(name) or b"" for name in journal)
        assert encode_entry(bridges[0]) in noted
        assert decode_entry(encode_entry(bridges[0])) == bridges[0]

    run_virtual(main())


def test_an_answer_that_is_nonsense_costs_standing() -> None:
    async def main() -> None:
        node = Node()

        async def answers(*_: object) -> Exchanged:
            return Exchanged(b"\xff" * 50)

        node.services.calls.call = answers  # type: ignore[method-assign, assignment]
        bridging = node.learning.bridging
        await bridging.ask(node.meet(), 1)
        assert await bridging.draft() is None
        assert node.services.reputation.faults_of(OTHER.peer_id) == 1

    run_virtual(main())


def test_who_asks_nonsense_is_refused() -> None:
    async def main() -> None:
        node = Node()
        with pytest.raises(PeerMisbehaved, match="malformed bridge"):
            await node.learning.bridging.answer(OTHER.peer_id, Bridge(b"?"))
        with pytest.raises(PeerRefused, match="no bridges"):
            await Node("gossip").learning.bridging.answer(OTHER.peer_id, Bridge(b"?"))

    run_virtual(main())


def test_one_bridge_is_answered_at_a_time() -> None:
    async def main() -> None:
        node = Node()
        asked = node.other.bridges.ask(circle_lineage(GENESIS, "here"), 1)
        gate = asyncio.Event()

        async def background(work: Callable[[], T], steps: float = 0) -> T:
            await gate.wait()
            return work()

        object.__setattr__(node.services.seams, "background", background)
        first = asyncio.ensure_future(node.learning.bridging.answer(OTHER.peer_id, Bridge(asked)))
        await asyncio.sleep(0)
        with pytest.raises(PeerRefused, match="one bridge at a time"):
            await node.learning.bridging.answer(OTHER.peer_id, Bridge(asked))
        gate.set()
        assert (await first).body

    run_virtual(main())
