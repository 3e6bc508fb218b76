"""Publishes this node in the directory of its run, and reads who else is there. directory_tree.py decides where."""

from __future__ import annotations

import random

from ..wire.errors import PeerMisbehaved
from ..wire.ids import PeerId
from ..wire.messages import Announcement, decode_announcement, encode_message
from ..wire.records import SignedRecord
from ..wire.types import Seconds
from .directory_tree import ROOMY, key_at, next_depth, path_elsewhere, path_of, should_rise, tree_goes_on
from .records import Pick, Published, Records

SAMPLE = ROOMY + 3  # records read from a key: enough to see that it is nearly empty even if some are bad

Listed = dict[PeerId, tuple[SignedRecord, Announcement]]


class Directory:
    """One node's position in its run's directory tree. `depth` is the level at which it announces itself."""

    def __init__(self, records: Records, tag: str, own: PeerId) -> None:
        self.depth = 0
        self.whole = True  # whether the last read showed that our own key is the whole directory
        self._records = records
        self._tag = tag
        self._own = own

    @property
    def key(self) -> str:
        return key_at(self._tag, path_of(self._own, self.depth))

    async def announce(self, announcement: Announcement, ttl: Seconds) -> Published:
        """Publish at the current depth, moving deeper while the key there is full."""
        while True:
            published = await self._records.publish(self.key, encode_message(announcement), ttl)
            deeper = next_depth(self.depth, published.verdicts)
            if deeper == self.depth:
                return published
            self.depth = deeper

    async def read(self, rng: random.Random, thorough: bool = True, crowd: bool = False) -> Listed:
        """Return the peers in our own part of the tree and, in a large swarm, in one random other part.

        A thorough read asks several storers; otherwise one is enough, while little changes. In a crowd only a sample
        of each part is read, except at the root, which may be the whole directory.
        """
        only = None if thorough and not crowd else lambda storers: rng.sample(storers, min(1, len(storers)))
        found = await (self.sample_key(self.key, rng) if crowd and self.depth else self.read_key(self.key, only))
        here = len(found)
        self.whole = not tree_goes_on(self.depth, here)
        if not self.whole:
            key = key_at(self._tag, path_elsewhere(self.depth, rng))
            found.update(await (self.sample_key(key, rng) if crowd else self.read_key(key, only)))
        if should_rise(self.depth, here):
            self.depth -= 1
        return found

    async def read_key(self, key: str, only: Pick | None = None) -> Listed:
        """Return the announcements of this run under one key."""
        return self._decoded(await self._records.read(key, only))

    async def sample_key(self, key: str, rng: random.Random) -> Listed:
        """Return a random sample of the announcements under one key."""
        return self._decoded(await self._records.sample(key, SAMPLE, rng))

    def _decoded(self, records: dict[PeerId, SignedRecord]) -> Listed:
        """Decode records, skipping those that are not an announcement of this run."""
        found: Listed = {}
        for peer, record in records.items():
            try:
                announcement = decode_announcement(record.value)
            except PeerMisbehaved:
                continue
            if announcement.run == self._tag:
                found[peer] = (record, announcement)
        return found
