"""The directory of a run as a node uses it: announce oneself at the right place, read who else is there.

peers/directory decides where; this file does the publishing and reading.
"""

from __future__ import annotations

import random

from ..wire.errors import PeerMisbehaved
from ..wire.ids import PeerId
from ..wire.messages import Announcement, decode_announcement, encode_message
from ..wire.records import SignedRecord
from ..wire.types import Seconds
from .directory_tree import ROOMY, key_at, next_depth, path_elsewhere, path_of, should_rise, tree_goes_on
from .records import Pick, Published, Records

SAMPLE = ROOMY + 3  # records of a key: enough to see whether it is nearly empty, should some be bad

Listed = dict[PeerId, tuple[SignedRecord, Announcement]]


class Directory:
    """One node's place in a run's directory tree. `depth` is where it announces itself now."""

    def __init__(self, records: Records, tag: str, own: PeerId) -> None:
        self.depth = 0
        self.whole = True  # whether our own key is all there is, by the last read
        self._records = records
        self._tag = tag
        self._own = own

    @property
    def key(self) -> str:
        return key_at(self._tag, path_of(self._own, self.depth))

    async def announce(self, announcement: Announcement, ttl: Seconds) -> Published:
        """Publish at the present depth, going deeper as long as the key there is full."""
        while True:
            published = await self._records.publish(self.key, encode_message(announcement), ttl)
            deeper = next_depth(self.depth, published.verdicts)
            if deeper == self.depth:
                return published
            self.depth = deeper

    async def read(self, rng: random.Random, thorough: bool = True, crowd: bool = False) -> Listed:
        """The peers in our own part of the tree and, in a large swarm, in one part elsewhere.

        Thorough: from several storers; else from one of them, which is enough while little changes. In a crowd: some
        peers of each part; of the root all, which may be all there are.
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
        """Announcements of this run under one key."""
        return self._decoded(await self._records.read(key, only))

    async def sample_key(self, key: str, rng: random.Random) -> Listed:
        """Some of them, by lot."""
        return self._decoded(await self._records.sample(key, SAMPLE, rng))

    def _decoded(self, records: dict[PeerId, SignedRecord]) -> Listed:
        """Records whose content is no announcement of this run are passed over."""
        found: Listed = {}
        for peer, record in records.items():
            try:
                announcement = decode_announcement(record.value)
            except PeerMisbehaved:
                continue
            if announcement.run == self._tag:
                found[peer] = (record, announcement)
        return found
