"""Whole nodes on real daemons: half-swarms heal, wrong clocks join, restarts need no bootstrap, keys are asked for."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from p2pnode.config.options import Options, Role, RunOptions
from p2pnode.discovery import membership
from p2pnode.network.libp2p.hivemind import HivemindNetwork, HivemindOptions
from p2pnode.node.node import Node
from p2pnode.runtime.seams import real_world
from p2pnode.storage.datadir import open_data_dir
from p2pnode.wire.addresses import Address, parse_address
from p2pnode.wire.errors import UsageError
from p2pnode.wire.run import RunAccess

pytestmark = pytest.mark.live
LIMIT = 300.0


def node_options(name: str, role: Role = "node", **run: Any) -> Options:
    """A node that only meets others."""
    return Options(name=name, role=role, run=RunOptions(**run, meet_only=True))


class Swarm:
    """Nodes in this process, each with a data directory and a daemon of its own; all ended at the end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lives: dict[Node, asyncio.Task[None]] = {}

    async def start(self, name: str, listen: str = "/ip4/127.0.0.1/tcp/0", skew: float = 0.0, **options: Any) -> Node:
        """A node that has come as far as having a run (or being a meeting point)."""
        node = self.begin(name, listen, skew, **options)
        await self.until(lambda: node.role == "bootstrap" or node.access is not None, node)
        await self.until(lambda: bool(node.status().addresses), node)
        return node

    def begin(self, name: str, listen: str = "/ip4/127.0.0.1/tcp/0", skew: float = 0.0, **options: Any) -> Node:
        data_dir = open_data_dir(self.root / name)
        identity = data_dir.identity()
        place = HivemindOptions(data_dir=data_dir.path, key_file=data_dir.key_file, listen=(listen,))
        network = HivemindNetwork(identity, place)
        node = Node(node_options(name, **options), real_world(data_dir.storage, skew), network, identity)
        self._lives[node] = asyncio.create_task(node.run())
        self._lives[node].add_done_callback(lambda _: data_dir.close())
        return node

    async def stop(self, node: Node) -> None:
        node.leave()
        await asyncio.wait_for(self._lives.pop(node), 60)

    async def fate(self, node: Node) -> None:
        """Wait for a node's end and raise what ended it."""
        await asyncio.wait_for(self._lives.pop(node), LIMIT)

    async def until(self, happened: Callable[[], bool], *watched: Node) -> None:
        async with asyncio.timeout(LIMIT):
            while not happened():
                for node in watched:
                    if self._lives[node].done():
                        self._lives[node].result()
                await asyncio.sleep(0.05)

    async def end(self) -> None:
        for node in list(self._lives):
            with contextlib.suppress(Exception):
                await self.stop(node)


@pytest.fixture
async def swarm(tmp_path: Path) -> AsyncIterator[Swarm]:
    swarm = Swarm(tmp_path)
    yield swarm
    await swarm.end()


def address_of(node: Node) -> Address:
    return parse_address(node.status().addresses[0])


def sees(node: Node, *others: Node) -> bool:
    status = node.status()
    seen = {peer.id for peer in status.peers if peer.present and peer.heard_seconds_ago is not None}
    return status.condition == "connected" and seen >= {other.peer_id for other in others}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_any_one_of_several_bootstraps_suffices(swarm: Swarm) -> None:
    founder = await swarm.start("founder")
    good = address_of(founder)
    dead = parse_address(f"/ip4/127.0.0.1/tcp/{free_port()}/p2p/{good.peer[:-1]}{'a' if good.peer[-1] != 'a' else 'b'}")
    friend = await swarm.start("friend", bootstrap=(dead, good))
    await swarm.until(lambda: sees(friend, founder) and sees(founder, friend))


