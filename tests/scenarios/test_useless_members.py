"""Swarms with members that are of no use, or do not exist: honest ones exchange among each other as ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from p2pnode.config.split import parse_split
from p2pnode.jobs.train.job import TrainJob
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.wire.ids import Identity, PeerId, sha256
from tests.known import train_jobs
from tests.scenarios.hostile import Liar, Silent, Teller, Useless

TRAINING = SimTraining(replace(SIMULATED, split=parse_split("dirichlet:0.3")), rounds=1000)
PLAN = Scenario(peers=4, seed=3, seconds=300.0, sample_every=0.0, training=TRAINING)
BEFORE, SETTLING, WATCHED = 15.0, 8.0, 20.0  # virtual seconds
FEWEST = 15  # exchanges of a node in that time; without liars it has about thirty


def first_ids(count: int, before: PeerId) -> list[Identity]:
    """Identities that come before all honest ones wherever peers are in order."""
    found: list[Identity] = []
    number = 0
    while len(found) < count:
        one = Identity(sha256(f"liar {number}".encode()))
        found += [one] if one.peer_id < before else []
        number += 1
    return found


def learning_of(simulation: Simulation) -> list[TrainJob]:
    return [job for process in simulation.processes.values() for job in train_jobs(process.node).values()]


def with_liars(make: Callable[[Simulation, PeerId], list[Liar]]) -> tuple[list[int], set[PeerId]]:
    """How many exchanges each honest node has with others of them, and which peers they count as members."""

    async def main() -> tuple[list[int], set[PeerId]]:
        simulation = Simulation(PLAN)
        await simulation.start()
        await simulation.go_on(BEFORE)
        honest = {process.node.peer_id for process in simulation.processes.values()}
        liars = make(simulation, min(honest))
        lives = [asyncio.ensure_future(liar.live(SETTLING + WATCHED)) for liar in liars]

        def exchanges() -> list[int]:
            partners = [learning.train_progress.partners for learning in learning_of(simulation)]
            return [sum(row.count for peer, row in rows.items() if peer in honest) for rows in partners]

        await simulation.go_on(SETTLING)
        before = exchanges()
        await simulation.go_on(WATCHED)
        counts = [after - earlier for after, earlier in zip(exchanges(), before, strict=True)]
        members = {peer for learning in learning_of(simulation) for peer in learning.members.in_run()}
        await asyncio.gather(*lives)
        await simulation.finish()
        return counts, members - honest

    with one_thread():
        return run_sim(main())


def refusing(simulation: Simulation, before: PeerId) -> list[Liar]:
    return [Useless(simulation, identity=one) for one in first_ids(15, before)]


def silent(simulation: Simulation, before: PeerId) -> list[Liar]:
    return [Silent(simulation, identity=one) for one in first_ids(3, before)]


@pytest.mark.parametrize("make", [refusing, silent])
def test_members_that_refuse_or_are_silent_hold_up_nobody(make: Callable[[Simulation, PeerId], list[Liar]]) -> None:
    counts, _ = with_liars(make)
    assert min(counts) >= FEWEST


def test_members_that_do_not_exist_are_none() -> None:
    def telling(simulation: Simulation, before: PeerId) -> list[Liar]:
        teller, *ghosts = first_ids(16, before)
        return [Teller(simulation, teller, ghosts)]

    counts, strangers = with_liars(telling)
    assert min(counts) >= FEWEST
    assert strangers == set()
