"""Answering strangers: every message gets an answer or a refusal, faults are counted per peer, the node goes on."""

from __future__ import annotations

import asyncio
import random

import pytest

from p2pnode.discovery.reputation import CALLS_AT_ONCE, FAULTS_TO_IGNORE
from p2pnode.discovery.services import make_services
from p2pnode.network.sim import SimSwarm
from p2pnode.node.router import Router
from p2pnode.runtime.seams import Seams, inline
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.errors import PeerRefused
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.messages import (
    PROTOCOL,
    Announcement,
    GetManifest,
    GetPeers,
    Hello,
    ManifestIs,
    Message,
    Peers,
    Ping,
    Pong,
    Store,
    Stored,
    Welcome,
    decode_answer,
    encode_message,
)
from p2pnode.wire.records import SignedRecord, sign_record
from p2pnode.wire.run import Manifest, RunAccess, run_id, sign_manifest

ME, ALICE, MALLORY = (Identity(letter * 32) for letter in (b"e", b"a", b"m"))
SIGNED = sign_manifest(ME, Manifest("digits", ME.peer_id, 1.0, b"n" * 16))
PUBLIC, PRIVATE = RunAccess(run_id(SIGNED)), RunAccess(run_id(SIGNED), b"k" * 20)


class HandClock:
    """A clock the test sets."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Host:
    """The node as answering sees it."""

    name, role, manifest = "me", "node", SIGNED
    record: SignedRecord | None = None
    learner = None

    def __init__(self, access: RunAccess | None) -> None:
        self.access = access


class Answering:
    """A server with what it is made of, asked synchronously."""

    def __init__(self, access: RunAccess | None = PUBLIC) -> None:
        self.clock = HandClock()
        world = Seams(self.clock, random.Random(1), MemoryStorage(), inline)
        self.services = make_services(ME, world, SimSwarm(seed=1).network(ME.peer_id))
        self.services.clock.established = True
        self.server = Router(Host(access), self.services)

    def raw(self, peer: PeerId, data: bytes) -> bytes:
        return asyncio.run(self.server.answer(peer, data))

    def ask(self, peer: PeerId, request: Message, expected: type[Message]) -> Message:
        return decode_answer(self.raw(peer, encode_message(request)), expected)


def announcement(who: Identity, tag: str = PUBLIC.tag, expiry: float = 1100.0) -> SignedRecord:
    return sign_record(who, f"peers/{tag}/p", encode_message(Announcement(who.peer_id[-8:], tag, ())), expiry)


def test_a_greeting_makes_the_peer_known_to_others() -> None:
    node = Answering()
    welcome = node.ask(ALICE.peer_id, Hello(PROTOCOL, announcement=announcement(ALICE)), Welcome)
    assert isinstance(welcome, Welcome)
    assert welcome.run == PUBLIC.run
    told = node.ask(MALLORY.peer_id, GetPeers(PUBLIC.tag), Peers)
    assert told == Peers((announcement(ALICE),))


def test_nobody_introduces_a_forged_or_foreign_announcement_as_its_own() -> None:
    node = Answering()
    node.ask(MALLORY.peer_id, Hello(PROTOCOL, announcement=announcement(ALICE)), Welcome)
    assert len(node.services.table) == 0


def test_another_protocol_is_refused_with_both_numbers() -> None:
    with pytest.raises(PeerRefused, match=f"{PROTOCOL + 1}.*{PROTOCOL}"):
        Answering().ask(ALICE.peer_id, Hello(PROTOCOL + 1), Welcome)


def test_a_private_run_gives_its_manifest_only_for_the_proof_of_its_key() -> None:
    node = Answering(PRIVATE)
    proof = PRIVATE.proof(ALICE.peer_id, ME.peer_id)
    assert node.ask(ALICE.peer_id, GetManifest(PRIVATE.tag, proof), ManifestIs) == ManifestIs(SIGNED)
    for peer, tried in ((MALLORY.peer_id, proof), (ALICE.peer_id, b""), (ALICE.peer_id, bytes(32))):
        with pytest.raises(PeerRefused, match="private"):
            node.ask(peer, GetManifest(PRIVATE.tag, tried), ManifestIs)
    welcome = node.ask(MALLORY.peer_id, Hello(PROTOCOL), Welcome)
    assert isinstance(welcome, Welcome)
    assert welcome.private
    assert PRIVATE.run not in (welcome.run, *map(str, [welcome]))


def test_a_forged_record_costs_standing_and_a_wrong_clock_does_not() -> None:
    node = Answering()
    with pytest.raises(PeerRefused, match="malformed"):
        node.ask(MALLORY.peer_id, Store((announcement(ALICE),)), Stored)
    assert node.services.reputation.faults_of(MALLORY.peer_id) == 1
    late = announcement(ALICE, expiry=1000.0 + 86_400)
    assert node.ask(ALICE.peer_id, Store((late,)), Stored) == Stored(("untimely",))
    assert node.services.reputation.faults_of(ALICE.peer_id) == 0


def test_a_flood_is_refused_and_others_are_served() -> None:
    node = Answering()
    answers = [node.raw(MALLORY.peer_id, encode_message(Ping())) for _ in range(int(CALLS_AT_ONCE) + 10)]
    with pytest.raises(PeerRefused, match="busy"):
        decode_answer(answers[-1], Pong)
    assert node.ask(ALICE.peer_id, Ping(), Pong) == Pong(1000.0, knows_you=False)
    assert node.services.calls.traffic.refused == 10


def test_a_peer_that_only_sends_rubbish_is_ignored_for_a_while() -> None:
    node = Answering()
    for _ in range(int(FAULTS_TO_IGNORE)):
        with pytest.raises(PeerRefused, match="malformed"):
            decode_answer(node.raw(MALLORY.peer_id, b"rubbish"), Pong)
    with pytest.raises(PeerRefused, match="ignored"):
        node.ask(MALLORY.peer_id, Ping(), Pong)
    node.clock.now += 120
    assert node.ask(MALLORY.peer_id, Ping(), Pong) == Pong(1120.0, knows_you=False)


def test_ten_thousand_strangers_with_rubbish_leave_memory_bounded_and_the_node_well() -> None:
    node, rng = Answering(), random.Random(3)
    strangers = [Identity(rng.randbytes(32)).peer_id for _ in range(500)]

    async def flood() -> None:
        for number in range(10_000):
            node.clock.now += 0.01
            await node.server.answer(rng.choice(strangers), rng.randbytes(rng.randrange(200)))
            if number % 100 == 0:
                await node.server.answer(ALICE.peer_id, encode_message(Ping()))

    asyncio.run(flood())
    assert node.ask(ALICE.peer_id, Ping(), Pong) == Pong(node.clock.now, knows_you=False)
    assert len(node.services.table) == 0
    assert len(node.services.records.kept) == 0
    assert sum(node.services.reputation.faults_of(peer) for peer in strangers) > 5000
