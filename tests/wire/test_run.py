"""Runs: manifests and private keys."""

from __future__ import annotations

import msgspec
import pytest

from p2pnode.wire.errors import PeerMisbehaved, UsageError
from p2pnode.wire.ids import Identity
from p2pnode.wire.run import KEY_BYTES, JobEntry, Manifest, RunAccess, read_manifest, run_id, sign_manifest

ALICE, BOB = Identity(b"a" * 32), Identity(b"b" * 32)
MANIFEST = Manifest("digits", ALICE.peer_id, 5.0, b"n" * 16)
SIGNED = sign_manifest(ALICE, MANIFEST)
PUBLIC = RunAccess(run_id(SIGNED))
PRIVATE = RunAccess(run_id(SIGNED), b"k" * KEY_BYTES)


def test_a_manifest_is_read_back() -> None:
    assert read_manifest(SIGNED) == MANIFEST


def with_jobs(*jobs: object) -> bytes:
    """A signed manifest with these jobs, whatever they are."""
    content = {"name": "r", "founder": ALICE.peer_id, "created": 5.0, "nonce": b"n", "jobs": jobs}
    packed = msgspec.msgpack.encode(content)
    return msgspec.msgpack.encode((packed, ALICE.sign(packed)))


def job(name: str) -> dict[str, object]:
    return {"name": name, "kind": "train", "plan": {"task": "t"}}


def test_a_manifest_lists_jobs_of_any_kind() -> None:
    assert read_manifest(with_jobs(job("main"), job("other-1"))).jobs[1] == JobEntry("other-1", "train", {"task": "t"})
    assert read_manifest(with_jobs()).jobs == ()


@pytest.mark.parametrize("name", ["", "Main", "../up", "a/b", "manifest", "a" * 33, "a b", "-a"])
def test_a_job_has_a_name_that_is_safe_as_a_folder(name: str) -> None:
    with pytest.raises(PeerMisbehaved, match="malformed"):
        read_manifest(with_jobs(job(name)))


def test_jobs_are_few_and_have_different_names() -> None:
    with pytest.raises(PeerMisbehaved, match="malformed"):
        read_manifest(with_jobs(*(job(f"job{number}") for number in range(9))))
    with pytest.raises(PeerMisbehaved, match="one name"):
        read_manifest(with_jobs(job("main"), job("main")))


def test_a_tampered_manifest_is_refused_and_has_another_run_id() -> None:
    bent = SIGNED.replace(b"digits", b"digitz")
    with pytest.raises(PeerMisbehaved, match="signed"):
        read_manifest(bent)
    assert run_id(bent) != run_id(SIGNED)


def test_a_manifest_signed_by_another_is_refused() -> None:
    with pytest.raises(PeerMisbehaved, match="signed"):
        read_manifest(sign_manifest(BOB, MANIFEST))


@pytest.mark.parametrize("access", [PUBLIC, PRIVATE])
def test_run_text_round_trip(access: RunAccess) -> None:
    assert RunAccess.parse(str(access)) == access


@pytest.mark.parametrize(
    "text", ["", "x", "A" * 26, "a" * 26 + ".", "a" * 26 + ".b", "a" * 27, "a" * 26 + "." + "1" * 32]
)
def test_a_wrong_run_gets_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="invite"):
        RunAccess.parse(text)


def test_a_private_runs_tag_does_not_tell_its_id() -> None:
    assert PUBLIC.tag == PUBLIC.run
    assert PRIVATE.tag != PRIVATE.run
    assert PRIVATE.tag == RunAccess(PRIVATE.run, b"k" * KEY_BYTES).tag
    assert PRIVATE.tag != RunAccess(PRIVATE.run, b"j" * KEY_BYTES).tag


def test_the_proof_of_a_key_is_bound_to_both_ends() -> None:
    proof = PRIVATE.proof(ALICE.peer_id, BOB.peer_id)
    assert PRIVATE.admits(proof, ALICE.peer_id, BOB.peer_id)
    assert not PRIVATE.admits(proof, BOB.peer_id, ALICE.peer_id)
    assert not PRIVATE.admits(b"", ALICE.peer_id, BOB.peer_id)
    assert not RunAccess(PRIVATE.run, b"j" * KEY_BYTES).admits(proof, ALICE.peer_id, BOB.peer_id)
    assert PUBLIC.admits(b"", ALICE.peer_id, BOB.peer_id)
