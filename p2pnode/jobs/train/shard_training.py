"""How training uses shards: the rows it trains on, what it does with arriving shards, and the visits it signs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from ...compression.weights import Floats
from ...discovery.services import Services
from ...shards.driver import ShardDriver
from ...shards.route import ShardView
from ...shards.rows import LISTED, Rows, RowSet, listed
from ...shards.sample_states import QUARANTINED, Shares, reason
from ...shards.shard import SampleNumbers, Shard, cut_rows, cut_shards, indices_of, place_id
from ...shards.split import claimed
from ...shards.visits import VisitHistory, latest_by_model, with_visit
from ...training.trainer import Trainer
from ...wire.errors import LocalProblem, UsageError
from ...wire.ids import PeerId
from ..model.own_shards import own_shards, reading
from .options import TrainSetup

VISIT_ROUNDS = 8  # of training on a shard make one visit
VISITS_AT_ONCE = 4  # reported after one round
LARGE_SHARDS = 1024  # into which data of more than LISTED rows are dealt
MIN_SEEN = 0.8  # share of a shard's samples that a visit must have trained on


class ShardTraining:
    """Call `start` before anything else. Methods called heavy run in the compute thread. Implements `ShardUse`."""

    def __init__(self, services: Services, shard_driver: ShardDriver, trainer: Trainer, setup: TrainSetup) -> None:
        self.received_bytes = 0
        self.taught: list[float] = []  # for the latest shards received: the share that the model did not know yet
        self._services = services
        self._shard_driver = shard_driver
        self._trainer = trainer
        self._setup = setup
        self.dealt: list[Shard] = []  # this node's part of the data that every node has
        self._all_dealt: list[Shard] = []
        self._own: dict[str, Shard] = {}  # data that only this node brings, as rows of the model host's data
        self.unusable: dict[str, str] = {}  # shards that are kept and not trained on, with the reason
        self._reported_unusable: set[str] = set()
        self._here: dict[str, None] = {}  # shards whose samples were here when the round began
        self._visit_begun: dict[str, int] = {}  # by shard, the round in which the current visit began
        self._quarantined = 0  # samples, when that was last reported

    @property
    def shards_in_all(self) -> int:
        """How many shards the data set has where every node has it whole; 0 where nobody knows."""
        return len(self._all_dealt)

    # ---- which rows ----

    def rows(self, circle: Iterable[str]) -> Rows:
        """The rows of this node's own samples. Heavy. `circle` names the peers that data of all nodes is dealt to."""
        if not self._setup.options.share_data:
            return self._dealt_rows(circle) if self._setup.rows is None else self._setup.rows
        rows = self._own_rows
        if isinstance(rows, RowSet):
            return rows  # what moved away is a small part of it
        moved = [shard for id, shard in self._own.items() if id not in self._here]
        return np.setdiff1d(rows, indices_of(moved))

    @property
    def _own_rows(self) -> Rows:
        return self._trainer.model_host.rows if self._setup.rows is None else self._setup.rows

    def _bring(self) -> None:
        """Cut this node's own data into shards that may travel; UsageError when it cannot travel. Heavy.

        Of data that must be read for it only a part is offered; this node trains on all of them.
        """
        data = self._trainer.model_host.data
        try:
            for shard, _ in own_shards(data, self._own_rows, self._seed):
                self._own[shard.id] = shard
                self._shard_driver.add_own(shard.id, reading(data, listed(shard.indices)))
        except ValueError as problem:
            raise UsageError(f"--share-data: {problem}; leave it out, and models come to the data") from None

    @property
    def _seed(self) -> int:
        return int(self._trainer.model_host.layout.hash[:8], 16)

    def _dealt_rows(self, circle: Iterable[str]) -> Rows:
        """This node's share of the data that every node has, by rendezvous hashing among those present. Heavy."""
        me, count = self._services.identity.peer_id, self._trainer.model_host.samples
        if self._trainer.model_host.data.is_stream:
            return self._trainer.model_host.rows
        if not self._all_dealt:
            self._all_dealt = self._deal()
        self.dealt = claimed(self._all_dealt, [me, *circle], me)
        pieces = [shard.indices for shard in self.dealt if isinstance(shard.indices, RowSet)]
        if not pieces:
            return indices_of(self.dealt)
        return RowSet(0, count, LARGE_SHARDS, np.sort(np.concatenate([piece.chosen for piece in pieces])))

    def _deal(self) -> list[Shard]:
        """The data set in shards, named by their content where every row is looked at anyway. Heavy."""
        data = self._trainer.model_host.data
        if data.small:
            columns = next(data.pieces(len(data)))
            return cut_shards({name: column.numpy() for name, column in columns.items()}, self._seed)
        whole = f"{data.hash()} {self._seed}"
        if len(data) <= LISTED:
            pieces: list[Rows] = [*cut_rows(len(data), self._seed)]
        else:
            pieces = [RowSet(0, len(data), LARGE_SHARDS, np.array([number])) for number in range(LARGE_SHARDS)]
        return [Shard(place_id(whole, number), piece) for number, piece in enumerate(pieces)]

    # ---- arrivals ----

    async def start(self) -> None:
        """Cut this node's own data into shards if it shares them, and take in what is on disk."""
        if self._setup.options.share_data:
            await self._services.seams.compute(self._bring)
        if self._setup.options.share_data or self._setup.options.reserve:
            self._trainer.pool.balance(self._setup.options.reserve)
        self._trainer.pool.quarantine(self._setup.options.quarantine)
        await self._shard_driver.start()
        self._here = dict.fromkeys(self._shard_driver.ids())
        received = sorted(self._here.keys() - self._own.keys())
        await self._services.seams.compute(lambda: self._receive(received, None))
        self._report_unusable()

    async def take_in(self, weights: Callable[[], Floats], round: int) -> None:
        """Train on the shards that have arrived since the last round, and no longer on those that have gone."""
        before, self._here = self._here, dict.fromkeys(self._shard_driver.ids())
        arrived = [shard for shard in self._here if shard not in before and shard not in self._own]
        gone = [shard for shard in before if shard not in self._here]
        if gone:
            await self._services.seams.compute(lambda: self._trainer.pool.drop(gone))
        if not arrived:
            return
        confidences = await self._services.seams.compute(lambda: self._receive(arrived, weights()))
        self._report_unusable()
        here = set(self._shard_driver.ids())  # some may have gone meanwhile
        for shard, confidence in ((shard, found) for shard, found in confidences.items() if shard in here):
            row = self._shard_driver.row(shard)
            self.received_bytes += row.size_bytes
            self._visit_begun[shard] = round
            known = "" if np.isnan(confidence) else f", confidence {confidence:.2f} before training on it"
            self._services.events.say("received", f"shard {shard[:8]}: {row.samples} samples{known}")
            if not np.isnan(confidence):
                self.taught = [*self.taught[-7:], 1.0 - confidence]

    def _receive(self, shards: list[str], weights: Floats | None) -> dict[str, float]:
        """Take shards into the pool; returns the model's confidence in those it can be trained on. Heavy."""
        usable, shares = {}, {}
        for shard in shards:
            try:
                columns = self._shard_driver.read(shard)
                samples = {name: torch.from_numpy(np.array(column)) for name, column in columns.items()}
                self._trainer.model_host.check_samples(samples)
                shares[shard] = (
                    np.empty(0, np.float32) if weights is None else self._trainer.confidence_in(weights, samples)
                )
                usable[shard] = columns
            except (KeyError, LocalProblem):
                continue
            except ValueError as problem:
                self.unusable[shard] = f"not trained on: {problem}"
        self._trainer.pool.receive(usable)
        return {shard: self._begin_visit(shard, shares[shard]) for shard in usable}

    def _report_unusable(self) -> None:
        for shard in [shard for shard in self.unusable if shard not in self._reported_unusable]:
            self._reported_unusable.add(shard)
            self._services.events.say("shards", f"shard {shard[:8]} is {self.unusable[shard]}", warning=True)

    def _begin_visit(self, shard: str, shares: Shares) -> float:
        """Note the confidence before training as the first of the visit; returns its mean."""
        places = self._trainer.pool.places_of(shard)
        if len(shares) == len(places):
            self._trainer.pool.scores.note(places, shares)
            return float(shares.mean())
        return float("nan")

    # ---- after a round ----

    async def end_round(self, round: int, contributors: Iterable[PeerId] = ()) -> None:
        """Update the states of samples by the round's confidences, and sign some of the visits that are complete.

        `contributors` are other peers whose work came into the merged weights in this round.
        """
        await self._services.seams.compute(lambda: self._trainer.pool.end_round(contributors))
        self._report_quarantined()
        histories = self._complete_visits(round)
        try:
            await self._services.seams.background(lambda: self._store_histories(histories))
        except LocalProblem as problem:
            self._services.events.say("disk", f"visits of shards could not be written: {problem}", warning=True)

    def _store_histories(self, histories: list[VisitHistory]) -> None:
        for history in histories:
            self._shard_driver.set_history(history)

    def _report_quarantined(self) -> None:
        """Report when more than twice as many samples are left out as at the last report, and what that means."""
        pool = self._trainer.pool
        left_out = np.flatnonzero(pool.states_used(np.arange(len(pool))) == QUARANTINED)
        if len(left_out) > 2 * self._quarantined:
            self._quarantined = len(left_out)
            last = reason(pool.scores.states, int(left_out[-1])).removeprefix("quarantined: ")
            text = (
                f"{len(left_out)} of {len(pool)} samples get no weight here: models with work of other peers fail at "
                f"them, so their labels may be wrong (the last: confidence {last}); --quarantine off trains on all"
            )
            self._services.events.say("quarantined", text)

    def _complete_visits(self, round: int) -> list[VisitHistory]:
        """The histories of shards with one more visit, signed, for whoever gets the shards next."""
        identity, scores, now = self._services.identity, self._trainer.pool.scores, self._services.clock.now()
        histories: list[VisitHistory] = []
        for shard in self._shard_driver.ids():
            rounds = round - self._visit_begun.setdefault(shard, round)
            due = rounds >= VISIT_ROUNDS and len(histories) < VISITS_AT_ONCE
            visit = scores.end_visit(self.places(shard), MIN_SEEN) if due else None
            if visit is not None:
                self._visit_begun[shard] = round
                history = self._shard_driver.history(shard)
                histories.append(with_visit(identity, history, identity.peer_id, round, *visit, now))
        return histories

    # ---- looking ----

    def places(self, shard: str) -> SampleNumbers:
        """Where the samples of a shard are in the pool."""
        known = self._own.get(shard)
        pool = self._trainer.pool
        return pool.places_of(shard) if known is None else pool.places(known.indices)

    def counts(self, places: SampleNumbers | None = None) -> NDArray[np.float64] | None:
        """Samples of each label, at all or at some places; None where there are no labels."""
        with self._trainer.pool.lock:
            labels, classes = self._trainer.pool.labels, self._trainer.model_host.classes
        if labels is None or not classes:
            return None
        some = labels if places is None else labels[places]
        return np.bincount(some, minlength=classes)[:classes].astype(np.float64)

    def label_counts(self) -> NDArray[np.float64] | None:
        """Samples of each label, as reported to peers: without those that never leave this node."""
        if not self._setup.stays_home:
            return self.counts()
        with self._trainer.pool.lock:
            received = [self._trainer.pool.places_of(shard) for shard in sorted(self._trainer.pool.received)]
            return self.counts(np.unique(np.concatenate(received))) if received else None

    def view(self, shard: str) -> ShardView:
        """What training knows about a shard, to choose where it goes."""
        with self._trainer.pool.lock:
            places = self.places(shard)
            confidence, counts = self._trainer.pool.scores.confidence.mean(places), self.counts(places)
            quarantined = self._trainer.pool.states_used(places) == QUARANTINED
        visits, size = latest_by_model(self._shard_driver.history(shard)), self._shard_driver.row(shard).size_bytes
        share = float(quarantined.mean()) if len(quarantined) else 0.0
        return ShardView(shard, size, confidence, counts, visits, share)

    def visited(self) -> tuple[list[str], list[str]]:
        """The shards here, apart by whether this node's model has visited them."""
        me, here = self._services.identity.peer_id, self._shard_driver.ids()
        known = {shard for shard in here if me in latest_by_model(self._shard_driver.history(shard))}
        return [shard for shard in here if shard in known], [shard for shard in here if shard not in known]
