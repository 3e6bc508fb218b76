"""Looking around: peers say how they are doing to members of the run, and nobody believes nonsense."""

from __future__ import annotations

import math

import pytest

from p2pnode.node.peer_states import MAX_EXCHANGE_ROWS, exchange_rows
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.training.progress import MAX_PARTNERS, TrainProgress
from p2pnode.watch.graph import graph_of
from p2pnode.wire.errors import PeerMisbehaved
from p2pnode.wire.ids import PeerId
from p2pnode.wire.messages import ViewExchange, ViewIs, decode_answer, encode_message

ME, FOX, OWL = PeerId("me"), PeerId("fox"), PeerId("owl")


def test_a_watcher_sees_everybody_and_who_exchanges_with_whom() -> None:
    training = SimTraining(SIMULATED, rounds=8)
    plan = Scenario(peers=5, seed=5, seconds=60.0, sample_every=0.0, training=training)

    async def main() -> None:
        simulation = Simulation(plan)
        await simulation.start()
        assert simulation.watch is not None
        await simulation.learn(simulation.watch, 60.0)
        watcher = simulation.processes[0].node
        await watcher.look_around()
        graph = graph_of(watcher.status(), now=0.0)
        await simulation.finish()
        ids = {peer.id for peer in graph.peers}
        assert len(ids) == 5
        assert all(peer.round is not None and peer.round >= 5 for peer in graph.peers)
        assert all(peer.accuracy is not None and peer.accuracy > 0.3 for peer in graph.peers)
        pairs = {(edge.one, edge.other) for edge in graph.exchanges}
        assert all(one < other for one, other in pairs)
        assert any(watcher.peer_id not in pair for pair in pairs), "only its own exchanges are seen"
        assert {peer for pair in pairs for peer in pair} == ids

    with one_thread():
        run_sim(main())


def test_what_peers_say_is_bounded_and_cannot_speak_for_us() -> None:
    nonsense = ViewIs(exchanges=(
        ViewExchange(ME, 1.0, 1, 1, 1), ViewExchange(FOX, 1.0, 1, 1, 1), ViewExchange(OWL, math.nan, 1, 1, 1),
        ViewExchange(OWL, 3.0, 7, 8, 9),
    ))  # fmt: skip
    assert [(row.one, row.other, row.count) for row in exchange_rows(ME, None, {FOX: nonsense})] == [(FOX, OWL, 7)]
    many = {
        PeerId(f"p{n}"): ViewIs(exchanges=tuple(ViewExchange(f"q{m}", float(m), 1, 1, 1) for m in range(64)))
        for n in range(100)
    }
    rows = exchange_rows(ME, None, many)
    assert len(rows) == MAX_EXCHANGE_ROWS
    assert min(row.last for row in rows) > 30.0


def test_messages_have_bounds() -> None:
    too_many = ViewIs(exchanges=tuple(ViewExchange("x", 0.0, 1, 1, 1) for _ in range(65)))
    for bad in (
        too_many,
        ViewIs(round=-1),
        ViewIs(shards=-1),
        ViewIs(exchanges=(ViewExchange("x" * 65, 0.0, 1, 1, 1),)),
    ):
        with pytest.raises(PeerMisbehaved):
            decode_answer(encode_message(bad), ViewIs)


def test_partners_are_remembered_within_a_bound_the_latest_last() -> None:
    train_progress = TrainProgress(me=ME)
    for number in range(MAX_PARTNERS + 5):
        train_progress.note_exchange(PeerId(f"peer{number}"), 10, 20, float(number))
    train_progress.note_exchange(PeerId("peer100"), 1, 2, 1000.0)
    assert len(train_progress.partners) == MAX_PARTNERS
    newest = list(train_progress.partners.values())[-1]
    assert (newest.other, newest.count, newest.sent_bytes, newest.received_bytes) == ("peer100", 2, 11, 22)
    assert train_progress.exchanges == MAX_PARTNERS + 6
