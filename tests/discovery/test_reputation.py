"""Standing: faults count and fade, calls are rationed, memory is bounded."""

from __future__ import annotations

from p2pnode.discovery.reputation import CALLS_AT_ONCE, FADE_SECONDS, FAULTS_TO_IGNORE, MAX_PEERS, Standing


def test_a_peer_with_many_faults_is_ignored_until_they_fade() -> None:
    standing = Standing()
    for _ in range(int(FAULTS_TO_IGNORE)):
        assert not standing.ignored("mallory", 0.0)
        standing.fault("mallory", "malformed message", 0.0)
    assert standing.ignored("mallory", 0.0)
    assert not standing.ignored("mallory", FADE_SECONDS + 1)
    assert standing.faults_of("mallory") == FAULTS_TO_IGNORE
    assert standing.reasons_of("mallory") == {"malformed message": FAULTS_TO_IGNORE}
    assert not standing.ignored("alice", 0.0)


def test_a_flood_of_calls_is_cut_and_the_allowance_comes_back() -> None:
    standing = Standing()
    admitted = sum(standing.admit_call("mallory", 0.0) for _ in range(1000))
    assert admitted == CALLS_AT_ONCE
    assert standing.admit_call("mallory", 1.0)
    assert standing.admit_call("alice", 0.0)


def test_memory_is_bounded_and_the_worst_are_remembered() -> None:
    standing = Standing()
    standing.fault("mallory", "x", 0.0)
    for number in range(2 * MAX_PEERS):
        standing.admit_call(f"peer {number}", 1.0)
    assert len(standing._peers) <= MAX_PEERS
    assert standing.faults_of("mallory") == 1
