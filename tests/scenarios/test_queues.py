"""Several models with queues in a simulated swarm: owners die and are cut off; nothing is lost or counts twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import p2pnode
from p2pnode.compression.codec import encode_delta
from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.weights import from_units
from p2pnode.config.options import JobOptions, TrainOptions
from p2pnode.config.until import parse_until
from p2pnode.jobs.queues import prepare
from p2pnode.jobs.queues.items import Item
from p2pnode.jobs.queues.job import QueuesJob
from p2pnode.jobs.queues.messages import Push, Pushed
from p2pnode.jobs.queues.model import QueueModel
from p2pnode.jobs.queues.owning import Owner
from p2pnode.jobs.queues.priority import PriorityWeights
from p2pnode.jobs.queues.producing import Producer
from p2pnode.jobs.queues.waiting import SLICE
from p2pnode.jobs.train.binding import follow_plan
from p2pnode.jobs.train.plan import TrainPlan
from p2pnode.network.sim import Fault
from p2pnode.network.sim.virtual_time import PROCESS
from p2pnode.runtime.seams import Shared
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.training.host import ModelHost
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.errors import LocalProblem, PeerRefused, UsageError
from p2pnode.wire.ids import PeerId
from tests.known import known

MODELS = {"small": {"task": "digits", "hidden": 8}, "wide": {"task": "digits", "hidden": 32}}
MOVES_SEED = 1  # in which the founder is not the fastest node
GIVEN = {"models": MODELS, "lease": 12.0, "reallocate": 1000.0}
PLAN = Scenario(
    4,
    seed=2,
    seconds=1000.0,
    sample_every=0.0,
    training=SimTraining(replace(SIMULATED, task="digits"), rounds=10**6, jobs=(JobOptions("zoo", "queues", GIVEN),)),
)


def jobs_of(simulation: Simulation) -> list[QueuesJob]:
    found = [process.node.jobs.jobs["zoo"] for _, process in sorted(simulation.processes.items())]
    assert all(isinstance(job, QueuesJob) for job in found)
    return found  # type: ignore[return-value]


def checked(jobs: Sequence[QueuesJob]) -> None:
    """All nodes have the same log of each queue, and every item that anybody made is in it exactly once."""
    for name in MODELS:
        models = [job.models[name] for job in jobs]
        assert len({model.log.head for model in models}) == 1, f"{name}: the nodes differ"
        assert len({model.log.weights.tobytes() for model in models}) == 1
        for job, model in zip(jobs, models, strict=True):
            me = job.context.services.identity.peer_id
            assert model.log.applied.get(me, 0) == model.outbox.next_seq - 1, f"{name}: an item was lost"


Act = Callable[[list[QueuesJob]], Awaitable[None]]


async def nothing(jobs: list[QueuesJob]) -> None:
    """Nobody does anything unusual."""


def simulated(
    faults: tuple[Fault, ...],
    seconds: float,
    quiet: float = 60.0,
    act: Act = nothing,
    more: float = 0.0,
    plan: Scenario = PLAN,
) -> list[QueuesJob]:
    """The jobs after a simulation that ends with a quiet time, in which nobody trains and everything is applied.

    After `seconds`, `act` is awaited with the jobs; then `more` seconds pass.
    """

    async def main() -> list[QueuesJob]:
        simulation = Simulation(replace(plan, faults=faults))
        await simulation.start()
        await simulation.learn(known(simulation.watch), seconds)
        await act(jobs_of(simulation))
        await simulation.learn(known(simulation.watch), more)
        simulation.rest()
        await simulation.learn(known(simulation.watch), quiet)
        jobs = jobs_of(simulation)
        one_owner(jobs)
        await simulation.finish()
        return jobs

    with one_thread():
        return run_sim(main())


def planned(seed: int = 2, speeds: tuple[float, float] = (1.0, 1.0), **given: object) -> Scenario:
    """The usual scenario with other options of the job, and nodes of different speeds."""
    job = JobOptions("zoo", "queues", {**GIVEN, **given})
    return replace(PLAN, seed=seed, training=replace(known(PLAN.training), speeds=speeds, jobs=(job,)))


def one_owner(jobs: Sequence[QueuesJob]) -> None:
    """All nodes know the same owner of each queue."""
    for name in MODELS:
        assert len({job.models[name].owner for job in jobs if name in job.models}) == 1, name


def test_all_models_learn_and_all_nodes_have_equal_weights() -> None:
    goals = {"accuracy:0.6": "accuracy", "accuracy:1": "", "time:1m": "60 s", "time:2m": "", "rounds:5": "rounds"}

    async def look(jobs: list[QueuesJob]) -> None:
        for written, reason in goals.items():
            found = jobs[1].reason_to_end(parse_until(written), 60.0)
            assert reason in found and bool(found) == bool(reason), written

    jobs = simulated((), 150.0, act=look)
    checked(jobs)
    model = jobs[0].models["wide"]
    assert known(model.trainer.evaluate(from_units(model.log.weights)).accuracy) > 0.85
    assert known(model.evaluate(model.shared()).accuracy) > 0.85, "and so is the running mean, which is exported"


def test_queues_described_in_python_show_scores_owners_and_members() -> None:
    job = p2pnode.Queues({"small": ("digits", {"hidden": 8}), "wide": MODELS["wide"]}, weights={"idle": 0.25}, lease=12)
    result = p2pnode.simulate(3, job=job, seconds=40, seed=3)
    assert [row["queue"] for row in result.rows("queues")] == ["small", "wide"]
    assert all(row["owner"] and row["applied"] > 0 for row in result.rows("queues"))
    assert all(row["steps_a_second"] > 0 for row in result.rows("members")), (
        "members say how fast and how idle they are"
    )
    assert len(result.rows("members")) == 3
    for row in result.view().queues():
        parts = sum(row[f"score_{part}"] for part in ("convergence", "complexity", "length", "idle"))
        assert abs(row["score"] - parts) < 0.01 and row["score_idle"] <= 0.25
        assert "weights" in row["because"] and "passes since it got better" in row["because"]
    spans = result.view().ownership()
    assert {row["queue"] for row in spans} == {"small", "wide"} and all(row["until"] >= row["since"] for row in spans)
    assert result.view().plot_queues().axes


def test_an_owner_that_dies_is_replaced_and_nothing_is_lost() -> None:
    jobs = simulated((Fault(60.0, "crash", (0,), seconds=60.0),), 180.0)
    assert min(known(job.models["small"].watch.lease).term for job in jobs) >= 1, "another term has begun"
    checked(jobs)


def test_two_owners_in_a_split_end_as_one() -> None:
    jobs = simulated((Fault(60.0, "split", (0,), seconds=90.0),), 220.0)
    checked(jobs)
    assert max(known(job.models["small"].watch.lease).term for job in jobs) >= 1, "somebody took over"


def test_an_owner_that_stood_still_longer_than_its_lease_follows_the_next_one() -> None:
    jobs = simulated((Fault(60.0, "freeze", (0,), seconds=40.0),), 170.0)
    checked(jobs)
    assert min(known(job.models["small"].watch.lease).term for job in jobs) >= 1, "another term has begun"


def test_a_follower_that_stood_still_takes_nothing_over() -> None:
    """What it did not hear meanwhile is no silence of the owner."""

    async def look(jobs: list[QueuesJob]) -> None:
        assert {known(job.models[name].watch.lease).term for job in jobs for name in MODELS} == {0}

    checked(simulated((Fault(60.0, "freeze", (2,), seconds=40.0),), 130.0, act=look))


def test_a_producer_that_dies_between_push_and_answer_counts_once() -> None:
    crashes = tuple(Fault(40.0 + 11.3 * number, "crash", (1 + number % 3,), seconds=2.0) for number in range(8))
    checked(simulated(crashes, 160.0))


def test_a_newcomer_gets_the_weights_of_the_owner() -> None:
    jobs = simulated((Fault(1.0, "crash", (3,), seconds=120.0),), 170.0)
    checked(jobs)


def test_the_founder_adds_a_model_pauses_a_queue_and_sets_weights() -> None:
    paused_at: list[int] = []

    async def act(jobs: list[QueuesJob]) -> None:
        for words in (("add", "deep=digits,hidden=12"), ("pause", "small"), ("weights", "idle=0")):
            await jobs[0].execute(ControlRequest("queues", words=words))
        with pytest.raises(UsageError, match="only the run's founder"):
            await jobs[1].execute(ControlRequest("queues", words=("resume", "small")))
        await asyncio.sleep(10.0)  # virtual: everybody has heard of it
        paused_at.extend(job.models["small"].log.items for job in jobs)

    jobs = simulated((Fault(60.0, "crash", (2,), seconds=10.0),), 40.0, act=act, more=60.0)
    for job in jobs:
        assert list(job.models) == ["small", "wide", "deep"], "also the node that restarted has it"
        assert job.models["deep"].log.items > 20
        assert job.state.weights.idle == 0.0 and job.state.paused("small")
    assert {job.models["small"].log.items for job in jobs} == set(paused_at), "nobody trains or applies it"
    assert len({job.models["deep"].log.head for job in jobs}) == 1


def test_a_model_that_a_machine_cannot_train_is_never_owned_there(monkeypatch: pytest.MonkeyPatch) -> None:

    def without_memory(plan: TrainPlan, own: TrainOptions, shared: Shared) -> ModelHost:
        if PROCESS.get() == 2 and plan.options.get("hidden") == 32:
            raise LocalProblem("the model needs 9 GB of memory, and 1 GB are free")
        return follow_plan(plan, own, shared)

    monkeypatch.setattr(prepare, "follow_plan", without_memory)
    jobs = simulated((Fault(40.0, "crash", (0,), seconds=60.0),), 120.0)
    small = jobs[2]
    assert list(small.models) == ["small"]
    rows = {row[0]: row[-1] for row in small.status().tables[0].rows}
    assert rows["wide"] == "not trained here: the model needs 9 GB of memory, and 1 GB are free"
    assert len({job.models["small"].log.head for job in jobs}) == 1
    others = [job for job in jobs if job is not small]
    assert len({job.models["wide"].log.head for job in others}) == 1
    assert known(others[0].models["wide"].watch.lease).term >= 1, "its owner died, and another took over"


def faults_of(jobs: Sequence[QueuesJob], peer: QueuesJob) -> list[int]:
    id = peer.context.services.identity.peer_id
    return [job.context.services.reputation.faults_of(id) for job in jobs if job is not peer]


async def refusal(job: QueuesJob, to: str, request: Push) -> str:
    """The code with which a node refuses a push; "" where it takes it."""
    try:
        await job.context.calls.ask(PeerId(to), request, Pushed)
    except PeerRefused as refused:
        return refused.code
    return ""


def test_a_hostile_producer_is_refused_and_costs_itself_reputation() -> None:
    async def act(jobs: list[QueuesJob]) -> None:
        hostile = jobs[3]
        model = hostile.models["small"]
        lease = known(model.watch.lease)
        owner, term = lease.owner, lease.term
        good = model.outbox.add(0, 8, 64, 0.5, b"")  # a number that follows
        seq = good.seq

        def push(payload: bytes, term: int = term, loss: float = 0.5) -> Push:
            return Push("small", term, (Item(seq, 0, 8, 64, loss, payload),))

        size = len(model.log.weights)
        payload = encode_delta(SparseDelta(size, np.array([1], np.uint32), np.array([3], np.int32)))
        huge = SparseDelta(size, np.arange(size, dtype=np.uint32), np.full(size, 1 << 24, np.int32))
        assert await refusal(hostile, owner, push(b"nonsense")) == "malformed"
        assert await refusal(hostile, owner, push(encode_delta(huge))) == "malformed"
        assert await refusal(hostile, owner, push(payload, loss=float("nan"))) == "malformed"
        assert await refusal(hostile, owner, push(payload, term=term + (1 << 21))) == "malformed"
        assert await refusal(hostile, owner, push(payload, term=term + 1)) == "not owner", "it may be ahead: no fault"
        before = max(faults_of(jobs, hostile))
        assert before == 4
        old = Push("small", term, (Item(1, 0, 8, 64, 0.5, payload),))  # applied long ago
        codes = [await refusal(hostile, owner, old) for _ in range(50)]
        assert codes[:20] == [""] * 20 and codes[-1] in ("malformed", "ignored"), (
            "repeating is what retries do, flooding is not"
        )
        assert max(faults_of(jobs, hostile)) > before

    jobs = simulated((), 40.0, act=act, more=20.0)
    honest = jobs[:3]
    for name in MODELS:
        assert len({job.models[name].log.head for job in honest}) == 1
        assert honest[0].models[name].log.items > 0


def test_queues_move_to_nodes_that_can_spare_more_and_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The founder begins as the owner of both. Owners hand over after two equal results, and nothing is lost."""
    moves: list[tuple[float, str, str, str]] = []  # when, which queue, from which node, to which
    give = Owner.give

    async def noted(owner: Owner, model: QueueModel, to: str) -> None:
        state = owner._state
        assert model.owner == state.me.peer_id and state.works(model), "only the owner acts"
        moves.append((state.now, model.name, model.owner, to))
        await give(owner, model, to)

    async def look(jobs: list[QueuesJob]) -> None:
        monkeypatch.setattr(Owner, "give", give)  # nodes that leave hand over too
        for name in {queue for _, queue, _, _ in moves}:
            lease = known(jobs[0].models[name].watch.lease)
            of_queue = [(giver, to) for _, queue, giver, to in moves if queue == name]
            assert (lease.giver, lease.owner) == of_queue[-1], "handed over with both signatures"
            assert lease.term == len(of_queue), "and nobody had to take it over"

    monkeypatch.setattr(Owner, "give", noted)
    plan = planned(seed=MOVES_SEED, speeds=(1.0, 4.0), reallocate=10.0)
    jobs = simulated((), 120.0, quiet=9.0, act=look, plan=plan)
    checked(jobs)
    assert moves and moves[0][0] >= 2 * 10.0, "one result is not enough"
    assert len(moves) <= 4, f"queues wander: {moves}"


