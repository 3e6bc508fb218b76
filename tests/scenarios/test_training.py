"""Whole swarms that learn: the unmodified node, real training, virtual time, and whatever goes wrong."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from p2pnode.config.split import parse_split
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.network.sim import Fault, Links
from p2pnode.simulate import SIMULATED, Scenario, SimResult, SimTraining, Simulation, run_scenario, run_sim, simulate
from p2pnode.simulate.compute import one_thread
from tests.known import known, train_job
from tests.scenarios.hostile import Liar

TRAINING = SimTraining(replace(SIMULATED, split=parse_split("dirichlet:0.3")), rounds=15)
PLAN = Scenario(peers=8, seed=3, seconds=300.0, sample_every=0.0, training=TRAINING)
QUIET = 40.0  # virtual seconds in which nobody trains


def policies(simulation: Simulation) -> dict[int, DeltaSetPolicy]:
    found = {}
    for index, process in simulation.processes.items():
        policy = train_job(process.node).policy
        assert isinstance(policy, DeltaSetPolicy)
        found[index] = policy
    return found


def run_then_rest(
    plan: Scenario, meanwhile: Callable[[Simulation], Awaitable[None]] | None = None
) -> tuple[SimResult, dict[int, DeltaSetPolicy]]:
    """Let a swarm learn; then let it exchange without learning. Returns the policies as they are then."""

    async def main() -> tuple[SimResult, dict[int, DeltaSetPolicy]]:
        simulation = Simulation(plan)
        await simulation.start()
        assert simulation.watch is not None
        extra = None if meanwhile is None else asyncio.ensure_future(meanwhile(simulation))
        await simulation.learn(simulation.watch, plan.seconds)
        simulation.rest()
        await simulation.go_on(QUIET)
        if extra is not None:
            await extra
        found = policies(simulation)
        return await simulation.finish(), found

    with one_thread():
        return run_sim(main())


def check_one_set(found: dict[int, DeltaSetPolicy], peers: int) -> None:
    """All have the same entries, nobody is left out, and the weights are equal to the bit."""
    assert sorted(found) == list(range(peers))
    assert len({policy.set.log.digest() for policy in found.values()}) == 1
    assert len({policy.set.hash() for policy in found.values()}) == 1
    for policy in found.values():
        assert policy.set.log.exclusions == {}
        assert policy.set.log.proofs == {}
        assert len(policy.set.heads) == peers, "an author's log is missing, or went on under another name"


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_together_is_better_than_alone() -> None:
    result = run_scenario(replace(PLAN, training=replace(TRAINING, rounds=25, alone=8)))
    assert result.finished
    assert result.left_over == ()
    alone = mean([alone for alone, _ in result.alone_and_together()])
    together = result.accuracies()
    assert len(together) == len(result.alone_and_together()) == 8
    assert mean(together) > alone + 0.12
    assert min(together) > alone + 0.08


def test_equal_heads_are_equal_weights() -> None:
    result, found = run_then_rest(PLAN)
    check_one_set(found, 8)
    assert result.left_over == ()
    assert sum(found[0].set.heads.values()) >= 8 * 15
    assert all(checks > 10 and mismatches == 0 for checks, mismatches in hash_checks(result))


def hash_checks(result: SimResult) -> list[tuple[int, int]]:
    """How often each node compared its weights with others', and how often they differed."""
    learning = [status.jobs["main"].training for status in result.statuses if status is not None and status.jobs]
    return [(one.hash_checks, one.hash_mismatches) for one in learning]


def test_damage_in_a_nodes_memory_is_noticed_and_mended() -> None:
    async def damage(simulation: Simulation) -> None:
        await asyncio.sleep(30.0)
        policies(simulation)[5].set.units[1234] ^= 1 << 18

    result, found = run_then_rest(replace(PLAN, training=replace(TRAINING, rounds=40)), damage)
    check_one_set(found, 8)
    status = result.statuses[5]
    assert status is not None
    said = [event.text for event in status.events if event.kind in ("snapshot", "caught up")]
    assert any("not the sum of its entries" in text for text in said)
    assert any("weights are repaired" in text for text in said)
    latest = [known(found[0].latest(author)) for author in found[0].heads()]
    assert len(latest) == 8, "each knows what every author published of its latest round"
    assert all(facts.round >= 14 and facts.loss > 0 and facts.update_norm > 0 for facts in latest)


