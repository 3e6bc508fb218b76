"""Heads: the latest known entry of each author's chain. Two nodes compare them and fetch what is missing.

An encoded head takes 32 bytes of key and a few bytes of numbers, so that 16 authors stay far below 1 KiB. When nothing
is new, two nodes only exchange digests (40 bytes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from blake3 import blake3

from ...compression.sections import SectionReader, varint
from ...wire.ids import key_of_peer, peer_of_key
from .entry import MARK_BYTES, MAX_INCARNATION, Chain, Mark

MAX_CHAINS = 4096
_KEY_BYTES = 32
_MAX_SEQ = (1 << 31) - 1

Heads = Mapping[Chain, int]  # chain → seq of its latest entry; absent chains have no entries


class Span(NamedTuple):
    """A stretch of one chain, both ends included."""

    chain: Chain
    first: int
    last: int


def merge(*several: Heads) -> dict[Chain, int]:
    """Returns the latest entry of each chain."""
    merged: dict[Chain, int] = {}
    for heads in several:
        for chain, seq in heads.items():
            if seq > merged.get(chain, 0):
                merged[chain] = seq
    return merged


def missing(mine: Heads, theirs: Heads) -> list[Span]:
    """The spans that `theirs` has and `mine` has not, by chain."""
    return [
        Span(chain, mine.get(chain, 0) + 1, seq) for chain, seq in sorted(theirs.items()) if seq > mine.get(chain, 0)
    ]


def covered_by(heads: Heads, chain: Chain, others: Iterable[Heads], times: int) -> int:
    """The seq of `chain`, at most our own head, up to which at least `times` of the others have everything."""
    known = sorted((other.get(chain, 0) for other in others), reverse=True)
    return min(heads.get(chain, 0), known[times - 1]) if len(known) >= times else 0


def total(heads: Heads) -> int:
    """How many entries the heads cover."""
    return sum(heads.values())


def head_mark(heads: Heads) -> Mark:
    """Heads in short, for an entry."""
    return Mark(blake3(encode_heads(heads)).digest(MARK_BYTES), total(heads))


def encode_heads(heads: Heads) -> bytes:
    """Canonical bytes: equal heads, equal bytes."""
    parts = [varint(len(heads))]
    for chain, seq in sorted(heads.items()):
        parts += [key_of_peer(chain.peer), varint(chain.incarnation), varint(seq)]
    return b"".join(parts)


def decode_heads(data: bytes, max_chains: int = MAX_CHAINS) -> dict[Chain, int]:
    """The heads in `data`; ValueError when it is anything else."""
    reader = SectionReader(data)
    count = reader.varint()
    if count > max_chains:
        raise ValueError(f"{count} heads; at most {max_chains} are allowed")
    heads: dict[Chain, int] = {}
    for _ in range(count):
        chain, seq = Chain(peer_of_key(reader.take(_KEY_BYTES)), reader.varint()), reader.varint()
        if chain.incarnation > MAX_INCARNATION or not 1 <= seq <= _MAX_SEQ or chain in heads:
            raise ValueError("a head is out of range or occurs twice")
        heads[chain] = seq
    reader.end()
    return heads
