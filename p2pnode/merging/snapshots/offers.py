"""Snapshots that this node made for others, kept while they fetch them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from ...network.base import Payload
from ...runtime.seams import Seams
from ...wire.bounded import put_bounded
from ...wire.errors import PeerMisbehaved, PeerRefused
from ...wire.types import Seconds
from .messages import GetChunks, GetKept, SnapshotRequest
from .outline import Outline, Snapshot, encode_outline, outline_of

FRESH: Seconds = 5.0  # within which newcomers get the same snapshot, so that members compute only one to confirm it
UNUSED: Seconds = 60.0  # after which an offer is dropped
LEAST_OFFERS, MOST_OFFERS = 2, 32  # at a time; each is as large as the model
MOST_BYTES = 64 << 20


class MakesSnapshots(Protocol):
    """What snapshots are made by: a merge policy, or whatever else keeps weights that newcomers need."""

    snapshots_in_background: bool

    def snapshot(self, at: bytes = b"") -> Snapshot | None: ...


@dataclass
class _Offer:
    snapshot: Snapshot
    outline: Outline
    own: bool  # of our position when it was made, not of a position we were asked for
    made: Seconds
    used: Seconds


class Offers:
    """Serves snapshots. Raises PeerRefused when there is none, PeerMisbehaved for a malformed request."""

    def __init__(self, policy: MakesSnapshots, seams: Seams) -> None:
        self._policy = policy
        self._seams = seams
        self._compute = seams.background if policy.snapshots_in_background else seams.compute
        self._making = asyncio.Lock()
        self._offers: dict[bytes, _Offer] = {}  # the one used last is last

    async def payload(self, request: SnapshotRequest) -> Payload:
        if isinstance(request, GetKept):
            return Payload.of(self._named(request.snapshot).snapshot.kept)
        if isinstance(request, GetChunks):
            return self._chunks(self._named(request.snapshot), range(request.first, request.stop))
        async with self._making:
            offer = self._ready(request.at) or await self._make(request.at)
        return Payload.of(encode_outline(offer.outline))

    def has(self, name: bytes) -> bool:
        """Whether a snapshot of this name is offered now."""
        return name in self._offers

    def forget_old(self) -> None:
        """Drop offers that nobody has used for a while."""
        now = self._seams.clock.monotonic()
        self._offers = {name: offer for name, offer in self._offers.items() if now - offer.used < UNUSED}

    def move(self) -> None:
        """This node changes circles: offers stay for those who are fetching them, but newcomers get new ones."""
        for offer in self._offers.values():
            offer.own = False

    def _chunks(self, offer: _Offer, span: range) -> Payload:
        try:
            place = offer.outline.place_of(span)
        except ValueError as error:
            raise PeerMisbehaved(str(error)) from None
        content = memoryview(offer.snapshot.content)[place]
        return Payload(
            len(content), offer.outline.digest(span), lambda offset, length: content[offset : offset + length]
        )

    def _named(self, name: bytes) -> _Offer:
        if name not in self._offers:
            raise PeerRefused("gone", "that snapshot is no longer here; ask for another")
        return self._use(name)

    def _ready(self, at: bytes) -> _Offer | None:
        now = self._seams.clock.monotonic()
        for name, offer in reversed(self._offers.items()):
            if offer.outline.place == at or (not at and offer.own and now - offer.made < FRESH):
                return self._use(name)
        return None

    async def _make(self, at: bytes) -> _Offer:
        try:
            made = await self._compute(lambda: self._made(at))
        except ValueError as error:
            raise PeerMisbehaved(str(error)) from None
        if made is None:
            raise PeerRefused("unknown", "this node does not know the weights at that position, or its own are damaged")
        snapshot, outline = made
        now = self._seams.clock.monotonic()
        self.forget_old()
        limit = max(LEAST_OFFERS, min(MOST_OFFERS, MOST_BYTES // outline.size))
        offer = _Offer(snapshot, outline, not at, now, now)
        put_bounded(self._offers, outline.name, offer, limit)
        return offer

    def _made(self, at: bytes) -> tuple[Snapshot, Outline] | None:
        snapshot = self._policy.snapshot(at)
        return None if snapshot is None else (snapshot, outline_of(snapshot))

    def _use(self, name: bytes) -> _Offer:
        offer = self._offers[name] = self._offers.pop(name)
        offer.used = self._seams.clock.monotonic()
        return offer