def scores_count_when_items_are_claimed(jobs: Sequence[QueuesJob]) -> None:
    """Of the same waiting items, other weights of the score make the owner take others first."""
    owner = next(job for job in jobs if all(job.state.works(job.models[name]) for name in MODELS))
    before = owner.state.change
    for name, count in (("small", 2), ("wide", 1)):
        for seq in range(count):
            assert owner.models[name].inbox.put("somebody", Item(seq + 1, 0, 8, 64, 0.5, b""), 0) == "taken"
    for weights, first in ((PriorityWeights(0, 1, 0, 0), "wide"), (PriorityWeights(0, 0, 1, 0), "small")):
        owner.state.change = msgspec.structs.replace(before, paused=(), weights=weights)
        owner.owner._picks = 0  # the eighth goes to who waited longest
        assert known(owner.owner.choose()).name == first
    owner.state.change = before
    for name in MODELS:
        owner.models[name].inbox.clear()


def test_workers_wait_a_time_slice_where_no_queue_has_items(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    paused_at: list[int] = []
    choose_owned, choose_trained = Owner.choose, Producer.choose

    def owned(owner: Owner) -> QueueModel | None:
        looks.append("owner")
        return choose_owned(owner)

    def trained(producer: Producer) -> QueueModel | None:
        looks.append("producer")
        return choose_trained(producer)

    async def act(jobs: list[QueuesJob]) -> None:
        await jobs[0].execute(ControlRequest("queues", words=("pause", *MODELS)))
        await asyncio.sleep(10.0)  # virtual: everybody has heard of it, and what was under way is done
        before = [job.models[name].log.items for job in jobs for name in MODELS]
        looks.clear()
        await asyncio.sleep(20.0)
        for who in ("owner", "producer"):
            assert 0.9 <= looks.count(who) / (len(jobs) * 20.0 / SLICE) <= 1.1, f"the {who} looks once in a slice"
        assert [job.models[name].log.items for job in jobs for name in MODELS] == before
        paused_at.append(sum(before[: len(MODELS)]))
        scores_count_when_items_are_claimed(jobs)
        await jobs[0].execute(ControlRequest("queues", words=("resume", *MODELS)))

    monkeypatch.setattr(Owner, "choose", owned)
    monkeypatch.setattr(Producer, "choose", trained)
    jobs = simulated((), 30.0, act=act, more=20.0)
    checked(jobs)
    assert sum(jobs[0].models[name].log.items for name in MODELS) > paused_at[0] + 10, "then they go on"


def test_a_model_that_has_reached_its_target_leaves_the_nodes_to_the_others() -> None:
    counts: list[tuple[int, int]] = []
    models = {"small": {**MODELS["small"], "until": "accuracy:0.5"}, "wide": {**MODELS["wide"], "until": "accuracy:1"}}

    async def act(jobs: list[QueuesJob]) -> None:
        assert all(job.status().tables[0].rows[0][-1] == "target reached" for job in jobs)
        for _ in range(2):
            counts.append((jobs[0].models["small"].log.items, jobs[0].models["wide"].log.items))
            await asyncio.sleep(30.0)

    checked(simulated((), 60.0, quiet=30.0, act=act, plan=planned(models=models)))
    (small, wide), (small_later, wide_later) = counts
    assert small_later == small and wide_later > wide + 30


def test_a_member_that_claims_leases_again_and_again_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    async def act(jobs: list[QueuesJob]) -> None:
        nonlocal taken
        hostile, watcher = jobs[3], jobs[1]
        id, watch = hostile.context.services.identity.peer_id, hostile.models["small"].watch
        monkeypatch.setattr(watch, "renew", lambda now: None)  # it claims the queue and does nothing with it
        for _ in range(60):
            before = watcher.models["small"].owner
            if not watch.mine:
                watch.take(hostile.state.now)
            await asyncio.sleep(3.0)
            taken += before != id and watcher.models["small"].owner == id

    async def main() -> None:
        simulation = Simulation(PLAN)
        await simulation.start()
        await simulation.learn(known(simulation.watch), 30.0)
        await act(jobs_of(simulation))
        simulation.rest()
        await simulation.learn(known(simulation.watch), 30.0)
        *honest, hostile = jobs_of(simulation)
        assert 2 <= taken <= 7, f"{taken} claims had an effect"
        owners = {job.models["small"].owner for job in honest}
        assert len(owners) == 1 and hostile.context.services.identity.peer_id not in owners, "an honest one owns it"
        for name in MODELS:
            assert len({job.models[name].log.head for job in honest}) == 1
        await simulation.finish()

    with one_thread():
        run_sim(main())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"models": {"one": "digits"}}, "queues are for several models; to train one, use --task"),
        ({}, "queues need two models or more"),
        ({"models": {f"m{number}": "digits" for number in range(17)}}, "too many"),
        ({"models": {"a": {"task": "digits", "until": "rounds:3"}, "b": "digits"}}, "write until=accuracy:0.9"),
        ({"models": MODELS, "length": -1}, "length: Expected `float` >= 0.0"),
        ({"models": MODELS, "capacity": 0}, "capacity: Expected `int` >= 1"),
        ({"models": MODELS, "capasity": 3}, "no option 'capasity'; did you mean 'capacity'"),
        ({"models": {"a": "digits", "b": "digitz"}}, "digitz"),
        ({"models": MODELS, "prefer_owner": "wyde"}, "the run has no queue 'wyde'; did you mean 'wide'"),
    ],
)
def test_wrong_options_are_one_line(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        p2pnode.simulate(2, jobs={"zoo": {"kind": "queues", **given}}, seconds=5)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
