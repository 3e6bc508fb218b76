"""Who may be an author of a delta set: members admit newcomers in their entries. Pure.

Identities cost nothing, so an author counts once an author that counts has admitted it. The founder of a run, and the
members that a new circle begins with, need no admission. Others admit one newcomer with every fourth entry: identities
cannot be made faster than work is published. An honest member admits whoever exchanges entries with it, which proves
that there is a node behind the name. It depends on a founder that takes part, at least for its first rounds. So a run
has it only with `--set admission=1`, and only its first circle and those that split off from it; circles that users
declare, and runs of several jobs, do without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from ...wire.bounded import put_bounded
from ...wire.ids import PeerId, key_of_peer, peer_of_key
from .entry import Chain

KEY_BYTES = 32
MAX_ADMITTED = 8  # in one entry
MAX_AUTHORS = 64
WORK = 4  # entries of a usual member for each newcomer it admits


def may_admit(peer: str, seq: int, roots: Collection[str]) -> int:
    """How many newcomers the entry number `seq` of an author may admit."""
    if peer in roots:
        return max(1, MAX_ADMITTED // len(roots))
    return 1 if seq % WORK == 0 else 0


def encode_admitted(peers: Iterable[str]) -> bytes:
    return b"".join(sorted(map(key_of_peer, peers)))


def decode_admitted(data: bytes) -> list[str]:
    """The peers in `data`; ValueError when it is anything else."""
    keys = [data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES)]
    if len(data) % KEY_BYTES or keys != sorted(set(keys)):
        raise ValueError("admitted peers out of order, or cut off")
    return [peer_of_key(key) for key in keys]


class Admitting(Protocol):
    """The judge of a lineage's entries, as far as admission needs it."""

    def may_admit(self, chain: Chain) -> int: ...

    def is_author(self, peer: str) -> bool: ...


class Applicants:
    """Peers that asked this node for entries and are not admitted yet."""

    def __init__(self) -> None:
        self._waiting: dict[PeerId, None] = {}

    def note(self, peer: PeerId, judge: Admitting) -> None:
        """A peer asked for entries, or gave some."""
        if not judge.is_author(peer):
            put_bounded(self._waiting, peer, None, MAX_AUTHORS)

    def take(self, judge: Admitting, chain: Chain) -> list[PeerId]:
        """Those that the next entry of this node's log admits."""
        self._waiting = {peer: None for peer in self._waiting if not judge.is_author(peer)}
        return [*self._waiting][: judge.may_admit(chain)]
