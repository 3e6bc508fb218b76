"""The samples that a trainer draws from: rows of the host's data, and samples received in shards.

A received sample that is also in the host's data is that row and takes no memory; others are extra samples. A sample
that was received twice is there once. Places number the samples of the pool; row numbers from the end of the host's
data on are extra samples. Of more rows than can be listed (shards.rows.LISTED) the pool holds a working set, and
moves on to the next one after a pass through it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config.options import Quarantine
from ..shards.confidence import Keys, Scores, restored
from ..shards.rows import Rows, RowSet, same_rows
from ..shards.sample_states import EVIDENCE_PEERS, StateRules, age_of_round, chances, drawn_states, scored
from ..shards.shard import Columns, SampleNumbers, sample_ids
from ..storage.checkpoints import Arrays
from ..wire.bounded import put_bounded
from .batches import Batches, DrawnBatches, base_chances, sampling, seed_from
from .host import ModelHost
from .read_ahead import Found, ReadAhead

EXTRA = np.uint64(1 << 63)  # marks the keys of extra samples
MAX_CONTRIBUTORS = 64
MIX_ROUNDS = 8  # rounds after which the samples' states change how often they are drawn


@dataclass(frozen=True)
class PoolState:
    """What a pool knew about its samples when it was saved."""

    scores: Scores = field(default_factory=lambda: Scores(0))
    keys: Keys = field(default_factory=lambda: np.empty(0, np.uint64))
    chances: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    mixes: int = 0
    rounds: int = 0
    age: float = 0.0
    turn: int = 0
    batches_of_turn: int = 0
    passes: int = 0


class SamplePool:
    """One trainer's samples, their scores, and the order in which they are drawn."""

    def __init__(self, model_host: ModelHost, seed: int) -> None:
        self._balanced = False  # draw all labels alike from the start, not only after the first received shard
        self._thrifty = False  # draw samples that models are sure of less often
        self._quarantine: Quarantine = "auto"
        self.lock = threading.RLock()  # for readers in other threads; the content changes between rounds
        self.scores = Scores(0)
        self.rules = StateRules()
        self._model_host = model_host
        self._seed = seed
        self._data = model_host.data.reader(seed)
        self._ahead: ReadAhead | None = None
        self._source: Rows = np.empty(0, np.int64)
        self._turn = 0  # working sets of the source that were trained on before
        self._batches_of_turn = 0  # drawn from this one
        self._own: SampleNumbers = np.empty(0, np.int64)  # the source, or its working set
        self._received: dict[str, SampleNumbers] = {}  # rows of each shard's samples
        self._extra: dict[bytes, int] = {}  # rows of extra samples by their hash
        self._extra_columns: dict[str, Tensor] = dict(model_host.data.empty)
        self._keys: Keys = np.empty(0, np.uint64)
        self._rows = torch.empty(0, dtype=torch.int64)
        self._order: SampleNumbers = np.empty(0, np.int64)  # places by row
        self.labels: SampleNumbers | None = None  # of each place; None where samples have no labels
        self._batches: Batches | DrawnBatches | None = None
        self._drawn_by: NDArray[np.float32] = np.empty(0, np.float32)  # the samples' chances in the latest mix
        self._mixes = 0
        self._rounds = 0
        self._age = 0.0  # of the merged weights, as sample_states.age_of_round counts
        self._drawn = 0  # samples drawn in this round
        self._contributed: dict[str, float] = {}  # by peer, the age of the weights when its work last came in

    # ---- the content ----

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def received(self) -> frozenset[str]:
        """The shards of others that are in the pool."""
        return frozenset(self._received)

    @property
    def own(self) -> SampleNumbers:
        """The rows of the host's data that are this node's own."""
        return self._own

    @property
    def sample_bytes(self) -> int:
        """The memory that one sample takes."""
        return self._model_host.data.sample_bytes

    @property
    def available(self) -> int:
        """The number of samples in the pool and in later working sets; of a stream those that were read."""
        if self._data.is_stream:
            return self._data.available if len(self) else 0
        return len(self._source) - len(self._own) + len(self)

    @property
    def problems(self) -> dict[int, str]:
        """Why samples could not be read, the oldest first."""
        return self._data.problems

    def read_ahead(self) -> None:
        """Lets a thread read the next batch from now on, where that takes a while."""
        if not self._data.in_memory and not self._data.is_stream:
            self._ahead = ReadAhead(self._data)

    def use(self, rows: Rows) -> None:
        """Makes these rows of the host's data this node's own. Does nothing when they are the same as before.

        Where there are too many to list, a working set that has been gone through is replaced by the next one.
        """
        moves_on = isinstance(rows, RowSet) and self._gone_through
        if not moves_on and same_rows(rows, self._source) and self._batches is not None:
            return
        with self.lock:
            self._source, self._turn, self._batches_of_turn = rows, self._turn + moves_on, 0
            self._list_rows()
            self._settle()

    def _list_rows(self) -> None:
        source = self._source
        listed = source.working_set(self._seed, self._turn) if isinstance(source, RowSet) else source
        self._own = np.array(listed, np.int64)

    @property
    def _gone_through(self) -> bool:
        """Whether as many samples were drawn from this working set as it has, as far as they fill batches."""
        return self._batches is not None and self._batches_of_turn >= len(self) // self._batches.size

    def balance(self, thrifty: bool = False) -> None:
        """Draws all labels alike; if `thrifty`, samples in reserve less often."""
        self._balanced, self._thrifty = True, thrifty
        self._mix()

    def quarantine(self, when: Quarantine) -> None:
        """Sets when quarantined samples are left out (config.options.Quarantine)."""
        self._quarantine = when
        self._mix()

    def receive(self, shards: Mapping[str, Columns]) -> None:
        """Adds the samples of shards, which have the columns of the host's data."""
        with self.lock:
            self._receive(shards)

    def _receive(self, shards: Mapping[str, Columns]) -> None:
        fresh: dict[bytes, tuple[str, int]] = {}  # new extra samples: in which shard, at which place
        ids = {shard: sample_ids(columns) for shard, columns in shards.items()}
        for shard, found in ids.items():
            for place, id in enumerate(found):
                if id not in self._model_host.row_of and id not in self._extra:
                    fresh.setdefault(id, (shard, place))
        for id in fresh:
            self._extra[id] = self._model_host.samples + len(self._extra)
        for name, column in self._extra_columns.items():
            more = [
                torch.from_numpy(np.array(shards[shard][name][place : place + 1])) for shard, place in fresh.values()
            ]
            self._extra_columns[name] = torch.cat([column, *more])
        for shard, found in ids.items():
            self._received[shard] = np.array([self._row(id) for id in found], np.int64)
        self._settle()

    def drop(self, shards: Iterable[str]) -> None:
        """Removes shards. Their extra samples stay in memory until the next start."""
        with self.lock:
            gone = self._received.keys() & set(shards)
            for shard in gone:
                del self._received[shard]
            if gone:
                self._settle()

    def _row(self, id: bytes) -> int:
        found = self._model_host.row_of.get(id)
        return self._extra[id] if found is None else found

    def _settle(self) -> None:
        """Orders the samples independently of their arrival: rows of the host, then extra samples by shard name."""
        shards = [self._received[shard] for shard in sorted(self._received)]
        every = np.concatenate([self._own, *shards])
        is_extra = every >= self._model_host.samples
        _, first = np.unique(every[is_extra], return_index=True)
        extra = every[is_extra][np.sort(first)]
        own = self._own if not shards else np.unique(every[~is_extra])
        rows = np.concatenate([own, extra])
        names = {row: id for id, row in self._extra.items()} if len(extra) else {}
        marks = [int.from_bytes(names[int(row)][:8], "big") for row in extra]
        keys = np.concatenate([own.astype(np.uint64), np.array(marks, np.uint64) | EXTRA])
        self.scores = self.scores.carried(self._keys, keys)
        self._rows, self._keys = torch.from_numpy(rows), keys
        self._order, self.labels = np.argsort(rows, kind="stable"), self._labels()
        self._mix()

    def places(self, rows: Rows) -> SampleNumbers:
        """The places of some rows; rows that are not in the pool are left out."""
        if not len(self):
            return np.empty(0, np.int64)
        if isinstance(rows, RowSet):
            return np.flatnonzero(rows.holds(self._rows.numpy()))
        ascending: SampleNumbers = self._rows.numpy()[self._order]
        at = np.minimum(np.searchsorted(ascending, rows), len(self) - 1)
        found: SampleNumbers = self._order[at[ascending[at] == rows]]
        return found

    def places_of(self, shard: str) -> SampleNumbers:
        """The places of a received shard's samples."""
        return self.places(self._received.get(shard, np.empty(0, np.int64)))

    def _labels(self) -> SampleNumbers | None:
        own, extra = self._model_host.labels, self._model_host.task.labels(self._extra_columns)
        if own is None or extra is None:
            return None
        rows, end = self._rows.numpy(), self._model_host.samples
        is_extra = rows >= end
        further = extra.numpy().astype(np.int64)[rows[is_extra] - end]
        found: SampleNumbers = np.concatenate([own[rows[~is_extra]], further])
        return found

    # ---- drawing ----

    def _mix(self) -> None:
        """Starts a new order: equal chances while all samples are own ones, else by label, state and origin."""
        if not len(self):
            self._batches = None
        elif not self._draws:
            self._drawn_by = np.empty(0, np.float32)
            self._batches = Batches(torch.arange(len(self)), self._model_host.task.batch_size, self._seed)
        else:
            self._mixes += 1
            self._drawn_by = self._chances()
            self._draw()

    def _draw(self) -> None:
        foreign = ~np.isin(self._rows.numpy(), self._own)
        base = base_chances(self.labels, foreign) if self._by_label else np.ones(len(self))
        how, seed = sampling(base, self._drawn_by), seed_from(self._seed, "mix", self._mixes)
        self._batches = DrawnBatches(torch.arange(len(self)), how, self._model_host.task.batch_size, seed)

    def _chances(self) -> NDArray[np.float32]:
        """The chance of each sample by its state; all ones when every sample is masked."""
        states = self.scores.states
        if self._quarantine == "off":
            states = replace(states, quarantined=np.zeros_like(states.quarantined))
        found = chances(states)
        found = found if self._thrifty else (found > 0).astype(np.float32)
        return found if found.any() else np.ones(len(found), np.float32)

    @property
    def _draws(self) -> bool:
        """Whether samples are drawn by chances; else each comes once in a pass."""
        return self._by_label or (self._quarantine == "on" and bool(self.scores.states.quarantined.any()))

    @property
    def _by_label(self) -> bool:
        """Whether labels are drawn alike."""
        return bool(self._received) or self._balanced

    def states_used(self, places: SampleNumbers) -> NDArray[np.uint8]:
        """The state in which each sample is drawn now: views show what training does, not what rules would allow."""
        if isinstance(self._batches, DrawnBatches):
            return drawn_states(self._drawn_by[places])
        return np.zeros(len(places), np.uint8)

    def next(self) -> tuple[Tensor, Tensor | None]:
        """The places of the next batch, and the weights of their losses (None: equal weights)."""
        self._batches_of_turn += 1
        return self._next()

    def _next(self) -> tuple[Tensor, Tensor | None]:
        assert self._batches is not None
        drawn = self._batches.next()
        return drawn if isinstance(drawn, tuple) else (drawn, None)

    def peek(self) -> Tensor:
        """The places that `next` will return."""
        assert self._batches is not None
        places, _ = self._next()
        self._batches.position -= 1
        return places

    def first(self, count: int) -> list[Tensor]:
        """The places of up to `count` batches, in the order of the pool."""
        return [] if self._batches is None else self._batches.first(count)

    def batch(self, places: Tensor) -> dict[str, Tensor]:
        """The samples at some places, on the device, without those that cannot be read; of a stream recent ones."""
        return self._read(self._rows[places], self._data.again)[0]

    def readable(self, places: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        """The samples at some places, on the device; and which of the places could be read, unless all could.

        Call it with what `next` returned: where reading takes a while, the batch after that is then read ahead.
        """
        if self._ahead is None:
            return self._read(self._rows[places], self._data.read)
        found = self._read(self._rows[places], self._ahead.read)
        following = self._rows[self.peek()]
        if not self._extra or int(following.max()) < self._model_host.samples:
            self._ahead.expect(following)
        return found

    def _read(self, rows: Tensor, read: Callable[[Tensor], Found]) -> Found:
        end, host = self._model_host.samples, self._model_host
        if not self._extra or int(rows.max()) < end:
            found, kept = read(rows)
            return host.on_device(found), kept
        is_extra = rows >= end
        own = torch.nonzero(~is_extra).flatten()
        found, kept = read(rows[own])
        own = own if kept is None else own[kept]
        there = torch.sort(torch.cat([own, torch.nonzero(is_extra).flatten()])).values
        mixed: dict[str, Tensor] = {}
        for name, column in found.items():
            mixed[name] = column.new_empty((len(there), *column.shape[1:]))
            mixed[name][~is_extra[there]] = column
            mixed[name][is_extra[there]] = self._extra_columns[name][rows[is_extra] - end]
        return host.on_device(mixed), None if kept is None else there

    def row_numbers(self, places: Tensor) -> Tensor:
        """The rows at some places."""
        return self._rows[places]

    @property
    def batch_size(self) -> int:
        return 0 if self._batches is None else self._batches.size

    # ---- the samples' scores ----

    def note(self, places: SampleNumbers, shares: NDArray[np.float32]) -> None:
        """Takes the confidences of the samples in consecutive batches."""
        self.scores.note(places, shares)
        self._drawn += len(places)

    def hear(self, model: str, rows: SampleNumbers, shares: NDArray[np.float32]) -> None:
        """Takes the confidences that another model, which has not trained on these rows, has in them."""
        with self.lock:
            there = np.isin(rows, self._rows.numpy())
            places, seen = self.places(rows[there]), shares[there]
            if len(places):
                self.scores.states = scored(self.scores.states, model, places, seen, float(np.median(seen)), self.rules)

    def end_round(self, contributors: Iterable[str] = ()) -> None:
        """Ends a round, in which work of `contributors`, other peers, came into the merged weights.

        The first confidence of a sample in a round counts as that of a model that has not trained on it since the
        merge, and merged weights of another age count as another model. Its failures count as evidence against a
        sample only where it holds new work of EVIDENCE_PEERS others: a node alone would leave out what is hard to
        learn. Every MIX_ROUNDS rounds the samples are mixed anew by their states.
        """
        with self.lock:
            self._age += age_of_round(self._drawn, len(self))
            self._drawn = 0
            for peer in contributors:
                put_bounded(self._contributed, peer, self._age, MAX_CONTRIBUTORS)
            new = sum(self._age - age <= 1.0 for age in self._contributed.values())
            self.scores.end_round(f"merged {int(self._age)}", self.rules, evidence=new >= EVIDENCE_PEERS)
            self._rounds += 1
            if self._rounds % MIX_ROUNDS == 0 and (self._draws or len(self._drawn_by)):
                self._mix()

    # ---- saving ----

    @property
    def position(self) -> int:
        return 0 if self._batches is None else self._batches.position

    def state(self) -> Arrays:
        """What `read_pool_state` reads. The samples and the position are saved elsewhere."""
        turn = (self._turn, self._batches_of_turn)
        counts = np.array([self._mixes, self._rounds, *turn, self._data.passes], np.int64)
        scores = {f"scores/{name}": array for name, array in self.scores.arrays().items()}
        more: Arrays = {"age": np.array(self._age), "chances": self._drawn_by}
        return {"counts": counts, "keys": self._keys, **more, **scores}

    def restore(self, saved: PoolState, position: int) -> None:
        """Continues from a saved state, as far as the samples are still the same."""
        if isinstance(self._source, RowSet) and saved.turn != self._turn:
            self._turn = saved.turn
            self._list_rows()
            self._settle()
        self._batches_of_turn, self._data.passes = saved.batches_of_turn, saved.passes
        self.scores = saved.scores.carried(saved.keys, self._keys)
        self._mixes, self._rounds, self._age = saved.mixes, saved.rounds, saved.age
        if self._batches is not None:
            if self._draws and len(saved.chances) == len(self):
                self._drawn_by = saved.chances
                self._draw()
            self._batches.position = position


def read_pool_state(arrays: Mapping[str, NDArray[Any]]) -> PoolState:
    """A pool's saved state; ValueError when it is damaged."""
    begin = "scores/"
    scores = restored({name.removeprefix(begin): arrays[name] for name in arrays if name.startswith(begin)})
    try:
        mixes, rounds, turn, batches_of_turn, passes = (int(count) for count in arrays["counts"])
        age = float(arrays["age"])
        keys, chances = arrays["keys"].astype(np.uint64), arrays["chances"].astype(np.float32)
    except KeyError as missing:
        raise ValueError(f"the pool's {missing} is missing") from None
    if len(keys) != len(scores):
        raise ValueError("the confidences belong to other samples")
    return PoolState(scores, keys, chances, mixes, rounds, age, turn, batches_of_turn, passes)
