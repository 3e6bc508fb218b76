"""One node's learning, in virtual time: what goes wrong costs a round or a save, never the node."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TypeVar

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from p2pnode.compression.weights import MAX_UNITS, Floats, to_units
from p2pnode.config.until import Until
from p2pnode.discovery.services import Services, make_services
from p2pnode.jobs.model.checkpoints import SAVE_EVERY, SAVE_RATE, save_pause
from p2pnode.jobs.train.job import TrainJob
from p2pnode.jobs.train.options import TrainSetup
from p2pnode.merging.deltaset.entry import Entry, decode_entry, delta_of, encode_entry, sign_entry
from p2pnode.merging.deltaset.exchange import EntryBatch, encode_deltas
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.messages import Exchange
from p2pnode.merging.policy import PolicySetup, RoundFacts
from p2pnode.network.sim import SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.runtime.seams import Compute, Seams, inline
from p2pnode.simulate import SimClock
from p2pnode.storage.files import MemoryStorage, Part
from p2pnode.tasks.task import Samples, Task
from p2pnode.training.evaluation import FEW, SHARE, Cadence, PeriodicEvaluation
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer, TrainResult
from p2pnode.wire.errors import LocalProblem, PeerMisbehaved, TaskProblem
from p2pnode.wire.ids import Identity
from p2pnode.wire.run import KEY_BYTES, RunAccess
from p2pnode.wire.status import NodeEvent
from tests.jobs.train.setups import job_context, train_setup, with_options, with_plan

T = TypeVar("T")
ME, OTHER = Identity(b"\1" * 32), Identity(b"\2" * 32)
RUN = RunAccess.parse("abcdefghijklmnopqrstuvwxyz")
PRIVATE = replace(RUN, key=b"k" * KEY_BYTES)
SETUP = train_setup(round_seconds=0.5, rows=np.arange(64), until=Until("rounds", 6))


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


class Spoiled(Lines):
    """Gives no number for some batches."""

    bad = frozenset(range(5, 9))
    calls = 0

    def loss(self, model: nn.Module, batch: Samples) -> Tensor:
        type(self).calls += 1
        loss = super().loss(model, batch)
        return loss * float("nan") if type(self).calls in self.bad else loss


class Raising(Lines):
    def loss(self, model: nn.Module, batch: Samples) -> Tensor:
        raise KeyError("no such column")


class FullDisk(MemoryStorage):
    """Takes nothing while `full`."""

    full = False

    def write(self, name: str, *services: Part) -> None:
        if self.full:
            raise LocalProblem("No space left on device")
        super().write(name, *services)

    def append(self, name: str, data: bytes) -> None:
        if self.full:
            raise LocalProblem("No space left on device")
        super().append(name, data)


class Setup:
    """A learning with everything around it. To be made inside a running loop."""

    def __init__(
        self,
        task: Task | None = None,
        train_setup: TrainSetup = SETUP,
        storage: MemoryStorage | None = None,
        access: RunAccess = RUN,
        compute: Compute = inline,
    ) -> None:
        self.storage = storage or MemoryStorage()
        self.services: Services = make_services(
            ME, Seams(SimClock(0.0), random.Random(1), self.storage, compute), SimSwarm(1).network(ME.peer_id)
        )
        self.events: list[NodeEvent] = []
        self.services.events.listen(self.events.append)
        model_host = ModelHost(task or Lines(), "cpu", seed=1)
        self.policy = policy_of(model_host, ME)
        self.context = job_context(self.services, access)
        self.learning = TrainJob(self.context, model_host, self.policy, train_setup)

    def said(self, kind: str) -> list[str]:
        return [event.text for event in self.events if event.kind == kind]


def policy_of(model_host: ModelHost, identity: Identity, lineage: str = "ab" * 32) -> DeltaSetPolicy:
    genesis = to_units(model_host.genesis)
    return DeltaSetPolicy(PolicySetup(genesis, identity, lineage, "main", model_host.layout.hash, {}, 1))


def learned(setup: Callable[[], Setup]) -> tuple[Setup, str]:
    """Resume or begin, save, learn to the goal; returns why it ended."""

    async def main() -> tuple[Setup, str]:
        made = setup()
        if not await made.learning.resume():
            await made.learning.save()
        async with asyncio.timeout(600):
            reason = await made.learning.run()
        return made, reason

    return run_virtual(main())


def test_it_learns_and_stops_at_its_goal() -> None:
    setup, reason = learned(Setup)
    status = setup.learning.status()
    assert reason == "6 rounds are done"
    assert status.state.training.round == 6
    assert status.steps > 6
    assert status.state.training.accuracy is not None
    assert setup.said("progress")[0].startswith("round 1: training loss ")


@pytest.mark.parametrize(
    ("until", "words"),
    [
        (Until("time", 5.0), "5 s have passed"),
        (Until("accuracy", 0.9), "an accuracy of"),
        (Until("converged", 0.05), "the run has converged"),
    ],
)
def test_other_goals(until: Until, words: str) -> None:
    _, reason = learned(lambda: Setup(train_setup=with_options(SETUP, until=until)))
    assert reason.startswith(words)


def test_a_run_with_a_planned_length_ends_there_with_a_small_learning_rate() -> None:
    """Also for a member that gave no goal itself: the length is part of the run's plan."""
    rates: list[float] = []

    class Rates(Trainer):
        def steps(self, weights: Floats, count: int, at: int | None = None, rate: float = 1.0) -> TrainResult:
            rates.append(rate)
            return super().steps(weights, count, at, rate)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("p2pnode.jobs.train.job.Trainer", Rates)
        setup, why = learned(lambda: Setup(train_setup=with_plan(with_options(SETUP, until=None), steps=40)))
    assert why == f"{setup.learning.trainer.steps_done} steps of the run are done"
    assert 40 <= setup.learning.trainer.steps_done < 48
    assert rates[0] == 1.0
    assert rates[-1] < 0.5
    assert rates == sorted(rates, reverse=True)


