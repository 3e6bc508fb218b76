"""What is kept of a lineage's entries: a log for each chain, early entries that wait, and what is excluded.

This is the state that `EntrySet` (log.py) changes and `EntryJudge` (judging.py) reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .admission import decode_admitted
from .bounds import Sizes
from .citations import Name, name_of
from .entry import NO_HASH, Chain, Entry
from .heads import Heads, Span, covered_by
from .vetoes import cut_of

MAX_WAITING = 256
MAX_WAITING_BYTES = 16 << 20


class Waiting:
    """Early entries by chain and seq. When full, those furthest ahead are dropped: they can be asked for again."""

    def __init__(self, most: int = MAX_WAITING, most_bytes: int = MAX_WAITING_BYTES) -> None:
        self._entries: dict[Chain, dict[int, Entry]] = {}
        self._most, self._most_bytes = most, most_bytes
        self._count = self._bytes = 0

    def __len__(self) -> int:
        return self._count

    def get(self, chain: Chain, seq: int) -> Entry | None:
        return self._entries.get(chain, {}).get(seq)

    def put(self, entry: Entry) -> None:
        self.take(entry.chain, entry.seq)
        self._entries.setdefault(entry.chain, {})[entry.seq] = entry
        self._count += 1
        self._bytes += len(entry.payload)
        while self._count > self._most or self._bytes > self._most_bytes:
            self.take(*self._furthest())

    def take(self, chain: Chain, seq: int) -> None:
        """Remove an entry, if it is there."""
        of_chain = self._entries.get(chain, {})
        entry = of_chain.pop(seq, None)
        if entry is None:
            return
        self._count -= 1
        self._bytes -= len(entry.payload)
        if not of_chain:
            del self._entries[chain]

    def cut(self, chain: Chain, first: int) -> None:
        """Remove a chain's entries from seq `first` on."""
        for seq in [seq for seq in self._entries.get(chain, {}) if seq >= first]:
            self.take(chain, seq)

    def chains(self) -> list[Chain]:
        """The chains that have waiting entries."""
        return list(self._entries)

    def _furthest(self) -> tuple[Chain, int]:
        """The last entry of the chain with most waiting entries."""
        chain = max(self._entries, key=lambda chain: (len(self._entries[chain]), chain))
        return chain, max(self._entries[chain])


@dataclass
class ChainLog:
    """One chain: entries 1 to `dropped` are dropped (only the id of the last is known); the later ones are kept."""

    dropped: int = 0
    dropped_id: bytes = NO_HASH
    entries: list[Entry] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    sizes: dict[int, Sizes] = field(default_factory=dict)  # by seq, of entries that were cited

    @property
    def head(self) -> int:
        return self.dropped + len(self.entries)

    @property
    def tip(self) -> bytes:
        return self.ids[-1] if self.ids else self.dropped_id

    def append(self, entry: Entry, own_id: bytes) -> None:
        self.entries.append(entry)
        self.ids.append(own_id)

    def cut(self, first: int) -> list[Entry]:
        """Remove and return the entries from seq `first` on."""
        keep = max(0, first - 1 - self.dropped)
        gone = self.entries[keep:]
        del self.entries[keep:], self.ids[keep:]
        self.sizes = {seq: sizes for seq, sizes in self.sizes.items() if seq < first}
        return gone

    def drop(self, last: int) -> int:
        """Drop the entries up to seq `last`; returns how many."""
        count = max(0, min(last, self.head) - self.dropped)
        if count:
            self.dropped_id = self.ids[count - 1]
            self.dropped += count
            del self.entries[:count], self.ids[:count]
            self.sizes = {seq: sizes for seq, sizes in self.sizes.items() if seq > self.dropped}
        return count


class Chains:
    """The chains of a lineage: kept entries, exclusions, authors, admitted newcomers."""

    def __init__(self) -> None:
        self.logs: dict[Chain, ChainLog] = {}
        self.exclusions: dict[Chain, int] = {}  # from which seq on a chain is left out after a fork
        self.vetoed: dict[str, dict[int, int]] = {}  # excluded authors: what does not count, by incarnation
        self.peers: dict[Name, str] = {}  # authors by their short names
        self.admitted: dict[str, set[Span]] = {}  # newcomers, and the entries that admitted them

    def head(self, chain: Chain) -> int:
        """The seq of a chain's latest entry; 0 for an unknown chain."""
        log = self.logs.get(chain)
        return log.head if log is not None else 0

    def dropped(self, chain: Chain) -> int:
        """Up to which seq a chain's entries are no longer kept."""
        log = self.logs.get(chain)
        return log.dropped if log is not None else 0

    def entries(self, span: Span) -> list[Entry]:
        """The entries of a span that are still kept, in order."""
        log = self.logs.get(span.chain)
        if log is None:
            return []
        first = max(0, span.first - 1 - log.dropped)
        return log.entries[first : max(0, span.last - log.dropped)]

    def kept(self, chain: Chain, seq: int) -> Entry | None:
        found = self.entries(Span(chain, seq, seq)) if seq > self.dropped(chain) else []
        return found[0] if found else None

    def ids(self, chain: Chain) -> list[bytes]:
        log = self.logs.get(chain)
        return log.ids if log is not None else []

    def known_id(self, chain: Chain, seq: int) -> bytes | None:
        kept, ids = seq - 1 - self.dropped(chain), self.ids(chain)
        return ids[kept] if 0 <= kept < len(ids) else None

    def authors(self) -> set[str]:
        return {chain.peer for chain, log in self.logs.items() if log.head}

    def is_excluded(self, chain: Chain, seq: int) -> bool:
        """Whether a fork or vetoes exclude an entry."""
        vetoed = cut_of(chain, self.vetoed)
        return seq >= self.exclusions.get(chain, seq + 1) or (vetoed is not None and seq >= vetoed)

    def excluded_names(self) -> set[Name]:
        return {*(name_of(chain.peer) for chain in self.exclusions), *map(name_of, self.vetoed)}

    def note_admitted(self, entry: Entry) -> None:
        """Remember the newcomers that an entry admits."""
        for peer in decode_admitted(entry.admits):
            self.admitted.setdefault(peer, set()).add(Span(entry.chain, entry.seq, entry.seq))


KEPT = 64  # entries of each chain that are kept although snapshots cover them
COPIES = 2  # partners that must have an author's own entries before it may drop them


def droppable(heads: Heads, snapshot: Heads, own: str, others: Sequence[Heads], kept: int = KEPT) -> dict[Chain, int]:
    """Up to which seq of each chain entries may be dropped at `heads` (for `EntrySet.drop`).

    Only entries that `snapshot` covers are dropped, the last `kept` stay, and of the chains of `own` (our peer id) only
    entries that COPIES of the `others` have.
    """
    until = {}
    for chain, head in heads.items():
        last = min(snapshot.get(chain, 0), head - kept)
        if chain.peer == own:
            last = min(last, covered_by(heads, chain, others, COPIES))
        if last > 0:
            until[chain] = last
    return until
