"""Faults of simulated machines: what each of them does, and that swarms survive all of them together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks import storm
from p2pnode.merging.deltaset.own_log import OwnLog
from p2pnode.network.sim import Fault, shrink
from p2pnode.network.sim.faults import NETWORK_FAULTS, PROCESS_FAULTS, draw_faults
from p2pnode.network.sim.virtual_time import PROCESS, VirtualLoop, run_virtual
from p2pnode.simulate import EPOCH, Scenario, Simulation, run_sim
from p2pnode.simulate.disk import ProcessDisk, SimDisk
from p2pnode.wire.errors import LocalProblem
from tests.scenarios.results import unseen_pairs

PLAN = Scenario(peers=3, seed=2, seconds=60.0, sample_every=0.0, spread=1.0)


def loop() -> VirtualLoop:
    running = asyncio.get_running_loop()
    assert isinstance(running, VirtualLoop)
    return running


# ---- disks ----


def test_a_full_disk_refuses_writes_and_tears_appends() -> None:
    disk = SimDisk()
    disk.write("kept", b"old")
    disk.full = True
    with pytest.raises(LocalProblem, match="No space left"):
        disk.write("kept", b"new")
    with pytest.raises(LocalProblem, match="No space left"):
        disk.append("log", b"12345678")
    assert (disk.read("kept"), disk.read("log")) == (b"old", b"1234")
    disk.move("kept", "moved")
    disk.delete("log")
    assert disk.read("moved") == b"old", "renaming and deleting need no room"


def test_a_loss_of_power_undoes_only_what_was_not_synced() -> None:
    undone = set()
    for seed in range(20):
        disk = SimDisk()
        for name in ("a/one", "a/two", "b/three"):
            disk.write(name, name.encode())
        disk.delete("a/one")
        disk.write("a/new", b"")  # syncs the folder: the deletion is durable now
        disk.move("a/two", "a/moved")
        disk.delete("b/three")
        disk.lose_power(random.Random(seed))
        assert disk.read("a/one") is None
        assert disk.read("a/new") == b""
        assert (disk.read("a/two") is None) != (disk.read("a/moved") is None)
        undone.add((disk.read("a/moved") is None, disk.read("b/three") is not None))
    assert len(undone) == 4, "each of the two may be undone, or not"


def test_rot_flips_one_bit_and_a_rollback_brings_everything_back() -> None:
    disk = SimDisk()
    disk.write("one", bytes(100))
    disk.remember(1.0)
    name = disk.rot(0.3)
    content = disk.read(name)
    assert content is not None
    assert sum(byte.bit_count() for byte in content) == 1
    disk.write("two", b"later")
    disk.return_to(1.0)
    assert disk.read("one") == bytes(100)
    assert disk.read("two") is None


@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_a_process_ends_before_any_of_its_operations(place: int) -> None:
    disk, died = SimDisk(), []
    process = ProcessDisk(disk, die=lambda: died.append(True), delayed=lambda _: None)
    process.dies_in = place
    operations: list[Callable[[], None]] = [
        lambda: process.write("a", b"1"),
        lambda: process.append("log", b"12345678"),
        lambda: process.move("a", "b"),
        lambda: process.delete("b"),
    ]
    with pytest.raises(asyncio.CancelledError):  # noqa: PT012  (which of them raises is what is tested)
        for operation in operations:
            operation()
    process.gone = True
    process.write("after", b"")
    assert died == [True]
    assert disk.read("after") is None
    whole = {
        1: {},
        2: {"a": b"1", "log": b"1234"},
        3: {"a": b"1", "log": b"12345678"},
        4: {"b": b"1", "log": b"12345678"},
    }
    assert {name: disk.read(name) for name in ("a", "b", "log") if disk.read(name) is not None} == whole[place]


# ---- processes ----


def test_a_frozen_process_does_nothing_and_then_everything() -> None:
    async def main() -> list[tuple[float, int]]:
        seen: list[tuple[float, int]] = []

        async def tick(process: int) -> None:
            PROCESS.set(process)
            await asyncio.sleep(0)
            for _ in range(4):
                await asyncio.sleep(1.0)
                seen.append((loop().time(), process))

        tasks = [asyncio.create_task(tick(process)) for process in (1, 2)]
        await asyncio.sleep(1.5)
        loop().freeze(1)
        await asyncio.sleep(10.0)
        loop().thaw(1)
        await asyncio.gather(*tasks)
        return seen

    seen = run_virtual(main())
    assert [time for time, process in seen if process == 2] == [1.0, 2.0, 3.0, 4.0]
    assert [time for time, process in seen if process == 1] == [1.0, 11.5, 12.5, 13.5]


def test_something_happens_at_the_nth_step_of_a_process() -> None:
    async def main() -> list[str]:
        seen: list[str] = []

        async def steps(process: int) -> None:
            PROCESS.set(process)
            for number in range(5):
                await asyncio.sleep(0)
                seen.append(f"{process}.{number}")

        tasks = [asyncio.create_task(steps(process)) for process in (1, 2)]
        await asyncio.sleep(0)
        loop().at_step(2, 3, lambda: seen.append("now"))
        await asyncio.gather(*tasks)
        return seen

    seen = run_virtual(main())
    assert seen[seen.index("now") + 1 :][0] == "2.2"


def played(*faults: Fault, seconds: float = 60.0, look: Callable[[Simulation], object] = lambda _: None) -> Simulation:
    """A swarm that only meets, with these faults; `look` is called every second."""

    async def main() -> Simulation:
        simulation = Simulation(replace(PLAN, faults=faults))
        await simulation.start()
        for _ in range(int(seconds)):
            await simulation.go_on(1.0)
            look(simulation)
        result = await simulation.finish()
        assert result.left_over == ()
        assert not result.errors
        assert unseen_pairs(result) == []
        return simulation

    return run_sim(main())


@pytest.mark.parametrize(
    "fault",
    [
        Fault(15.0, "step", (1,), seconds=5.0, amount=30.0),
        Fault(0.0, "operation", (1,), seconds=5.0, amount=2.0),
        Fault(15.0, "power", (1,), seconds=5.0),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_node_that_dies_at_a_step_a_disk_operation_or_without_power_comes_back(fault: Fault) -> None:
    assert played(fault).starts == [1, 2, 1]


def test_a_frozen_node_counts_as_silent_and_comes_back() -> None:
    conditions: list[tuple[str, ...]] = []

    def look(simulation: Simulation) -> None:
        rows = simulation.processes[0].node.status().peers
        conditions.append(tuple(sorted(row.name for row in rows if row.present)))

    simulation = played(Fault(15.0, "freeze", (1,), seconds=25.0), seconds=80.0, look=look)
    assert simulation.starts[1] == 1
    assert ("n2",) in conditions, "n1 was silent for a time"
    assert conditions[-1] == ("n1", "n2")


def test_a_clock_jumps_and_returns() -> None:
    times: list[float] = []

    def look(simulation: Simulation) -> None:
        times.append(simulation.processes[1].clock.time() - EPOCH - asyncio.get_running_loop().time())

    played(Fault(20.5, "clock", (1,), seconds=10.0, amount=86400.0), look=look)
    assert times[18:22] == [0.0, 0.0, 86400.0, 86400.0]
    assert times[-1] == 0.0


def test_a_daemon_that_dies_while_its_node_starts_is_replaced() -> None:
    simulation = played(Fault(0.05, "daemon", (0,), seconds=3.0))
    assert simulation.starts == [1, 1, 1]


def test_a_node_that_cannot_start_on_a_full_disk_is_started_again() -> None:
    async def main() -> Simulation:
        full = Fault(0.0, "full", (1,), seconds=20.0)
        simulation = Simulation(replace(PLAN, faults=(full,), restart_after=2.0))
        await simulation.start()
        await simulation.go_on(50.0)
        assert len(simulation.processes) == 3
        assert "No space left" in simulation.last_error(1)
        await simulation.finish()
        return simulation

    assert run_sim(main()).starts[1] > 3


# ---- storms ----


def test_faults_of_all_kinds_are_drawn_and_only_one_disk_is_damaged() -> None:
    kinds = (*NETWORK_FAULTS, *PROCESS_FAULTS)
    drawn = draw_faults(random.Random(1), 6, 100.0, 400, kinds, victim=4)
    assert {fault.kind for fault in drawn} == set(kinds)
    assert {fault.peers for fault in drawn if fault.kind in ("rollback", "rot")} == {(4,)}
    assert all(fault.end <= 100.0 for fault in drawn)


SET_BACK = Fault(100.0, "rollback", (0,), seconds=5.0, amount=60.0)
SILENCE = Fault(104.0, "partition", (0,), seconds=70.0)  # nobody can tell it what it had published
NOISE = (Fault(40.0, "daemon", (1,), seconds=3.0), Fault(60.0, "slow", (2,), seconds=20.0, amount=5.0))


def test_a_disk_that_was_set_back_makes_nobody_a_fraud() -> None:
    assert storm.play(3, [SET_BACK, SILENCE]).violations == ()


@pytest.mark.slow
def test_what_is_broken_on_purpose_is_found_and_its_faults_are_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule, a node whose disk was set back signs numbers twice."""
    monkeypatch.setattr(OwnLog, "confirmed", lambda self, head, peers: True)

    def fails(faults: object) -> bool:
        return any("excludes" in text for text in storm.play(3, faults).violations)  # type: ignore[arg-type]

    assert shrink([*NOISE, SET_BACK, SILENCE], fails)[0] == SET_BACK


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 16))
def test_a_swarm_survives_a_storm(seed: int) -> None:
    assert storm.play(seed).violations == ()


def test_the_same_seed_gives_the_same_storm() -> None:
    faults = [Fault(40.0, "step", (1,), seconds=3.0, amount=99.0)]
    assert storm.play(9, faults) == storm.play(9, faults)
