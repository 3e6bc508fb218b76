"""Getting into a run again."""

from __future__ import annotations

import asyncio
import random

import pytest

from p2pnode.config.options import Options, RunOptions
from p2pnode.discovery.book import PeerBook
from p2pnode.discovery.registry import BOOK_FILE
from p2pnode.network.sim import SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.node.joining import Run, save_run
from p2pnode.node.node import Node
from p2pnode.runtime.seams import Seams, inline
from p2pnode.simulate import SimClock
from p2pnode.storage.files import MemoryStorage, Part
from p2pnode.wire.addresses import Address, parse_address
from p2pnode.wire.errors import LocalProblem, UsageError
from p2pnode.wire.ids import Identity
from p2pnode.wire.messages import PROTOCOL
from p2pnode.wire.run import Manifest, RunAccess, run_id, sign_manifest

ME = Identity(b"m" * 32)
ELSEWHERE, OTHER = (
    parse_address(f"/ip4/10.7.7.{number}/tcp/4001/p2p/{Identity(bytes([number]) * 32).peer_id}") for number in (1, 2)
)


def test_a_saved_run_of_another_protocol_is_refused_in_one_line() -> None:
    signed = sign_manifest(ME, Manifest("old run", ME.peer_id, 1.0, b"nonce", protocol=PROTOCOL - 1))
    storage = MemoryStorage()
    save_run(storage, Run(RunAccess(run_id(signed)), signed), ())

    async def main() -> None:
        world = Seams(SimClock(0.0), random.Random(1), storage, inline)
        node = Node(Options(name="me"), world, SimSwarm(seed=1).network(ME.peer_id), ME)
        with pytest.raises(UsageError, match=rf"'old run' was founded for protocol {PROTOCOL - 1}.*--found"):
            await node.run()

    run_virtual(main())


class FullDisk(MemoryStorage):
    """Takes no writes from some moment on."""

    full = False

    def write(self, name: str, *parts: Part) -> None:
        if self.full:
            raise LocalProblem(f"{name}: No space left on device")
        super().write(name, *parts)


def founded() -> Run:
    signed = sign_manifest(ME, Manifest("a run", ME.peer_id, 1.0, b"nonce", protocol=PROTOCOL))
    return Run(RunAccess(run_id(signed)), signed)


@pytest.mark.parametrize("bootstrap", [(), (ELSEWHERE,)], ids=["unchanged", "other addresses"])
def test_a_node_starts_again_on_a_full_disk(bootstrap: tuple[Address, ...]) -> None:
    """The run it saved has not changed; that it cannot note new addresses is a warning."""
    storage = FullDisk()
    save_run(storage, founded(), (ELSEWHERE.text, OTHER.text))
    storage.full = True

    async def main() -> list[str]:
        seams = Seams(SimClock(0.0), random.Random(1), storage, inline)
        options = Options(name="me", run=RunOptions(bootstrap=bootstrap, meet_only=True))
        node = Node(options, seams, SimSwarm(seed=1).network(ME.peer_id), ME)
        events: list[str] = []
        node.on_event(lambda event: events.append(f"{event.kind}: {event.text}"))
        running = asyncio.create_task(node.run())
        await asyncio.sleep(5.0)
        assert not running.done()
        node.leave()
        await running
        return events

    events = run_virtual(main())
    assert any(line.startswith("resumed") for line in events)
    assert any("addresses to join through were not saved" in line for line in events) == bool(bootstrap)


def test_a_node_alone_finds_the_one_peer_of_its_book_that_is_left() -> None:
    """Many that it met later are gone; the run has no bootstrap."""
    founder, swarm_size = Identity(b"f" * 32), 40

    async def main() -> bool:
        swarm = SimSwarm(seed=1)
        first_disk, disk = MemoryStorage(), MemoryStorage()
        first = Node(
            Options(name="first", run=RunOptions(meet_only=True)),
            _seams(first_disk),
            swarm.network(founder.peer_id),
            founder,
        )
        tasks = [asyncio.create_task(first.run())]
        await asyncio.sleep(2.0)
        assert first.access is not None
        save_run(disk, Run(first.access, first.manifest), ())
        book = PeerBook(disk, BOOK_FILE)
        where = swarm.host_of(founder.peer_id)
        assert where is not None
        book.met(founder.peer_id, (where.address,), 1.0)
        for number in range(swarm_size):
            gone = Identity(bytes([number]) * 32).peer_id
            book.met(gone, (f"/ip4/10.9.9.{number}/tcp/4001/p2p/{gone}",), 100.0 + number)
        book.save(1000.0)
        node = Node(Options(name="me", run=RunOptions(meet_only=True)), _seams(disk), swarm.network(ME.peer_id), ME)
        tasks.append(asyncio.create_task(node.run()))
        await asyncio.sleep(240.0)
        found = node.condition() == "connected"
        first.leave()
        node.leave()
        await asyncio.gather(*tasks)
        return found

    assert run_virtual(main())


def _seams(storage: MemoryStorage) -> Seams:
    return Seams(SimClock(0.0), random.Random(1), storage, inline)
