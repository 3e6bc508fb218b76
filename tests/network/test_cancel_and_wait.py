"""Ending tasks: what one of them failed with is heard, and a cancel meant for the caller is not swallowed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from p2pnode.network.base import cancel_and_wait
from p2pnode.network.sim.virtual_time import run_virtual


async def fail(at_the_end: bool) -> None:
    try:
        if at_the_end:
            await asyncio.sleep(100.0)
    finally:
        raise RuntimeError("a bug")


@pytest.mark.parametrize("at_the_end", [False, True])
def test_what_an_ended_task_failed_with_is_logged(at_the_end: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        task, well = asyncio.create_task(fail(at_the_end)), asyncio.create_task(asyncio.sleep(100.0))
        await asyncio.sleep(1.0)
        await cancel_and_wait(task, well)
        assert task.done() and well.cancelled()

    with caplog.at_level(logging.ERROR):
        run_virtual(main())
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a bug"]


def test_a_cancel_of_who_waits_goes_on_to_it() -> None:
    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(100.0)
        finally:
            await asyncio.sleep(10.0)

    async def main() -> None:
        task = asyncio.create_task(slow_to_end())
        await asyncio.sleep(1.0)
        caller = asyncio.create_task(cancel_and_wait(task))
        await asyncio.sleep(1.0)
        caller.cancel()
        await asyncio.wait({caller})
        assert caller.cancelled() and not task.done()

    run_virtual(main())
