"""The samples a trainer draws from: rows of the bench's data, and what came in shards from others.

A received sample that lies in the bench's data as well is that row and costs no memory; others are kept beside. A
sample that came twice is there once. Places number the samples of the pool; row numbers beyond the bench's data are
those kept beside.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..shards.confidence import Arrays, Keys, Scores, restored
from ..shards.datum import StateRules, age_of_round, chances, scored
from ..shards.shard import Columns, sample_ids
from .batches import Batches, DrawnBatches, base_chances, sampling, seed_from
from .host import ModelHost

Indices = NDArray[np.int64]
BESIDE = np.uint64(1 << 63)  # marks the keys of samples that are no rows of the bench
MIX_ROUNDS = 8  # after so many, what models made of the samples counts in how often they are drawn


@dataclass(frozen=True)
class Judged:
    """What a pool knew of its samples when it was saved."""

    scores: Scores = field(default_factory=lambda: Scores(0))
    keys: Keys = field(default_factory=lambda: np.empty(0, np.uint64))
    chances: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    mixes: int = 0
    rounds: int = 0
    age: float = 0.0


class Pool:
    """One trainer's samples, what models made of them, and in what order they come."""

    def __init__(self, model_host: ModelHost, seed: int) -> None:
        self._balanced = False  # draw every label alike from the beginning; else from the first received shard on
        self._thrifty = False  # draw what models are sure of less often
        self.lock = threading.RLock()  # for who looks while training goes on: what is there may change between rounds
        self.scores = Scores(0)
        self.rules = StateRules()
        self._model_host = model_host
        self._seed = seed
        self._own: Indices = np.empty(0, np.int64)
        self._received: dict[str, Indices] = {}  # rows of each shard's samples
        self._beside: dict[bytes, int] = {}  # rows of samples by their hash
        self._columns: dict[str, Tensor] = {name: column[:0] for name, column in model_host.data.items()}
        self._keys: Keys = np.empty(0, np.uint64)
        self._rows = torch.empty(0, dtype=torch.int64)
        self._order: Indices = np.empty(0, np.int64)  # places by row
        self.labels: NDArray[np.int64] | None = None  # of each place; None where samples have none
        self._batches: Batches | DrawnBatches | None = None
        self._drawn_by: NDArray[np.float32] = np.empty(0, np.float32)  # chances of the samples, when last mixed
        self._mixes = 0
        self._rounds = 0
        self._age = 0.0  # of the merged weights, as datum.age_of_round counts it
        self._drawn = 0  # samples, in this round

    # ---- what is in it ----

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def received(self) -> frozenset[str]:
        """The shards of others that are in it."""
        return frozenset(self._received)

    @property
    def own(self) -> Indices:
        """The rows of the bench's data that are this node's own."""
        return self._own

    @property
    def sample_bytes(self) -> int:
        """What one sample is in memory."""
        return sum(column[:1].nelement() * column.element_size() for column in self._model_host.data.values())

    def use(self, rows: NDArray[np.int64]) -> None:
        """From now on these rows of the bench's data are this node's own; the same as before change nothing."""
        if not np.array_equal(rows, self._own) or self._batches is None:
            with self.lock:
                self._own = np.array(rows, np.int64)
                self._settle()

    def balance(self, thrifty: bool = False) -> None:
        """Draw every label alike, leave out what is quarantined and, where that is wanted, spare the reserve."""
        self._balanced, self._thrifty = True, thrifty
        self._mix()

    def receive(self, shards: Mapping[str, Columns]) -> None:
        """Take in shards' samples, which have the columns of the bench's data."""
        with self.lock:
            self._receive(shards)

    def _receive(self, shards: Mapping[str, Columns]) -> None:
        fresh: dict[bytes, tuple[str, int]] = {}  # what is to be kept beside: in which shard, at which place
        ids = {shard: sample_ids(columns) for shard, columns in shards.items()}
        for shard, found in ids.items():
            for place, id in enumerate(found):
                if id not in self._model_host.row_of and id not in self._beside:
                    fresh.setdefault(id, (shard, place))
        for id in fresh:
            self._beside[id] = self._model_host.samples + len(self._beside)
        for name, column in self._columns.items():
            more = [
                torch.from_numpy(np.array(shards[shard][name][place : place + 1])) for shard, place in fresh.values()
            ]
            self._columns[name] = torch.cat([column, *more])
        for shard, found in ids.items():
            self._received[shard] = np.array([self._row(id) for id in found], np.int64)
        self._settle()

    def drop(self, shards: Iterable[str]) -> None:
        """They are no longer here. What was kept beside for them stays until the next start."""
        with self.lock:
            gone = self._received.keys() & set(shards)
            for shard in gone:
                del self._received[shard]
            if gone:
                self._settle()

    def _row(self, id: bytes) -> int:
        found = self._model_host.row_of.get(id)
        return self._beside[id] if found is None else found

    def _settle(self) -> None:
        """The samples in an order that does not depend on that of arrival: rows of the bench, then shards by name."""
        shards = [self._received[shard] for shard in sorted(self._received)]
        every = np.concatenate([self._own, *shards])
        inside = every >= self._model_host.samples
        _, first = np.unique(every[inside], return_index=True)
        beside = every[inside][np.sort(first)]
        own = self._own if not shards else np.unique(every[~inside])
        rows = np.concatenate([own, beside])
        names = {row: id for id, row in self._beside.items()} if len(beside) else {}
        marks = [int.from_bytes(names[int(row)][:8], "big") for row in beside]
        keys = np.concatenate([own.astype(np.uint64), np.array(marks, np.uint64) | BESIDE])
        self.scores = self.scores.carried(self._keys, keys)
        self._rows, self._keys = torch.from_numpy(rows), keys
        self._order, self.labels = np.argsort(rows, kind="stable"), self._labels()
        self._mix()

    def places(self, rows: NDArray[np.int64]) -> Indices:
        """Where some rows are in the pool; those that are not in it are left out."""
        if not len(self):
            return np.empty(0, np.int64)
        ascending: Indices = self._rows.numpy()[self._order]
        at = np.minimum(np.searchsorted(ascending, rows), len(self) - 1)
        found: Indices = self._order[at[ascending[at] == rows]]
        return found

    def places_of(self, shard: str) -> Indices:
        """Of a received shard's samples."""
        return self.places(self._received.get(shard, np.empty(0, np.int64)))

    def _labels(self) -> NDArray[np.int64] | None:
        near, far = self._model_host.labels, self._model_host.task.labels(self._columns)
        if near is None or far is None:
            return None
        found: NDArray[np.int64] = np.concatenate([near, far.numpy().astype(np.int64)])[self._rows.numpy()]
        return found

    # ---- what comes next ----

    def _mix(self) -> None:
        """Begin anew with the order: equal chances while all samples are own ones, else by label, state and origin."""
        if not len(self):
            self._batches = None
        elif not self._received and not self._balanced:
            self._batches = Batches(torch.arange(len(self)), self._model_host.task.batch_size, self._seed)
        else:
            self._mixes += 1
            self._drawn_by = self._chances()
            self._draw()

    def _draw(self) -> None:
        base = base_chances(self.labels, ~np.isin(self._rows.numpy(), self._own))
        how, seed = sampling(base, self._drawn_by), seed_from(self._seed, "mix", self._mixes)
        self._batches = DrawnBatches(torch.arange(len(self)), how, self._model_host.task.batch_size, seed)

    def _chances(self) -> NDArray[np.float32]:
        """How likely each sample is drawn by its state. When all are masked none is."""
        found = chances(self.scores.states)
        found = found if self._thrifty else (found > 0).astype(np.float32)
        return found if found.any() else np.ones(len(found), np.float32)

    def next(self) -> tuple[Tensor, Tensor | None]:
        """The places of the next batch, and the weights of their losses where these differ."""
        assert self._batches is not None
        drawn = self._batches.next()
        return drawn if isinstance(drawn, tuple) else (drawn, None)

    def peek(self) -> Tensor:
        """The places that `next` will give."""
        assert self._batches is not None
        places, _ = self.next()
        self._batches.position -= 1
        return places

    def first(self, count: int) -> list[Tensor]:
        """The places of up to `count` batches in their own order."""
        return [] if self._batches is None else self._batches.first(count)

    def batch(self, places: Tensor) -> dict[str, Tensor]:
        """The samples at some places, on the device."""
        rows, near = self._rows[places], self._model_host.samples
        if not self._beside or int(rows.max()) < near:
            return self._model_host.batch(rows)
        far = rows >= near
        found: dict[str, Tensor] = {}
        for name, column in self._model_host.data.items():
            mixed = column[torch.where(far, 0, rows)]
            mixed[far] = self._columns[name][rows[far] - near]
            found[name] = mixed.to(self._model_host.device)
        return found

    @property
    def batch_size(self) -> int:
        return 0 if self._batches is None else self._batches.size

    # ---- what models make of it ----

    def note(self, places: Indices, shares: NDArray[np.float32]) -> None:
        """What batches in a row said of their samples."""
        self.scores.note(places, shares)
        self._drawn += len(places)

    def hear(self, model: str, rows: Indices, shares: NDArray[np.float32]) -> None:
        """What another model, which had not trained on them, made of some rows."""
        with self.lock:
            there = np.isin(rows, self._rows.numpy())
            places, seen = self.places(rows[there]), shares[there]
            if len(places):
                self.scores.states = scored(self.scores.states, model, places, seen, float(np.median(seen)), self.rules)

    def end_round(self) -> None:
        """A round is over. Its first words on samples count as those of a model that has not trained on them since the
        merge, and merged weights of another age as another model; now and then they count in the mixture."""
        with self.lock:
            self._age += age_of_round(self._drawn, len(self))
            self._drawn = 0
            self.scores.end_round(f"merged {int(self._age)}", self.rules)
            self._rounds += 1
            if isinstance(self._batches, DrawnBatches) and self._rounds % MIX_ROUNDS == 0:
                self._mix()

    # ---- over restarts ----

    @property
    def position(self) -> int:
        return 0 if self._batches is None else self._batches.position

    def state(self) -> Arrays:
        """What `read_state` reads; the samples and the position are kept elsewhere."""
        counts = np.array([self._mixes, self._rounds], np.int64)
        scores = {f"scores/{name}": array for name, array in self.scores.arrays().items()}
        more: Arrays = {"age": np.array(self._age), "chances": self._drawn_by}
        return {"counts": counts, "keys": self._keys, **more, **scores}

    def restore(self, judged: Judged, position: int) -> None:
        """Go on from there, as far as the samples are still the same."""
        self.scores = judged.scores.carried(judged.keys, self._keys)
        self._mixes, self._rounds, self._age = judged.mixes, judged.rounds, judged.age
        if self._batches is not None:
            if isinstance(self._batches, DrawnBatches) and len(judged.chances) == len(self):
                self._drawn_by = judged.chances
                self._draw()
            self._batches.position = position


def read_state(arrays: Mapping[str, NDArray[Any]]) -> Judged:
    """A pool's saved state; ValueError when it is damaged."""
    begin = "scores/"
    scores = restored({name.removeprefix(begin): arrays[name] for name in arrays if name.startswith(begin)})
    try:
        mixes, rounds = (int(count) for count in arrays["counts"])
        age = float(arrays["age"])
        keys, chances = arrays["keys"].astype(np.uint64), arrays["chances"].astype(np.float32)
    except KeyError as missing:
        raise ValueError(f"of the pool, {missing} is missing") from None
    if len(keys) != len(scores):
        raise ValueError("the confidences belong to other samples")
    return Judged(scores, keys, chances, mixes, rounds, age)
