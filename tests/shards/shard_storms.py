"""Handoffs among nodes that are killed, in virtual time: at every place one by one, by pairs, and in storms."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import NamedTuple

from p2pnode.network.sim import Links
from p2pnode.shards.route import Shipment
from p2pnode.wire.types import Seconds
from tests.shards.shard_nodes import ShardNode, Shards, play, shard

SETTLED: Seconds = 50.0


class Outcome(NamedTuple):
    died: int  # processes that were killed
    holders: list[int]  # in the end
    whole: bool  # the samples are there, at every holder

    @property
    def lost(self) -> bool:
        return not self.holders or not self.whole


def handoff_with_kills(count: int, kills: Mapping[int, int], leaving: bool = False) -> Outcome:
    """Node 0 hands a shard to node 1, or all it has before it leaves.

    Who is in `kills` dies at its n-th place after that began, and comes back.
    """

    async def act(shards: Shards) -> Outcome:
        id, content = shard(1)
        giver, receiver = shards.nodes[:2]
        giver.own = [(id, content)]
        await shards.start()
        await asyncio.sleep(6.0)
        for number, place in kills.items():
            fate = shards.nodes[number].fate
            fate.dies_at = fate.places + place
        shipment = Shipment(id, receiver.peer, "", 100, move=True)
        handing = giver.shard_driver.hand_over_all(20.0) if leaving else giver.shard_driver.give(shipment)
        giving = asyncio.ensure_future(handing)
        await asyncio.sleep(8.0)
        died = [node for node in shards.nodes if not node.alive]
        for node in shards.nodes:
            node.fate.dies_at = -1
        for node in died:
            await node.start()
        await asyncio.sleep(SETTLED)
        giving.cancel()
        await asyncio.gather(giving, return_exceptions=True)
        holders = shards.holders(id)
        return Outcome(len(died), holders, all(shards.nodes[number].shard_driver.read(id) for number in holders))

    return play(count, act)


def kill_everywhere(count: int, victim: int, every: int = 1, leaving: bool = False) -> list[Outcome]:
    """Kill one node at each of its places in a handoff (or every n-th); the last outcome is that of a whole handoff."""
    outcomes = [handoff_with_kills(count, {victim: 1}, leaving)]
    while outcomes[-1].died:
        outcomes.append(handoff_with_kills(count, {victim: 1 + every * len(outcomes)}, leaving))
    return outcomes


class Storm(NamedTuple):
    """What is left after many handoffs among nodes that were killed all the time."""

    kills: int
    moves: int  # handoffs that were seen through
    lost: list[str]
    extra: list[str]  # shards with more than one holder


def storm(seed: int, count: int, shards_each: int = 4, seconds: int = 40) -> Storm:
    """Shards are moved and copied at random, over links that lose messages, while nodes die at random places."""

    async def act(shards: Shards) -> Storm:
        rng, moved, kills = random.Random(seed), [0], 0
        ids = [shard(1000 + number)[0] for number in range(count * shards_each)]
        for node in shards.nodes:
            first = 1000 + node.number * shards_each
            node.own = [shard(number) for number in range(first, first + shards_each)]
        await shards.start()
        giving: list[asyncio.Task[None]] = []
        for _ in range(seconds):
            await asyncio.sleep(1.0)
            kills += await _restart_dead(shards)
            victim = rng.choice(shards.nodes)
            victim.fate.dies_at = victim.fate.places + rng.randint(1, 60)
            giving += [asyncio.create_task(_give_some(shards, node, rng, moved)) for node in shards.nodes]
        for node in shards.nodes:
            node.fate.dies_at = -1
        kills += await _restart_dead(shards)
        await asyncio.sleep(SETTLED)
        for task in giving:
            task.cancel()
        await asyncio.gather(*giving, return_exceptions=True)
        lost = [
            id for id in ids if not any(shards.nodes[number].shard_driver.read(id) for number in shards.holders(id))
        ]
        return Storm(kills, moved[0], lost, [id for id in ids if len(shards.holders(id)) > 1])

    return play(count, act, links=Links(latency=0.02, jitter=0.02, loss=0.02))


async def _restart_dead(shards: Shards) -> int:
    dead = [node for node in shards.nodes if not node.alive]
    for node in dead:
        await node.start()
    return len(dead)


async def _give_some(shards: Shards, node: ShardNode, rng: random.Random, moved: list[int]) -> None:
    held, others = node.shard_driver.held(), [other for other in shards.nodes if other is not node]
    if held:
        shipment = Shipment(rng.choice(held), rng.choice(others).peer, "", 100, move=rng.random() < 0.5)
        given = await node.shard_driver.give(shipment)
        moved[0] += given
