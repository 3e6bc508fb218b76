"""Rows that status and views show of shards: what is here, the states of its samples, and the journey of one shard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from ...shards.driver import ShardDriver
from ...shards.sample_states import NAMES, QUARANTINED, part, reason
from ...shards.shard import SampleNumbers, Shard
from ...shards.visits import VisitHistory
from ...training.pool import SamplePool
from ...wire.errors import UsageError
from ...wire.status import ShardRow, VisitRow
from ...wire.types import Seconds
from .shard_training import ShardTraining

FRESH: Seconds = 4.0  # rows are computed again after this time


class ShardRows:
    """The rows of one node. `shipped` has the reason for which each shard was last sent."""

    def __init__(
        self, work: ShardTraining, shard_driver: ShardDriver, pool: SamplePool, me: str, shipped: Mapping[str, str]
    ) -> None:
        self._shipped = shipped
        self._work = work
        self._shard_driver = shard_driver
        self._pool = pool
        self._me = me
        self._rows: tuple[ShardRow, ...] = ()
        self._until: Seconds = float("-inf")

    def all(self, now: Seconds) -> tuple[ShardRow, ...]:
        """Every shard here, without its journey: those that travel, or this node's part of the data all nodes have."""
        if now >= self._until:
            with self._pool.lock:
                here = [self._row(shard) for shard in self._shard_driver.ids()]
                self._rows = tuple(here or [self._dealt(shard) for shard in self._work.dealt])
            self._until = now + FRESH
        return self._rows

    def one(self, prefix: str, now: Seconds) -> ShardRow:
        """The shard whose id begins with `prefix`, with its journey. UsageError when none or several do."""
        found = [row.id for row in self.all(now) if prefix and row.id.startswith(prefix.lower())]
        if len(found) != 1:
            kind = "several shards begin" if found else "no shard here begins"
            raise UsageError(f"{kind} with {prefix[:40]!r}; `p2pnode shards` lists them")
        row = next(row for row in self.all(now) if row.id == found[0])
        return msgspec.structs.replace(row, journey=journey_of(self._shard_driver.history(row.id)))

    def _row(self, shard: str) -> ShardRow:
        return msgspec.structs.replace(self._shard_driver.row(shard), **self._judged(shard, self._work.places(shard)))

    def _dealt(self, shard: Shard) -> ShardRow:
        places = self._pool.places(shard.indices)
        return ShardRow(
            shard.id, len(shard), len(shard) * self._pool.sample_bytes, self._me, **self._judged(shard.id, places)
        )

    def _judged(self, shard: str, places: SampleNumbers) -> dict[str, Any]:
        """The states and confidence of the samples, and the most important reason to show."""
        states, seen = part(self._pool.scores.states, places), self._pool.scores.confidence.mean(places)
        used = self._pool.states_used(places)
        counts = {name: int((used == code).sum()) for code, name in enumerate(NAMES) if (used == code).any()}
        quarantined = np.flatnonzero(used == QUARANTINED)
        text = self._work.unusable.get(shard) or self._shipped.get(shard, "")
        text = text or (reason(states, int(quarantined[0])) if len(quarantined) else "")
        return {"states": counts, "confidence": None if np.isnan(seen) else seen, "reason": text}


def journey_of(history: VisitHistory) -> tuple[VisitRow, ...]:
    """The visits, oldest first; of those that were summarised, the last of each model."""
    old = () if history.summary is None else history.summary.models
    past = [VisitRow(one.model, one.model, 0, one.before, one.after, one.time) for one in old]
    latest = [VisitRow(v.peer, v.model, v.round, v.before, v.after, v.time) for v in history.visits]
    return (*past, *latest)
