"""Ending tasks."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

logger = logging.getLogger(__name__)


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and see them end; what one failed with is logged. A cancel of the caller goes on to the caller."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("what was to be ended had failed", exc_info=error)
