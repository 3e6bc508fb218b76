"""Laptops with policies of their own and a shared critic, in a simulated swarm."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np
import pytest
from torch import nn

import p2pnode
from benchmarks.actors_envs import Acrobots, CartPoles, NumpyEnvs
from p2pnode.config.options import JobOptions, Options
from p2pnode.jobs.actors.job import ActorsJob
from p2pnode.jobs.actors.messages import Judge, ShareRollout, write_experience
from p2pnode.network.sim import Fault
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.wire.errors import PeerMisbehaved, PeerRefused
from p2pnode.wire.ids import PeerId

FAST: dict[str, Any] = {"rollout": 64, "critic_steps": 2, "width": 8, "lease": 6.0}


class Cart(p2pnode.PolicyTask):
    """A CartPole in numpy, which raises after some steps if asked to."""

    envs = 16

    def __init__(self, raises_after: int = 0) -> None:
        self.raises_after = raises_after

    def env(self) -> Any:
        envs: NumpyEnvs = CartPoles(self.envs)
        envs.raises_after = self.raises_after
        return envs

    def policy(self) -> nn.Module:
        return nn.Linear(4, 2)


class Acrobot(Cart):
    def env(self) -> Any:
        return Acrobots(self.envs)

    def policy(self) -> nn.Module:
        return nn.Linear(6, 3)


def scenario(tasks: Sequence[object], seed: int = 1, faults: Sequence[Fault] = (), **given: Any) -> Scenario:
    job = JobOptions("critic", "actors", {"tasks": list(tasks), **FAST, **given})
    training = SimTraining(SIMULATED, rounds=10**6, jobs=(job,))
    plan = Scenario(len(tasks), seed=seed, seconds=inf, faults=tuple(faults), training=training)
    return dataclasses.replace(plan, spread=0.5, sample_every=0.0)


def play(plan: Scenario, seconds: float, look: Callable[[Simulation], Any]) -> Any:
    """What `look` finds after some virtual time."""

    async def main() -> Any:
        simulation = Simulation(plan)
        await simulation.start()
        assert simulation.watch is not None
        await simulation.learn(simulation.watch, seconds)
        found = look(simulation)
        result = await simulation.finish()
        assert result.left_over == ()
        return found

    with one_thread():
        return run_sim(main())


def jobs(simulation: Simulation) -> dict[int, ActorsJob]:
    found = {index: process.node.jobs.jobs.get("critic") for index, process in sorted(simulation.processes.items())}
    return {index: job for index, job in found.items() if isinstance(job, ActorsJob)}


def steps(simulation: Simulation) -> dict[int, int]:
    return {index: job.learner.steps for index, job in jobs(simulation).items() if job.learner is not None}


def test_a_dead_owner_and_a_broken_environment_slow_nobody_down() -> None:
    calm = play(scenario([Cart() for _ in range(4)]), 50.0, steps)

    def look(simulation: Simulation) -> tuple[dict[int, int], set[str], list[str]]:
        owners = {job.keeper.owner for job in jobs(simulation).values()}
        assert all(job.keeper.term and job.keeper.term >= 1 for job in jobs(simulation).values())
        return steps(simulation), owners, [str(error) for error in simulation.ended.values()]

    tasks = [Cart(), Cart(), Cart(), Cart(raises_after=8 * 64)]
    crash = Fault(20.0, "crash", (0,))  # the founder owns the critic first
    found, owners, errors = play(scenario(tasks, faults=[crash]), 50.0, look)
    assert sorted(found) == [1, 2] and len(owners) == 1
    assert all(found[index] >= 0.98 * calm[index] for index in found)
    assert len(errors) == 1 and "env().step() raised RuntimeError: the environment is broken" in errors[0]


def test_a_suspended_owner_comes_back_and_follows_the_new_one() -> None:
    freeze = Fault(15.0, "freeze", (0,), seconds=25.0)

    def look(simulation: Simulation) -> tuple[set[str], list[bool], set[bytes]]:
        found = jobs(simulation).values()
        digests = {job.policy.can.entries.digest() for job in found if job.policy.can.entries is not None}
        return {job.keeper.owner for job in found}, [job.keeper.works() for job in found], digests

    owners, works, _ = play(scenario([Cart() for _ in range(3)], faults=[freeze]), 60.0, look)
    assert len(owners) == 1 and sum(works) == 1 and not works[0]


def test_values_come_in_time_and_every_node_shows_all_laptops() -> None:
    def look(simulation: Simulation) -> Any:
        found = jobs(simulation)
        shares = [job.in_time / job.asked for job in found.values() if job.asked]
        tables = [process.node.status().jobs["critic"].tables for process in simulation.processes.values()]
        return shares, tables, [job.critic_version for job in found.values()]

    shares, tables, versions = play(scenario([Cart(), Cart(), Acrobot(), Acrobot()]), 40.0, look)
    assert len(shares) == 3 and min(shares) >= 0.95 and min(versions) > 5, "the owner needs no answers"
    for laptops, critic in tables:
        assert sorted(row[1] for row in laptops.rows) == ["Acrobot", "Acrobot", "Cart", "Cart"]
        assert all(row[4] > 500 for row in laptops.rows), "steps of each"
        assert all(row[3] for row in laptops.rows if row[1] == "Cart"), "and curves"
        assert critic.rows[0][1] == 0 and critic.rows[0][0]


def test_copies_of_the_critic_merge_and_rollouts_are_shared_where_spaces_agree() -> None:
    def look(simulation: Simulation) -> Any:
        found = jobs(simulation)
        assert all(job.asked == 0 and not job.keeper.owner for job in found.values())
        return [len(job.heads()) for job in found.values()], [job.shared_in for job in found.values()]

    authors, taken = play(scenario([Cart(), Cart(), Acrobot()], mode="replicas", share=True), 30.0, look)
    assert authors == [3, 3, 3]
    assert min(taken[:2]) > 3 and taken[2] == 0


def test_a_machine_that_wants_to_keep_the_critic_gets_it_and_needs_no_task() -> None:
    def preferring(options: Options, index: int, starts: int) -> Options:
        given = {**options.jobs[0].given, "prefer_owner": index == 2}
        return dataclasses.replace(options, jobs=(dataclasses.replace(options.jobs[0], given=given),))

    def look(simulation: Simulation) -> Any:
        found = jobs(simulation)
        server = found[2]
        return (
            {job.keeper.owner for job in found.values()},
            server.context.calls.me,
            server.learner,
            server.critic_version,
        )

    plan = dataclasses.replace(scenario([Cart(), Cart(), None]), adjust=preferring)
    owners, server, learner, version = play(plan, 30.0, look)
    assert owners == {server} and learner is None and version > 3


def test_laptops_go_on_after_a_restart() -> None:
    def look(simulation: Simulation) -> Any:
        job = jobs(simulation)[1]
        return simulation.starts[1], job.learner.steps if job.learner else 0, job.iterations

    starts, made, iterations = play(
        scenario([Cart(), Cart()], faults=[Fault(30.0, "crash", (1,), seconds=3.0)]), 45.0, look
    )
    assert starts == 2 and made > 64 * iterations, "it counts on from what it saved"


def test_hostile_rollouts_are_refused() -> None:
    def look(simulation: Simulation) -> Any:
        found = jobs(simulation)
        return found[0], found[1]

    owner, other = play(scenario([Cart(), Cart()], share=True), 10.0, look)
    assert owner.learner is not None
    rollout, _ = owner.learner.collect()
    said, peer = write_experience(rollout, actions=True), PeerId("liar")
    wrong = write_experience(dataclasses.replace(rollout, features=rollout.features[:, :5]), actions=True)
    with pytest.raises(PeerMisbehaved, match="bytes where"):
        owner._answer_share(peer, ShareRollout(1, owner.learner.spaces, wrong))
    with pytest.raises(PeerRefused, match="no use"):
        owner._answer_share(peer, ShareRollout(1, b"otherone", said))

    async def ask(job: ActorsJob, request: Judge) -> int:
        return len((await job._answer_judge(peer, request)).values)

    with pytest.raises(PeerRefused, match="not owner"):
        run_sim(ask(other, Judge(1, said)))
    if owner.keeper.works():
        with pytest.raises(PeerMisbehaved, match="bytes where"):
            run_sim(ask(owner, Judge(1, wrong)))
    before = owner.kept_rollouts
    data = (rollout.features[: rollout.steps], np.zeros(rollout.steps, np.float32))
    for ticket in (5, 5, 4):
        owner._teach(peer, ticket, data)
    assert owner.kept_rollouts == before + 1, "what comes again is learned once"