class Settled(Lines):
    """Has converged from the start: training changes next to nothing."""

    learning_rate = 1e-6


async def slow(work: Callable[[], T], steps: float = 0) -> T:
    """A machine on which training takes time."""
    await asyncio.sleep(steps * 0.1)
    return work()


@contextlib.asynccontextmanager
async def under_way(job: TrainJob) -> AsyncIterator[None]:
    await job.resume()
    task = asyncio.create_task(job.run())
    try:
        yield
    finally:
        task.cancel()


def settled(**options: object) -> Setup:
    return Setup(Settled(), with_options(SETUP, **{"until": None, **options}), compute=slow)


@pytest.mark.parametrize(
    ("options", "rests"),
    [
        ({}, True),
        ({"until": Until("accuracy", 1.0)}, True),  # which is never reached
        ({"until": Until("time", 1e5)}, True),
        ({"until": Until("rounds", 1_000_000)}, False),
        ({"until": Until("converged", 1e-12)}, False),
        ({"full_speed": True}, False),
    ],
)
def test_a_converged_node_rests_unless_that_only_delays_what_its_user_wants(
    options: dict[str, object], rests: bool
) -> None:
    async def main() -> None:
        setup = settled(**options)
        async with under_way(setup.learning):
            await asyncio.sleep(90)
            assert bool(setup.said("slowed")) == rests
            before = setup.learning.trainer.steps_done
            await asyncio.sleep(40)
            busy = (setup.learning.trainer.steps_done - before) * 0.1 / 40
            assert busy < 0.2 if rests else busy > 0.85

    run_virtual(main())


def test_a_rest_ends_with_the_time_of_the_user() -> None:
    setup, why = learned(lambda: settled(until=Until("time", 200.0)))
    assert why in ("200 s have passed", "201 s have passed") and setup.said("slowed")  # it looks every second


def test_work_of_others_is_merged_in_a_rest_and_wakes_the_node_if_it_is_notable() -> None:
    async def main() -> None:
        setup = settled()
        job, progress = setup.learning, setup.learning.train_progress
        other = policy_of(job.model_host, OTHER)

        async def rounds_after(scale: float) -> int:
            """How many rounds follow in three seconds when a partner pushes a change of this size."""
            before = progress.rounds
            publish(other, job.model_host, scale)
            push = encode_deltas(EntryBatch(b"x" * 16, entries=tuple(map(encode_entry, other.set.log))))
            job.partner_exchange.answer(OTHER.peer_id, Exchange(push, push=True))
            await asyncio.sleep(3.0)
            return progress.rounds - before

        async with under_way(job):
            await asyncio.sleep(200)
            assert job.slowed
            while job._rest_seconds:  # noqa: ASYNC110 (a rest sends no event)
                await asyncio.sleep(0.05)
            while job._rest_seconds < 6:  # noqa: ASYNC110 (the beginning of a rest that is long enough)
                await asyncio.sleep(0.05)
            assert await rounds_after(1e-5) == 0 and job.slowed
            assert await rounds_after(0.5) > 0 and "the shared weights changed by" in setup.said("working")[-1]
            assert progress.entries == 2, "what is merged in a rest counts with the round after it"

    run_virtual(main())


