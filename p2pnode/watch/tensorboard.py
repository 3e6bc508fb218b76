"""A node's curves for TensorBoard, through the writer that torch brings; needs the package `tensorboard` besides."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

from ..wire.errors import LocalProblem, UsageError
from ..wire.status import NodeStatus
from .show import Watched

EVERY = 1.0  # seconds
FACTS = {
    "loss/training": "learning.loss",
    "loss/test": "learning.test_loss",
    "accuracy": "learning.accuracy",
    "update norm": "learning.update_norm",
    "local steps a second": "learning.steps_per_second",
    "exchanges": "learning.exchanges",
    "entries of others": "learning.entries",
    "bytes/sent": "traffic.sent_bytes",
    "bytes/received": "traffic.received_bytes",
    "machine/cpu": "machine.cpu",
    "machine/cpu of this node": "machine.own_cpu",
}


class CurveWriter(Protocol):
    """The part of SummaryWriter that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...
    def close(self) -> None: ...


def check_installed() -> None:
    """UsageError when TensorBoard is not to be had."""
    if find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs the package tensorboard; pip install tensorboard, or leave the flag out")


def open_writer(directory: Path) -> CurveWriter:
    """Heavy: imports torch. LocalProblem when nothing can be written there."""
    from torch.utils.tensorboard.writer import SummaryWriter

    try:
        writer: CurveWriter = cast(Any, SummaryWriter)(str(directory))
    except OSError as error:
        raise LocalProblem(f"--tensorboard {directory}: {error.strerror or error}; name another directory") from None
    return writer


class Scalars:
    """Writes what is known once a round."""

    def __init__(self, writer: CurveWriter) -> None:
        self._writer = writer
        self._round = 0

    def note(self, status: NodeStatus) -> None:
        round_ = 0 if status.learning is None else status.learning.rounds
        if round_ <= self._round:
            return
        self._round = round_
        for name, path in FACTS.items():
            value = status.fact(path)
            if isinstance(value, int | float):
                self._writer.add_scalar(name, float(value), round_)


@contextlib.asynccontextmanager
async def logged(node: Watched, directory: Path | None) -> AsyncIterator[None]:
    """Log the node while the block runs, where the user wants it."""
    if directory is None:
        yield
        return
    writer = await asyncio.to_thread(open_writer, directory)
    scalars = Scalars(writer)

    async def keep() -> None:
        while True:
            scalars.note(node.status())
            await asyncio.sleep(EVERY)

    logging = asyncio.create_task(keep())
    try:
        yield
    finally:
        logging.cancel()
        scalars.note(node.status())
        await asyncio.to_thread(writer.close)
