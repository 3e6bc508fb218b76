"""Laptops with policies of their own and a shared critic, in a simulated swarm."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Sequence
from functools import cache
from math import inf
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from rich.console import Console
from torch import nn

import p2pnode
from benchmarks.actors_envs import Acrobots, CartPoles, NumpyEnvs
from p2pnode.config.options import JobOptions, Options
from p2pnode.jobs.actors.job import ActorsJob
from p2pnode.jobs.actors.messages import Judge, ShareRollout, write_experience
from p2pnode.jobs.actors.status import BARS
from p2pnode.jobs.actors.trust import FAR_WORSE, CriticTrust
from p2pnode.network.sim import Fault
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.watch.graph import graph_of
from p2pnode.watch.notebook.html import swarm_html
from p2pnode.watch.terminal.live import render
from p2pnode.watch.view import SwarmView
from p2pnode.wire.errors import PeerMisbehaved, PeerRefused
from p2pnode.wire.ids import PeerId
from p2pnode.wire.status import NodeStatus

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


class Liar(Cart):
    """What it lies about is in the test."""


class NoNumbers(Cart):
    """Its rewards are no numbers after a while."""

    def env(self) -> Any:
        class Broken(CartPoles):
            def move(self, state: Any, actions: Any) -> Any:
                after, rewards, ended = super().move(state, actions)
                return after, rewards * (1.0 if self._steps < 8 * 64 else np.nan), ended

        return Broken(self.envs)


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


def paces(tasks: Sequence[object], times: Sequence[float], faults: Sequence[Fault] = (), **given: Any) -> Paces:
    """The steps of all laptops at some times, and what ended jobs said."""

    async def main() -> Paces:
        simulation = Simulation(scenario(tasks, faults=faults, **given))
        await simulation.start()
        assert simulation.watch is not None
        found, now = [], 0.0
        for time in times:
            await simulation.learn(simulation.watch, time - now)
            found.append(steps(simulation))
            now = time
        works = {index: job.keeper.works() for index, job in jobs(simulation).items()}
        owners = {job.keeper.owner for job in jobs(simulation).values()}
        said = [event.text for process in simulation.processes.values() for event in process.node.status().events]
        errors = [str(error) for error in simulation.ended.values()]
        trusts = {index: job.learner.trust for index, job in jobs(simulation).items() if job.learner is not None}
        await simulation.finish()
        return Paces(found, works, owners, errors, said, trusts)

    with one_thread():
        return run_sim(main())


class Paces(NamedTuple):
    steps: list[dict[int, int]]
    works: dict[int, bool]
    owners: set[str]
    errors: list[str]
    said: list[str]
    trusts: dict[int, CriticTrust]

    def as_fast_as(self, calm: Paces, place: int, laptops: Sequence[int]) -> bool:
        return all(self.steps[0][one] >= 0.98 * calm.steps[place][one] for one in laptops)


SOON, LATER = 40.0, 150.0


@cache
def calm(mode: str = "queue") -> Paces:
    return paces([Cart() for _ in range(4)], (SOON, LATER) if mode == "queue" else (SOON,), mode=mode)


def test_a_dead_owner_and_a_broken_environment_slow_nobody_down() -> None:
    tasks = [Cart(), Cart(), Cart(), Cart(raises_after=8 * 64)]
    crash = Fault(15.0, "crash", (0,))  # the founder owns the critic first
    found = paces(tasks, (SOON,), [crash])
    assert sorted(found.steps[0]) == [1, 2] and len(found.owners) == 1 and sum(found.works.values()) == 1
    assert found.as_fast_as(calm(), 0, (1, 2))
    assert len(found.errors) == 1 and "env().step() raised RuntimeError: the environment is broken" in found.errors[0]


def test_a_laptop_suspended_for_minutes_and_one_with_rewards_that_are_no_numbers_slow_nobody_down() -> None:
    """The suspended one owned the critic: it follows the new owner when it wakes up, and goes on where it was."""
    freeze = Fault(15.0, "freeze", (0,), seconds=125.0)
    found = paces([Cart(), Cart(), Cart(), NoNumbers()], (LATER,), [freeze])
    assert sorted(found.steps[0]) == [0, 1, 2] and found.as_fast_as(calm(), 1, (1, 2))
    assert len(found.owners) == 1 and sum(found.works.values()) == 1 and not found.works[0]
    assert found.steps[0][0] > calm().steps[0][0] * 15 / SOON, "it goes on"
    assert len(found.errors) == 1 and "gave the reward nan" in found.errors[0]


@pytest.mark.parametrize("mode", ["queue", "replicas"])
def test_a_liar_slows_nobody_down_and_nobody_uses_a_critic_that_it_spoiled(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In mode queue it sends the largest rewards, in mode replicas entries that turn the critic upside down."""
    follow, ask = ActorsJob._follow, ActorsJob._ask_owner

    def lies(job: ActorsJob) -> bool:
        return job.learner is not None and job.learner.name == "Liar"

    async def spoil(job: ActorsJob, weights: Any) -> None:
        if lies(job) and mode == "replicas":
            job._taught = 1
            weights = weights + np.where(np.arange(len(weights)) % 2, 3.0, -3.0).astype(np.float32)
        await follow(job, weights)

    async def lie(job: ActorsJob, rollout: Any, sending: Any) -> Any:
        if lies(job):
            rollout = dataclasses.replace(rollout, rewards=np.full_like(rollout.rewards, 50_000.0))
        return await ask(job, rollout, sending)

    monkeypatch.setattr(ActorsJob, "_follow", spoil)
    monkeypatch.setattr(ActorsJob, "_ask_owner", lie)
    found = paces([Cart(), Cart(), Cart(), Liar()], (SOON,), mode=mode)
    assert found.as_fast_as(calm(mode), 0, (0, 1, 2)) and not found.errors
    honest = [found.trusts[laptop] for laptop in (0, 1, 2)]
    assert all(trust.ratio <= FAR_WORSE for trust in honest if trust.shared), "its part of the critic is bounded to 1/n"
    if mode == "replicas":
        assert not any(trust.shared for trust in honest)
        assert sum("uses its own critic" in text for text in found.said) >= 3, "it switches itself off and says so"


