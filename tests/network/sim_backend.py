"""The simulator as a backend of the conformance suite."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from p2pnode.network.base import Network, Server
from p2pnode.network.sim import SimNetwork, SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.wire.addresses import Address, parse_address
from p2pnode.wire.ids import Identity


class SimBackend:
    """One simulated swarm, in virtual time."""

    def __init__(self) -> None:
        self._swarm = SimSwarm(seed=1)
        self._networks: list[SimNetwork] = []

    def run(self, body: Coroutine[Any, Any, None]) -> None:
        run_virtual(self._run(body))

    async def _run(self, body: Coroutine[Any, Any, None]) -> None:
        try:
            await body
        finally:
            for network in self._networks:
                await network.close()

    async def node(self, seed: int, server: Server) -> Network:
        network = self._swarm.network(Identity(seed.to_bytes(32, "big")).peer_id)
        self._networks.append(network)
        await network.start(server)
        return network

    async def address(self, network: Network) -> Address:
        return parse_address((await network.addresses())[0])
