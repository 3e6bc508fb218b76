"""A node's curves for TensorBoard, through torch's writer; the package `tensorboard` must be installed as well."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

from ..wire.errors import LocalProblem, UsageError
from ..wire.status import NodeStatus, fact
from .glossary import label
from .show import Watched

EVERY = 1.0  # seconds
_JOB = (  # paths in the status of a job
    "state.train.loss",
    "train.test_loss",
    "state.train.accuracy",
    "state.train.update_norm",
    "state.steps_per_second",
    "train.exchanges",
    "train.entries",
)
_NODE = ("traffic.sent_bytes", "traffic.received_bytes", "machine.cpu", "machine.own_cpu")  # in that of the node
# Tags are the labels of figures. With several jobs they begin with the job's name; those of the node are written at the
# rounds of its first job.
JOB_FACTS = {f"learning/{label(path)}": path for path in _JOB}
NODE_FACTS = {f"node/{label(path)}": path for path in _NODE}


class CurveWriter(Protocol):
    """The part of SummaryWriter that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...
    def close(self) -> None: ...


def check_installed() -> None:
    """UsageError when TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs the package tensorboard; pip install tensorboard, or leave the flag out")


def open_writer(directory: Path) -> CurveWriter:
    """A writer for a directory; imports torch, which takes seconds. LocalProblem when nothing can be written there."""
    from torch.utils.tensorboard.writer import SummaryWriter

    try:
        writer: CurveWriter = cast(Any, SummaryWriter)(str(directory))
    except OSError as error:
        raise LocalProblem(f"--tensorboard {directory}: {error.strerror or error}; name another directory") from None
    return writer


class Scalars:
    """Writes what is known of each job once a round."""

    def __init__(self, writer: CurveWriter) -> None:
        self._writer = writer
        self._rounds: dict[str, int] = {}

    def note(self, status: NodeStatus) -> None:
        """Write the values of a status whose jobs have done another round."""
        for name, job in status.jobs.items():
            done = job.state.training.round or 0
            if done <= self._rounds.get(name, 0):
                continue
            self._rounds[name] = done
            self._write(job, JOB_FACTS, done, f"{name}/" if len(status.jobs) > 1 else "")
            if name == next(iter(status.jobs)):
                self._write(status, NODE_FACTS, done)

    def _write(self, source: object, facts: Mapping[str, str], done: int, prefix: str = "") -> None:
        for tag, path in facts.items():
            value = fact(source, path)
            if isinstance(value, int | float):
                self._writer.add_scalar(prefix + tag, float(value), done)


@contextlib.asynccontextmanager
async def logged(node: Watched, directory: Path | None) -> AsyncIterator[None]:
    """Write the node's curves to `directory` while the block runs; nothing where it is None."""
    if directory is None:
        yield
        return
    writer = await asyncio.to_thread(open_writer, directory)
    scalars = Scalars(writer)

    async def run() -> None:
        while True:
            scalars.note(node.status())
            await asyncio.sleep(EVERY)

    logging = asyncio.create_task(run())
    try:
        yield
    finally:
        logging.cancel()
        scalars.note(node.status())
        await asyncio.to_thread(writer.close)
