"""Raising what ended a task as itself."""

from __future__ import annotations

import asyncio

from ..wire.errors import P2pnodeError


def raise_unwrapped(task: asyncio.Task[None]) -> None:
    """Raise what ended a task; what we raise on purpose comes out of task groups as itself."""
    error = task.exception()
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, P2pnodeError):
        raise error from None
    task.result()
