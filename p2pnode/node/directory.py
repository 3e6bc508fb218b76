"""The directory of a run as a node uses it: announce oneself at the right place, read who else is there.

peers/directory decides where; this file does the publishing and reading.
"""

from __future__ import annotations

import random

from ..errors import PeerMisbehaved
from ..ids import PeerId
from ..messages import Announcement, decode_announcement, encode
from ..network.base import Seconds
from ..network.records import Pick, Published, Records
from ..peers.directory import key_at, next_depth, path_elsewhere, path_of, should_rise, tree_goes_on
from ..records import SignedRecord


class Directory:
    """One node's place in a run's directory tree. `depth` is where it announces itself now."""

    def __init__(self, records: Records, tag: str, own: PeerId) -> None:
        self.depth = 0
        self._records = records
        self._tag = tag
        self._own = own

    @property
    def key(self) -> str:
        return key_at(self._tag, path_of(self._own, self.depth))

    async def announce(self, announcement: Announcement, ttl: Seconds) -> Published:
        """Publish at the present depth, going deeper as long as the key there is full."""
        while True:
            published = await self._records.publish(self.key, encode(announcement), ttl)
            deeper = next_depth(self.depth, published.verdicts)
            if deeper == self.depth:
                return published
            self.depth = deeper

    async def read(self, rng: random.Random, thorough: bool = True) -> dict[PeerId, tuple[SignedRecord, Announcement]]:
        """The peers in our own part of the tree and, in a large swarm, in one part elsewhere.

        Thorough: from several storers; else from one of them, which is enough while little changes.
        """
        only = None if thorough else lambda storers: rng.sample(storers, min(1, len(storers)))
        found = await self.read_key(self.key, only)
        here = len(found)
        if tree_goes_on(self.depth, here):
            found.update(await self.read_key(key_at(self._tag, path_elsewhere(self.depth, rng)), only))
        if should_rise(self.depth, here):
            self.depth -= 1
        return found

    async def read_key(self, key: str, only: Pick | None = None) -> dict[PeerId, tuple[SignedRecord, Announcement]]:
        """Announcements of this run under one key; records whose content is no announcement are passed over."""
        found: dict[PeerId, tuple[SignedRecord, Announcement]] = {}
        for peer, record in (await self._records.read(key, only)).items():
            try:
                announcement = decode_announcement(record.value)
            except PeerMisbehaved:
                continue
            if announcement.run == self._tag:
                found[peer] = (record, announcement)
        return found
