"""From a Config to a running node: data directory, identity, network, node, control socket, view; and back down."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..config.names import friendly_name, run_name
from ..config.options import Config, LearningSettings, TaskChoice
from ..discovery.book import PeerBook
from ..discovery.registry import BOOK_FILE
from ..network.libp2p.hivemind import HivemindNetwork, NetworkOptions
from ..network.libp2p.orphans import sweep_orphan
from ..network.libp2p.ports import PortLease
from ..node.control import ControlServer, socket_path
from ..node.entrance import DataPart, load_manifest, load_saved
from ..node.node import Node, NodeSettings
from ..runtime.seams import real_world
from ..storage.datadir import DataDir, open_data_dir
from ..watch.show import shown
from ..watch.tensorboard import check_installed, logged
from ..wire.addresses import host_and_port, parse_address
from ..wire.errors import LocalProblem, P2pnodeError, UsageError
from ..wire.ids import Identity
from ..wire.run import RunAccess
from .ending import Ending, end_process, run_loop
from .load import load

ANY_PORT = "/ip4/0.0.0.0/tcp/{port}"
POLL = 0.25
LOOK_EVERY = 2.0  # seconds
RUN_ALONE = "--run alone does not say where its nodes are; paste the whole invite, with its --bootstrap"


def run_and_exit(config: Config, role: str = "node") -> NoReturn:
    """Run a node and end the process: with 0 when it left, else with one line on stderr."""
    try:
        code, why = run_node(config, role), ""
    except (UsageError, LocalProblem) as error:
        code, why = error.exit_code, str(error)
    end_process(code, why)


def watch_and_exit(flags: Mapping[str, object], address: str) -> NoReturn:
    """Look at a swarm from a place of no lasting, and end the process."""
    with tempfile.TemporaryDirectory(prefix="p2pnode-watch-") as place:
        told = {**flags, "bootstrap": [address], "data-dir": place}
        try:
            parse_address(address)
            code, why = run_node(load(told, os.environ).config, role="observer"), ""
        except (UsageError, LocalProblem) as error:
            code, why = error.exit_code, str(error)
    end_process(code, why)


def run_node(config: Config, role: str = "node") -> int:
    """Run a node until it leaves; returns the exit code. UsageError or LocalProblem when it cannot run."""
    _check_fresh_start(config, role)
    if config.output.tensorboard is not None:
        check_installed()
    data_dir = open_data_dir(config.data_dir)
    try:
        if role != "bootstrap":
            _check_against_saved(config, data_dir)
        return run_loop(_run(config, role, data_dir))
    except BaseExceptionGroup as group:
        raise _first_of_ours(group) from None
    finally:
        data_dir.close()


async def _run(config: Config, role: str, data_dir: DataDir) -> int:
    identity = data_dir.identity()
    seams = real_world(data_dir.storage)
    network = HivemindNetwork(identity, _network_options(config, role, data_dir))
    settings = _node_settings(config, role, identity)
    node = Node(settings, seams, network, identity)
    Ending(node.leave, lambda: _sweep(data_dir.path), lambda: settings.leave_timeout * bool(node.shards_only_here))
    try:
        async with (
            _controlled(node, data_dir),
            shown(node, config.output, sys.stdout),
            _port_kept(node, data_dir),
            _page(node, config.output.dashboard),
            logged(node, config.output.tensorboard),
            _looking_around(node, role),
        ):
            await node.run()
    finally:
        seams.close()
    return 0


@contextlib.asynccontextmanager
async def _looking_around(node: Node, role: str) -> AsyncIterator[None]:
    """An observer asks peers how they are doing all the time: it is there for nothing else."""

    async def keep() -> None:
        while True:
            await node.look_around()
            await asyncio.sleep(LOOK_EVERY)

    looking = asyncio.create_task(keep()) if role == "observer" else None
    try:
        yield
    finally:
        if looking is not None:
            looking.cancel()


@contextlib.asynccontextmanager
async def _page(node: Node, place: tuple[str, int] | None) -> AsyncIterator[None]:
    """The page to look at the swarm, where the user wants one."""
    if place is None:
        yield
        return
    from ..watch.dashboard.server import served

    async with served(node, *place) as page:
        node.has_page(page.link)
        yield


def _node_settings(config: Config, role: str, identity: Identity) -> NodeSettings:
    name = config.name or friendly_name(identity.peer_id)
    learning = LearningSettings(meet_only=True) if role == "observer" else config.learning
    return NodeSettings(
        name=name,
        role=role,
        bootstrap=config.run.bootstrap,
        access=config.run.run,
        found=config.run.found,
        private=config.run.private,
        run_name=run_name(name),
        join_timeout=config.run.join_timeout,
        task=None if learning.meet_only else task_choice(learning),
        share=_share(learning),
        share_data=learning.share_data,
        reserve=learning.reserve,
        visits=not learning.no_visits,
        until=learning.until,
        max_disk=learning.max_disk,
        leave_timeout=learning.leave_timeout,
        meet_only=learning.meet_only,
        guest=config.guest,
    )


def task_choice(learning: LearningSettings) -> TaskChoice:
    """What was said, over the defaults."""
    said: dict[str, Any] = {
        "spec": learning.task,
        "options": dict(learning.task_option),
        "source": None if learning.data is None else str(learning.data.expanduser().absolute()),
        "policy": learning.policy,
        "settings": dict(learning.set),
        "aim": learning.aim,
        "round_seconds": learning.round_seconds,
    }
    given = {name: value for name, value in said.items() if value}
    return TaskChoice(device=learning.device, given=frozenset(given), **given)


def _share(learning: LearningSettings) -> DataPart | None:
    if learning.split is None or learning.part is None:
        return None
    part, parts = learning.part
    return DataPart(learning.split, part - 1, parts)


def _network_options(config: Config, role: str, data_dir: DataDir) -> NetworkOptions:
    chosen = config.network
    saved = load_saved(data_dir.storage)
    given = tuple(address.text for address in config.run.bootstrap)
    return NetworkOptions(
        data_dir=data_dir.path,
        key_file=data_dir.key_file,
        listen=chosen.listen or (_same_place_as_before(data_dir),),
        announce=chosen.announce,
        bootstrap=given or (saved.bootstrap if saved is not None else ()),
        no_listen=chosen.no_listen,
        reachability=chosen.reachability,
        relay_service=role == "bootstrap" or chosen.reachability == "public",
    )


def _check_against_saved(config: Config, data_dir: DataDir) -> None:
    """What is asked for and what the data directory remembers must go together."""
    wanted = config.run
    saved = load_saved(data_dir.storage)
    if wanted.private and not wanted.found and saved is not None and not RunAccess.parse(saved.access).private:
        raise UsageError(f"the run saved in {data_dir.path} is not private; add --found to found a private one")
    if wanted.run is None or wanted.bootstrap or load_manifest(data_dir.storage, wanted.run) is not None:
        return
    if not PeerBook(data_dir.storage, BOOK_FILE).addresses():
        raise UsageError(RUN_ALONE)


def _same_place_as_before(data_dir: DataDir) -> str:
    """All interfaces, on the port of last time so that old invites hold; another if somebody took that."""
    before = ANY_PORT.format(port=data_dir.port() or 0)
    return before if _port_problem((before,)) is None else ANY_PORT.format(port=0)


def _check_fresh_start(config: Config, role: str) -> None:
    """What can be said before anything is written. (An old data directory may own the daemon that has the port.)"""
    if config.data_dir.exists():
        return
    if config.run.run is not None and not config.run.bootstrap and role != "bootstrap":
        raise UsageError(RUN_ALONE)
    problem = None if config.network.no_listen else _port_problem(config.network.listen)
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
    control = ControlServer(data_dir.path, node.status, node.leave, node.carry_out)
    try:
        await control.start()
        yield
    finally:
        await control.close()


@contextlib.asynccontextmanager
async def _port_kept(node: Node, data_dir: DataDir) -> AsyncIterator[None]:
    """Remember the port once it is known; a disk that will not have it is no reason to stop."""

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
    """What a hard end must not leave behind: the daemon, its sockets, our control socket."""
    for left in (socket_path(path), path / "control.path"):
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
