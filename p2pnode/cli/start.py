"""Runs a node: opens its data directory and network, shows it, answers its control socket, and closes everything."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ..config.options import Options
from ..config.resolve import unknown_variables
from ..discovery.book import PeerBook
from ..discovery.registry import BOOK_FILE
from ..network.libp2p.hivemind import HivemindNetwork, HivemindOptions
from ..network.libp2p.orphans import sweep_orphan
from ..network.libp2p.ports import PortLease
from ..node.control import POINTER, ControlServer, socket_path
from ..node.joining import load_manifest, load_saved, repair_saved
from ..node.node import Node
from ..runtime.seams import real_world
from ..storage.datadir import DataDir, DataDirInUse, open_data_dir
from ..watch.questions import Questions
from ..watch.show import shown
from ..watch.tensorboard import check_installed, logged
from ..wire.addresses import host_and_port
from ..wire.errors import LocalProblem, P2pnodeError, UsageError
from ..wire.invite import read_place
from ..wire.run import RunAccess
from .ending import Ending, complain, end_process, run_loop
from .lan import visible_nearby
from .load import load

ANY_PORT = "/ip4/0.0.0.0/tcp/{port}"
POLL = 0.25
LOOK_EVERY = 2.0  # seconds
MOST_NODES = 33  # that get data directories of their own on one machine
RUN_ALONE = "--run alone does not say where its nodes are; join with the code of an invite, or give --bootstrap too"


NextPlace = Callable[[Path], Options]  # the options of a start with another data directory


def run_and_exit(options: Options, next_place: NextPlace | None = None) -> NoReturn:
    """Run a node and end the process: with 0 when it left, else with one line on stderr."""
    for line in unknown_variables(os.environ):
        complain(line, 0)
    try:
        code, reason = run_node(options, next_place), ""
    except (UsageError, LocalProblem) as error:
        code, reason = error.exit_code, str(error)
    end_process(code, reason)


def watch_and_exit(flags: Mapping[str, object], place: str) -> NoReturn:
    """Look at a swarm as an observer with a temporary data directory, and end the process."""
    with tempfile.TemporaryDirectory(prefix="p2pnode-watch-") as data_dir:
        where = {"bootstrap": [place]} if place.startswith("/") else {"invite": place}
        given = {**flags, **where, "data-dir": data_dir}
        try:
            read_place(place)
            code, reason = run_node(replace(load(given, os.environ).options, role="observer")), ""
        except (UsageError, LocalProblem) as error:
            code, reason = error.exit_code, str(error)
    end_process(code, reason)


def run_node(options: Options, next_place: NextPlace | None = None) -> int:
    """Run a node until it leaves; returns the exit code. UsageError or LocalProblem when it cannot run.

    Where another node uses the data directory, `next_place` makes the options for the next one.
    """
    if options.output.tensorboard is not None:
        check_installed()
    wanted = options.data_dir
    options, data_dir = _opened(options, next_place)
    try:
        if options.role != "bootstrap":
            _check_against_saved(options, data_dir)
        return run_loop(_run(options, data_dir, wanted))
    except BaseExceptionGroup as group:
        raise _first_of_ours(group) from None
    finally:
        data_dir.close()


def _opened(options: Options, next_place: NextPlace | None) -> tuple[Options, DataDir]:
    """The first of NAME, NAME-2, NAME-3, … that no other node uses, locked, with the options of a start there."""
    first = options.data_dir
    for number in range(2, MOST_NODES + 1):
        _check_fresh_start(options)
        try:
            return options, open_data_dir(options.data_dir)
        except DataDirInUse:
            if next_place is None:
                raise
            options = next_place(first.with_name(f"{first.name}-{number}"))
    raise LocalProblem(f"{MOST_NODES - 1} nodes run beside {first}; give this one its own --data-dir")


async def _run(options: Options, data_dir: DataDir, wanted: Path) -> int:
    identity = data_dir.identity()
    seams = real_world(data_dir.storage)
    network = HivemindNetwork(identity, _daemon_options(options, data_dir))
    questions = Questions(sys.stdin, sys.stdout, options.output.log_format)
    node = Node(options, seams, network, identity, questions.consent)
    Ending(node.leave, lambda: _sweep(data_dir.path), lambda: options.run.leave_timeout * bool(node.shards_only_here))
    try:
        async with (
            _controlled(node, data_dir),
            shown(node, options.output, sys.stdout, questions),
            _port_kept(node, data_dir),
            _page(node, options.output.dashboard, data_dir),
            logged(node, options.output.tensorboard),
            _looking_around(node),
            visible_nearby(node, not options.network.no_lan),
        ):
            if data_dir.path != wanted:
                node.say("data directory", _elsewhere(data_dir.path, wanted))
            await node.run()
    finally:
        seams.close()
    return 0


def _elsewhere(used: Path, wanted: Path) -> str:
    return f"another node uses {wanted}, so this one uses {used}; commands about it need --data-dir {used}"


@contextlib.asynccontextmanager
async def _looking_around(node: Node) -> AsyncIterator[None]:
    """Lets an observer ask peers how they are doing all the time."""

    async def keep() -> None:
        while True:
            await node.look_around()
            await asyncio.sleep(LOOK_EVERY)

    looking = asyncio.create_task(keep()) if node.role == "observer" else None
    try:
        yield
    finally:
        if looking is not None:
            looking.cancel()


@contextlib.asynccontextmanager
async def _page(node: Node, place: tuple[str, int] | None, data_dir: DataDir) -> AsyncIterator[None]:
    """Serves the page, if the user wants one."""
    if place is None:
        yield
        return
    from ..watch.dashboard.server import served

    async with served(node, *place, data_dir.storage) as page:
        node.has_page(page.link, page.network)
        if page.network:
            node.say("page open", f"everybody in this network can read the page at {page.network}", warning=True)
        yield


def _daemon_options(options: Options, data_dir: DataDir) -> HivemindOptions:
    chosen = options.network
    saved = load_saved(data_dir.storage)
    given = tuple(address.text for address in options.run.bootstrap)
    return HivemindOptions(
        data_dir=data_dir.path,
        key_file=data_dir.key_file,
        listen=chosen.listen or (_same_place_as_before(data_dir),),
        announce=chosen.announce,
        bootstrap=given or (saved.bootstrap if saved is not None else ()),
        no_listen=chosen.no_listen,
        reachability=chosen.reachability,
        relay_service=options.role == "bootstrap" or chosen.reachability == "public",
    )


def _check_against_saved(options: Options, data_dir: DataDir) -> None:
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


def _same_place_as_before(data_dir: DataDir) -> str:
    """All interfaces, on the port of last time so that old invites work; on any port if that one is taken."""
    before = ANY_PORT.format(port=data_dir.port() or 0)
    return before if _port_problem((before,)) is None else ANY_PORT.format(port=0)


def _check_fresh_start(options: Options) -> None:
    """Raises what is wrong before anything is written. (An old data directory may own the daemon on the port.)"""
    if options.data_dir.exists():
        return
    if options.run.access is not None and not options.run.bootstrap and options.role != "bootstrap":
        raise UsageError(RUN_ALONE)
    problem = None if options.network.no_listen else _port_problem(options.network.listen)
    if problem is not None:
        raise problem


def _port_problem(listen: tuple[str, ...]) -> LocalProblem | None:
    try:
        PortLease(listen).release()
    except LocalProblem as problem:
        return problem
    return None


@contextlib.asynccontextmanager
async def _controlled(node: Node, data_dir: DataDir) -> AsyncIterator[None]:
    control = ControlServer(data_dir.path, node.status, node.leave, node.execute)
    try:
        await control.start()
        yield
    finally:
        await control.close()


@contextlib.asynccontextmanager
async def _port_kept(node: Node, data_dir: DataDir) -> AsyncIterator[None]:
    """Saves the port once it is known. A disk that cannot be written is no reason to stop."""

    async def remember() -> None:
        port = None
        while port is None:
            await asyncio.sleep(POLL)
            port = listening_port(node.status().addresses)
        with contextlib.suppress(LocalProblem):
            data_dir.remember_port(port)

    remembering = asyncio.create_task(remember())
    try:
        yield
    finally:
        remembering.cancel()


def listening_port(addresses: tuple[str, ...]) -> int | None:
    """The port most of a node's own addresses have (a router may have mapped one of them to another)."""
    places = (host_and_port(text) for text in addresses if "/p2p-circuit" not in text)
    ports = Counter(place[1] for place in places if place is not None)
    return ports.most_common(1)[0][0] if ports else None


def _sweep(path: Path) -> None:
    """Removes what a hard end would leave behind: the daemon, its sockets, the control socket."""
    for left in (socket_path(path), path / POINTER):
        with contextlib.suppress(OSError):
            os.unlink(left)
    sweep_orphan(path)


def _first_of_ours(group: BaseExceptionGroup[BaseException]) -> BaseException:
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
