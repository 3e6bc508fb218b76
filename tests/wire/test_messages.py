"""Decoding what peers send: a message, or one kind of error. 100,000 malformed ones prove it."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.jobs.actors.messages import Experience, Judge, Judged, LaptopFacts, MeetLaptop, MemberFacts, ShareRollout
from p2pnode.jobs.loop.messages import GetSteps, StepsAre
from p2pnode.jobs.paths.experts import ExpertOffer, GetExpert, SwapExperts
from p2pnode.jobs.paths.messages import KeepCopy
from p2pnode.jobs.pipeline.messages import MAX_TENSOR_BYTES, Backward, Forward, Settle, SettleDone, TensorIs
from p2pnode.shards.messages import GetNeeds, NeedsAre
from p2pnode.wire.envelope import open_envelope, seal, unseal
from p2pnode.wire.errors import PeerMisbehaved, PeerRefused
from p2pnode.wire.ids import Identity
from p2pnode.wire.messages import (
    MAX_CALL_BYTES,
    Announcement,
    Find,
    FoundRecords,
    GetJobFile,
    GetManifest,
    GetPeers,
    Hello,
    JobAnnouncement,
    JobFileIs,
    ManifestIs,
    Message,
    Peers,
    Ping,
    Pong,
    Refused,
    Store,
    Stored,
    Welcome,
    decode_announcement,
    decode_answer,
    decode_message,
    encode_message,
)
from p2pnode.wire.records import MAX_VALUE_BYTES, sign_record
from p2pnode.wire.run import Manifest, read_manifest, sign_manifest

ALICE = Identity(b"a" * 32)
RECORD = sign_record(
    ALICE, "peers/run/p", encode_message(Announcement("alice", "run", ("/ip4/127.0.0.1/tcp/1",))), 10.0
)
EXPERIENCE = Experience(1, b"\0", b"\0" * 8, b"\0\0", 1, b"\0\0", b"\0\0")
REQUESTS: list[Message] = [
    Ping(),
    Hello(1, RECORD),
    Store((RECORD,)),
    Find("peers/run/p", 3.0, "12D3", 7),
    GetPeers("run"),
    GetManifest(),
    GetJobFile("main"),
    JobFileIs(b"class Mine(Task): ..."),
    GetNeeds(),
    GetSteps(),
    KeepCopy(3),
    Forward(0, 2, 4, b"hidden"),
    Backward(0, 2, 4, 7, b"hidden", b"gradient"),
    Settle(((7, 0, 2),), ((8, 2, 4),)),
    SwapExperts((ExpertOffer("run", "mine", "12D3", 1, False, 0, 5, bytes(32), b"row", 1.0, 0.0),)),
    GetExpert(bytes(32)),
    MeetLaptop(MemberFacts(None, None, True, LaptopFacts("pole", 1, 2.0, 3.0, 4, 0.5, "its own", b"spacesof", (1.0,)))),
    Judge(7, EXPERIENCE),
    ShareRollout(7, b"spacesof", EXPERIENCE),
]
ANSWERS: list[Message] = [
    Pong(1.0),
    Welcome(1, 2.0, "run", announcement=RECORD),
    Stored(("stored",)),
    FoundRecords((RECORD, RECORD), True),
    Peers((RECORD,)),
    ManifestIs(b"m"),
    NeedsAre(1000, (3, 0, 5), b"12345678", b""),
    Judged(7, 3, b"\0\0"),
    TensorIs(b"hidden"),
    SettleDone(1),
    StepsAre(5),
]


@pytest.mark.parametrize("message", REQUESTS, ids=lambda message: type(message).__name__)
def test_requests_round_trip(message: Message) -> None:
    assert unseal(seal(message, "run", "main", b"x"), type(message)) == message


@pytest.mark.parametrize("message", ANSWERS, ids=lambda message: type(message).__name__)
def test_answers_round_trip(message: Message) -> None:
    assert decode_answer(encode_message(message), type(message)) == message


def test_a_refusal_is_raised_and_a_wrong_answer_is_misbehaviour() -> None:
    with pytest.raises(PeerRefused, match="busy"):
        decode_answer(encode_message(Refused("busy", "later")), Pong)
    with pytest.raises(PeerMisbehaved, match="stored"):
        decode_answer(encode_message(Stored(())), Pong)


@pytest.mark.parametrize("counts", [(-1,), (1 << 40,), (0,) * 1025])
def test_label_counts_out_of_bounds_are_misbehaviour(counts: tuple[int, ...]) -> None:
    with pytest.raises(PeerMisbehaved):
        decode_answer(encode_message(NeedsAre(0, counts)), NeedsAre)


@pytest.mark.parametrize(
    "request_",
    [
        Forward(0, 65, 4, b""),
        Forward(-1, 2, 4, b""),
        Forward(0, 2, 65, b""),
        Forward(0, 2, 0, b""),
        Forward(0, 2, 1, bytes(MAX_TENSOR_BYTES + 1)),
        Settle(((1, 0, 1),) * 257),
        Settle(((-1, 0, 1),)),
    ],
)
def test_calls_of_a_pipeline_out_of_bounds_are_misbehaviour(request_: Message) -> None:
    with pytest.raises(PeerMisbehaved):
        unseal(seal(request_, "run", "big", b"x"), type(request_))


def test_unknown_fields_of_a_newer_minor_version_are_ignored() -> None:
    newer = msgspec.msgpack.encode({"is": "pong", "time": 5.0, "mood": "good"})
    assert decode_answer(newer, Pong) == Pong(5.0)


def test_unknown_messages_are_misbehaviour() -> None:
    with pytest.raises(PeerMisbehaved):
        decode_message(msgspec.msgpack.encode({"is": "explode"}), Ping, Hello)


def test_oversized_messages_are_not_even_decoded() -> None:
    with pytest.raises(PeerMisbehaved, match="allowed"):
        open_envelope(b"\xc1" * (MAX_CALL_BYTES + 1))


def decoders_take(data: bytes) -> None:
    kinds = tuple(type(message) for message in REQUESTS)
    for decode in (
        lambda raw: unseal(raw, *kinds),
        lambda raw: decode_message(raw, *kinds),
        decode_announcement,
        read_manifest,
        lambda raw: decode_answer(raw, Pong),
    ):
        try:
            decode(data)
        except (PeerMisbehaved, PeerRefused):
            continue


@given(st.binary(max_size=400))
def test_any_bytes_are_a_message_or_misbehaviour(data: bytes) -> None:
    decoders_take(data)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
)


@given(st.sampled_from([type(message).__struct_config__.tag for message in REQUESTS + ANSWERS]), json_like, json_like)
def test_right_tag_with_wrong_contents(tag: str, one: object, two: object) -> None:
    decoders_take(msgspec.msgpack.encode({"is": tag, "records": one, "announcement": two, "run": one, "time": two}))


def test_a_hundred_thousand_malformed_messages() -> None:
    """Seeded mutations of good messages: bits flipped, cut, repeated, spliced. Each is taken or refused, never more."""
    rng = random.Random(7)
    manifest = sign_manifest(ALICE, Manifest("run", ALICE.peer_id, 1.0, b"n" * 16))
    good = (
        [encode_message(message) for message in REQUESTS + ANSWERS]
        + [seal(message, "run", "main") for message in REQUESTS]
        + [RECORD.value, manifest]
    )
    for _ in range(100_000):
        decoders_take(mutated(rng.choice(good), rng.choice(good), rng))


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    bent = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(bent) + 1)
        match rng.randrange(4):
            case 0 if bent:
                bent[place % len(bent)] = rng.randrange(256)
            case 1:
                del bent[place:]
            case 2:
                bent[place:place] = other[: rng.randrange(len(other))]
            case _:
                bent[place:place] = bytes([rng.randrange(256)]) * rng.randrange(9)
    return bytes(bent)


def test_a_fingerprint_in_an_announcement_is_bounded_and_need_not_be_there() -> None:
    with_one = Announcement(
        "alice", "run", (), jobs=(JobAnnouncement("main", "circle", b"f" * 260, b"state"), JobAnnouncement("other"))
    )
    assert decode_announcement(encode_message(with_one)) == with_one
    assert with_one.job("main").circle == "circle"
    assert with_one.job("other") == JobAnnouncement("other")
    assert with_one.job("third") == JobAnnouncement("third"), "nothing is announced of it"
    unknown = msgspec.msgpack.encode({"name": "alice", "run": "run", "addresses": []})
    assert decode_announcement(unknown).jobs is None
    for jobs in (
        [["main", "", b"f" * 513]],
        [["main", "", b"", b"s" * 33]],
        [["main", "c" * 41]],
        [["../up"]],
        [["a"]] * 9,
    ):
        with pytest.raises(PeerMisbehaved, match="jobs"):
            decode_announcement(msgspec.msgpack.encode({"name": "a", "run": "r", "addresses": [], "jobs": jobs}))


def test_what_is_announced_of_eight_jobs_and_eight_addresses_fits_a_record() -> None:
    jobs = tuple(
        JobAnnouncement(f"a-job-with-a-rather-long-name-{n}", "c" * 40, b"f" * 260, b"s" * 32) for n in range(8)
    )
    addresses = ("/dns4/a-rather-long-name.example.org/tcp/31337/p2p/" + "x" * 52,) * 8
    assert len(encode_message(Announcement("n" * 40, "r" * 26, addresses, jobs=jobs))) <= MAX_VALUE_BYTES
