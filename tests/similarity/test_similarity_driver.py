"""A node's relations: similar peers are heard of by calls, only from good announcements, and shown with reasons."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, cast

from p2pnode.discovery.services import make_services
from p2pnode.network.sim import SimSwarm
from p2pnode.runtime.calls import Calls, JobCalls
from p2pnode.runtime.seams import Seams, inline
from p2pnode.similarity.driver import PeerSimilarity
from p2pnode.similarity.fingerprint import HEADER_BYTES
from p2pnode.similarity.messages import NeighboursAre, SwapNeighbours
from p2pnode.similarity.partners import PartnerChoice
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.envelope import unseal
from p2pnode.wire.errors import PeerUnreachable
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.messages import Announcement, JobAnnouncement, decode_announcement, encode_message
from p2pnode.wire.records import SignedRecord, sign_record
from p2pnode.wire.run import RunAccess
from p2pnode.wire.status import PeerState
from tests.known import known
from tests.node.test_router import PUBLIC, HandClock
from tests.similarity.views import planted

HEADER = bytes([1, 1, 7, 7])
COMMUNITIES, SIZE = 4, 10
T = TypeVar("T")


class SlowClock(HandClock):
    """Each look at it takes a while."""

    step = 0.0

    def monotonic(self) -> float:
        self.now += self.step
        return super().monotonic()


class Aside:
    """Background work is done in place here, and counted."""

    count = 0

    async def __call__(self, work: Callable[[], T], steps: float = 0) -> T:
        self.count += 1
        return work()


class Node:
    """A node's PeerSimilarity, and what of a node it needs; `others` are the peers it can call."""

    def __init__(self, number: int, fingerprint: bytes, access: RunAccess = PUBLIC) -> None:
        self.identity = Identity(bytes([number + 1]) * 32)
        self.fingerprint = fingerprint
        self.others: dict[PeerId, Node] = {}
        self.asked: list[PeerId] = []
        self.clock, self.background = SlowClock(), Aside()
        world = Seams(self.clock, random.Random(number), MemoryStorage(), inline, background=self.background)
        services = make_services(self.identity, world, SimSwarm(seed=1).network(self.peer))
        services.clock.established = True
        self.calls = cast(Calls, self)  # the calls it answers itself
        self.services = replace(services, calls=self.calls)
        self.similarity = PeerSimilarity(self.services, JobCalls(self.calls, access, self.peer, "main"))
        self.similarity.took(fingerprint)

    @property
    def peer(self) -> PeerId:
        return self.identity.peer_id

    def record(self, expiry: float = 1300.0, **more) -> SignedRecord:
        word = Announcement(
            f"node {self.peer[-4:]}", PUBLIC.tag, (), jobs=(JobAnnouncement("main", fingerprint=self.fingerprint),)
        )
        return sign_record(self.identity, f"peers/{PUBLIC.tag}/p", encode_message(replace_word(word, **more)), expiry)

    def knows(self, *others: Node, **more) -> None:
        for other in others:
            self.services.registry.take_in(other.record(**more), other.peer)

    def reads_of(self, *others: Node) -> None:
        """In the directory, and then they answer."""
        for other in others:
            self.services.registry.note(other.record(), decode_announcement(other.record().value))
            self.services.table.called(other.peer)

    async def call(self, peer: PeerId, request: bytes, expected: type[NeighboursAre], timeout: float) -> NeighboursAre:
        self.asked.append(peer)
        if peer not in self.others:
            raise PeerUnreachable("no way")
        return self.others[peer].similarity.answer(self.peer, unseal(request, SwapNeighbours))

    def swap(self) -> None:
        """After those of the named peers that are there have answered a ping."""
        for peer in self.services.table:
            if peer.id in self.others:
                self.services.table.heard(peer.id, 1.0, 0.1)
        asyncio.run(self.similarity.swap(self.record))

    def view(self) -> set[PeerId]:
        asyncio.run(self.similarity.look((), 5, 0.0))
        return set(self.similarity.communities.of)

    def choose(self, circle: list[PeerId], beyond: list[PeerId], turn: int, age: float) -> list[PartnerChoice]:
        asyncio.run(self.similarity.look(circle, turn, age))
        return self.similarity.choose(circle, beyond, turn, age)


def replace_word(word: Announcement, **more) -> Announcement:
    return Announcement(**{field: more.get(field, getattr(word, field)) for field in word.__struct_fields__})


def swarm(communities: int = COMMUNITIES, **more) -> list[Node]:
    nodes = [Node(n, HEADER + row.tobytes(), **more) for n, row in enumerate(planted(communities, SIZE).values())]
    for node in nodes:
        node.others = {other.peer: other for other in nodes}
    return nodes


def test_similar_peers_are_heard_of_from_others() -> None:
    nodes, rng = swarm(), random.Random(3)
    for node in nodes:
        node.knows(*rng.sample(nodes, 3))
    for _ in range(10):
        for node in nodes:
            node.swap()
    for number, node in enumerate(nodes):
        alike = {other.peer for other in nodes[number % COMMUNITIES :: COMMUNITIES]}
        assert len(alike & node.view()) >= SIZE - 1


def test_what_peers_tell_does_not_get_into_the_random_sample() -> None:
    nodes = swarm(communities=6)
    me, read, named = nodes[0], nodes[1:13], nodes[13:]
    me.knows(*named)
    me.reads_of(*read)
    me.similarity._look_around(known(me.similarity._neighbours))
    assert me.view() == {me.peer, *(node.peer for node in read)}


