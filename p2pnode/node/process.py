"""What runs in the same process as a node, whoever started it: the command line or a training loop (`p2pnode.join`).

The daemon's options, the control socket, port and name that are kept for the next start, visibility in the local
network.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from ..config.options import Options
from ..network.libp2p.hivemind import HivemindOptions
from ..storage.datadir import DataDir
from ..wire.addresses import host_and_port
from ..wire.errors import LocalProblem
from .control import ControlServer
from .joining import load_saved
from .lan import visible_nearby
from .node import Node

ANY_PORT = "/ip4/0.0.0.0/tcp/0"
POLL = 0.25
LOOK_EVERY = 2.0  # seconds


def daemon_options(options: Options, data_dir: DataDir) -> HivemindOptions:
    """What the libp2p daemon of a node in this data directory is started with."""
    chosen = options.network
    saved = load_saved(data_dir.storage)
    given = tuple(address.text for address in options.run.bootstrap)
    return HivemindOptions(
        data_dir=data_dir.path,
        key_file=data_dir.key_file,
        listen=chosen.listen or (ANY_PORT,),
        last_port=data_dir.port(),
        announce=chosen.announce,
        bootstrap=given or (saved.bootstrap if saved is not None else ()),
        no_listen=chosen.no_listen,
        reachability=chosen.reachability,
        relay_service=options.role == "bootstrap" or chosen.reachability == "public",
    )


@contextlib.asynccontextmanager
async def surroundings(node: Node, options: Options, data_dir: DataDir) -> AsyncIterator[None]:
    """Runs what every node has around it except a view: control socket, memory of name and port, local network.

    If the node never gets as far as the network, such as with a wrong task, a fresh data directory is removed again.
    """
    try:
        async with (
            _controlled(node, data_dir),
            _remembered(node, options.name, data_dir),
            _looking_around(node),
            visible_nearby(node, not options.network.no_lan),
        ):
            yield
    finally:
        if not node.started:
            data_dir.discard()


@contextlib.asynccontextmanager
async def _controlled(node: Node, data_dir: DataDir) -> AsyncIterator[None]:
    control = ControlServer(data_dir.path, node.status, node.leave, node.execute)
    try:
        await control.start()
        yield
    finally:
        await control.close()


@contextlib.asynccontextmanager
async def _remembered(node: Node, name: str | None, data_dir: DataDir) -> AsyncIterator[None]:
    """Saves the name given, and the port once it is known. A disk that cannot be written is no reason to stop."""
    with contextlib.suppress(LocalProblem):
        if name:
            data_dir.remember_name(name)

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
