"""Where a node may run: the data directory it gets, and what the run saved there says against its options.

Quick: nothing here imports hivemind or torch, so that `p2pnode.join` can tell at once what is wrong.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from ..config.options import Options
from ..discovery.book import PeerBook
from ..discovery.registry import BOOK_FILE
from ..network.libp2p.orphans import sweep_orphan
from ..network.libp2p.ports import PortLease
from ..storage.datadir import DataDir, DataDirInUse, open_data_dir
from ..wire.errors import LocalProblem, P2pnodeError, UsageError
from ..wire.run import RunAccess
from .control import POINTER, socket_path
from .joining import load_manifest, load_saved, repair_saved

MOST_NODES = 33  # that get data directories of their own on one machine
RUN_ALONE = "--run alone does not say where its nodes are; join with the code of an invite, or give --bootstrap too"

NextPlace = Callable[[Path], Options]  # the options of a start with another data directory


def open_place(options: Options, next_place: NextPlace | None) -> tuple[Options, DataDir]:
    """The first of NAME, NAME-2, NAME-3, … that no other node uses, locked, with the options of a start there.

    A node goes by the name of earlier starts unless it is given another one.
    `next_place` makes the options for the next one; where it is None, a directory in use is a DataDirInUse.
    """
    first = options.data_dir
    for number in range(2, MOST_NODES + 1):
        _check_fresh_start(options)
        try:
            data_dir = open_data_dir(options.data_dir)
            return replace(options, name=options.name or data_dir.name()), data_dir
        except DataDirInUse:
            if next_place is None:
                raise
            options = next_place(first.with_name(f"{first.name}-{number}"))
    raise LocalProblem(f"{MOST_NODES - 1} nodes already run next to {first}; give this one its own --data-dir")


def elsewhere(used: Path, wanted: Path) -> str:
    """What to tell the user of a node that got another data directory than the usual one."""
    return f"another node uses {wanted}, so this one uses {used}; commands about it need --data-dir {used}"


def _check_fresh_start(options: Options) -> None:
    """Raises what is wrong before anything is written. (An old data directory may own the daemon on the port.)"""
    if options.data_dir.exists():
        return
    if options.run.access is not None and not options.run.bootstrap and options.role != "bootstrap":
        raise UsageError(RUN_ALONE)
    problem = None if options.network.no_listen else port_problem(options.network.listen)
    if problem is not None:
        raise problem


def check_against_saved(options: Options, data_dir: DataDir) -> None:
    """UsageError when the options contradict the run saved in the data directory; Damaged when that cannot be read."""
    wanted = options.run
    repair_saved(data_dir.storage, replaced=wanted.found or wanted.access is not None)
    saved = load_saved(data_dir.storage)
    if wanted.private and not wanted.found and saved is not None and not RunAccess.parse(saved.access).private:
        raise UsageError(f"the run saved in {data_dir.path} is not private; add --found to found a private one")
    if wanted.access is None or wanted.bootstrap or load_manifest(data_dir.storage, wanted.access) is not None:
        return
    if not PeerBook(data_dir.storage, BOOK_FILE).addresses():
        raise UsageError(RUN_ALONE)


def sweep(path: Path) -> None:
    """Removes what a hard end would leave behind: the daemon, its sockets, the control socket."""
    for left in (socket_path(path), path / POINTER):
        with contextlib.suppress(OSError):
            os.unlink(left)
    sweep_orphan(path)


def port_problem(listen: tuple[str, ...]) -> LocalProblem | None:
    """What keeps a node from listening at these addresses; None where nothing does."""
    try:
        PortLease(listen).release()
    except LocalProblem as problem:
        return problem
    return None


def first_of_ours(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error the user should read out of several that came together; a bug stays whole."""
    errors = list(_leaves(group))
    ours = [error for error in errors if isinstance(error, P2pnodeError)]
    return ours[0] if len(ours) == len(errors) else group


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
