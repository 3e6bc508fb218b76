"""Shards among nodes on a simulated network: claimed, kept, given, repaired, and never lost."""

from __future__ import annotations

import asyncio

from p2pnode.shards.route import Shipment
from tests.node.shard_nodes import Shards, columns, play, shard


def test_a_shard_is_claimed_kept_and_given() -> None:
    async def act(shards: Shards) -> None:
        id, content = shard(1)
        shards.nodes[0].own = [(id, content)]
        await shards.start()
        await asyncio.sleep(20)
        assert shards.holders(id) == [0] and len(shards.having(id)) == 2
        arrived: list[str] = []
        shards.nodes[1].holdings.on_arrival(arrived.append)
        assert await shards.nodes[0].holdings.give(Shipment(id, shards.nodes[1].peer, "", len(content)))
        await asyncio.sleep(20)
        assert shards.holders(id) == [1] and 0 in shards.having(id)
        assert all((shards.nodes[1].holdings.read(id)[name] == column).all() for name, column in columns(1).items())

    play(3, act)
