"""Decides under which DHT key a node announces itself, so that no key outgrows its bound, from 2 to 100,000 peers.

The directory of a run is a binary tree of keys. Every node starts at the root. A node whose key is full moves one level
down, to the child named by its own hash, and stays there until its key is nearly empty; then it tries one level up.
So every key holds at most MAX_RECORDS_PER_KEY records, a small swarm is one key, and a large swarm spreads its traffic
over all leaves.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from ..wire.ids import sha256
from ..wire.records import MAX_RECORDS_PER_KEY

MAX_DEPTH = 24
ROOMY = MAX_RECORDS_PER_KEY // 4  # with fewer peers than this under a key, its nodes try one level up


def key_at(tag: str, path: str) -> str:
    """Return the record key at `path`, a string of 0s and 1s ("" is the root)."""
    return f"peers/{tag}/p{path}"


def path_of(peer: str, depth: int) -> str:
    """Return the first `depth` bits of a peer's hash."""
    bits = int.from_bytes(sha256(peer.encode())[:4], "big")
    return format(bits, "032b")[:depth]


def next_depth(depth: int, verdicts: Sequence[str]) -> int:
    """Return the depth to announce at after these answers: one deeper if two storers, or most, say the key is full.

    A single storer may lie. If two refuse, too few copies remain here for readers to find.
    """
    full = sum(verdict == "full" for verdict in verdicts)
    return min(depth + 1, MAX_DEPTH) if full >= 2 or full * 2 > len(verdicts) else depth


def tree_goes_on(depth: int, peers_here: int) -> bool:
    """Whether the directory has other keys besides our own."""
    return depth > 0 or peers_here >= MAX_RECORDS_PER_KEY * 9 // 10


def should_rise(depth: int, peers_here: int) -> bool:
    """Whether our key is so empty that the level above is worth trying."""
    return depth > 0 and peers_here < ROOMY


def path_elsewhere(depth: int, rng: random.Random) -> str:
    """Return a random path, at most one level below our own. All keys are equally likely, which spares the root."""
    return format(rng.randint(1, 2 ** (depth + 2) - 1), "b")[1:]
