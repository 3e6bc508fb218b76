"""`p2pnode.run`: a node in this process that founds or joins a run of a job described in Python.

p2pnode.run(p2pnode.Queues({"small": "digits", "wide": ("digits", {"hidden": 256})}))
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ..config.options import DescribedJob, JobOptions, Options
from ..config.resolve import unknown_variables
from ..node.load import load
from ..node.place import check_against_saved, open_place
from ..watch.queues import table_rows
from ..watch.rows import TableRows
from ..wire.control import ControlRequest
from ..wire.errors import LocalProblem
from ..wire.invite import COMMAND
from ..wire.status import NodeStatus
from .thread import NodeThread

LEAVE_LIMIT = 30.0  # seconds from leaving to the end of the thread: owned work is handed over first


def run(
    job: DescribedJob,
    invite: str | None = None,
    *,
    wait: bool = True,
    name: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    found: bool = False,
    private: bool = False,
    bootstrap: Sequence[str] | str | None = None,
    join_timeout: float | str | None = None,
    listen: Sequence[str] | str | None = None,
    no_lan: bool = False,
    max_upload: float | str | None = None,
    max_download: float | str | None = None,
    max_cpu: float | str | None = None,
    dashboard: int | str | None = None,
    log_format: str | None = None,
    quiet: bool = False,
) -> RunningNode:
    """Run a node for a job: without an invite it goes on with the run saved in `data_dir`, or founds one.

    It prints the invite, and returns when the node has left: Ctrl-C asks it to. With wait=False it returns at once,
    and `leave()` ends the node. UsageError or LocalProblem when something is wrong.
    """
    given = {key: value for key, value in locals().items() if key not in ("job", "wait") and value not in (None, False)}
    node = RunningNode(_start(job.job(), given))
    if wait:
        node.wait()
    return node


def _start(job: JobOptions, given: dict[str, Any]) -> NodeThread:
    """Start the node. UsageError or LocalProblem for what can be said before the network is there."""
    flags: dict[str, object] = {
        key.replace("_", "-"): os.fspath(value) if isinstance(value, os.PathLike) else value
        for key, value in given.items()
    }
    for line in unknown_variables(os.environ):
        print(f"p2pnode: {line}", file=sys.stderr)

    def options_at(path: Path | None) -> Options:
        return replace(load(flags, os.environ, default=path).options, jobs=(job,), models=())

    named = "data-dir" in flags or "P2PNODE_DATA_DIR" in os.environ
    wanted = options_at(None)
    options, data_dir = open_place(wanted, None if named else options_at)
    try:
        check_against_saved(options, data_dir)
        joining = f"by `{COMMAND} CODE`, or p2pnode.run(job, CODE)"
        return NodeThread(options, data_dir, wanted.data_dir, sys.stdout, joining)
    except BaseException:
        data_dir.close()
        raise


class RunningNode:
    """A node that runs in a thread of this process. It leaves by `leave()`, or at the end of a `with` block."""

    def __init__(self, node: NodeThread) -> None:
        self._node = node
        self._last: NodeStatus | None = None

    def __enter__(self) -> RunningNode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    @property
    def invite(self) -> str:
        """The code by which others take part; "" while there is none yet."""
        return self._node.invite

    def status(self) -> NodeStatus | None:
        """Everything the node shows of itself; None while it starts."""
        if not self._node.ended.is_set():
            with contextlib.suppress(LocalProblem):  # it ends in this moment
                self._last = self._node.status() or self._last
        return self._last

    def rows(self, table: str) -> TableRows:
        """A table that the job reports, by its title: `queues`, `scores` or `members` of queues."""
        status = self.status()
        return TableRows() if status is None else table_rows(status.jobs, table)

    def queues(self, *words: str) -> str:
        """Change the queues of a run founded here, as `python -m p2pnode queues` does; returns what was done.

        node.queues("add", "deep=digits,hidden=512"), ("pause", "wide"), ("resume", "wide"), ("weights", "idle=0.1").
        """
        return self._node.execute(ControlRequest("queues", words=words)).said

    def export(self, path: str | os.PathLike[str], job: str = "") -> str:
        """Write a model to a file; job="queues/wide" names one of several."""
        file = str(Path(path).expanduser().absolute())
        return self._node.execute(ControlRequest("export", file=file, job=job)).said

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the node has ended; returns whether it has. Raises what ended it. Ctrl-C asks it to leave."""
        try:
            self._node.ended.wait(seconds)
        except KeyboardInterrupt:
            self.leave()
        if self._node.problem is not None:
            raise self._node.problem
        return self._node.ended.is_set()

    def leave(self) -> None:
        """Hand over what this node owns, say goodbye and end. Once is enough."""
        self._node.leave()
        if not self._node.wait(LEAVE_LIMIT):
            self._node.sweep()
