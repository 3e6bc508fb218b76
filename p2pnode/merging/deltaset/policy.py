"""The delta set: a circle's weights are the sum of signed sparse deltas, equal wherever the same entries are known.

Each round the node's progress goes into a residual e ← β·e + (x − s); its k largest entries, quantised and weighted
by γ/G, become an entry of the node's own log. Partners compare heads and pass on what is missing, whoever wrote it.
Training never waits: the next round starts at A + κ·e, with whatever A is by then and a part of the progress that was
not sent yet; entries that arrive meanwhile are let in between its steps (docs/architecture.md).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

from ...compression.selector import Selector, SelectorSetup
from ...compression.selectors.registry import make_selector
from ...compression.weights import MAX_UNITS, UNIT, Floats, WeightLayout, blocks, from_units
from ...storage.checkpoints import Arrays
from ...wire.bounded import put_bounded
from ...wire.ids import PeerId
from ..capabilities import Capabilities
from ..policy import MergeResult, Pace, Policy, PolicySetup, RoundFacts
from ..readout import move_readout, share_of_latest
from ..schedule import planned_rate
from ..settling import DENSITY as SETTLING_DENSITY
from ..settling import Phase, Settling
from ..snapshots.outline import Snapshot
from .agreement import Agreement, Behind, Doubts
from .attribution import ExcludedAuthors, shares
from .author import SIGNS_RATE, Author, Draft
from .bridges import BridgeDraft, Bridges
from .chains import droppable
from .correction import let_in
from .entry import MAX_DENSITY, UPDATE, Chain, Entry, EntryFacts, decode_entry, delta_of, encode_entry, rules_for
from .exchange import (
    SNAPSHOT_BYTES,
    EntryBatch,
    Underway,
    agreed,
    answer_doubt,
    changes,
    decode_deltas,
    encode_deltas,
    push,
    question,
    reply,
    take_vetoes,
)
from .heads import decode_heads, head_mark
from .heads import merge as merge_heads
from .log import Change
from .options import DeltaSetOptions, read_options
from .own_log import OwnLog
from .pace import pace_for
from .set import DeltaSet, within_range
from .snapshots import SnapshotReader, adopted, first_free_incarnation, units_of
from .state import set_arrays, set_from
from .vetoes import Veto, VetoCount, cuts_at, sign_veto

DROP_EVERY = 16  # merges
LOOK_EVERY = 32  # merges after which A in memory is checked against its entries
MAX_PARTNERS = 64
FAR_OUT = np.float32(0.75 * MAX_UNITS * UNIT)  # a weight where training starts, at most: 48
MOST_KEPT = 1024  # entries of a chain, also of our own while no partner has them


class DeltaSetPolicy(Policy):
    """One node's part in a delta set. It provides all capabilities itself, so that they share one lock."""

    snapshots_in_background = True

    def __init__(self, origin: PolicySetup) -> None:
        options = read_options(origin.settings)
        lineage = bytes.fromhex(origin.lineage)
        density = max(MAX_DENSITY, options.density)  # a run that asks for more may have it
        rules = rules_for(origin.model, lineage, origin.layout, origin.genesis, options.norm_ratio, density)
        if options.bounds or options.admission:
            layers = origin.layers or (len(origin.genesis),)
            rules = replace(
                rules, layers=layers, roots=(origin.founder,) if options.admission and origin.founder else ()
            )
        rules = replace(rules, moderators=origin.moderators)
        self.set = DeltaSet(rules, origin.genesis)
        self.author = Author(origin.identity, options, len(origin.genesis), _selector(options, origin), origin.layers)
        self.agreement = Agreement()
        self._own_log = OwnLog()
        self._behind, self._doubts = Behind(), Doubts()
        self._readout = self.set.weights()
        self._came_in = 0
        self._left_out = ExcludedAuthors()
        self._latest: dict[str, EntryFacts] = {}  # what each author reported of its latest round
        self._merges = 0
        self._planned_steps = origin.planned_steps
        self._partners_heads: dict[PeerId, dict[Chain, int]] = {}
        self._underway = Underway()
        self._earlier_heads: tuple[dict[Chain, int], dict[Chain, int]] = ({}, {})  # at our last two entries
        self._trained = head_mark(self.set.heads)
        self._lock = threading.Lock()  # light and heavy methods run in two threads
        self._past = SnapshotReader(lambda: self.set, self._lock)
        self.bridges = Bridges(lambda: self.set, self._lock, options.bridge)
        self.times_let_in = 0
        self._settling = Settling()
        settles = None if self._planned_steps else self
        self.can = Capabilities(self, self, self, self, self.author.selector, settles)

    # ---- the round ----

    def start(self) -> Floats:
        with self._lock:
            self._trained = head_mark(self.set.heads)
        weights = np.empty_like(self._readout)
        for block, values in self._start_in_blocks():
            weights[block] = values
        return weights

    def _start_in_blocks(self) -> Iterator[tuple[slice, Floats]]:
        """A + κ·e, where this node trains from. κ and e change only when a round is recorded and published.

        Weights near the edge of the grid, where somebody may have pushed them, are clamped: nobody could train there.
        """
        for block, weights in self._weights_in_blocks():
            yield block, np.clip(weights + self.author.kept(block), -FAR_OUT, FAR_OUT)

    def _weights_in_blocks(self) -> Iterator[tuple[slice, Floats]]:
        """A, block by block, so that the lock is never held for long; later blocks contain what arrives meanwhile."""
        for block in blocks(len(self._readout)):
            with self._lock:
                weights = self._left_out.weights(self.set, block)
            yield block, weights

    def pace(self, members: int) -> Pace:
        """What the run's settings say, or what suits a circle of this size."""
        options, steps = self.author.options, self.set.steps
        found = pace_for(steps / max(1, members), members, self.author.steering.even, self._planned_steps)
        at = self._steps_each(members)
        usual = SIGNS_RATE if options.signs else found.rate
        rate = (options.rate or usual) * self._settling.rate(at)
        return Pace(options.interval or found.steps, rate, at)

    def _steps_each(self, members: int = 1) -> int:
        """Local steps that each author has done on average; who left has done a part of them too."""
        return self.set.steps // max(1, members, len({chain.peer for chain in self.set.heads}))

    def settle(self) -> Phase:
        with self._lock:
            return self._settling.request(self._steps_each())

    def correct(self, begun: Floats, now: Floats) -> bool:
        with self._lock:
            mark = head_mark(self.set.heads)
        if mark == self._trained:
            return False
        let_in(begun, now, self._start_in_blocks())
        self.times_let_in += 1
        self._trained = mark
        return True

    def readout(self) -> Floats:
        return self._readout.copy()

    def weights(self) -> Floats:
        """A, without the authors that this node leaves out."""
        with self._lock:
            return self._left_out.weights(self.set)

    def record(self, begun: Floats, after: Floats, facts: RoundFacts) -> Draft:
        with self._lock:
            now, heard = head_mark(self.set.heads), self.author.retention.take()
        density = SETTLING_DENSITY if self._settling.rate(self._steps_each()) < 1.0 else 1.0
        facts = replace(facts, density=density)
        return self.author.draft(self.set, begun, after, facts, (self._trained, now), heard)

    def publish(self, draft: object) -> bytes:
        assert isinstance(draft, Draft | BridgeDraft)
        with self._lock:
            terms = self.author.terms(self.set, self._earlier_heads[1] or self.set.heads)
            if terms.credit < 0 or not self.set.log.judge.admits(self.author.identity.peer_id):
                # the others have to publish first, or to admit us; or they excluded us
                if isinstance(draft, Draft):
                    self.author.keep_draft(draft)
                return b""
            if isinstance(draft, Draft):
                draft = self.author.cut(draft, terms)
            allowed = within_range(self.set.units, draft.delta)
            if allowed is not draft.delta:  # some weights have reached the bound of the grid
                if not len(allowed):
                    return b""
                draft = draft.with_delta(allowed)
            if isinstance(draft, BridgeDraft):
                known = draft.is_known(self.set.log)
                return b"" if known else self._add_own(self.author.sign_bridge(draft, self.set, terms))
            self._earlier_heads = (self._earlier_heads[1], dict(self.set.heads))
            journal = self._add_own(self.author.sign(draft, self.set, terms))
            self.author.published(draft)
            return journal

    def _add_own(self, entry: Entry) -> bytes:
        change = self._follow(self.set.add(entry, judged=True))
        if change.verdict != "added":
            raise ValueError(f"own entry {change.verdict}: {change.reason}")
        return encode_entry(entry)

    def merge(self) -> MergeResult:
        with self._lock:
            came_in, self._came_in = self._came_in, 0
            self._merges += 1
            if self._merges % DROP_EVERY == 0:
                self._drop_old()
        if self._merges % LOOK_EVERY == 1 or self.agreement.doubted:
            self._look()
        at = self._steps_each()
        rate = planned_rate(at, self._planned_steps) * self._settling.rate(at)
        share = share_of_latest(self.author.rounds, rate)
        latest = self._start_in_blocks() if self.author.held_back else self._weights_in_blocks()
        moved = move_readout(self._readout, latest, share)
        summary = f"{came_in} {'entry' if came_in == 1 else 'entries'} of others" if came_in else "nothing new"
        return MergeResult(summary, came_in, moved, self.author.values)

    def _drop_old(self) -> None:
        """Drop entries that snapshots cover; our own stay until two partners have them."""
        heads = self.set.heads
        known = list(self._partners_heads.values())
        until = droppable(heads, heads, self.author.identity.peer_id, known)
        most = {chain: head - MOST_KEPT for chain, head in heads.items() if head > MOST_KEPT}
        self.set.log.drop(merge_heads(until, most))

    def _follow(self, change: Change) -> Change:
        self._left_out.follow(change, self.set)
        self._latest.update({entry.peer: entry.facts for entry in change.added if entry.kind == UPDATE})
        for entry in (entry for entry in change.added if entry.peer != self.author.identity.peer_id):
            if entry.hint:
                self.author.selector.hear(entry.hint)
            if entry.kind == UPDATE:
                self.author.heard(delta_of(entry, self.set.rules), entry.gamma / entry.group * entry.discount)
        return change

    # ---- exchange ----

    def ask(self, partner: PeerId) -> bytes:
        with self._lock:
            return self._encoded(question(self.set, self._doubts.asks()))

    def answer(self, partner: PeerId, request: bytes) -> bytes:
        asked = self._decoded(request)
        with self._lock:
            self.author.applicants.note(partner, self.set.log.judge)
            for change in take_vetoes(self.set, asked):
                self._follow(change)
            if asked.digest == self.set.log.digest():
                self._compare(partner, asked)
                self._note_heads(partner, self.set.heads)
                self._own_log.heard(partner, self._own_chain, self.set.heads)
                return self._encoded(agreed(self.set))
            theirs = decode_heads(asked.heads)
            self._note_heads(partner, theirs)
            self._own_log.heard(partner, self._own_chain, theirs)
            if asked.doubt:
                return self._encoded(answer_doubt(self.set, theirs))
            batch = reply(self.set, theirs, self._underway.take(partner, self.set.heads))
            self._underway.note(partner, batch)
            return self._encoded(batch)

    def _encoded(self, batch: EntryBatch) -> bytes:
        return encode_deltas(msgspec.structs.replace(batch, settle=self._settling.begin))

    def _decoded(self, data: bytes) -> EntryBatch:
        """A partner's batch. What it says of a settling phase is followed."""
        batch = decode_deltas(data)
        with self._lock:
            self._settling.hear(batch.settle, self._steps_each())
        return batch

    def _note_heads(self, partner: PeerId, heads: Mapping[Chain, int]) -> None:
        put_bounded(self._partners_heads, partner, dict(heads), MAX_PARTNERS)

    def take(self, partner: PeerId, answer: bytes) -> bytes:
        received = self._decoded(answer)
        with self._lock:
            self.author.applicants.note(partner, self.set.log.judge)
            unjudged = False
            for change in changes(self.set, received):
                self._came_in += len(self._follow(change).added)
                unjudged |= change.verdict == "unjudged"
                self._doubts.note(change.verdict == "uncounted")
            self._compare(partner, received)
            if not received.heads:
                if received.digest == self.set.log.digest():
                    self._own_log.heard(partner, self._own_chain, self.set.heads)
                return b""
            theirs = decode_heads(received.heads)
            self._own_log.heard(partner, self._own_chain, theirs)
            self._behind.note(received.behind or unjudged, theirs, self.set.heads)
            lacks = push(self.set, theirs, self._underway.take(partner, self.set.heads) | self._fresh(theirs))
            self._underway.note(partner, lacks)
        return b"" if lacks is None else self._encoded(lacks)

    def _fresh(self, theirs: Mapping[Chain, int]) -> set[Chain]:
        """Logs of others of which a partner lacks only what came here within a round: their authors pass it on now."""
        me, known = self.author.identity.peer_id, self._earlier_heads[0]
        return {chain for chain in self.set.heads if chain.peer != me and theirs.get(chain, 0) >= known.get(chain, 0)}

    def _compare(self, partner: PeerId, received: EntryBatch) -> None:
        theirs = received.checksum_of(self.set.log.digest())
        if theirs is not None:
            self.agreement.compare(partner, self.set.checksum, theirs)

    # ---- sharing entries ----

    @property
    def needs_snapshot(self) -> bool:
        """Whether partners have gone on beyond what entries can bring, or our own weights are wrong."""
        return self._behind.due or self.agreement.damaged

    @property
    def snapshot_bytes(self) -> int:
        return SNAPSHOT_BYTES * self.set.rules.size

    def heads(self) -> dict[PeerId, int]:
        heads = self.set.heads
        return {PeerId(chain.peer): heads[chain] for chain in sorted(heads)}

    def latest(self, author: PeerId) -> EntryFacts | None:
        return self._latest.get(author)

    def digest(self) -> bytes:
        return self.set.log.digest()

    def same_as(self, answer: bytes) -> bool:
        return decode_deltas(answer).digest == self.digest()

    def begin_log(self, incarnation: int, lost_entries: bool) -> None:
        self.author.incarnation = max(incarnation, self.author.incarnation + lost_entries)
        self._own_log.begun_anew()

    @property
    def _own_chain(self) -> Chain:
        return Chain(self.author.identity.peer_id, self.author.incarnation)

    def log_confirmed(self, peers: int) -> bool:
        with self._lock:
            return self._own_log.confirmed(self.set.heads.get(self._own_chain, 0), peers)

    def keep(self, begun: Floats, after: Floats) -> None:
        self.author.keep(begun, after)

    # ---- whose work it is ----

    @property
    def left_out(self) -> frozenset[str]:
        return self._left_out.peers

    def authors(self) -> set[str]:
        return {chain.peer for chain in self.set.heads}

    def shares(self, layout: WeightLayout) -> dict[str, dict[str, float]]:
        with self._lock:
            entries = list(self.set.log)
        return shares(entries, self.set.rules, layout)

    def leave_out(self, author: str) -> int:
        with self._lock:
            self._left_out.begin(self.set, author)
            self._readout = self._left_out.weights(self.set)
            return sum(entry.peer == author for entry in self.set.log)

    def veto(self, author: str, active: bool, reason: str) -> VetoCount:
        identity = self.author.identity
        with self._lock:
            before, rules = self.set.log.veto_of(identity.peer_id, author), self.set.rules
            number = 0 if before is None else before.number + 1
            cuts = cuts_at(author, self.set.heads) if active else ()
            kept = before.cuts if before is not None and before.active else ()
            plain = Veto(rules.lineage, rules.model, author, "", number, active, kept or cuts, reason)
            self._follow(self.set.add_veto(sign_veto(identity, plain)))
            self._readout = self._left_out.weights(self.set)
            return self.set.log.count_vetoes(author)

    def vetoes(self) -> dict[str, VetoCount]:
        with self._lock:
            log = self.set.log
            return {author: log.count_vetoes(author) for author in {veto.author for veto in log.vetoes if veto.active}}

    # ---- starting elsewhere, and again ----

    def snapshot(self, at: bytes = b"") -> Snapshot | None:
        """May run while heavy methods do, so that a newcomer does not wait for a round to end."""
        return None if self.agreement.damaged else self._past.snapshot(at)

    def weights_at(self, place: bytes = b"") -> tuple[bytes, Floats] | None:
        found = self.snapshot(place)
        return None if found is None else (found.place, from_units(units_of(found, self.set.rules)))

    def _look(self) -> None:
        """Check whether A in memory is the sum of its entries."""
        found = self._past.checksums()
        if found is not None:
            self.agreement.look(*found)

    def arrive(self) -> None:
        author = self.author
        with self._lock:
            author.incarnation = max(author.incarnation, first_free_incarnation(self.set, author.identity.peer_id))
            self._readout = self._left_out.weights(self.set)

    def adopt(self, snapshot: Snapshot) -> None:
        me = self.author.identity.peer_id
        with self._lock:
            after = adopted(snapshot, self.set, me)
            if not list(self.set.log):
                self._earlier_heads = ({}, {})
                self.author.incarnation = max(self.author.incarnation, first_free_incarnation(after, me))
            self.set = after
            self._behind.caught_up()
            self.agreement.repaired()
            self._readout = self._left_out.weights(self.set)

    def move(self, deltas: DeltaSet, weights: Floats, incarnation: int) -> None:
        with self._lock:
            self.author.move(max(incarnation, first_free_incarnation(deltas, self.author.identity.peer_id)))
            self._own_log.begun_anew()
            self._earlier_heads = ({}, {})
            self._settling = Settling()  # another circle counts its own steps
            self._left_out.move(deltas)
            self.set = deltas
            self._partners_heads.clear()
            self._behind.caught_up()
            self.agreement.repaired()
            self._readout = self._left_out.weights(deltas) if self.left_out else weights

    def _shared(self) -> Arrays:
        with self._lock:
            return set_arrays(self.set)

    def state(self) -> Arrays:
        return {**self._shared(), **self.author.state(), **self._left_out.arrays(), "readout": self.readout()}

    def restore(self, state: Mapping[str, npt.NDArray[Any]], journal: list[bytes]) -> None:
        try:
            readout = state["readout"]
            if readout.shape != self._readout.shape:
                raise ValueError("the state is of another model")
            with self._lock:
                restored = set_from(state, self.set.rules)
                self.author.restore(state)
                self.set, self._readout = restored, readout.astype(np.float32)
                self._left_out.restore(state)
                for data in journal:
                    change = self._follow(self.set.add(decode_entry(data), judged=True))
                    for entry in (entry for entry in change.added if entry.kind == UPDATE):
                        self.author.rounds += 1
                        self.author.residual[delta_of(entry, self.set.rules).indices] = 0  # it was sent since
                self._own_log.resumed(self._own_chain, self.set.heads)
        except (KeyError, IndexError, msgspec.DecodeError) as error:
            raise ValueError(f"the saved state is incomplete: {error}") from None


def _selector(options: DeltaSetOptions, origin: PolicySetup) -> Selector:
    """The selector that the options name, with a seed of this node's own."""
    seed = int.from_bytes(blake3(f"{origin.seed}/{origin.identity.peer_id}".encode()).digest(8))
    layers = origin.layers or (len(origin.genesis),)
    return make_selector(SelectorSetup(layers, seed, options.selector, origin.background))
