"""The limiter: a node rests when its limits or its user want it, ends a round early, and remembers a pause."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from p2pnode.discovery.services import make_services
from p2pnode.network.sim import SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.runtime.limiter import PAUSED_FILE, Limiter, limits_in_words
from p2pnode.runtime.seams import Seams, inline
from p2pnode.simulate import SimClock
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.errors import LocalProblem, UsageError
from p2pnode.wire.status import NO_LIMITS, LimitOptions, Machine, NodeEvent
from tests.jobs.train.test_train_job import ME, Setup

QUIET = Machine(cpu=0.1, own_cpu=0.1, memory_bytes=1, memory_free_bytes=1)
BUSY = Machine(cpu=1.0, own_cpu=0.1, memory_bytes=1, memory_free_bytes=1)
ON_BATTERY = Machine(cpu=0.1, own_cpu=0.1, memory_bytes=1, memory_free_bytes=1, battery=0.5, on_battery=True)


@dataclass
class FakeHost:
    cores: int = 2
    load: Machine = QUIET
    at: int = 0

    def read(self) -> Machine:
        return self.load

    def minute(self) -> int:
        return self.at


class LimitedNode:
    """A limiter with what it is made of. To be made inside a running loop."""

    def __init__(
        self, settings: LimitOptions = NO_LIMITS, host: FakeHost | None = None, storage: MemoryStorage | None = None
    ) -> None:
        self.storage = storage or MemoryStorage()
        world = Seams(SimClock(0.0), random.Random(1), self.storage, inline, host=host)
        services = make_services(ME, world, SimSwarm(1).network(ME.peer_id), settings)
        self.limiter: Limiter = services.limiter
        self.events: list[NodeEvent] = []
        services.events.listen(self.events.append)


def test_a_pause_holds_at_once_and_over_restarts_until_resumed() -> None:
    async def main() -> None:
        first = LimitedNode()
        await first.limiter.free()
        assert "until `resume`" in first.limiter.pause()
        assert first.limiter.resting == "paused by you"
        assert first.limiter.brake()
        again = LimitedNode(storage=first.storage)
        await again.limiter.run()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(again.limiter.free(), 100.0)
        assert again.limiter.resume() == "working again"
        await again.limiter.free()
        assert not again.limiter.brake()
        assert again.storage.read(PAUSED_FILE) is None
        assert [event.kind for event in again.events] == ["paused", "working"]

    run_virtual(main())


def test_a_full_disk_costs_the_memory_of_a_pause_not_the_pause() -> None:
    class Full(MemoryStorage):
        def write(self, name: str, *services: bytes | memoryview) -> None:
            raise LocalProblem("No space left on device")

    async def main() -> None:
        house = LimitedNode(storage=Full())
        house.limiter.pause()
        assert house.limiter.resting
        assert [event.kind for event in house.events if event.warning] == ["disk"]

    run_virtual(main())


@pytest.mark.parametrize(
    ("settings", "host", "reason"),
    [
        (LimitOptions(pause_on_battery=True), FakeHost(load=ON_BATTERY), "on battery"),
        (LimitOptions(idle_only=True), FakeHost(load=BUSY), "the machine is in use"),
        (LimitOptions(schedule="22:00-07:00"), FakeHost(at=600), "outside 22:00-07:00"),
        (NO_LIMITS, FakeHost(load=ON_BATTERY, at=600), ""),
    ],
)
def test_each_rule_makes_it_rest_and_work_again(settings: LimitOptions, host: FakeHost, reason: str) -> None:
    async def main() -> None:
        house = LimitedNode(settings, host)
        keeping = asyncio.create_task(house.limiter.run())
        await until(lambda: house.limiter.resting == reason and house.limiter.machine is not None)
        host.load, host.at = QUIET, 60
        await until(lambda: house.limiter.resting == "")
        keeping.cancel()
        assert [event.kind for event in house.events] == (["paused", "working"] if reason else [])

    run_virtual(main())


def test_no_rule_of_the_machine_counts_where_there_is_none() -> None:
    async def main() -> None:
        house = LimitedNode(LimitOptions(schedule="01:00-02:00", idle_only=True))
        await house.limiter.run()
        assert house.limiter.resting == ""

    run_virtual(main())


def test_limits_change_while_it_runs_and_a_wrong_one_changes_nothing() -> None:
    async def main() -> None:
        house = LimitedNode(LimitOptions(max_upload=64_000.0), FakeHost(at=600))
        said = house.limiter.execute(ControlRequest("limits", limits={"max-download": "1M", "max-cpu": 0.5}), True).said
        assert said.endswith("upload 64 kB/s, download 1000 kB/s, cpu 50%")
        house.limiter.limit({"max-upload": "off", "schedule": "22:00-07:00"})
        assert house.limiter.resting == "outside 22:00-07:00"
        before = house.limiter.limits
        for wrong in ({"max-upload": "lots"}, {"max-disk": "1GB"}, {"idle-only": 3}, {"max-upload": "1M", "x": "y"}):
            with pytest.raises(UsageError):
                house.limiter.limit(wrong)
        assert house.limiter.limits is before
        house.limiter.limit(dict.fromkeys(("schedule", "max-cpu", "max-download"), "off"))
        assert house.limiter.limits == NO_LIMITS
        assert house.limiter.resting == ""

    run_virtual(main())


def test_who_learns_nothing_has_limits_and_nothing_to_pause() -> None:
    async def main() -> None:
        house = LimitedNode()
        assert house.limiter.execute(ControlRequest("limits"), learns=False).said.endswith("none")
        with pytest.raises(LocalProblem, match="nothing to pause"):
            house.limiter.execute(ControlRequest("pause"), learns=False)

    run_virtual(main())


def test_the_brake_holds_training_to_its_part_of_the_time() -> None:
    async def main() -> None:
        house = LimitedNode(LimitOptions(max_cpu=0.125), FakeHost(cores=2))
        house.limiter.brake()
        worked, begun = time.thread_time(), time.perf_counter()
        while time.thread_time() - worked < 0.05:
            sum(range(1000))
            house.limiter.brake()
        assert time.perf_counter() - begun >= 0.05 / 0.25 * 0.8, "a quarter of one of two cores"

    asyncio.run(main())


def test_fewer_threads_are_tried_where_less_of_the_machine_is_allowed() -> None:
    async def main() -> None:
        assert LimitedNode(host=FakeHost(cores=8)).limiter.cores is None
        assert LimitedNode(LimitOptions(max_cpu=0.5), FakeHost(cores=8)).limiter.cores == 5
        assert LimitedNode(LimitOptions(max_cpu=0.01), FakeHost(cores=8)).limiter.cores == 2

    run_virtual(main())


def test_a_round_under_way_ends_early_and_is_published_and_no_other_begins() -> None:
    async def main() -> None:
        setup = Setup()
        learning, limiter = setup.learning, setup.services.limiter
        assert not await learning.resume()
        await learning.save()
        done = 0
        step = learning.trainer._step

        def third_step_pauses(*arguments: object) -> float:
            nonlocal done
            done += 1
            if done == 3:
                limiter.pause()
            return step(*arguments)  # type: ignore[arg-type]

        learning.trainer._step = third_step_pauses  # type: ignore[method-assign, assignment]
        learning.trainer.speed = 1000.0
        keeping = asyncio.create_task(learning.run())
        await asyncio.sleep(100.0)
        assert learning.trainer.steps_done == 3
        assert learning.train_progress.rounds == len(list(setup.policy.set.log)) == 1
        limiter.resume()
        await asyncio.sleep(100.0)
        assert learning.trainer.steps_done > 3
        keeping.cancel()

    run_virtual(main())


def test_all_limits_are_reported() -> None:
    limits = LimitOptions(1e6, 5e5, 0.25, True, True, "22:00-07:00")
    assert limits_in_words(limits) == (
        "upload 1000 kB/s, download 500 kB/s, cpu 25%, rests on battery, rests while the machine is in use, "
        "works 22:00-07:00"
    )


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(100.0):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.5)
