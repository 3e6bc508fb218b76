"""Whole swarms of the unmodified node on virtual time, with what goes wrong drawn from seeds.

Every scenario ends with the same check: all that run see each other and are connected, nobody gave up, nothing is left.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from p2pnode.config.options import Options
from p2pnode.network.sim import Fault, Links, churn_faults, draw_faults
from p2pnode.node.health import HealthMonitor
from p2pnode.simulate import Scenario, SimResult, run_scenario, simulate
from tests.scenarios.results import unseen_pairs

DAY = 86400.0
PLAN = Scenario(peers=16, seed=3, seconds=200.0)
HALF = tuple(range(8, 16))


def check(result: SimResult, down: tuple[int, ...] = ()) -> None:
    """Everybody sees everybody, and nothing is left over."""
    assert not result.errors
    assert result.left_over == ()
    assert [index for index, status in enumerate(result.statuses) if status is None] == list(down)
    assert unseen_pairs(result) == []
    running = [status for status in result.statuses if status is not None]
    assert {status.condition for status in running} == {"connected"}
    assert len({status.run for status in running}) == 1
    assert sum(row.faults for status in running for row in status.peers) == 0, "honest peers were blamed"


def sees_at(result: SimResult, time: float, nodes: range | tuple[int, ...]) -> list[int]:
    """How many peers these nodes saw at a sampled time."""
    names = {f"n{index}" for index in nodes}
    return [sample.peers for sample in result.peer_counts if sample.time == time and sample.node in names]


def test_sixteen_nodes_meet() -> None:
    result = run_scenario(PLAN)
    check(result)
    assert set(sees_at(result, 30.0, range(16))) == {15}, "all within 20 s of the last start"
    assert {row["node"] for row in result.rows()} == {f"n{index}" for index in range(16)}


def test_lossy_doubling_reordering_links() -> None:
    links = Links(loss=0.05, duplicate=0.1, reorder=0.1)
    result = run_scenario(replace(PLAN, links=links, seconds=300.0))
    assert not result.errors
    assert result.left_over == ()
    for index in range(16):  # three calls lost in a row make a peer silent for a moment, also at the very end
        lately = [sample for sample in result.peer_counts if sample.node == f"n{index}" and sample.time > 200.0]
        assert max(sample.peers for sample in lately) == 15
        assert sum(sample.peers for sample in lately) >= 14 * len(lately)


def test_slow_thin_links() -> None:
    check(run_scenario(replace(PLAN, links=Links(latency=0.4, jitter=0.3, rate=20_000.0))))


def test_a_bootstrap_that_was_down_when_all_started() -> None:
    result = run_scenario(replace(PLAN, faults=(Fault(0.05, "crash", (0,), seconds=60.0),)))
    assert set(sees_at(result, 60.0, range(1, 16))) == {0}
    check(result)


def test_a_partition_at_the_start_heals() -> None:
    result = run_scenario(replace(PLAN, faults=(Fault(0.0, "partition", HALF, seconds=80.0),)))
    assert set(sees_at(result, 80.0, range(8))) == {7}
    assert set(sees_at(result, 80.0, HALF)) == {0}
    check(result)


@pytest.mark.parametrize("bootstrap_dies", [False, True])
def test_two_half_swarms_that_forgot_each_other_heal(bootstrap_dies: bool) -> None:
    """Ten minutes: every announcement has run out and the DHTs know nothing of each other."""
    faults = [Fault(60.0, "split", HALF, seconds=600.0)]
    if bootstrap_dies:
        faults.append(Fault(100.0, "crash", (0,)))
    result = run_scenario(replace(PLAN, peers=12, seconds=900.0, faults=tuple(faults)))
    assert set(sees_at(result, 650.0, (8, 9, 10, 11))) == {3}
    check(result, down=(0,) if bootstrap_dies else ())


@pytest.mark.parametrize("wrong", [{0: -DAY}, {3: DAY, 4: -DAY, 5: 3 * 365 * DAY}, dict.fromkeys(range(1, 16), DAY)])
def test_wrong_clocks_join_and_are_seen(wrong: dict[int, float]) -> None:
    result = run_scenario(replace(PLAN, skew=wrong))
    check(result)
    assert set(sees_at(result, 40.0, range(16))) == {15}


@pytest.mark.parametrize("peers", [2, 3, 16])
def test_a_wrong_clock_that_restarts_takes_the_swarms_time_and_does_not_move_it(peers: int) -> None:
    crash = Fault(60.0, "crash", (1,), seconds=10.0)
    result = run_scenario(replace(PLAN, peers=peers, seconds=120.0, skew={1: DAY}, faults=(crash,)))
    check(result)
    assert set(sees_at(result, 90.0, range(peers))) == {peers - 1}
    offsets = [round(status.clock_offset_seconds) for status in result.statuses if status is not None]
    assert offsets == [0, -DAY, *[0] * (peers - 2)]


@pytest.mark.parametrize("seed", range(3))
def test_a_fifth_of_the_nodes_crashes_and_comes_back(seed: int) -> None:
    result = simulate(16, seed=seed, seconds=400.0, churn=0.2)
    check(result)
    starts = result.message_counts["health"]
    assert starts == 2 * (16 + 3), "three nodes started twice"


def test_half_of_the_nodes_vanish_for_good() -> None:
    gone = tuple(range(0, 16, 2))
    check(run_scenario(replace(PLAN, seconds=600.0, faults=(Fault(60.0, "crash", gone),))), down=gone)


def test_all_daemons_die_at_once() -> None:
    result = run_scenario(replace(PLAN, faults=(Fault(60.0, "daemon", tuple(range(16)), seconds=5.0),)))
    check(result)
    assert {status.daemon_starts for status in result.statuses if status is not None} == {2}


def test_daemons_die_again_and_again_while_nodes_join() -> None:
    faults = tuple(Fault(2.0 + 0.5 * number, "daemon", tuple(range(1, 16)), seconds=0.3) for number in range(10))
    check(run_scenario(replace(PLAN, faults=faults)))


def test_a_restarted_node_finds_the_swarm_by_its_peer_book() -> None:
    def without_bootstrap(usual: Options, index: int, starts: int) -> Options:
        return replace(usual, run=replace(usual.run, bootstrap=())) if starts > 1 else usual

    faults = (Fault(80.0, "crash", (0,)), Fault(100.0, "crash", (5, 6), seconds=10.0))
    check(run_scenario(replace(PLAN, seconds=400.0, faults=faults, adjust=without_bootstrap)), down=(0,))


def test_a_one_way_cut_hides_only_its_two_ends_from_each_other_and_ends() -> None:
    cut = Fault(40.0, "cut", (3,), (4,), seconds=200.0)
    during = run_scenario(replace(PLAN, peers=8, seconds=230.0, faults=(cut,)))
    assert set(unseen_pairs(during)) == {(3, 4), (4, 3)}
    check(run_scenario(replace(PLAN, peers=8, seconds=400.0, faults=(cut,))))


def test_a_node_nobody_hears_comes_back() -> None:
    check(run_scenario(replace(PLAN, seconds=400.0, faults=(Fault(40.0, "cut", (3,), seconds=150.0),))))


def test_slow_peers_stay_members() -> None:
    check(run_scenario(replace(PLAN, faults=(Fault(40.0, "slow", (3, 4, 5), amount=20.0),))))


@pytest.mark.parametrize("seed", range(6))
def test_any_mixture_of_faults_heals(seed: int) -> None:
    """A failure here prints its seed; network.sim.shrink makes its list of faults small."""
    faults = draw_faults(random.Random(seed), peers=8, seconds=300.0, count=20)
    links = Links(loss=0.02, duplicate=0.02, reorder=0.05)
    result = run_scenario(replace(PLAN, peers=8, seed=seed, seconds=700.0, links=links, faults=tuple(faults)))
    check(result)


def test_a_bug_in_looking_after_the_node_ends_it_and_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: HealthMonitor, *how: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(HealthMonitor, "look", broken)
    with pytest.raises(ExceptionGroup) as heard:
        simulate(2, seconds=5)
    assert heard.group_contains(RuntimeError, match="a bug")


def test_churn_without_end_leaves_nothing_behind() -> None:
    """Memory and queues stay bounded: after an hour of churn nobody has more than the swarm in its tables."""
    rng = random.Random(5)
    faults = [fault for start in range(60, 3000, 120) for fault in churn_faults(rng, range(1, 8), 0.4, start, 60.0)]
    result = run_scenario(replace(PLAN, peers=8, seconds=3600.0, faults=tuple(faults)))
    check(result)
    assert all(len(status.peers) == 7 for status in result.statuses if status is not None)
