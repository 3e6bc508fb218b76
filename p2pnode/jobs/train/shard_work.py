"""A node's shards as its training sees them: which rows they are, what models make of them, and their visits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from ...compression.weights import Floats
from ...discovery.services import Services
from ...shards.confidence import Shares
from ...shards.datum import reason
from ...shards.driver import ShardDriver
from ...shards.route import ShardView
from ...shards.samples import MAX_SHARD_BYTES, encode_samples
from ...shards.shard import SHARD_SAMPLES, SampleNumbers, Shard, cut_shards, indices_of
from ...shards.split import claimed
from ...shards.visits import VisitHistory, latest_by_model, with_visit
from ...training.trainer import Trainer
from ...wire.errors import LocalProblem, UsageError
from .options import Terms

VISIT_ROUNDS = 8  # of training on a shard before that is told as a visit
VISITS_AT_ONCE = 4
LEAST_SEEN = 0.8  # of a shard's samples, for a visit


class ShardTraining:
    """Contract: `start` before anything else. What is called `heavy` runs in the compute thread."""

    def __init__(self, services: Services, shard_driver: ShardDriver, trainer: Trainer, terms: Terms) -> None:
        self.received_bytes = 0
        self.taught: list[float] = []  # of shards received lately: what our model did not know of them
        self.shipped: dict[str, str] = {}  # why a shard was last sent
        self._services = services
        self._shard_driver = shard_driver
        self._trainer = trainer
        self._terms = terms
        self.dealt: list[Shard] = []  # to this node, of what every node can make
        self._dealt: list[Shard] = []  # to all
        self._own: dict[str, Shard] = {}  # what only this node brings; its rows are the bench's
        self._arrived: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self.unusable: dict[str, str] = {}  # shards that are kept and not trained on, and why
        self._told_unusable: set[str] = set()
        self._here: set[str] = set()  # shards whose samples are here, as the round began
        self._since: dict[str, int] = {}  # the round in which a stay began
        self._masked = 0  # samples left out, when that was last told
        shard_driver.on_arrival(lambda shard: self._arrived.__setitem__(shard, None))
        shard_driver.on_gone(lambda shard: self._gone.__setitem__(shard, None))

    # ---- which rows ----

    def rows(self, circle: Iterable[str]) -> NDArray[np.int64]:
        """Heavy. This node's own samples: its part of what all can make, unless it is fixed, or its own to share."""
        if self._terms.share_data:  # of what it brought, what has not moved away
            return indices_of([shard for id, shard in self._own.items() if id in self._here])
        return self._dealt_rows(circle) if self._terms.rows is None else self._terms.rows

    def _bring(self) -> None:
        """Heavy. From now on this node's samples are shards that may travel; UsageError when they cannot."""
        model_host, pool = self._trainer.model_host, self._trainer.pool
        rows = np.arange(model_host.samples) if self._terms.rows is None else self._terms.rows
        columns = {name: column.numpy()[rows] for name, column in model_host.data.items()}
        for shard in cut_shards(
            columns, self._seed, max(1, min(SHARD_SAMPLES, MAX_SHARD_BYTES // 2 // pool.sample_bytes))
        ):
            self._own[shard.id] = Shard(shard.id, rows[shard.indices])
        try:
            self._encoded(next(iter(self._own.values())))
        except ValueError as problem:
            raise UsageError(f"--share-data: {problem}; leave it out, and models come to the data") from None
        for mine in self._own.values():
            self._shard_driver.add_own(mine.id, lambda mine=mine: self._encoded(mine))  # type: ignore[misc]

    def _encoded(self, shard: Shard) -> bytes:
        data = self._trainer.model_host.data
        return encode_samples({name: column.numpy()[shard.indices] for name, column in data.items()})

    @property
    def _seed(self) -> int:
        return int(self._trainer.model_host.layout.hash[:8], 16)

    def _dealt_rows(self, circle: Iterable[str]) -> NDArray[np.int64]:
        """Heavy. This node's share of what every node can make, by rendezvous hashing among those present."""
        model_host, me = self._trainer.model_host, self._services.identity.peer_id
        if not self._dealt:
            self._dealt = cut_shards({name: column.numpy() for name, column in model_host.data.items()}, self._seed)
        self.dealt = claimed(self._dealt, [me, *circle], me)
        return indices_of(self.dealt)

    # ---- arrivals ----

    async def start(self) -> None:
        """Cut what this node brings into shards, and take in what is on disk."""
        if self._terms.share_data:
            await self._services.seams.compute(self._bring)
        if self._terms.share_data or self._terms.reserve:
            self._trainer.pool.balance(self._terms.reserve)
        await self._shard_driver.start()
        self._here = set(self._shard_driver.ids())
        await self._services.seams.compute(lambda: self._receive(sorted(self._here - set(self._own)), None))
        self._say_unusable()

    async def take_in(self, weights: Callable[[], Floats], round: int) -> None:
        """Train on what has come since, and no longer on what has gone."""
        self._here = set(self._shard_driver.ids())
        arrived, self._arrived = list(self._arrived), {}
        gone, self._gone = list(self._gone), {}
        arrived = [shard for shard in arrived if shard not in self._own and shard not in gone]
        if gone:
            await self._services.seams.compute(lambda: self._trainer.pool.drop(gone))
        if not arrived:
            return
        sure = await self._services.seams.compute(lambda: self._receive(arrived, weights()))
        self._say_unusable()
        here = set(self._shard_driver.ids())  # some may have gone meanwhile
        for shard, confidence in ((shard, sure[shard]) for shard in sure if shard in here):
            row = self._shard_driver.row(shard)
            self.received_bytes += row.size_bytes
            self._since[shard] = round
            told = "" if np.isnan(confidence) else f", confidence {confidence:.2f} before training on it"
            self._services.events.say("received", f"shard {shard[:8]}: {row.samples} samples{told}")
            if not np.isnan(confidence):
                self.taught = [*self.taught[-7:], 1.0 - confidence]

    def _receive(self, shards: list[str], weights: Floats | None) -> dict[str, float]:
        """Heavy. The shards that can be trained on, and how sure the model is of them before it was."""
        usable, sure = {}, {}
        for shard in shards:
            try:
                columns = self._shard_driver.read(shard)
                samples = {name: torch.from_numpy(np.array(column)) for name, column in columns.items()}
                self._trainer.model_host.check_samples(samples)
                sure[shard] = (
                    np.empty(0, np.float32) if weights is None else self._trainer.confidence_in(weights, samples)
                )
                usable[shard] = columns
            except (KeyError, LocalProblem):
                continue
            except ValueError as problem:
                self.unusable[shard] = f"not trained on: {problem}"
        self._trainer.pool.receive(usable)
        return {shard: self._first_word(shard, sure[shard]) for shard in usable}

    def _say_unusable(self) -> None:
        for shard in [shard for shard in self.unusable if shard not in self._told_unusable]:
            self._told_unusable.add(shard)
            self._services.events.say("shards", f"shard {shard[:8]} is {self.unusable[shard]}", warning=True)

    def _first_word(self, shard: str, shares: Shares) -> float:
        """The visitor's confidence before it trains on the shard counts as the first of its stay."""
        places = self._trainer.pool.places_of(shard)
        if len(shares) == len(places):
            self._trainer.pool.scores.note(places, shares)
            return float(shares.mean())
        return float("nan")

    # ---- after a round ----

    async def end_round(self, round: int) -> None:
        """What the round's first words on samples say of them; a few of the stays that are over are told as visits."""
        await self._services.seams.compute(self._trainer.pool.end_round)
        self._tell_masked()
        visits = self._visits(round)
        try:
            await self._services.seams.background(lambda: self._note(visits))
        except LocalProblem as problem:
            self._services.events.say("disk", f"visits of shards could not be noted: {problem}", warning=True)

    def _note(self, visits: list[VisitHistory]) -> None:
        for history in visits:
            self._shard_driver.set_history(history)

    def _tell_masked(self) -> None:
        states = self._trainer.pool.scores.states
        masked = np.flatnonzero(states.quarantined)
        if len(masked) > 2 * self._masked:
            self._masked = len(masked)
            words = f"{len(masked)} samples are left out; the last of them {reason(states, int(masked[-1]))}"
            self._services.events.say("quarantined", words)

    def _visits(self, round: int) -> list[VisitHistory]:
        """Signed, for whoever gets the shards next."""
        identity, scores, now = self._services.identity, self._trainer.pool.scores, self._services.clock.now()
        told: list[VisitHistory] = []
        for shard in self._shard_driver.ids():
            over = round - self._since.setdefault(shard, round) >= VISIT_ROUNDS and len(told) < VISITS_AT_ONCE
            stay = scores.stay(self.places(shard), LEAST_SEEN) if over else None
            if stay is not None:
                self._since[shard] = round
                history = self._shard_driver.history(shard)
                told.append(with_visit(identity, history, identity.peer_id, round, *stay, now))
        return told

    # ---- looking ----

    def places(self, shard: str) -> SampleNumbers:
        """Of a shard's samples in the pool."""
        known = self._own.get(shard)
        pool = self._trainer.pool
        return pool.places_of(shard) if known is None else pool.places(known.indices)

    def counts(self, places: SampleNumbers | None = None) -> NDArray[np.float64] | None:
        """Samples of each label, of all or of some places; None where there are no labels."""
        with self._trainer.pool.lock:
            labels, classes = self._trainer.pool.labels, self._trainer.model_host.classes
        if labels is None or not classes:
            return None
        some = labels if places is None else labels[places]
        return np.bincount(some, minlength=classes)[:classes].astype(np.float64)

    def told_counts(self) -> NDArray[np.float64] | None:
        """What others may know of this node's labels: nothing of samples that stay home."""
        if not self._terms.stays_home:
            return self.counts()
        with self._trainer.pool.lock:
            received = [self._trainer.pool.places_of(shard) for shard in sorted(self._trainer.pool.received)]
            return self.counts(np.unique(np.concatenate(received))) if received else None

    def view(self, shard: str) -> ShardView:
        """What a route is chosen by."""
        with self._trainer.pool.lock:
            places = self.places(shard)
            scores, counts = self._trainer.pool.scores, self.counts(places)
            confidence, masked = scores.confidence.mean(places), scores.states.quarantined[places]
        visits, size = latest_by_model(self._shard_driver.history(shard)), self._shard_driver.row(shard).size_bytes
        return ShardView(shard, size, confidence, counts, visits, float(masked.mean()) if len(masked) else 0.0)

    def visited(self) -> tuple[list[str], list[str]]:
        """The shards here, apart by whether this node has told of a visit."""
        me, here = self._services.identity.peer_id, self._shard_driver.ids()
        known = {shard for shard in here if me in latest_by_model(self._shard_driver.history(shard))}
        return [shard for shard in here if shard in known], [shard for shard in here if shard not in known]
