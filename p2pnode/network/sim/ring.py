"""Idealised DHT routing: who knows of whom, and which of them lie nearest to a key.

Every host belongs to one acquaintance, the set of hosts that have found each other directly or through others. Contact
joins two acquaintances for good; a host that starts anew begins alone. Within its acquaintance a host finds exactly the
XOR-nearest ids, as a Kademlia lookup without failures would: lookups are never wrong here, only slow or cut off.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from hashlib import sha1

ID_BITS = 160
_FEW = 8


def ring_id(name: str) -> int:
    """The place of a peer id or a key among the ids."""
    return int.from_bytes(sha1(name.encode(), usedforsecurity=False).digest(), "big")


class Acquaintance:
    """A sorted set of ring ids."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, id: int) -> None:
        insort(self.ids, id)

    def remove(self, id: int) -> None:
        del self.ids[bisect_left(self.ids, id)]

    def nearest(self, target: int) -> Iterator[int]:
        """All ids, nearest to `target` first; costs about the logarithm of their number for the first few."""
        return _nearest(self.ids, target, 0, len(self.ids), 1 << (ID_BITS - 1))


def _nearest(ids: list[int], target: int, low: int, high: int, bit: int) -> Iterator[int]:
    """Ids between two places that agree in all bits above `bit`: those that share the target's bit come first."""
    if high - low <= _FEW:
        yield from sorted(ids[low:high], key=target.__xor__)
        return
    middle = bisect_left(ids, (ids[low] & -(bit << 1)) | bit, low, high)
    halves = ((middle, high), (low, middle)) if target & bit else ((low, middle), (middle, high))
    for start, end in halves:
        if start < end:
            yield from _nearest(ids, target, start, end, bit >> 1)


class RingRouting:
    """Which acquaintance each ring id belongs to."""

    def __init__(self) -> None:
        self._of: dict[int, Acquaintance] = {}

    def of(self, id: int) -> Acquaintance:
        return self._of[id]

    def start_anew(self, id: int) -> None:
        """The host knows nobody (any more), and nobody finds it."""
        self.remove(id)
        self._of[id] = Acquaintance([id])

    def remove(self, id: int) -> None:
        known = self._of.pop(id, None)
        if known is not None:
            known.remove(id)

    def join(self, one: int, other: int) -> None:
        """The two have found each other, and with them all that each of them knows."""
        large, small = self._of[one], self._of[other]
        if large is small:
            return
        if len(large) < len(small):
            large, small = small, large
        if len(small) <= _FEW:
            for id in small.ids:
                large.add(id)
        else:
            large.ids = sorted(large.ids + small.ids)
        for id in small.ids:
            self._of[id] = large

    def split(self, ids: set[int]) -> None:
        """The hosts `ids` and all others forget each other, as routing tables do in a long partition."""
        for known in list(dict.fromkeys(self._of.values())):
            inside = [member for member in known.ids if member in ids]
            if not inside or len(inside) == len(known.ids):
                continue
            known.ids = [member for member in known.ids if member not in ids]
            apart = Acquaintance(inside)
            for member in inside:
                self._of[member] = apart
