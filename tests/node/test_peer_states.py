"""The states of peers: members of the run answer how they get on, and nobody believes nonsense."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from p2pnode.node.peer_states import MAX_EXCHANGE_ROWS, accepted, exchange_rows, reached_by, roles_in_words
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.training.progress import MAX_PARTNERS, TrainProgress
from p2pnode.watch.graph import graph_of
from p2pnode.wire.errors import PeerMisbehaved
from p2pnode.wire.ids import PeerId
from p2pnode.wire.messages import ViewIs, decode_answer, encode_message
from p2pnode.wire.status import ExchangeRow, Figure, JobState, TrainState

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
        assert all((peer.training().round or 0) >= 5 for peer in graph.peers)
        assert all((peer.training().accuracy or 0.0) > 0.3 for peer in graph.peers)
        pairs = {(edge.one, edge.other) for edge in graph.exchanges}
        assert all(one < other for one, other in pairs)
        assert any(watcher.peer_id not in pair for pair in pairs), "only its own exchanges are seen"
        assert {peer for pair in pairs for peer in pair} == ids

    with one_thread():
        run_sim(main())


def test_observers_and_meeting_points_are_not_counted_as_nodes() -> None:
    assert roles_in_words(["node", "node", "observer"]) == "2 other nodes and 1 observer"
    assert roles_in_words(["bootstrap", "node"]) == "1 other node and 1 meeting point"
    assert roles_in_words(["observer", "observer", "whatever"]) == "no other nodes and 2 observers"


def test_what_peers_answer_is_bounded_and_they_cannot_speak_for_others() -> None:
    nonsense = ViewIs(exchanges=(
        ExchangeRow(FOX, ME, 1.0, 1, 1, 1), ExchangeRow(FOX, FOX, 1.0, 1, 1, 1), ExchangeRow(OWL, ME, 1.0, 1, 1, 1),
        ExchangeRow(FOX, OWL, math.nan, 1, 1, 1), ExchangeRow(FOX, OWL, 3.0, 7, 8, 9, math.inf),
    ))  # fmt: skip
    assert accepted(FOX, ME, nonsense).exchanges == (ExchangeRow(FOX, OWL, 3.0, 7, 8, 9),)
    many = {
        PeerId(f"p{n}"): ViewIs(exchanges=tuple(ExchangeRow(f"p{n}", f"q{m}", float(m), 1, 1, 1) for m in range(64)))
        for n in range(100)
    }
    rows = exchange_rows((), many)
    assert len(rows) == MAX_EXCHANGE_ROWS
    assert min(row.last for row in rows) > 30.0


def test_how_a_peer_is_reached_follows_from_its_addresses() -> None:
    relayed = "/ip4/1.2.3.4/tcp/1/p2p/x/p2p-circuit/p2p/y"
    assert reached_by(()) == ""
    assert reached_by((relayed,)) == "through a relay"
    assert reached_by((relayed, "/ip4/1.2.3.4/tcp/1")) == "directly"


def test_numbers_that_are_not_finite_are_dropped_and_the_rest_stays() -> None:
    train = TrainState(7, math.nan, 0.5, math.inf)
    figures = (Figure("good", 1.5), Figure("bad", math.nan))
    answer = ViewIs({"main": JobState("a", train=train), "other": JobState("", -math.inf, figures)})
    found = accepted(FOX, ME, decode_answer(encode_message(answer), ViewIs))
    assert found.jobs["main"] == JobState("a", train=TrainState(7, accuracy=0.5))
    assert found.jobs["other"] == JobState("", None, (Figure("good", 1.5), Figure("bad", None)))


def test_messages_have_bounds() -> None:
    row = ExchangeRow("x", "y", 0.0, 1, 1, 1)
    for bad in (
        ViewIs(exchanges=(row,) * 65),
        ViewIs(exchanges=(replace(row, other="x" * 65),)),
        ViewIs({"main": JobState(train=TrainState(round=-1))}),
        ViewIs({"main": JobState(train=TrainState(shards=-1))}),
        ViewIs({"main": JobState(figures=(Figure("a", 1),) * 17)}),
        ViewIs({"main": JobState(figures=(Figure("Not a name", 1),))}),
        ViewIs({"main": JobState(figures=(Figure("a", "x" * 101),))}),
        ViewIs({"main": JobState(figures=(Figure("a", 1, "x" * 61),))}),
        ViewIs({"main": JobState("c" * 41)}),
        ViewIs({"m" * 41: JobState()}),
        ViewIs({str(number): JobState() for number in range(9)}),
    ):
        with pytest.raises(PeerMisbehaved):
            decode_answer(encode_message(bad), ViewIs)


def test_partners_are_remembered_within_a_bound_the_latest_last() -> None:
    train_progress = TrainProgress(me=ME)
    for number in range(MAX_PARTNERS + 5):
        train_progress.note_exchange(PeerId(f"peer{number}"), 10, 20, float(number))
    train_progress.note_exchange(PeerId("peer100"), 1, 2, 1000.0)
    assert len(train_progress.partners) == MAX_PARTNERS
    latest = list(train_progress.partners.values())[-1]
    assert (latest.other, latest.count, latest.sent_bytes, latest.received_bytes) == ("peer100", 2, 11, 22)
    assert train_progress.exchanges == MAX_PARTNERS + 6
