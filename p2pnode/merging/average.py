"""Pairwise averaging of whole weights: x ← (1−α)·x + α·theirs. A baseline, and suitable for fast links.

Sources: randomised gossip (Boyd et al. 2006), asynchronous as in AD-PSGD (Lian et al. 2018). The difference: both sides
of an exchange move by α·(ŷ_theirs − ŷ_mine), where ŷ are the weights as each sent them, at 32, 16, 8 or 4 bits. With
few bits the difference from a common reference is sent: the middle of what both last sent, the genesis at first, and
again whenever a lost message left them with different references. Quantisation errors never enter a node's own weights,
and progress made during an exchange is kept whole; relative to the later weights half of it would be lost.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from ..compression.weights import Floats, from_units
from ..storage.checkpoints import Arrays
from ..wire.bounded import put_bounded
from ..wire.ids import PeerId
from .policy import MergeResult, Policy, PolicySetup, RoundFacts, relative_change
from .readout import mixed
from .snapshots.outline import Snapshot
from .values import (
    checked_bits,
    decode_values,
    encode_values,
    max_bytes,
    pack_counts,
    setting,
    stored_vector,
    unpack_counts,
)

_JOURNAL = struct.Struct("<Q")
_ASK = struct.Struct("<QQ")  # the latest view of the partner that this node has, our reference
_HEADER = struct.Struct("<BQQQ")  # kind, number of the view, the latest view of the partner, the reference
_ANSWER, _PUSH = 1, 2
_MAX_INBOX = 32
_MAX_PEERS = 4096
_MAX_SHOWN = 16  # partners that were answered and may still push, and partners with a reference


@dataclass(frozen=True)
class AverageView:
    """The weights a node sends, relative to the genesis. A view is replaced as a whole, never changed."""

    number: int
    weights: Floats
    moved: Floats  # how far merging had moved the weights at that time


@dataclass(frozen=True)
class Reference:
    """The weights from which two partners take differences; `id` 0 is the genesis."""

    id: int
    values: Floats


@dataclass(frozen=True)
class _Shown:
    """A view as it was sent to a partner."""

    view: AverageView
    reference: Reference
    payload: bytes
    values: Floats  # as the partner decodes them


@dataclass(frozen=True)
class _Met:
    theirs: Floats
    mine: _Shown


class Average(Policy):
    """Settings: bits (32), alpha (0.5), alpha_end (= alpha), alpha_rounds (over which α moves there)."""

    def __init__(self, origin: PolicySetup) -> None:
        settings = origin.settings
        self._genesis = from_units(origin.genesis)
        self._bits = checked_bits(settings, 32)
        self._alpha = setting(settings, "alpha", 0.5, 0.0, 1.0)
        self._alpha_end = setting(settings, "alpha_end", self._alpha, 0.0, 1.0)
        self._alpha_rounds = setting(settings, "alpha_rounds", 100, 1, 1e9)
        self._weights = self._genesis
        self._last = self._genesis  # after the last merge
        self._readout = self._genesis
        self._rounds = 0
        self._taken: dict[str, int] = {}
        self._inbox: deque[_Met] = deque(maxlen=_MAX_INBOX)
        self._moved = np.zeros_like(self._genesis)
        self._shown_to: dict[str, _Shown] = {}
        self._origin = Reference(0, np.zeros_like(self._genesis))
        self._references: dict[str, Reference] = {}
        self._view = self._seen(0)

    def start(self) -> Floats:
        return self._weights.copy()

    def readout(self) -> Floats:
        return self._readout.copy()

    @property
    def alpha(self) -> float:
        """The weight of the partner's values in this round."""
        done = min(1.0, self._rounds / self._alpha_rounds)
        return self._alpha + (self._alpha_end - self._alpha) * done

    def record(self, begun: Floats, after: Floats, facts: RoundFacts) -> object:
        weights: Floats = self._weights + (after - begun)
        return weights

    def publish(self, draft: object) -> bytes:
        assert isinstance(draft, np.ndarray)
        self._weights = draft
        self._view = self._seen(self._view.number + 1)
        return _JOURNAL.pack(self._view.number)

    # ---- exchange ----

    def ask(self, partner: PeerId) -> bytes:
        return _ASK.pack(self._taken.get(partner, 0), self._reference(partner).id)

    def answer(self, partner: PeerId, request: bytes) -> bytes:
        if len(request) != _ASK.size:
            raise ValueError(f"a request of {len(request)} bytes")
        known, wanted = _ASK.unpack(request)
        reference = self._reference(partner)
        shown = self._show(reference if reference.id == wanted else self._origin)
        put_bounded(self._shown_to, partner, shown, _MAX_SHOWN)
        return self._message(_ANSWER, partner, shown, known)

    def take(self, partner: PeerId, answer: bytes) -> bytes:
        kind, number, known, used = self._header(answer)
        payload = answer[_HEADER.size :]
        reference = self._reference(partner) if used else self._origin
        if used != reference.id:
            return b""  # late: we have another reference by now, and ask for the genesis the next time
        if kind == _PUSH:
            shown = self._shown_to.get(partner)
            if shown is not None and shown.reference.id == used:  # otherwise late, or there twice
                self._meet(partner, number, payload, shown, shown.payload + payload)
                self._shown_to.pop(partner)
            return b""
        shown = self._show(reference)
        self._meet(partner, number, payload, shown, payload + shown.payload)
        return self._message(_PUSH, partner, shown, known) if known < shown.view.number else b""

    def _meet(self, partner: PeerId, number: int, payload: bytes, mine: _Shown, said: bytes) -> None:
        """Take what a partner shows of itself, once, and agree with it on the next reference."""
        if not payload or number <= self._taken.get(partner, 0):
            return
        theirs: Floats = mine.reference.values + decode_values(payload, len(self._genesis), self._bits)
        put_bounded(self._taken, partner, number, _MAX_PEERS)
        self._inbox.append(_Met(theirs, mine))
        if self._bits < 16:
            name = int.from_bytes(blake3(said).digest(7), "little") + 1
            middle: Floats = (theirs + mine.values) * np.float32(0.5)
            put_bounded(self._references, partner, Reference(name, middle), _MAX_SHOWN)

    def _reference(self, partner: str) -> Reference:
        return self._references.get(partner, self._origin)

    def _show(self, reference: Reference) -> _Shown:
        view = self._view
        payload = encode_values(view.weights - reference.values, self._bits)
        values = reference.values + decode_values(payload, len(self._genesis), self._bits)
        return _Shown(view, reference, payload, values)

    def _seen(self, number: int) -> AverageView:
        return AverageView(number, self._weights - self._genesis, self._moved)

    def _message(self, kind: int, partner: str, shown: _Shown, known: int) -> bytes:
        number = shown.view.number
        header = _HEADER.pack(kind, number, self._taken.get(partner, 0), shown.reference.id)
        return header + (shown.payload if number > known else b"")

    def _header(self, message: bytes) -> tuple[int, int, int, int]:
        if not _HEADER.size <= len(message) <= _HEADER.size + max_bytes(len(self._genesis)):
            raise ValueError(f"a message of {len(message)} bytes")
        kind, number, known, used = _HEADER.unpack_from(message)
        if kind not in (_ANSWER, _PUSH) or max(number, known) >= 1 << 62:
            raise ValueError(f"a message of kind {kind}, number {number}")
        return kind, number, known, used

    # ---- the round, and starting elsewhere ----

    def merge(self) -> MergeResult:
        moved, entries = self._moved.copy(), 0
        while self._inbox:
            met = self._inbox.popleft()  # what others moved since that view counts as moved already
            moved += np.float32(self.alpha) * (met.theirs - met.mine.values - (moved - met.mine.view.moved))
            entries += 1
        self._rounds += 1
        if entries:
            self._weights, self._moved = self._weights + (moved - self._moved), moved
            self._view = self._seen(self._view.number + 1)
        change = relative_change(self._last, self._weights)
        self._last = self._weights
        self._readout = mixed(self._readout, self._weights)
        return MergeResult(f"averaged with {entries}, alpha {self.alpha:.2f}", entries, change)

    def snapshot(self, at: bytes = b"") -> Snapshot | None:
        return None if at else Snapshot(b"", encode_values(self._weights, 32))

    def adopt(self, snapshot: Snapshot) -> None:
        weights = decode_values(bytes(snapshot.content), len(self._genesis), 32)
        self._weights = self._last = self._readout = weights
        self._view = self._seen(self._view.number + 1)

    def state(self) -> Arrays:
        return {
            "weights": self._weights.copy(),
            "readout": self._readout.copy(),
            "last": self._last.copy(),
            "moved": self._moved.copy(),
            "counts": np.array([self._view.number, self._rounds], np.int64),
            "taken": pack_counts(self._taken),
            "references": pack_counts({peer: reference.id for peer, reference in self._references.items()}),
            **{f"reference/{peer}": reference.values.copy() for peer, reference in self._references.items()},
        }

    def restore(self, state: Mapping[str, npt.NDArray[Any]], journal: list[bytes]) -> None:
        size = len(self._genesis)
        names = ("weights", "readout", "last", "moved")
        weights, readout, last, moved = (stored_vector(state, name, size) for name in names)
        taken, names_of = unpack_counts(state["taken"]), unpack_counts(state["references"])
        kept = {
            peer: Reference(name, stored_vector(state, f"reference/{peer}", size)) for peer, name in names_of.items()
        }
        number, rounds = (int(count) for count in state["counts"])
        self._weights, self._readout, self._last = weights, readout, last
        self._taken, self._rounds = taken, rounds
        self._inbox.clear()
        self._shown_to.clear()
        self._moved, self._references = moved, kept
        number = max([number, *(_JOURNAL.unpack(entry)[0] for entry in journal if len(entry) == _JOURNAL.size)])
        self._view = self._seen(number)