def test_values_come_in_time_and_every_node_shows_all_laptops() -> None:
    def look(simulation: Simulation) -> Any:
        found = jobs(simulation)
        shares = [job.in_time / job.asked for job in found.values() if job.asked]
        statuses = [process.node.status() for process in simulation.processes.values()]
        return shares, statuses, [job.critic_version for job in found.values()]

    shares, statuses, versions = play(scenario([Cart(), Cart(), Acrobot(), Acrobot()]), 40.0, look)
    assert len(shares) == 3 and min(shares) >= 0.95 and min(versions) > 5, "the owner needs no answers"
    for laptops, critic in (status.jobs["critic"].tables for status in statuses):
        assert sorted(row[1] for row in laptops.rows) == ["Acrobot", "Acrobot", "Cart", "Cart"]
        assert all(row[4] > 500 for row in laptops.rows), "steps of each"
        assert all(row[3] for row in laptops.rows if row[1] == "Cart"), "and curves"
        assert critic.rows[0][1] == 0 and critic.rows[0][0]
    for status in statuses:
        assert_shown_in_terminal_and_notebook(status)


def assert_shown_in_terminal_and_notebook(status: NodeStatus) -> None:
    """A node, and whoever watches, sees the return and the curve of every laptop."""
    screen = io.StringIO()
    seen = msgspec.structs.replace(status, jobs={})  # as an observer, which has no job itself
    Console(file=screen, width=150, height=40).print(render(seen, 150, 40))
    shown = screen.getvalue()
    wanted = ("return", "over time", "steps a second", "critic version", "values in time")
    assert all(word in shown for word in wanted), shown
    rows = [line for line in shown.splitlines() if line.startswith(" ●")]
    assert len(rows) == 3 and all(set(line) & set(BARS) for line in rows if " Cart " in line), shown
    view = SwarmView(lambda: [graph_of(status, 1.0), graph_of(status, 2.0)])
    laptops = view.laptops()
    assert sorted(row["task"] for row in laptops) == ["Acrobot", "Acrobot", "Cart", "Cart"]
    assert all(row["steps"] > 500 and row["critic"] and row["critic_version"] > 3 for row in laptops)
    carts = [row for row in laptops if row["task"] == "Cart"]
    assert all(row["return"] > 0 and set(row["over_time"]) <= set(BARS) for row in carts)
    lines = view.plot_laptops().axes[0].lines
    assert len(lines) >= len(carts) and all(np.size(line.get_xdata()) == 2 for line in lines)
    assert all(word in swarm_html(view.pictures, "live") for word in ("Acrobot", "over time", carts[0]["over_time"]))


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
    for ticket in (5, 5, 4, 5, 4):
        owner._teach(peer, ticket, rollout)
    assert owner.kept_rollouts == before + 2, "what comes again is learned once"
