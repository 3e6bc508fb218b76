"""Idealised DHT routing: which hosts know each other, and which of them are nearest to a key.

Every host belongs to one component, the set of hosts that have found each other directly or through others. A contact
joins two components for good; a host that restarts begins alone. Within its component a host finds exactly the ids that
are nearest by XOR, like a Kademlia lookup without failures: lookups are never wrong here, only slow or cut off.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from hashlib import sha1

ID_BITS = 160
_FEW = 8


def ring_id(name: str) -> int:
    """The number of a peer id or a key, by which distances are measured."""
    return int.from_bytes(sha1(name.encode(), usedforsecurity=False).digest(), "big")


class Component:
    """Hosts that know each other, as a sorted list of ring ids."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, id: int) -> None:
        insort(self.ids, id)

    def remove(self, id: int) -> None:
        del self.ids[bisect_left(self.ids, id)]

    def nearest(self, target: int) -> Iterator[int]:
        """All ids, nearest to `target` first. The first few cost about the logarithm of their number."""
        return _nearest(self.ids, target, 0, len(self.ids), 1 << (ID_BITS - 1))


def _nearest(ids: list[int], target: int, low: int, high: int, bit: int) -> Iterator[int]:
    """The ids from `low` to `high`, which agree in all bits above `bit`; those with the target's bit come first."""
    if high - low <= _FEW:
        yield from sorted(ids[low:high], key=target.__xor__)
        return
    middle = bisect_left(ids, (ids[low] & -(bit << 1)) | bit, low, high)
    halves = ((middle, high), (low, middle)) if target & bit else ((low, middle), (middle, high))
    for start, end in halves:
        if start < end:
            yield from _nearest(ids, target, start, end, bit >> 1)


class RingRouting:
    """The component of each ring id."""

    def __init__(self) -> None:
        self._components: dict[int, Component] = {}

    def component(self, id: int) -> Component:
        return self._components[id]

    def start_anew(self, id: int) -> None:
        """Let a host know nobody, and nobody find it."""
        self.remove(id)
        self._components[id] = Component([id])

    def remove(self, id: int) -> None:
        known = self._components.pop(id, None)
        if known is not None:
            known.remove(id)

    def join(self, one: int, other: int) -> None:
        """Let two hosts, and all hosts they know, find each other."""
        large, small = self._components[one], self._components[other]
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
            self._components[id] = large

    def split(self, ids: set[int]) -> None:
        """Let the hosts `ids` and all others forget each other, as routing tables do in a long partition."""
        for known in list(dict.fromkeys(self._components.values())):
            inside = [member for member in known.ids if member in ids]
            if not inside or len(inside) == len(known.ids):
                continue
            known.ids = [member for member in known.ids if member not in ids]
            apart = Component(inside)
            for member in inside:
                self._components[member] = apart