def test_a_loss_that_is_no_number_costs_the_round_and_is_said() -> None:
    Spoiled.calls = 0
    setup, reason = learned(lambda: Setup(Spoiled(), with_options(SETUP, until=Until("rounds", 30))))
    assert reason == "30 rounds are done"
    assert len(setup.said("diverged")) == 1  # said once, not at every batch
    assert "back to the last good weights" in setup.said("diverged")[0]
    assert setup.learning.status().training.problems >= 1
    assert np.isfinite(setup.policy.weights()).all()
    assert setup.learning.evaluate().loss < setup.learning.trainer.evaluate(setup.learning.model_host.genesis).loss


def test_a_task_that_raises_ends_with_one_line_that_names_it() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        learned(lambda: Setup(Raising()))
    (problem,) = caught.value.exceptions
    assert isinstance(problem, TaskProblem)
    assert "task lines: loss() raised KeyError" in str(problem)


def test_a_task_whose_loss_is_never_finite_ends_after_some_tries_with_one_line() -> None:
    Spoiled.calls = 0
    with pytest.raises(ExceptionGroup) as caught:
        learned(lambda: Setup(type("Never", (Spoiled,), {"bad": range(10_000)})(), with_options(SETUP, task="my.py")))
    (problem,) = caught.value.exceptions
    assert isinstance(problem, TaskProblem)
    assert "task lines cannot be trained: the loss was not finite in all of 10 tries" in str(problem)
    assert "`python -m p2pnode check my.py`" in str(problem)


def test_a_task_that_can_be_trained_from_its_first_weights_is_not_given_up() -> None:
    """Weights of others may be what cannot be trained; the circle is left then, not the run."""
    Spoiled.calls = 0
    setup, reason = learned(lambda: Setup(type("Late", (Spoiled,), {"bad": range(1, 11)})()))
    assert reason == "6 rounds are done"
    assert len(setup.said("diverged")) == 1


def test_a_full_disk_costs_the_saving_only() -> None:
    disk = FullDisk()
    disk.full = True
    setup, reason = learned(lambda: Setup(storage=disk))
    assert reason == "6 rounds are done"
    assert len(setup.said("disk")) == 1  # not at every round
    assert "No space left" in setup.said("disk")[0]


def test_what_a_full_disk_could_not_note_is_not_signed_again() -> None:
    """The state before it is gone on from, under a new log."""
    disk = FullDisk()

    def fills_up() -> Setup:
        made = Setup(storage=disk)
        made.services.events.listen(lambda event: setattr(disk, "full", True))
        return made

    first, _ = learned(fills_up)
    assert "could not be noted: No space left" in first.said("disk")[0]
    disk.full = False
    again, _ = learned(lambda: Setup(storage=disk, train_setup=with_options(SETUP, until=Until("rounds", 12))))
    assert "going on with a new log" in again.said("state")[0]
    signed: dict[tuple[int, int], Entry] = {}
    for entry in (*first.policy.set.log, *again.policy.set.log):
        assert signed.setdefault((entry.incarnation, entry.seq), entry) == entry
    assert {incarnation for incarnation, _ in signed} == {0, 1}
    third, _ = learned(lambda: Setup(storage=disk, train_setup=with_options(SETUP, until=Until("rounds", 14))))
    assert third.said("state") == []


def test_evaluating_takes_a_small_share_of_the_time() -> None:
    pace = Cadence(now=0.0, first=0.0)
    assert pace.due(0.0)
    pace.done(begun=10.0, now=11.0, minimum=5.0)
    assert not pace.due(11.0 + 1.0 / SHARE - 0.1)
    assert pace.due(11.0 + 1.0 / SHARE)
    pace.done(begun=100.0, now=100.01, minimum=5.0)
    assert not pace.due(104.9)
    assert pace.due(105.02)


class ManyTests(Lines):
    """With more test samples than are looked at first."""

    def test_data(self) -> Samples:
        return {name: column.repeat(100, *[1] * (column.ndim - 1)) for name, column in self.data().items()}


def test_as_much_is_evaluated_as_a_small_share_of_the_time_is_enough_for() -> None:
    async def main() -> list[int]:
        made = Setup(ManyTests())
        evaluating = PeriodicEvaluation(made.learning.trainer, every=5.0, now=0.0)
        looks, now = [], 0.0
        for cost in (1e-4, 1e-4, 1e-5, 1.0):  # seconds for a sample
            looks.append(evaluating.evaluate(made.policy.readout()).samples)
            evaluating.done(now, now + cost * looks[-1])
            now += 1e6
        return [*looks, evaluating.evaluate(made.policy.readout()).samples]

    first, second, third, fourth, fifth = run_virtual(main())
    assert (first, second, third) == (FEW, int(SHARE * 5.0 / 1e-4), int(SHARE * 5.0 / 1e-4))
    assert (fourth, fifth) == (6400, FEW)


