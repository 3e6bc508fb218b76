"""Sharing the compute thread: a job alone is untouched, several get their shares, unused time is measured."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from p2pnode.jobs.scheduler import PIECE, WINDOW, JobCompute, Scheduler
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.simulate import SimClock
from p2pnode.simulate.compute import SimCompute


def scheduler(steps_per_second: float = 10.0) -> Scheduler:
    return Scheduler(SimCompute(steps_per_second), SimClock(0.0))


async def train(compute: JobCompute, steps: int, done: Callable[[], object]) -> None:
    """A job that always has more to do, in pieces of `steps` steps."""
    while True:
        await compute(lambda: None, steps)
        done()


async def counted(jobs: dict[str, tuple[JobCompute, int]], seconds: float) -> Counter[str]:
    """How many steps each job gets done in this time."""
    done: Counter[str] = Counter()
    tasks = [
        asyncio.create_task(train(compute, steps, partial(done.update, {name: steps})))
        for name, (compute, steps) in jobs.items()
    ]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return done


def test_a_job_alone_has_the_thread_to_itself() -> None:
    async def main() -> None:
        made = scheduler()
        alone = made.add("alone")
        assert alone.longest_piece() is None
        done = await counted({"alone": (alone, 5)}, 100.05)
        assert done["alone"] == 1000
        assert made.share("alone") == pytest.approx(1.0)
        assert made.idle() == pytest.approx(0.0)

    run_virtual(main())


def test_work_submitted_at_once_by_a_job_alone_is_done_in_order() -> None:
    async def main() -> None:
        compute, order = scheduler().add("alone"), list[int]()
        await asyncio.gather(*(compute(partial(order.append, number), 1) for number in range(5)))
        assert order == [0, 1, 2, 3, 4]

    run_virtual(main())


def test_jobs_of_equal_weight_get_equal_time_whatever_the_size_of_their_pieces() -> None:
    async def main() -> None:
        made = scheduler()
        done = await counted({"one": (made.add("one"), 1), "other": (made.add("other"), 5)}, 200.0)
        assert done["one"] == pytest.approx(1000, rel=0.02)
        assert done["other"] == pytest.approx(1000, rel=0.02)
        assert made.share("one") == pytest.approx(0.5, abs=0.02)

    run_virtual(main())


def test_a_job_that_submits_much_at_once_does_not_crowd_out_another() -> None:
    async def main() -> None:
        made = scheduler()
        greedy, modest = made.add("greedy"), made.add("modest")
        crowd = [asyncio.create_task(train(greedy, 1, lambda: None)) for _ in range(20)]
        done = await counted({"modest": (modest, 1)}, 100.0)
        assert done["modest"] == pytest.approx(500, rel=0.02)
        for task in crowd:
            task.cancel()

    run_virtual(main())


def test_time_is_shared_by_weight() -> None:
    async def main() -> None:
        made = scheduler()
        heavy, light = made.add("heavy", weight=3.0), made.add("light", weight=1.0)
        assert heavy.longest_piece() == 3 * PIECE
        done = await counted({"heavy": (heavy, 1), "light": (light, 1)}, 200.0)
        assert done["heavy"] == pytest.approx(1500, rel=0.02)
        assert done["light"] == pytest.approx(500, rel=0.02)

    run_virtual(main())


def test_a_newcomer_has_no_claim_on_the_past() -> None:
    async def main() -> None:
        made = scheduler()
        old = made.add("old")
        await counted({"old": (old, 1)}, 100.0)
        done = await counted({"old": (old, 1), "new": (made.add("new"), 1)}, 20.0)
        assert done["old"] == pytest.approx(done["new"], abs=3)

    run_virtual(main())


def test_the_share_of_a_job_that_ends_goes_to_the_others() -> None:
    async def main() -> None:
        made = scheduler()
        stays = made.add("stays")
        made.add("goes")
        made.remove("goes")
        assert stays.longest_piece() is None
        assert made.share("goes") is None
        assert (await counted({"stays": (stays, 1)}, 10.05))["stays"] == 100

    run_virtual(main())


def test_idle_time_is_measured_over_the_last_windows() -> None:
    async def main() -> None:
        made = scheduler()
        compute = made.add("one")
        for _ in range(int(WINDOW)):  # half of every second
            await compute(lambda: None, 5)
            await asyncio.sleep(0.5)
        assert made.idle() == pytest.approx(0.5, abs=0.01)
        assert made.share("one") == pytest.approx(0.5, abs=0.01)
        await asyncio.sleep(3 * WINDOW)
        assert made.idle() == pytest.approx(1.0)

    run_virtual(main())


def test_work_under_way_counts_as_busy() -> None:
    async def main() -> None:
        made = scheduler()
        task = asyncio.create_task(made.add("one")(lambda: None, 200))  # 20 seconds
        await asyncio.sleep(10.0)
        assert made.idle() == pytest.approx(0.0)
        await task

    run_virtual(main())


def test_cancelled_and_failing_work_gives_its_turn_back() -> None:
    async def main() -> None:
        made = scheduler()
        one, other = made.add("one"), made.add("other")
        running = asyncio.create_task(one(lambda: None, 10))
        await asyncio.sleep(0.1)
        waiting = [asyncio.create_task(other(lambda: None, 10)) for _ in range(3)]
        await asyncio.sleep(0.1)
        waiting[0].cancel()
        await running
        waiting[1].cancel()  # its turn has just come
        with pytest.raises(ZeroDivisionError):
            await one(lambda: 1 // 0, 0)
        assert await asyncio.wait_for(other(lambda: 7, 0), 10.0) == 7
        await waiting[2]

    run_virtual(main())
