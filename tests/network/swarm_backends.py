"""What the conformance suite asks of a kind of network, and the real kind: daemons on loopback."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import uvloop

from p2pnode.network.base import Network, Server
from p2pnode.network.libp2p.hivemind import HivemindNetwork, HivemindOptions
from p2pnode.wire.addresses import Address, parse_address
from p2pnode.wire.ids import Identity


class Backend(Protocol):
    """One kind of network, for one test. Everything it makes it also closes, at the end of `run`."""

    def run(self, body: Coroutine[Any, Any, None]) -> None:
        """Run a test's body in this backend's kind of loop, then close all its nodes."""
        ...

    async def node(self, seed: int, server: Server) -> Network:
        """A started node whose identity comes from `seed`; it knows nobody yet."""
        ...

    async def address(self, network: Network) -> Address:
        """Where others can dial a node of this swarm."""
        ...


def identity(seed: int) -> Identity:
    return Identity(seed.to_bytes(32, "big"))


class HivemindBackend:
    """Real p2pd daemons on loopback."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._networks: list[Network] = []

    def run(self, body: Coroutine[Any, Any, None]) -> None:
        uvloop.run(self._run(body))

    async def _run(self, body: Coroutine[Any, Any, None]) -> None:
        try:
            await body
        finally:
            for network in self._networks:
                await network.close()

    async def node(self, seed: int, server: Server) -> Network:
        directory = self._directory / str(seed)
        directory.mkdir()
        who = identity(seed)
        key_file = directory / "key"
        key_file.write_bytes(who.to_key_file())
        network = HivemindNetwork(who, HivemindOptions(data_dir=directory, key_file=key_file))
        self._networks.append(network)
        await network.start(server)
        return network

    async def address(self, network: Network) -> Address:
        return parse_address((await network.addresses())[0])


def on_swarm(test: Callable[[Backend], Awaitable[None]]) -> Callable[[Backend], None]:
    """Let a coroutine be a test that runs in its backend's own kind of loop."""

    @functools.wraps(test)
    def run(swarm: Backend) -> None:
        swarm.run(test(swarm))  # type: ignore[arg-type]

    return run
