"""Where in the DHT a node announces itself, so that no key grows past its bound, from 2 to 100,000 peers.

The directory of a run is a binary tree of keys. Everybody starts at the root; a node whose key is full goes one level
down, to the child that its own hash names, and stays there. When parent and own key together have shrunk well below the
bound, it moves up again. So every key holds at most MAX_RECORDS_PER_KEY records, a small swarm is one key, and the
traffic of a large one is spread over all its leaves.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from ..wire.ids import sha256
from ..wire.records import MAX_RECORDS_PER_KEY

MAX_DEPTH = 24
ROOMY = MAX_RECORDS_PER_KEY // 4  # so few peers in a key that its nodes try one level up


def key_at(tag: str, path: str) -> str:
    """The record key of one node of the tree; `path` is a string of 0s and 1s, "" for the root."""
    return f"peers/{tag}/p{path}"


def path_of(peer: str, depth: int) -> str:
    """The first `depth` bits of a peer's hash."""
    bits = int.from_bytes(sha256(peer.encode())[:4], "big")
    return format(bits, "032b")[:depth]


def next_depth(depth: int, verdicts: Sequence[str]) -> int:
    """Where to announce after these answers of the storers: deeper when two of them, or most, say the key is full.

    One alone may lie; with two, too few copies would be kept here for readers to find.
    """
    full = sum(verdict == "full" for verdict in verdicts)
    return min(depth + 1, MAX_DEPTH) if full >= 2 or full * 2 > len(verdicts) else depth


def tree_goes_on(depth: int, peers_here: int) -> bool:
    """Whether there are parts of the tree beyond the own key."""
    return depth > 0 or peers_here >= MAX_RECORDS_PER_KEY * 9 // 10


def should_rise(depth: int, peers_here: int) -> bool:
    """Whether the own key has become so empty that the level above is worth trying."""
    return depth > 0 and peers_here < ROOMY


def path_elsewhere(depth: int, rng: random.Random) -> str:
    """A random part of the tree, down to one level below our own. All keys are equally likely: the root is not hot."""
    return format(rng.randint(1, 2 ** (depth + 2) - 1), "b")[1:]
