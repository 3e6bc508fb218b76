"""Ending tasks, and raising what ended one as itself."""

from __future__ import annotations

import asyncio
import contextlib

from ..errors import P2pnodeError


async def cancelled(task: asyncio.Task[object]) -> None:
    """Cancel a task and see it end, however it does."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task


def raise_plain(task: asyncio.Task[None]) -> None:
    """Raise what ended a task; what we raise on purpose comes out of task groups as itself."""
    error = task.exception()
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, P2pnodeError):
        raise error from None
    task.result()
