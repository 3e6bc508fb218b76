"""Reputation: faults count and fade, calls are rationed, memory is bounded."""

from __future__ import annotations

from p2pnode.discovery.reputation import CALLS_AT_ONCE, FADE_SECONDS, FAULTS_TO_IGNORE, MAX_PEERS, Reputation


def test_a_peer_with_many_faults_is_ignored_until_they_fade() -> None:
    ignored: list[tuple[str, dict[str, int]]] = []
    reputation = Reputation(lambda peer, reasons: ignored.append((peer, dict(reasons))))
    for _ in range(int(FAULTS_TO_IGNORE)):
        assert not reputation.ignored("mallory", 0.0)
        reputation.fault("mallory", "malformed message", 0.0)
    assert reputation.ignored("mallory", 0.0)
    assert not reputation.ignored("mallory", FADE_SECONDS + 1)
    assert reputation.faults_of("mallory") == FAULTS_TO_IGNORE
    assert ignored == [("mallory", {"malformed message": FAULTS_TO_IGNORE})], "people learn the reason, once"
    assert not reputation.ignored("alice", 0.0)


def test_a_flood_of_calls_is_cut_and_the_allowance_comes_back() -> None:
    reputation = Reputation()
    admitted = sum(reputation.admit_call("mallory", 0.0) for _ in range(1000))
    assert admitted == CALLS_AT_ONCE
    assert reputation.admit_call("mallory", 1.0)
    assert reputation.admit_call("alice", 0.0)


def test_memory_is_bounded_and_the_worst_are_remembered() -> None:
    reputation = Reputation()
    reputation.fault("mallory", "x", 0.0)
    for number in range(2 * MAX_PEERS):
        reputation.admit_call(f"peer {number}", 1.0)
    assert len(reputation._peers) <= MAX_PEERS
    assert reputation.faults_of("mallory") == 1
