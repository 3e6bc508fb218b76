"""Answering strangers: every message gets an answer or a refusal, faults are counted per peer, the node goes on."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from p2pnode.discovery.reputation import CALLS_AT_ONCE, FAULTS_TO_IGNORE
from p2pnode.discovery.services import make_services
from p2pnode.network.base import Payload
from p2pnode.network.sim import SimSwarm
from p2pnode.node.router import Router
from p2pnode.runtime.routes import Routes
from p2pnode.runtime.seams import Seams, inline
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.envelope import Envelope, seal
from p2pnode.wire.errors import PeerMisbehaved, PeerRefused
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.messages import (
    MAX_CALL_BYTES,
    PROTOCOL,
    Announcement,
    GetJobFile,
    GetManifest,
    GetPeers,
    GetView,
    Hello,
    JobFileIs,
    ManifestIs,
    Message,
    Peers,
    Ping,
    Pong,
    Refused,
    Store,
    Stored,
    ViewIs,
    Welcome,
    decode_answer,
    encode_message,
)
from p2pnode.wire.records import SignedRecord, sign_record
from p2pnode.wire.run import Manifest, RunAccess, run_id, sign_manifest
from p2pnode.wire.status import JobState, TrainState

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

    def __init__(self, access: RunAccess | None) -> None:
        self.access = access
        self.jobs: dict[str, Routes] = {}

    def routes(self, job: str) -> Routes | None:
        return self.jobs.get(job)

    def prepares(self, job: str) -> bool:
        return job == "later"

    def job_file(self, job: str) -> bytes | None:
        return b"class Mine(Task): ..." if job == "main" else None

    def view(self) -> ViewIs:
        return ViewIs({"main": JobState(train=TrainState(round=7))})


class Answering:
    """A server with what it is made of, asked synchronously."""

    def __init__(self, access: RunAccess | None = PUBLIC) -> None:
        self.clock = HandClock()
        world = Seams(self.clock, random.Random(1), MemoryStorage(), inline)
        self.services = make_services(ME, world, SimSwarm(seed=1).network(ME.peer_id))
        self.services.clock.established = True
        self.host = Host(access)
        self.server = Router(self.host, self.services)

    def raw(self, peer: PeerId, data: bytes) -> bytes:
        return asyncio.run(self.server.answer(peer, data))

    def ask(self, peer: PeerId, request: Message, expected: type[Message], *about: object) -> Message:
        """`about` are run, job and proof, as far as they are given."""
        return decode_answer(self.raw(peer, seal(request, *about)), expected)  # type: ignore[arg-type]

    def faults(self, peer: PeerId) -> int:
        return self.services.reputation.faults_of(peer)


def announcement(who: Identity, tag: str = PUBLIC.tag, expiry: float = 1100.0) -> SignedRecord:
    return sign_record(who, f"peers/{tag}/p", encode_message(Announcement(who.peer_id[-8:], tag, ())), expiry)


def test_a_greeting_makes_the_peer_known_to_others() -> None:
    node = Answering()
    welcome = node.ask(ALICE.peer_id, Hello(PROTOCOL, announcement=announcement(ALICE)), Welcome)
    assert isinstance(welcome, Welcome)
    assert welcome.run == PUBLIC.run
    answer = node.ask(MALLORY.peer_id, GetPeers(PUBLIC.tag), Peers)
    assert answer == Peers((announcement(ALICE),))


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
    assert node.ask(ALICE.peer_id, GetManifest(), ManifestIs, PRIVATE.tag, "", proof) == ManifestIs(SIGNED)
    for peer, tried in ((MALLORY.peer_id, proof), (ALICE.peer_id, b""), (ALICE.peer_id, bytes(32))):
        with pytest.raises(PeerRefused, match="private"):
            node.ask(peer, GetManifest(), ManifestIs, PRIVATE.tag, "", tried)
    welcome = node.ask(MALLORY.peer_id, Hello(PROTOCOL), Welcome)
    assert isinstance(welcome, Welcome)
    assert welcome.private
    assert PRIVATE.run not in (welcome.run, *map(str, [welcome]))


def test_the_file_of_a_job_is_for_members_only() -> None:
    node = Answering(PRIVATE)
    proof = PRIVATE.proof(ALICE.peer_id, ME.peer_id)
    found = node.ask(ALICE.peer_id, GetJobFile("main"), JobFileIs, PRIVATE.tag, "", proof)
    assert found == JobFileIs(b"class Mine(Task): ...")
    with pytest.raises(PeerRefused, match="no file"):
        node.ask(ALICE.peer_id, GetJobFile("other"), JobFileIs, PRIVATE.tag, "", proof)
    with pytest.raises(PeerRefused, match="private"):
        node.ask(MALLORY.peer_id, GetJobFile("main"), JobFileIs, PRIVATE.tag, "", proof)
    assert refusal(node, seal(GetJobFile("main"))).code == "malformed", "a request about no run is not for members"


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
    answers = [node.raw(MALLORY.peer_id, seal(Ping())) for _ in range(int(CALLS_AT_ONCE) + 10)]
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
                await node.server.answer(ALICE.peer_id, seal(Ping()))

    asyncio.run(flood())
    assert node.ask(ALICE.peer_id, Ping(), Pong) == Pong(node.clock.now, knows_you=False)
    assert len(node.services.table) == 0
    assert len(node.services.records.kept) == 0
    assert sum(node.services.reputation.faults_of(peer) for peer in strangers) > 5000


# ---- the envelope ----


class Add(Message, frozen=True, tag="add"):
    """What the job of these tests is asked."""

    amount: int


class Sum(Message, frozen=True, tag="sum"):
    amount: int


class GetBytes(Message, frozen=True, tag="bytes"):
    """A stream of the job of these tests."""


def with_job(access: RunAccess = PUBLIC) -> Answering:
    """A node whose job "adding" adds one."""

    async def add(peer: PeerId, request: Add) -> Sum:
        return Sum(request.amount + 1)

    async def stream(peer: PeerId, request: GetBytes) -> Payload:
        return Payload.of(b"content")

    node = Answering(access)
    node.host.jobs["adding"] = Routes({Add: add}, {GetBytes: stream})
    return node


def refusal(node: Answering, data: bytes) -> Refused:
    return msgspec.msgpack.decode(node.raw(MALLORY.peer_id, data), type=Refused)


def test_a_request_reaches_its_job() -> None:
    assert with_job().ask(ALICE.peer_id, Add(1), Sum, PUBLIC.tag, "adding") == Sum(2)


def test_a_member_is_asked_for_its_view_only_about_the_run() -> None:
    node = Answering()
    assert node.ask(ALICE.peer_id, GetView(), ViewIs, PUBLIC.tag) == ViewIs(
        {"main": JobState(train=TrainState(round=7))}
    )
    assert refusal(node, seal(GetView())).code == "malformed", "a request about no run is not for members"


@pytest.mark.parametrize(
    ("run", "job", "proof", "code"),
    [
        ("another", "adding", b"", "unknown run"),
        ("", "adding", b"", "unknown run"),
        (PRIVATE.tag, "adding", b"", "private"),
        (PRIVATE.tag, "adding", b"x" * 32, "private"),
        (PRIVATE.tag, "", b"", "private"),
        (PRIVATE.tag, "adding", PRIVATE.proof(ALICE.peer_id, ME.peer_id), "private"),
        (PRIVATE.tag, "adding", PRIVATE.proof(ME.peer_id, MALLORY.peer_id), "private"),
        (PRIVATE.tag, "subtracting", PRIVATE.proof(MALLORY.peer_id, ME.peer_id), "unknown job"),
    ],
)
def test_who_may_not_ask_is_refused_and_that_is_no_fault(run: str, job: str, proof: bytes, code: str) -> None:
    node = with_job(PRIVATE)
    assert refusal(node, seal(Add(1), run, job, proof)).code == code
    assert node.faults(MALLORY.peer_id) == 0
    with pytest.raises(PeerRefused, match=code):
        asyncio.run(node.server.payload(MALLORY.peer_id, seal(GetBytes(), run, job, proof)))


@pytest.mark.parametrize(("access", "job"), [(None, "adding"), (PUBLIC, "later")])
def test_a_node_that_is_not_ready_yet_says_so_and_that_counts_as_no_refusal(access: RunAccess | None, job: str) -> None:
    node = Answering(access)
    assert refusal(node, seal(Add(1), PUBLIC.tag, job)).code == "not yet"
    assert node.services.calls.traffic.refused == 0
    if access is not None:
        refusal(node, seal(Add(1), PUBLIC.tag, "never"))
        assert node.services.calls.traffic.refused == 1


@pytest.mark.parametrize(
    "data",
    [
        seal(Ping(), PUBLIC.tag, "adding"),
        seal(Add(1)),
        seal(GetBytes(), PUBLIC.tag, "adding"),
        msgspec.msgpack.encode([PUBLIC.tag, "adding", b"", {"is": "explode"}]),
        msgspec.msgpack.encode([PUBLIC.tag, "adding", b"", {"is": "add", "amount": "many"}]),
        msgspec.msgpack.encode([PUBLIC.tag, "adding", b""]),
        msgspec.msgpack.encode([PUBLIC.tag, "adding", b"p" * 33, {"is": "add", "amount": 1}]),
        msgspec.msgpack.encode(["r" * 65, "", b"", {"is": "ping"}]),
        msgspec.msgpack.encode(["", "j" * 41, b"", {"is": "ping"}]),
        msgspec.msgpack.encode({"is": "ping"}),
        b"",
    ],
    ids=["wrong table", "no job", "stream as call", "unknown tag", "wrong field", "no body", "long proof",
         "long run", "long job", "no envelope", "nothing"],
)  # fmt: skip
def test_nonsense_in_an_envelope_is_refused_and_costs_reputation(data: bytes) -> None:
    node = with_job()
    assert refusal(node, data).code == "malformed"
    assert node.faults(MALLORY.peer_id) == 1


def test_an_oversized_request_is_refused_before_it_is_decoded() -> None:
    node = with_job()
    large = msgspec.msgpack.encode(Envelope("", "", b"", msgspec.Raw(b"\xc1" * MAX_CALL_BYTES)))
    assert "allowed" in refusal(node, large).reason


def test_a_stream_is_handed_to_its_job_and_to_nobody_else() -> None:
    node = with_job()
    payload = asyncio.run(node.server.payload(ALICE.peer_id, seal(GetBytes(), PUBLIC.tag, "adding")))
    assert payload.size == len(b"content")
    with pytest.raises(PeerRefused, match="no streams"):
        asyncio.run(node.server.payload(ALICE.peer_id, seal(GetBytes())))
    with pytest.raises(PeerMisbehaved):
        asyncio.run(node.server.payload(ALICE.peer_id, seal(Add(1), PUBLIC.tag, "adding")))


def test_two_requests_of_one_job_cannot_have_the_same_tag() -> None:
    class Again(Message, frozen=True, tag="add"):
        """Another message with a tag that is taken."""

    with pytest.raises(TypeError, match="tag"):
        Routes({Add: lambda peer, request: Sum(1), Again: lambda peer, request: Sum(2)}).read(b"")