def test_what_few_samples_say_is_replaced_as_soon_as_time_allows() -> None:
    async def main() -> tuple[bool, bool, bool]:
        evaluating = PeriodicEvaluation(Setup(ManyTests()).learning.trainer, every=100.0, now=0.0)
        evaluating.done(0.0, 0.01)  # few samples
        early, soon = evaluating.due(0.01 + 0.01 / SHARE - 0.01), evaluating.due(0.01 + 0.01 / SHARE)
        evaluating.done(1.0, 1.1)  # all of them
        return early, soon, evaluating.due(100.0)

    assert run_virtual(main()) == (False, True, False)


def test_large_states_are_saved_more_seldom() -> None:
    """So that no more is written than SAVE_RATE, whatever the model."""
    assert save_pause(1000) == SAVE_EVERY
    assert 21_000_000 / save_pause(21_000_000) <= SAVE_RATE


def test_max_disk_is_kept() -> None:
    setup, reason = learned(lambda: Setup(train_setup=with_options(SETUP, max_disk=100)))
    assert reason == "6 rounds are done"
    assert "exceed --max-disk" in setup.said("disk")[0]
    assert not [name for name in setup.storage._files if "state" in name]


def test_a_crash_loses_nothing_that_was_published() -> None:
    """All that is on disk is the state of the beginning and the journal."""
    disk = MemoryStorage()
    first, _ = learned(lambda: Setup(storage=disk))
    again, _ = learned(lambda: Setup(storage=disk, train_setup=with_options(SETUP, until=Until("rounds", 12))))
    before, after = list(first.policy.set.log), list(again.policy.set.log)
    assert after[: len(before)] == before
    assert [entry.seq for entry in after] == list(range(1, len(after) + 1))
    assert again.learning.train_progress.rounds == 12
    assert {entry.incarnation for entry in after} == {0}


def test_what_was_published_after_the_state_is_not_sent_again() -> None:
    """The saved residual still has it; the journal says that it is gone."""
    setup, _ = learned(Setup)
    policy, model_host = setup.policy, setup.learning.model_host
    state = policy.state()
    state["residual"] = np.full_like(state["residual"], 1000)
    entry = publish(policy, model_host)
    again = policy_of(model_host, ME)
    again.restore(state, [encode_entry(entry)])
    sent = delta_of(entry, policy.set.rules).indices
    assert len(sent)
    assert not again.author.residual[sent].any()
    assert again.author.residual.sum() == 1000 * (len(state["residual"]) - len(sent))


def test_a_lost_state_begins_a_new_log() -> None:
    disk = MemoryStorage()
    learned(lambda: Setup(storage=disk))
    for name in [name for name in disk._files if "state" in name]:
        disk.write(name, b"rubbish")
    again, _ = learned(lambda: Setup(storage=disk))
    assert "nothing else was saved" in again.said("state")[0]
    assert {entry.incarnation for entry in again.policy.set.log} == {1}


def test_a_fork_of_ones_own_is_survived() -> None:
    """Another process with the same key published something else: that chain is left out, and a new one begins."""
    setup, _ = learned(Setup)
    other, _ = learned(lambda: Setup(train_setup=with_plan(SETUP, max_steps=3)))
    setup.policy.take(
        OTHER.peer_id, encode_deltas(EntryBatch(b"x" * 16, entries=tuple(map(encode_entry, other.policy.set.log))))
    )
    assert setup.policy.set.log.exclusions
    publish(setup.policy, setup.learning.model_host)
    assert setup.policy.author.incarnation == 1
    assert list(setup.policy.set.log)[-1].incarnation == 1


def publish(policy: DeltaSetPolicy, model_host: ModelHost, scale: float = 0.1) -> Entry:
    """A round of a node that sees two members."""
    begun = policy.start()
    after = begun + np.random.default_rng(policy.author.rounds).normal(0, scale, begun.shape).astype(np.float32)
    return decode_entry(policy.publish(policy.record(begun, after, RoundFacts(3, 0.5, 24, 2))))


def resigned(entry: Entry, by: Identity = OTHER, **changes: object) -> bytes:
    return encode_entry(sign_entry(by, msgspec.structs.replace(entry, **changes)))