async def test_two_half_swarms_heal_when_their_meeting_point_comes_back(
    swarm: Swarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "CONTACT_PERIOD", 3.0)
    port = free_port()
    meeting_point = await swarm.start("meeting point", f"/ip4/127.0.0.1/tcp/{port}", role="bootstrap")
    meeting = address_of(meeting_point)
    await swarm.stop(meeting_point)

    alice = await swarm.start("alice")
    assert alice.access is not None
    bob = await swarm.start("bob", bootstrap=(address_of(alice), meeting))
    await swarm.until(lambda: sees(alice, bob) and sees(bob, alice))
    # The other half knows the same run, and of everybody else only the meeting point.
    for name in ("run.json", "runs"):
        source, target = swarm.root / "alice" / name, swarm.root / "carol" / name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    carol = await swarm.start("carol", access=alice.access, bootstrap=(meeting,))
    dave = await swarm.start("dave", bootstrap=(address_of(carol),))
    await swarm.until(lambda: sees(carol, dave) and sees(dave, carol))
    assert not sees(alice, carol)
    assert not sees(carol, alice)

    await swarm.start("meeting point", f"/ip4/127.0.0.1/tcp/{port}", role="bootstrap")
    everybody = (alice, bob, carol, dave)
    await swarm.until(
        lambda: all(sees(node, *(other for other in everybody if other is not node)) for node in everybody)
    )


async def test_a_restarted_node_finds_the_swarm_without_a_bootstrap(swarm: Swarm) -> None:
    alice = await swarm.start("alice")
    bob = await swarm.start("bob", bootstrap=(address_of(alice),))
    carol = await swarm.start("carol", bootstrap=(address_of(alice),))
    await swarm.until(lambda: sees(carol, alice, bob))
    identity = carol.peer_id
    await swarm.stop(carol)
    await swarm.stop(alice)  # the only bootstrap carol ever had is gone
    again = await swarm.start("carol")
    assert again.peer_id == identity
    assert again.access == bob.access
    await swarm.until(lambda: sees(again, bob) and sees(bob, again))


@pytest.mark.parametrize("skew", [86_400.0, -86_400.0])
async def test_a_clock_a_day_wrong_joins_is_seen_and_warned(swarm: Swarm, skew: float) -> None:
    founder = await swarm.start("founder")
    late = await swarm.start("late", skew=skew, bootstrap=(address_of(founder),))
    friend = await swarm.start("friend", bootstrap=(address_of(late),))
    await swarm.until(lambda: sees(founder, late, friend) and sees(late, founder, friend) and sees(friend, late))
    assert abs(late.status().clock_offset_seconds + skew) < 60
    assert any(event.kind == "clock" and event.warning for event in late.status().events)


async def test_a_private_run_lets_nobody_in_without_its_key(swarm: Swarm) -> None:
    founder = await swarm.start("founder", private=True)
    assert founder.access is not None
    stranger = swarm.begin("stranger", bootstrap=(address_of(founder),))
    with pytest.raises(UsageError, match="private"):
        await swarm.fate(stranger)
    wrong_key = RunAccess(founder.access.run, bytes(20))
    guesser = swarm.begin("guesser", bootstrap=(address_of(founder),), access=wrong_key)
    friend = await swarm.start("friend", bootstrap=(address_of(founder),), access=founder.access)
    await swarm.until(lambda: sees(friend, founder) and sees(founder, friend))
    assert guesser.access is None
    assert guesser.manifest == b""


async def test_daemons_killed_again_and_again_at_any_moment_leave_the_nodes_whole(swarm: Swarm) -> None:
    rng = random.Random(11)
    alice = await swarm.start("alice")
    bob = await swarm.start("bob", bootstrap=(address_of(alice),))
    await swarm.until(lambda: sees(alice, bob) and sees(bob, alice))
    for _ in range(12):
        for victim in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if victim.name() == "p2pd" and rng.random() < 0.5:
                    victim.send_signal(rng.choice([signal.SIGKILL, signal.SIGTERM]))
        await asyncio.sleep(rng.random() * 0.6)
    await swarm.until(lambda: sees(alice, bob) and sees(bob, alice), alice, bob)
    assert alice.status().daemon_starts + bob.status().daemon_starts > 2
