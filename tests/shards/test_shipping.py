"""Passing shards on: when, how much and to which peer, and what a node reports about itself. Peers may lie."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

import numpy as np
import pytest

from p2pnode.discovery.link_rate import LinkRate
from p2pnode.shards.maintenance import Room
from p2pnode.shards.messages import GetNeeds, NeedsAre
from p2pnode.shards.route import ShardView, Shipment
from p2pnode.shards.shipping import (
    EVERY_ROUNDS,
    FIRST_BYTES,
    SELDOM_ROUNDS,
    ShardShipping,
    marks_in,
    marks_of,
    pass_mark,
)
from p2pnode.wire.ids import PeerId
from p2pnode.wire.run import RunAccess

RUN = RunAccess.parse("abcdefghijklmnopqrstuvwxyz")
ME, FOX, OWL = (PeerId(name) for name in ("me", "fox", "owl"))
SHARDS = [f"{number:02x}" * 16 for number in range(1, 30)]


class Held:
    """A shard driver whose peers accept at once."""

    def __init__(self, shards: list[str]) -> None:
        self.shards, self.room, self.takes = shards, Room(1 << 30, 0), True
        self.given: list[Shipment] = []

    def held(self) -> list[str]:
        return self.shards

    def members(self) -> list[PeerId]:
        return [FOX, OWL]

    async def give(self, shipment: Shipment) -> bool:
        self.given.append(shipment)
        if self.takes:
            self.shards.remove(shipment.shard)
        return self.takes


class Use:
    """A shards.shipping.ShardUse."""

    def __init__(self) -> None:
        self.taught: list[float] = []
        self.labels = np.array([90.0, 10.0])

    def view(self, shard: str) -> ShardView:
        return ShardView(shard, 1000, 0.5, self.labels)

    def visited(self) -> tuple[list[str], list[str]]:
        return SHARDS[:2], SHARDS[2:3]

    def label_counts(self) -> np.ndarray | None:
        return self.labels


class RecordedShipping(ShardShipping):
    """Shows the shards it passes on, and asks peers through `calls.ask`."""

    held: Held
    calls: SimpleNamespace


def shipping(answers: dict[PeerId, NeedsAre], shards: list[str] | None = None) -> RecordedShipping:
    """A node that holds some shards, among peers that give these answers when they are asked."""

    async def ask(peer, request, expected, timeout):
        return answers[peer]

    clock = SimpleNamespace(monotonic=lambda: 100.0, time=lambda: 100.0)
    services = SimpleNamespace(
        seams=SimpleNamespace(clock=clock, rng=random.Random(1)),
        clock=SimpleNamespace(now=lambda: 100.0),
        events=SimpleNamespace(say=lambda *texts, **more: None),
        table=SimpleNamespace(name_of=lambda peer: f"the {peer}"),
    )
    calls = SimpleNamespace(ask=ask)
    similarity = SimpleNamespace(similarity_to=lambda peer: None)
    held = Held(list(SHARDS if shards is None else shards))
    made = RecordedShipping(services, calls, held, Use(), similarity, LinkRate())  # type: ignore[arg-type]
    made.held, made.calls = held, calls
    return made


def needs(counts=(), room=1 << 30, visited=(), waiting=()) -> NeedsAre:
    return NeedsAre(room, counts, marks_of(list(visited)), marks_of(list(waiting)))


def once(one: ShardShipping) -> Shipment | None:
    return asyncio.run(one.once())


def test_a_shard_goes_to_who_needs_it_and_is_counted() -> None:
    one = shipping({FOX: needs((100, 0)), OWL: needs((0, 100))})
    shipment = once(one)
    assert shipment is not None and shipment.peer == OWL and "it needs label 0" in shipment.reason
    assert (one.copies, one.moves, one.sent_bytes) == (1, 0, 1000)
    assert one.reasons[shipment.shard] == shipment.reason


def test_without_room_here_it_moves() -> None:
    one = shipping({FOX: needs(), OWL: needs()})
    one.held.room = Room(10, 0)
    shipment = once(one)
    assert shipment is not None and shipment.move and shipment.reason.startswith("move to the owl: ")
    assert (one.copies, one.moves) == (0, 1)


def test_nothing_goes_to_who_has_it_or_has_no_room() -> None:
    one = shipping({FOX: needs(waiting=SHARDS), OWL: needs(room=10)})
    assert once(one) is None and one.held.given == []


def test_what_went_while_peers_were_asked_is_not_sent() -> None:
    one = shipping({})

    async def ask(peer, request, expected, timeout):
        one.held.shards.clear()
        return needs()

    one.calls.ask = ask
    assert once(one) is None and one.held.given == []


def test_what_nobody_took_is_not_counted() -> None:
    one = shipping({FOX: needs(), OWL: needs()})
    one.held.takes = False
    assert once(one) is None
    assert (one.copies, one.sent_bytes) == (0, 0)


def test_who_takes_and_never_trains_gets_no_more() -> None:
    one = shipping({FOX: needs(), OWL: needs(room=0)})
    for _ in range(29):
        once(one)
    assert len(one.held.given) == one.rules.max_unvisited


def test_who_trains_on_what_it_gets_gets_more() -> None:
    one = shipping({})

    async def ask(peer, request, expected, timeout):
        given = {pass_mark(shipment.shard) for shipment in one.held.given}
        return needs(visited=[shard for shard in SHARDS if pass_mark(shard) in given]) if peer == FOX else needs(room=0)

    one.calls.ask = ask
    for _ in range(29):
        once(one)
    assert len(one.held.given) == 29


@pytest.mark.parametrize("forged", [(1 << 39, 0), (0,) * 1024, (), (0, 0), (5,)])
def test_forged_label_counts_do_no_harm(forged: tuple[int, ...]) -> None:
    one = shipping({FOX: needs(forged), OWL: needs((0, 100))})
    shipment = once(one)
    assert shipment is not None and shipment.size_bytes == 1000


def test_the_budget_follows_the_link() -> None:
    one = shipping({FOX: needs(), OWL: needs()})
    assert one.budget() == FIRST_BYTES
    one._link.rate = 1000.0
    one._last = 98.0
    assert one.budget() == 500
    assert once(one) is None
    one._last = 90.0
    assert once(one) is not None


def test_the_less_shards_teach_the_seldomer_they_go() -> None:
    one = shipping({})
    assert one.pause() == EVERY_ROUNDS
    one._use.taught = [0.1] * 8
    assert one.pause() == SELDOM_ROUNDS
    one._use.taught = [0.6] * 8
    assert one.pause() == EVERY_ROUNDS


def test_what_a_node_tells_about_itself() -> None:
    one = shipping({})
    answer = one.needs(FOX, GetNeeds())
    assert answer.counts == (90, 10) and answer.room_bytes == 1 << 30
    assert marks_in(answer.visited) == {pass_mark(shard) for shard in SHARDS[:2]}
    assert marks_in(answer.waiting) == {pass_mark(SHARDS[2])}
