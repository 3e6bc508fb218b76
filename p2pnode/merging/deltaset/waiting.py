"""Entries that came before the ones they follow, within a bound."""

from __future__ import annotations

from .entry import Chain, Entry

MAX_WAITING = 256
MAX_WAITING_BYTES = 16 << 20


class Waiting:
    """A bounded store by chain and seq; when full, the ones furthest ahead go first: they can be asked for again."""

    def __init__(self, most: int = MAX_WAITING, most_bytes: int = MAX_WAITING_BYTES) -> None:
        self._entries: dict[Chain, dict[int, Entry]] = {}
        self._most, self._most_bytes = most, most_bytes
        self._count = self._bytes = 0

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

    def _furthest(self) -> tuple[Chain, int]:
        """The last entry of the chain that has most waiting."""
        chain = max(self._entries, key=lambda chain: (len(self._entries[chain]), chain))
        return chain, max(self._entries[chain])
