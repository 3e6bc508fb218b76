"""A node's shards as its training sees them: which rows they are, what models make of them, and their visits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import LocalProblem
from ..shards.confidence import Shares
from ..shards.datum import reason
from ..shards.route import ShardView
from ..shards.samples import encode_samples
from ..shards.shard import Shard, cut, indices_of
from ..shards.share import claimed
from ..shards.visits import latest_by_model, with_visit
from ..weights import Floats
from .holdings import Holdings
from .parts import Parts
from .pool import Indices
from .trainer import Trainer

VISIT_ROUNDS = 8  # of training on a shard before that is told as a visit
VISITS_AT_ONCE = 4
LEAST_SEEN = 0.8  # of a shard's samples, for a visit


class ShardWork:
    """Contract: `bring` before the holdings start. What is called `heavy` runs in the compute thread."""

    def __init__(self, parts: Parts, holdings: Holdings, trainer: Trainer) -> None:
        self.received_bytes = 0
        self.taught: list[float] = []  # of shards received lately: what our model did not know of them
        self.shipped: dict[str, str] = {}  # why a shard was last sent
        self._parts = parts
        self._holdings = holdings
        self._trainer = trainer
        self.dealt: list[Shard] = []  # to this node, of what every node can make
        self._dealt: list[Shard] = []  # to all
        self._own: dict[str, Shard] = {}  # what only this node brings; its rows are the bench's
        self._arrived: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self.unusable: dict[str, str] = {}  # shards that are kept and not trained on, and why
        self._since: dict[str, int] = {}  # the round in which a stay began
        self._masked = 0  # samples left out, when that was last told
        holdings.on_arrival(lambda shard: self._arrived.__setitem__(shard, None))
        holdings.on_gone(lambda shard: self._gone.__setitem__(shard, None))

    # ---- which rows ----

    def bring(self, rows: NDArray[np.int64]) -> None:
        """Heavy. From now on these rows of the bench's data are shards that may travel."""
        bench = self._trainer.bench
        columns = {name: column.numpy()[rows] for name, column in bench.data.items()}
        for shard in cut(columns, self._seed):
            mine = Shard(shard.id, rows[shard.indices])
            self._own[shard.id] = mine
            self._holdings.add_own(shard.id, lambda mine=mine: self._encoded(mine))  # type: ignore[misc]
        self._trainer.pool.balance()

    def _encoded(self, shard: Shard) -> bytes:
        return encode_samples(
            {name: column.numpy()[shard.indices] for name, column in self._trainer.bench.data.items()}
        )

    @property
    def _seed(self) -> int:
        return int(self._trainer.bench.layout.hash[:8], 16)

    def dealt_rows(self, circle: Iterable[str]) -> NDArray[np.int64]:
        """Heavy. This node's share of what every node can make, by rendezvous hashing among those present."""
        bench, me = self._trainer.bench, self._parts.identity.peer_id
        if not self._dealt:
            self._dealt = cut({name: column.numpy() for name, column in bench.data.items()}, self._seed)
        self.dealt = claimed(self._dealt, [me, *circle], me)
        return indices_of(self.dealt)

    def own_rows(self) -> NDArray[np.int64]:
        """Of the shards brought here that have not moved away."""
        here = set(self._holdings.ids())
        return indices_of([shard for id, shard in self._own.items() if id in here])

    # ---- arrivals ----

    async def start(self) -> None:
        """Take in what is on disk."""
        await self._holdings.start()
        found = [shard for shard in self._holdings.ids() if shard not in self._own]
        await self._parts.world.compute(lambda: self._receive(found, None))

    async def take_in(self, weights: Callable[[], Floats], round: int) -> None:
        """Train on what has come since, and no longer on what has gone."""
        arrived, self._arrived = list(self._arrived), {}
        gone, self._gone = list(self._gone), {}
        arrived = [shard for shard in arrived if shard not in self._own and shard not in gone]
        if gone:
            await self._parts.world.compute(lambda: self._trainer.pool.drop(gone))
        if not arrived:
            return
        sure = await self._parts.world.compute(lambda: self._receive(arrived, weights()))
        for shard, confidence in sure.items():
            row = self._holdings.row(shard)
            self.received_bytes += row.size_bytes
            self._since[shard] = round
            told = "" if np.isnan(confidence) else f", confidence {confidence:.2f} before training on it"
            self._parts.events.say("received", f"shard {shard[:8]}: {row.samples} samples{told}")
            if not np.isnan(confidence):
                self.taught = [*self.taught[-7:], 1.0 - confidence]

    def _receive(self, shards: list[str], weights: Floats | None) -> dict[str, float]:
        """Heavy. The shards that can be trained on, and how sure the model is of them before it was."""
        usable, sure = {}, {}
        for shard in shards:
            try:
                columns = self._holdings.read(shard)
                samples = {name: torch.from_numpy(np.array(column)) for name, column in columns.items()}
                self._trainer.bench.check_samples(samples)
                sure[shard] = np.empty(0, np.float32) if weights is None else self._trainer.sure_of(weights, samples)
                usable[shard] = columns
            except (KeyError, LocalProblem):
                continue
            except ValueError as problem:
                self.unusable[shard] = str(problem)
                self._parts.events.say("shards", f"shard {shard[:8]} is not trained on: {problem}", warning=True)
        self._trainer.pool.receive(usable)
        return {shard: self._first_word(shard, sure[shard]) for shard in usable}

    def _first_word(self, shard: str, shares: Shares) -> float:
        """The visitor's confidence before it trains on the shard counts as the first of its stay."""
        places = self._trainer.pool.places_of(shard)
        if len(shares) == len(places):
            self._trainer.pool.scores.note(places, shares)
            return float(shares.mean())
        return float("nan")

    # ---- after a round ----

    def end_round(self) -> None:
        """Heavy. What the round's first words on samples say of them."""
        pool = self._trainer.pool
        pool.end_round()
        masked = int(pool.scores.states.quarantined.sum())
        if masked > 2 * self._masked:
            place = int(np.flatnonzero(pool.scores.states.quarantined)[-1])
            words = f"{masked} samples are left out; the last of them {reason(pool.scores.states, place)}"
            self._parts.events.say("quarantined", words)
            self._masked = masked

    def tell_visits(self, round: int) -> None:
        """Sign what a few of the stays that are over did to the model, for whoever gets the shard next."""
        identity, scores, told = self._parts.identity, self._trainer.pool.scores, 0
        for shard in self._holdings.ids():
            if told == VISITS_AT_ONCE:
                return
            if round - self._since.setdefault(shard, round) < VISIT_ROUNDS:
                continue
            stay = scores.stay(self.places(shard), LEAST_SEEN)
            if stay is None:
                continue
            self._since[shard] = round
            now, history = self._parts.clock.now(), self._holdings.history(shard)
            self._holdings.set_history(with_visit(identity, history, identity.peer_id, round, *stay, now))
            told += 1

    # ---- looking ----

    def places(self, shard: str) -> Indices:
        """Of a shard's samples in the pool."""
        known = self._own.get(shard)
        pool = self._trainer.pool
        return pool.places_of(shard) if known is None else pool.places(known.indices)

    def counts(self, places: Indices | None = None) -> NDArray[np.float64] | None:
        """Samples of each label, of all or of some places; None where there are no labels."""
        with self._trainer.pool.lock:
            labels, classes = self._trainer.pool.labels, self._trainer.bench.classes
        if labels is None or not classes:
            return None
        some = labels if places is None else labels[places]
        return np.bincount(some, minlength=classes)[:classes].astype(np.float64)

    def view(self, shard: str) -> ShardView:
        """What a route is chosen by."""
        with self._trainer.pool.lock:
            places = self.places(shard)
            scores, counts = self._trainer.pool.scores, self.counts(places)
            confidence, masked = scores.confidence.mean(places), scores.states.quarantined[places]
        visits, size = latest_by_model(self._holdings.history(shard)), self._holdings.row(shard).size_bytes
        return ShardView(shard, size, confidence, counts, visits, float(masked.mean()) if len(masked) else 0.0)

    def visited(self) -> tuple[list[str], list[str]]:
        """The shards here, apart by whether this node has told of a visit."""
        me, here = self._parts.identity.peer_id, self._holdings.ids()
        known = {shard for shard in here if me in latest_by_model(self._holdings.history(shard))}
        return [shard for shard in here if shard in known], [shard for shard in here if shard not in known]
