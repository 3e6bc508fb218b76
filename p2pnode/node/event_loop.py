"""Runs a node's work on an event loop of its own, in any thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..network.base import cancel_and_wait

TASKS_LIMIT = 1.0  # seconds for what is still under way when the node has left

T = TypeVar("T")
logger = logging.getLogger(__name__)


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on a uvloop loop and end what it left. Unlike asyncio.run it waits for no thread."""
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(_end_tasks())
        asyncio.set_event_loop(None)
        loop.close()


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    try:
        async with asyncio.timeout(TASKS_LIMIT):
            await cancel_and_wait(*left)
    except TimeoutError:
        logger.warning("some of what was under way did not end within %g s", TASKS_LIMIT)
    await asyncio.sleep(0)  # transports closed by the tasks get their turn