def bad_entries(entry: Entry, model_host: ModelHost) -> dict[str, bytes]:
    huge = policy_of(model_host, OTHER)
    huge.set.rules = replace(huge.set.rules, max_norm_units=MAX_UNITS)
    begun = huge.start()
    draft = huge.record(begun, begun + np.float32(20.0), RoundFacts(3, 0.5, 24, 1))
    return {
        "a wrong author": encode_entry(msgspec.structs.replace(entry, peer=ME.peer_id)),
        "no signature": encode_entry(msgspec.structs.replace(entry, signature=b"\0" * 64)),
        "another lineage": resigned(entry, lineage=b"\7" * 32),
        "another model": resigned(entry, model="other"),
        "a huge norm": resigned(entry, payload=draft.payload),
        "no number": resigned(entry, gamma=float("nan")),
        "rubbish inside": resigned(entry, payload=b"\xff" * 40),
        "rubbish": b"\xc1\xc1",
    }


@pytest.mark.parametrize(
    "what", list(bad_entries(publish(policy_of(ModelHost(Lines()), OTHER), ModelHost(Lines())), ModelHost(Lines())))
)
def test_a_bad_entry_is_refused_costs_standing_and_changes_nothing(what: str) -> None:
    async def main() -> None:
        setup = Setup()
        model_host = setup.learning.model_host
        entry = bad_entries(publish(policy_of(model_host, OTHER), model_host), model_host)[what]
        before = setup.policy.set.hash()
        body = encode_deltas(EntryBatch(b"x" * 16, entries=(entry,)))
        with pytest.raises(PeerMisbehaved):
            setup.learning.partner_exchange.answer(OTHER.peer_id, Exchange(body, push=True))
        assert setup.policy.set.hash() == before
        assert setup.policy.set.log.heads == {}

    run_virtual(main())


def test_entries_with_a_gap_wait_and_a_fork_is_left_out() -> None:
    async def main() -> None:
        setup = Setup()
        model_host = setup.learning.model_host
        one, two = policy_of(model_host, OTHER), policy_of(model_host, OTHER)
        two.author.rounds = 5  # other noise
        entries = [publish(one, model_host) for _ in range(3)]
        forked = publish(two, model_host)

        def push(*entries: Entry) -> None:
            body = encode_deltas(EntryBatch(b"x" * 16, entries=tuple(map(encode_entry, entries))))
            setup.learning.partner_exchange.answer(OTHER.peer_id, Exchange(body, push=True))

        push(entries[2], entries[0])
        assert list(setup.policy.set.heads.values()) == [1]
        push(entries[1])
        assert list(setup.policy.set.heads.values()) == [3]
        assert setup.policy.set.hash() == one.set.hash()
        push(forked)
        assert setup.policy.set.heads == {}
        assert list(setup.policy.set.log.exclusions.values()) == [1]
        assert setup.policy.set.hash() == policy_of(model_host, ME).set.hash()

    run_virtual(main())


def test_leaving_a_peer_out_is_private_and_lasts() -> None:
    async def main() -> None:
        setup = Setup()
        model_host, mine = setup.learning.model_host, setup.policy
        other = policy_of(model_host, OTHER)
        take = lambda: mine.take(OTHER.peer_id, other.answer(ME.peer_id, mine.ask(OTHER.peer_id)))  # noqa: E731
        before = mine.weights()
        publish(other, model_host)
        take()
        assert not np.array_equal(mine.weights(), before)
        mine.leave_out(OTHER.peer_id)
        assert np.array_equal(mine.weights(), before)
        publish(other, model_host)
        take()
        assert np.array_equal(mine.start(), before)
        assert np.array_equal(mine.readout(), before)
        assert mine.set.hash() == other.set.hash()
        restored = policy_of(model_host, ME)
        restored.restore(mine.state(), [])
        assert np.array_equal(restored.weights(), before)
        assert restored.left_out == {OTHER.peer_id}

    run_virtual(main())


def test_anyone_of_a_large_circle_may_be_a_partner_but_who_is_ignored() -> None:
    async def main() -> None:
        exchange_loop = Setup().learning.exchange_loop
        members = [Identity(bytes([number]) * 32).peer_id for number in range(10, 50)]
        exchange_loop._members.in_circle = lambda: members  # type: ignore[method-assign]
        for _ in range(30):
            exchange_loop._services.fault(members[0], "nonsense")
        met = [peer for _ in range(30) for peer in exchange_loop._possible()]
        assert set(met) == set(members[1:]) and len(met) == 30 * 15

    run_virtual(main())