def test_time_is_charged() -> None:
    """Rounds take as long as their steps; what is sent and received is what travelled."""
    result = run_scenario(replace(PLAN, training=replace(TRAINING, speeds=(1.0, 4.0), rounds=30)))
    for one in result.nodes:
        training = one.status.steps / known(one.status.state.steps_per_second)  # the round under way is in it
        longest = result.virtual_seconds + 2 * TRAINING.round_seconds
        assert 0.6 * result.virtual_seconds < training < longest, "nodes train nearly all the time, and no more"
    assert max(one.status.steps for one in result.nodes) > 1.5 * min(one.status.steps for one in result.nodes)
    sent = sum(one.mb_sent for one in result.nodes)
    assert sent == pytest.approx(sum(one.mb_received for one in result.nodes), rel=0.02)


def test_crashes_and_restarts_cost_nobody_its_log() -> None:
    crashes = (
        Fault(14.0, "crash", (2,), seconds=3.0),
        Fault(19.3, "crash", (5, 6), seconds=0.5),
        Fault(24.1, "crash", (2,), seconds=8.0),
        Fault(31.0, "crash", (0,), seconds=5.0),
    )
    result, found = run_then_rest(replace(PLAN, faults=crashes, training=replace(TRAINING, rounds=20)))
    check_one_set(found, 8)
    assert [one.starts for one in result.nodes] == [2, 1, 3, 1, 1, 2, 2, 1]
    assert min(result.accuracies()) > 0.75


def test_lossy_doubling_reordering_links() -> None:
    links = Links(loss=0.05, duplicate=0.1, reorder=0.2, rate=2.5e6)
    result, found = run_then_rest(replace(PLAN, links=links))
    check_one_set(found, 8)
    assert not result.errors


def test_a_partition_heals() -> None:
    split = Fault(15.0, "partition", (0, 1, 2, 3), seconds=15.0)
    _, found = run_then_rest(replace(PLAN, faults=(split,)))
    check_one_set(found, 8)


def test_a_wrong_clock_learns_too() -> None:
    result, found = run_then_rest(replace(PLAN, skew={3: 86400.0, 5: -86400.0}))
    check_one_set(found, 8)
    assert min(result.accuracies()) > 0.75


def test_nonsense_does_no_harm() -> None:
    liars: list[Liar] = []

    async def lie(simulation: Simulation) -> None:
        await asyncio.sleep(12.0)
        liars.append(Liar(simulation))
        await liars[0].live(60.0)

    result, found = run_then_rest(PLAN, lie)
    check_one_set(found, 8)
    assert liars[0].asked > 10, "honest nodes took it for a partner"
    assert min(result.accuracies()) > 0.75
    blamed = [row.faults for status in result.statuses if status for row in status.peers if row.name == "liar"]
    assert blamed == [] or max(blamed) > 0
    for status in result.statuses:
        assert status is not None
        assert all(row.faults == 0 for row in status.peers if row.name != "liar"), "honest peers were blamed"


def test_circles_keep_to_themselves() -> None:
    _, found = run_then_rest(replace(PLAN, training=replace(TRAINING, rounds=6, circle=4)))
    halves = [[found[index] for index in range(start, start + 4)] for start in (0, 4)]
    for half in halves:
        assert len({policy.set.hash() for policy in half}) == 1
        assert all(len(policy.set.heads) == 4 for policy in half)
    assert halves[0][0].set.hash() != halves[1][0].set.hash()


PROGRAM = """
from p2pnode.simulate import simulate
result = simulate(4, task="digits", split="dirichlet:0.3", rounds=5, seed=5, churn=0.3, speeds=(1, 4), loss=0.02)
print(result.digest, result.accuracies(), hash("x"))
"""


def in_another_process(hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.rsplit(
        maxsplit=1
    )


def test_the_trace_does_not_depend_on_the_process() -> None:
    (first, its_hash), (second, other_hash) = in_another_process("1"), in_another_process("2")
    assert its_hash != other_hash
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["average", "gossip", "diloco"])
def test_every_policy_is_better_than_alone(policy: str) -> None:
    result = simulate(8, task="digits", split="dirichlet:0.3", rounds=25, seed=3, policy=policy, alone=8)
    alone = mean([alone for alone, _ in result.alone_and_together()])
    assert mean(result.accuracies()) > alone + 0.05


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_churn_everywhere(seed: int) -> None:
    """A quarter of the nodes crash and come back, links lose and double, speeds differ: one set in the end."""
    result, found = run_then_rest(
        replace(
            PLAN,
            seed=seed,
            links=Links(loss=0.02, duplicate=0.05, reorder=0.1),
            training=replace(TRAINING, rounds=30, speeds=(1.0, 4.0)),
            faults=tuple(
                Fault(13.0 + 7.3 * place, "crash", (1 + place % 7,), seconds=0.3 + place) for place in range(8)
            ),
        )
    )
    check_one_set(found, 8)
    assert min(result.accuracies()) > 0.75
