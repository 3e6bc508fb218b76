"""Items of a queue: deltas of local steps, on their way from the node that trained to the owner that applies them.

A producer numbers its items 1, 2, 3, ... in each queue. It keeps an item until every member that it knows has a log in
which the item is applied, so that no split can take that back. So items are delivered at least once; because the log
accepts a producer's items in order only, each is applied exactly once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import inf
from typing import Annotated, Literal

import msgspec

from ...wire.types import Count, PeerText, Seconds

MAX_PAYLOAD = 512 << 10
PER_PRODUCER = 8  # items of one producer that may wait at once
MAX_BYTES = 64 << 20  # of a whole inbox
MOST_KEPT = 1024  # items of one queue: in a split that lasts, the oldest are given up
TRIES = 30.0  # pushes for nothing that a producer may make at once
PENDING = 4  # items of this node that may be on their way in one queue, before it trains another model

Finite = Annotated[float, msgspec.Meta(ge=-1e30, le=1e30)]


class Item(msgspec.Struct, frozen=True, array_like=True):
    """A delta of some local steps. `trained` is how many items had been applied to the weights that it began from."""

    seq: Annotated[int, msgspec.Meta(ge=1, lt=1 << 40)]
    trained: Count
    steps: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    samples: Count
    loss: Finite
    payload: Annotated[bytes, msgspec.Meta(max_length=MAX_PAYLOAD)]


Received = Literal["taken", "known", "early", "full"]


class Inbox:
    """Items that wait at the owner of a queue, oldest first. Bounded in items and bytes, and by producer."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.arrived = 0
        self._waiting: dict[str, deque[Item]] = {}
        self._order: deque[tuple[str, Seconds]] = deque()  # producers and times of arrival, in that order
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._order)

    @property
    def oldest(self) -> Seconds:
        """When the item came that waits longest; infinity where none waits."""
        return self._order[0][1] if self._order else inf

    def put(self, producer: PeerText, item: Item, applied: int, now: Seconds = 0.0) -> Received:
        """Take an item in. `applied` is the number of the producer's latest item in the log.

        "known": it was taken or applied before. "early": the one before it is missing. "full": try again later.
        """
        waiting = self._waiting.get(producer, ())
        latest = waiting[-1].seq if waiting else applied
        if item.seq <= latest:
            return "known"
        if item.seq > latest + 1:
            return "early"
        size = len(item.payload)
        if len(self) >= self.capacity or len(waiting) >= PER_PRODUCER or self._bytes + size > MAX_BYTES:
            return "full"
        self._waiting.setdefault(producer, deque()).append(item)
        self._order.append((producer, now))
        self._bytes += size
        self.arrived += 1
        return "taken"

    def take(self, count: int, applied: Mapping[str, int]) -> list[tuple[str, Item]]:
        """Remove and return up to `count` items that the log accepts next, oldest first."""
        found: list[tuple[str, Item]] = []
        while self._order and len(found) < count:
            producer, _ = self._order.popleft()
            item = self._waiting[producer].popleft()
            if not self._waiting[producer]:
                del self._waiting[producer]
            self._bytes -= len(item.payload)
            latest = max((one.seq for who, one in found if who == producer), default=applied.get(producer, 0))
            if item.seq == latest + 1:  # else it was applied meanwhile, by an owner before
                found.append((producer, item))
        return found

    def clear(self) -> None:
        """Forget everything: this node does not own the queue any more, and producers still have their items."""
        self._waiting.clear()
        self._order.clear()
        self._bytes = 0


class Patience:
    """How much one producer may trouble the owner for nothing: TRIES pushes at once, and one more each second.

    A push is for nothing when no item of it is new: it was sent before, comes too early, or finds no room.
    """

    def __init__(self, now: Seconds) -> None:
        self._left = TRIES
        self._at = now

    def useless(self, now: Seconds) -> bool:
        """Count a push for nothing. Returns whether it was one too many."""
        self._left = min(TRIES, self._left + max(0.0, now - self._at)) - 1.0
        self._at = now
        if self._left < 0.0:
            self._left = 0.0
            return True
        return False


class Outbox:
    """This node's own items of one queue, until they are safely applied."""

    def __init__(self, keep: Seconds) -> None:
        """`keep`: how long an applied item is kept in any case, for members that this node does not know."""
        self.next_seq = 1
        self._keep = keep
        self._items: deque[Item] = deque()
        self._applied_at: dict[int, Seconds] = {}

    def add(self, trained: int, steps: int, samples: int, loss: float, payload: bytes) -> Item:
        """The next item. It must be on disk before it is sent."""
        item = Item(self.next_seq, trained, steps, samples, loss, payload)
        self.next_seq += 1
        self._items.append(item)
        return item

    def settle(self, applied: int, everywhere: int, now: Seconds) -> None:
        """This node's items up to `applied` are applied in its own log, those up to `everywhere` in all members'."""
        if applied >= self.next_seq:  # an earlier life of this node, whose files are lost, sent them
            self.next_seq = applied + 1
            self._items.clear()
            self._applied_at.clear()
            return
        for item in self._items:
            if item.seq <= applied:
                self._applied_at.setdefault(item.seq, now)
            else:
                self._applied_at.pop(item.seq, None)  # a split took it back
        while self._items and (self._is_safe(self._items[0].seq, everywhere, now) or len(self._items) > MOST_KEPT):
            self._applied_at.pop(self._items.popleft().seq, None)

    def _is_safe(self, seq: int, everywhere: int, now: Seconds) -> bool:
        return seq <= everywhere and now - self._applied_at.get(seq, now) >= self._keep

    def unapplied(self, applied: int) -> list[Item]:
        """What the owner still has to get, in order."""
        return [item for item in self._items if item.seq > applied]

    def full(self, applied: int) -> bool:
        """Whether too many items are on their way, so that this node should train another model."""
        return len(self.unapplied(applied)) >= PENDING

    def put_back(self, item: Item) -> None:
        """An item from the journal, after a restart."""
        if item.seq >= self.next_seq:
            self._items.append(item)
            self.next_seq = item.seq + 1

    def state(self) -> bytes:
        """All that `restore` needs."""
        return msgspec.msgpack.encode((self.next_seq, list(self._items)))

    def restore(self, data: bytes) -> None:
        """Go on from `state`; ValueError when it is damaged."""
        try:
            next_seq, items = msgspec.msgpack.decode(data, type=tuple[int, list[Item]])
        except msgspec.DecodeError as error:
            raise ValueError(f"damaged outbox: {error}") from None
        self.next_seq, self._items = next_seq, deque(items)
