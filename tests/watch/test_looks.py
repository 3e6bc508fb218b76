"""A look that loses its swarm says so and finds it again; one's own node is seen with or without it running."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import p2pnode
from p2pnode.config.options import Options
from p2pnode.discovery.book import PeerBook
from p2pnode.discovery.registry import BOOK_FILE
from p2pnode.network.sim import Fault
from p2pnode.node.joining import found_run, save_run
from p2pnode.runtime.seams import Seams, real_world
from p2pnode.simulate import SIMULATED, Scenario, SimClock, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.storage.files import DiskStorage, Storage
from p2pnode.watch.graph import PeerGraph
from p2pnode.watch.swarm import keep_looking, stored_picture
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.ids import Identity
from p2pnode.wire.messages import PROTOCOL
from tests.known import known

OBSERVER = 2


def options(usual: Options, index: int, starts: int) -> Options:
    return usual if index != OBSERVER else replace(usual, role="observer")


def looked(seconds: float, *faults: Fault, ask: bool = True) -> list[PeerGraph]:
    """What an observer of two nodes sees, a picture a second."""
    training = SimTraining(SIMULATED, rounds=1000)
    plan = Scenario(3, 4, seconds, faults=faults, spread=1.0, sample_every=0.0, training=training, adjust=options)
    seen: list[PeerGraph] = []

    async def main() -> None:
        simulation = Simulation(plan)
        await simulation.start()
        await simulation.go_on(2.0)
        observer, clock = simulation.processes[OBSERVER].node, SimClock(0.0)
        looking = asyncio.create_task(keep_looking(observer, seen.append, ask, clock.time))
        await simulation.go_on(seconds)
        looking.cancel()
        await simulation.finish()

    with one_thread():
        run_sim(main())
    return seen


def test_a_lost_swarm_is_said_and_found_again() -> None:
    seen = looked(60.0, Fault(15.0, "partition", (OBSERVER,), seconds=25.0))
    conditions = [picture.condition for picture in seen]
    lost = conditions.index("searching", conditions.index("connected"))
    assert any("still trying" in picture.reason for picture in seen[lost:])
    assert conditions[-1] == "connected"
    before, after = (
        {peer.id: peer.training().round for peer in seen[at].peers if peer.role == "node"} for at in (lost, -1)
    )
    assert all(known(after[peer]) > known(before[peer]) for peer in before)
    assert known(seen[-1].manifest).jobs[0].plan["task"] == "digits"
    assert set(seen[-1].fingerprints) == set(after)
    assert all(peer.community for peer in seen[-1].peers if peer.role == "node")


def test_another_version_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pnode.discovery.announcing.PROTOCOL", PROTOCOL + 1)
    seen = looked(8.0)
    assert {picture.condition for picture in seen} == {"searching"}
    assert f"you speak protocol {PROTOCOL + 1}, this node {PROTOCOL}" in seen[-1].reason


def test_a_look_that_ends_leaves_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds: list[Seams] = []

    def world(storage: Storage) -> Seams:
        worlds.append(real_world(storage))
        return worlds[-1]

    async def no_daemon(*details: object) -> None:
        await asyncio.gather(
            *(work(lambda: None) for work in (worlds[0].compute, worlds[0].background, worlds[0].disk))
        )
        raise LocalProblem("no daemon")

    monkeypatch.setattr("p2pnode.watch.swarm.real_world", world)
    monkeypatch.setattr("p2pnode.network.libp2p.hivemind.HivemindNetwork._open", no_daemon)
    before = set(threading.enumerate())
    with pytest.raises(LocalProblem, match="no daemon"):
        p2pnode.Swarm.look(f"/ip4/127.0.0.1/tcp/1/p2p/{Identity(bytes(32)).peer_id}").open()
    for thread in set(threading.enumerate()) - before:
        thread.join(5.0)
        assert not thread.is_alive()


def test_without_asking_only_what_is_announced_is_seen() -> None:
    nodes = [peer for peer in looked(15.0, ask=False)[-1].peers if peer.role == "node"]
    assert len(nodes) == 2
    assert {peer.training().round for peer in nodes} == {None}
    assert all(peer.community for peer in nodes), "fingerprints are announced"


def test_a_node_that_does_not_run_is_seen_by_what_it_stored(tmp_path: Path) -> None:
    with pytest.raises(LocalProblem, match="no node has run on"):
        p2pnode.Swarm.own(tmp_path).peers()
    storage = DiskStorage(tmp_path)
    identity = Identity(bytes(32))
    storage.write("identity.key", identity.to_key_file())
    assert stored_picture(tmp_path, 5.0).peers == ()
    run = found_run(identity, "a run", False, 1.0, random.Random(1))
    save_run(storage, run, ())
    book = PeerBook(storage, BOOK_FILE)
    book.met("fox", ("/ip4/127.0.0.1/tcp/1/p2p/fox",), 3.0)
    book.save(3.0)
    picture = stored_picture(tmp_path, 5.0)
    assert [(peer.id, peer.present, peer.heard_seconds_ago) for peer in picture.peers] == [("fox", False, 2.0)]
    assert (picture.run, known(picture.manifest).name, picture.condition) == (run.access.run, "a run", "stopped")
    view = p2pnode.Swarm.own(tmp_path)
    assert "no node is running" in view.state
    assert "no node is running" in view._repr_html_()
