"""A node is well only when it makes progress or rests on purpose, can write, and its loop is alive."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from p2pnode.discovery.services import make_services
from p2pnode.jobs.contract import JobPace
from p2pnode.network.sim import SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.node.health import LATELY, PREPARED, PROBE_AGAIN, PROBE_EVERY, PROBE_FILE, STALLED, HealthMonitor
from p2pnode.runtime.seams import Seams, inline
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.errors import LocalProblem
from tests.jobs.train.test_train_job import ME
from tests.node.test_router import HandClock
from tests.runtime.test_limiter import FakeHost


class Disk(MemoryStorage):
    full = False
    writes = 0

    def write(self, name: str, *services: bytes | memoryview) -> None:
        self.writes += 1
        if self.full:
            raise LocalProblem("No space left on device")
        super().write(name, *services)


class Patient:
    """A health check with what it looks at. To be made inside a running loop."""

    def __init__(self) -> None:
        self.clock, self.disk = HandClock(), Disk()
        world = Seams(self.clock, random.Random(1), self.disk, inline, host=FakeHost())
        self.services = make_services(ME, world, SimSwarm(1).network(ME.peer_id))
        self.health_monitor = HealthMonitor(world, self.services.limiter)
        self.services.events.listen(self.health_monitor.hear)

    async def after(self, seconds: float, steps: int | None, samples: int = 10, speed: float = 5.0) -> tuple[str, ...]:
        self.clock.now += seconds
        await self.health_monitor.look({"main": None if steps is None else JobPace(steps, samples, speed)})
        return self.health_monitor.reasons()


def looked(test: Callable[[Patient], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Patient())

    run_virtual(main())


def test_who_has_nothing_to_learn_is_well_for_ever() -> None:
    async def test(patient: Patient) -> None:
        assert await patient.after(10 * PREPARED, None) == ()

    looked(test)


def test_steps_that_stop_are_noticed_and_steps_again_are_health() -> None:
    async def test(patient: Patient) -> None:
        patient.health_monitor.expect_progress()
        assert await patient.after(PREPARED - 1, None) == ()
        assert await patient.after(2, None) == (f"learning did not begin for {PREPARED + 1:.0f} s",)
        assert await patient.after(1, 5) == ()
        assert await patient.after(STALLED, 5) == ()
        assert await patient.after(10, 5) == (f"no local step for {STALLED + 10:.0f} s",)
        assert await patient.after(1, 6) == ()
        assert await patient.after(STALLED + 10, 6, speed=0.1) == (), "a slow machine has more time"

    looked(test)


def test_a_job_that_is_stuck_is_not_hidden_by_another_that_goes_on() -> None:
    async def test(patient: Patient) -> None:
        look, reasons = patient.health_monitor.look, patient.health_monitor.reasons
        patient.health_monitor.expect_progress()
        await look({"small": JobPace(1, 10, 5.0), "large": JobPace(1, 10, 5.0)})
        patient.clock.now += STALLED + 10
        await look({"small": JobPace(900, 10, 5.0), "large": JobPace(1, 10, 5.0)})
        assert reasons() == (f"large: no local step for {STALLED + 10:.0f} s",)
        await look({"small": JobPace(901, 10, 5.0)})
        assert reasons() == (), "it has ended, which its own event says"

    looked(test)


@pytest.mark.parametrize("idle", ["paused", "without samples"])
def test_who_rests_on_purpose_is_well_and_has_time_to_begin_again(idle: str) -> None:
    async def test(patient: Patient) -> None:
        patient.health_monitor.expect_progress()
        await patient.after(1, 5)
        if idle == "paused":
            patient.services.limiter.pause()
        samples = 10 if idle == "paused" else 0
        assert await patient.after(10 * STALLED, 5, samples) == ()
        patient.services.limiter.resume()
        assert await patient.after(STALLED, 5) == ()
        assert len(await patient.after(10, 5)) == 1

    looked(test)


def test_a_disk_that_takes_nothing_is_found_out_and_forgotten_when_it_does_again() -> None:
    async def test(patient: Patient) -> None:
        assert await patient.after(1, None) == ()
        patient.disk.full = True
        (reason,) = await patient.after(PROBE_EVERY, None)
        assert reason == "the disk takes no writes: No space left on device"
        for _ in range(300):
            assert len(await patient.after(1, None)) == 1, "as long as it is full"
        patient.disk.full = False
        await patient.after(PROBE_AGAIN, None)
        assert await patient.after(LATELY, None) == ()
        assert patient.disk.read(PROBE_FILE) is None
        patient.services.events.say("disk", "progress was not saved", warning=True)
        assert await patient.after(1, None) == ("the disk takes no writes: progress was not saved",)

    looked(test)


def test_a_node_that_starts_on_a_full_disk_is_not_well_at_its_first_second() -> None:
    async def test(patient: Patient) -> None:
        patient.disk.full = True
        assert len(await patient.after(0, None)) == 1

    looked(test)


def test_the_disk_is_tried_once_a_minute_only() -> None:
    async def test(patient: Patient) -> None:
        for _ in range(300):
            await patient.after(1, None)
        assert patient.disk.writes == 300 / PROBE_EVERY

    looked(test)


def test_a_loop_that_was_held_up_is_reported_for_a_while() -> None:
    async def test(patient: Patient) -> None:
        patient.services.limiter.held_up = (patient.clock.now, 9.0)
        assert await patient.after(1, None) == ("the node's loop was held up for 9 s",)
        assert await patient.after(LATELY, None) == ()

    looked(test)
