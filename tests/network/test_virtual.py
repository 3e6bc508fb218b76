"""Virtual time: jumps instead of waiting, keeps order, and says so when a program would hang."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from p2pnode.network.sim.virtual_time import VirtualDeadlock, run_virtual


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_year_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(365 * 86400)
        return now()

    assert run_virtual(main()) == 365 * 86400


def test_time_stands_still_while_something_is_ready() -> None:
    async def main() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return now()

    assert run_virtual(main()) == 0.0


def test_timers_fire_at_their_time_and_in_the_order_they_were_set() -> None:
    async def main() -> list[tuple[float, str]]:
        fired: list[tuple[float, str]] = []
        loop = asyncio.get_running_loop()

        def fire(name: str) -> None:
            fired.append((now(), name))

        for name, delay in (("c", 2.0), ("a", 1.0), ("d", 2.0), ("b", 1.0), ("e", 2.0)):
            loop.call_later(delay, fire, name)
        await asyncio.sleep(3)
        return fired

    assert run_virtual(main()) == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d"), (2.0, "e")]


def test_timeouts_work() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        return now()

    assert run_virtual(main()) == 5.0


def test_a_cancelled_timer_does_not_move_the_clock() -> None:
    async def main() -> float:
        async with asyncio.timeout(1000):
            await asyncio.sleep(1)
        await asyncio.sleep(1)
        return now()

    assert run_virtual(main()) == 2.0


def test_cancelled_timers_do_not_pile_up() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        most = 0
        for _ in range(20_000):
            loop.call_later(1e6, print).cancel()
            most = max(most, len(loop._timers))  # type: ignore[attr-defined]
        return most

    assert run_virtual(main()) < 5000


def test_a_timer_set_in_the_past_fires_now() -> None:
    async def main() -> float:
        await asyncio.sleep(10)
        fired = asyncio.Event()
        asyncio.get_running_loop().call_at(3.0, fired.set)
        await fired.wait()
        return now()

    assert run_virtual(main()) == 10.0


@pytest.mark.timeout(60)
def test_a_deadlock_is_an_error_that_names_who_waits() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait(), name="the one who waits")

    with pytest.raises(VirtualDeadlock, match="the one who waits"):
        run_virtual(main())


def test_errors_of_the_program_come_out() -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_virtual(main())


def test_tasks_left_behind_are_cancelled() -> None:
    ended: list[str] = []

    async def behind() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append("cancelled")

    async def main() -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(behind())
        await asyncio.sleep(0)
        return task

    run_virtual(main())
    assert ended == ["cancelled"]


@pytest.mark.parametrize(
    "reach_out",
    [lambda: asyncio.to_thread(int), lambda: asyncio.open_connection("127.0.0.1", 1)],
    ids=["thread", "socket"],
)
def test_threads_and_sockets_are_refused(reach_out: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """They would bring real time and real order in."""
    with pytest.raises(RuntimeError):
        run_virtual(reach_out())


async def test_it_runs_within_another_loop_as_in_a_notebook() -> None:
    outer = asyncio.get_running_loop()

    async def main() -> float:
        await asyncio.sleep(3600.0)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 3600.0
    assert asyncio.get_running_loop() is outer
    await asyncio.sleep(0)