def test_strangers_are_drawn_from_the_directory() -> None:
    me, *others = swarm(communities=6)
    read, beyond = {node.peer for node in others[:12]}, [node.peer for node in others]
    me.knows(*others[12:])
    me.reads_of(*others[:12])
    fresh = PeerSimilarity(me.services, JobCalls(me.calls, PUBLIC, me.peer, "main"))
    assert {choice.peer for turn in range(100) for choice in fresh.choose((), beyond, turn, 0.0)} == read


def test_only_good_and_comparable_announcements_count() -> None:
    me, forger, foreign, gone, short, stale = swarm()[:6]
    forged = forger.record()
    forged = SignedRecord(forged.key, forged.peer, forged.expiry + 1, forged.value, forged.signature)
    foreign.fingerprint = bytes([1, 2, 7, 7]) + foreign.fingerprint[HEADER_BYTES:]
    short.fingerprint = short.fingerprint[:-1]
    records = [forged, foreign.record(), gone.record(left=True), short.record(), stale.record(expiry=900.0)]
    answer = me.similarity.answer(gone.peer, SwapNeighbours(tuple(records), floor=0.0))
    assert answer.announcements == ()
    assert me.view() == {me.peer}


def test_a_node_that_wants_nothing_gets_nothing_and_one_that_knows_nobody_gets_names() -> None:
    me, other, third = swarm()[:3]
    me.knows(other, third)
    me.swap()
    assert me.similarity.answer(other.peer, SwapNeighbours(())).announcements == ()
    announcements = me.similarity.answer(other.peer, SwapNeighbours((), floor=0.0)).announcements
    assert [record.peer for record in announcements] == [third.peer]


def test_a_peer_that_does_not_answer_is_not_asked_for_ever() -> None:
    me, other, silent = swarm()[:3]
    me.knows(other, silent)
    del me.others[silent.peer]
    for _ in range(8):
        me.swap()
    assert me.asked.count(other.peer) >= 4


def test_while_nothing_is_new_it_seldom_asks() -> None:
    nodes = swarm()[:4]
    for node in nodes:
        node.knows(*nodes)
        node.swap()
    asked = []
    for _ in range(100):
        before = len(nodes[0].asked)
        nodes[0].swap()
        asked.append(len(nodes[0].asked) - before)
    assert 4 <= sum(count > 0 for count in asked[20:]) <= 6, "every sixteenth round"


def test_before_the_first_fingerprint_it_chooses_in_the_circle_and_tells_nothing() -> None:
    me, other = swarm()[:2]
    fresh = PeerSimilarity(me.services, JobCalls(me.calls, PUBLIC, me.peer, "main"))
    me.knows(other)
    asyncio.run(fresh.swap(me.record))
    assert [choice.peer for choice in fresh.choose([other.peer], [], 1, 0.0)] == [other.peer]
    assert fresh.answer(other.peer, SwapNeighbours((other.record(),), floor=0.0)) == NeighboursAre(())


def test_choices_are_remembered_for_people() -> None:
    nodes = swarm()
    me, circle = nodes[0], [node.peer for node in nodes[1:9]]
    me.knows(*nodes[1:])
    me.swap()
    choices = me.choose(circle, [node.peer for node in nodes[9:]], 5, 30.0)
    assert len(choices) == 3
    for choice in choices:
        state = me.similarity.describe(PeerState(choice.peer, "", "node", True))
        assert state.reason == choice.reason
        assert state.community in me.similarity.communities.of.values()
        assert state.similarity is not None
    assert known(me.similarity.similarity_to(nodes[4].peer)) > known(me.similarity.similarity_to(nodes[1].peer))


def test_a_tree_that_takes_long_on_this_machine_is_grown_outside_the_loop() -> None:
    me, *others = swarm()
    me.knows(*others)
    me.swap()
    in_background = []
    for step in (0.0, 0.02, 0.02, 0.002, 0.002):  # seconds from clock to clock
        me.clock.step, before = step, me.background.count
        me.view()
        in_background.append(me.background.count - before)
    assert in_background == [1, 0, 1, 1, 0], "as long as the last one, of which the first knows nothing"
    assert len(me.similarity.communities.of) == COMMUNITIES * SIZE


def test_a_peer_that_has_left_is_no_longer_named() -> None:
    me, other, third, gone = swarm()[:4]
    me.knows(other, third, gone)
    me.swap()
    me.knows(gone, left=True, expiry=1301.0)
    announcements = me.similarity.answer(other.peer, SwapNeighbours((), floor=0.0)).announcements
    assert [record.peer for record in announcements] == [third.peer]


def test_fingerprints_just_like_ours_do_not_push_all_others_out_of_the_view() -> None:
    """Sixty liars fill the nearest; a sample of the directory finds the honest, at one time or another."""
    nodes = swarm()
    me, honest = nodes[0], nodes[1:11]
    liars = [Node(100 + number, me.fingerprint) for number in range(60)]
    me.reads_of(*honest, *liars)
    seen = set()
    for _ in range(100):
        me.similarity.answer(liars[0].peer, SwapNeighbours(tuple(liar.record() for liar in liars[:8])))
        me.swap()
        seen |= me.view()
    assert seen >= {node.peer for node in honest}
