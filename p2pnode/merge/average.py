"""Pairwise averaging: x ← (1−α)·x + α·theirs, of whole weights. The baseline, and right for fat links.

Sources: randomised gossip (Boyd et al. 2006), asynchronous as in AD-PSGD (Lian et al. 2018). Departures: both sides of
an exchange move by α·(ŷ_theirs − ŷ_mine), where ŷ is what each showed the other of its weights (the difference from the
genesis at 32, 16, 8 or 4 bits). What quantisation loses of the own weights never enters them, and what was learned
while an exchange was under way is kept whole: measured against the weights of later, half of it would be lost.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ids import PeerId
from ..weights import Floats, from_units
from .payload import (
    checked_bits,
    decode_values,
    encode_values,
    max_bytes,
    pack_counts,
    setting,
    stored_vector,
    unpack_counts,
)
from .policy import Arrays, Facts, Merged, Origin, relative_change

_ASK = struct.Struct("<Q")  # the newest of yours that I have
_HEADER = struct.Struct("<BQQ")  # kind, number of what follows, the newest of yours that I have
_ANSWER, _PUSH = 1, 2
_MAX_INBOX = 32
_MAX_PEERS = 4096
_MAX_SHOWN = 64  # partners that were answered and may still push
EMA_KEPT = 0.8


@dataclass(frozen=True)
class View:
    """What a node shows of itself: numbered, never changed, replaced as a whole."""

    number: int
    payload: bytes
    shown: Floats  # what partners read out of the payload
    moved: Floats  # all that merging had moved the weights by, when this was shown


@dataclass(frozen=True)
class _Met:
    """What a partner showed, and the view of mine it was shown."""

    theirs: Floats
    mine: View


@dataclass(frozen=True)
class _Draft:
    weights: Floats
    payload: bytes


class Average:
    """Settings: bits (32), alpha (0.5), alpha_end (= alpha), alpha_rounds (over which α moves there)."""

    def __init__(self, origin: Origin) -> None:
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
        self._shown_to: dict[str, View] = {}
        self._view = self._shown(0, self._payload(self._genesis))

    def start(self) -> Floats:
        return self._weights.copy()

    def readout(self) -> Floats:
        return self._readout.copy()

    @property
    def alpha(self) -> float:
        """The weight of theirs at this round."""
        done = min(1.0, self._rounds / self._alpha_rounds)
        return self._alpha + (self._alpha_end - self._alpha) * done

    def record(self, begun: Floats, after: Floats, facts: Facts) -> object:
        weights = self._weights + (after - begun)
        return _Draft(weights, self._payload(weights))

    def publish(self, draft: object) -> bytes:
        assert isinstance(draft, _Draft)
        self._weights = draft.weights
        self._view = self._shown(self._view.number + 1, draft.payload)
        return _ASK.pack(self._view.number)

    def ask(self, partner: PeerId) -> bytes:
        return _ASK.pack(self._taken.get(partner, 0))

    def answer(self, partner: PeerId, request: bytes) -> bytes:
        if len(request) != _ASK.size:
            raise ValueError(f"a request of {len(request)} bytes")
        self._remember(partner)
        return self._message(_ANSWER, partner, known=_ASK.unpack(request)[0])

    def take(self, partner: PeerId, answer: bytes) -> bytes:
        kind, number, known = self._header(answer)
        payload = answer[_HEADER.size :]
        if payload and number > self._taken.get(partner, 0):
            values = decode_values(payload, len(self._genesis), self._bits)
            self._note(partner, number)
            mine = self._view if kind == _ANSWER else self._shown_to.pop(partner, self._view)
            self._inbox.append(_Met(values, mine))
        return self._message(_PUSH, partner, known) if kind == _ANSWER and known < self._view.number else b""

    def merge(self) -> Merged:
        moved, entries = self._moved.copy(), 0
        while self._inbox:
            met = self._inbox.popleft()  # what others moved since that view counts as moved already
            moved += np.float32(self.alpha) * (met.theirs - met.mine.shown - (moved - met.mine.moved))
            entries += 1
        self._rounds += 1
        if entries:
            self._weights, self._moved = self._weights + (moved - self._moved), moved
            self._view = self._shown(self._view.number + 1, self._payload(self._weights))
        change = relative_change(self._last, self._weights)
        self._last = self._weights
        self._readout = mixed(self._readout, self._weights)
        return Merged(f"averaged with {entries}, alpha {self.alpha:.2f}", entries, change)

    def snapshot(self) -> bytes:
        return encode_values(self._weights, 32)

    def adopt(self, snapshot: bytes) -> None:
        weights = decode_values(snapshot, len(self._genesis), 32)
        self._weights = self._last = self._readout = weights
        self._view = self._shown(self._view.number + 1, self._payload(weights))

    def state(self) -> Arrays:
        return {
            "weights": self._weights.copy(),
            "readout": self._readout.copy(),
            "last": self._last.copy(),
            "moved": self._moved.copy(),
            "counts": np.array([self._view.number, self._rounds], np.int64),
            "taken": pack_counts(self._taken),
        }

    def restore(self, state: Mapping[str, npt.NDArray[Any]], journal: list[bytes]) -> None:
        size = len(self._genesis)
        names = ("weights", "readout", "last", "moved")
        weights, readout, last, moved = (stored_vector(state, name, size) for name in names)
        taken = unpack_counts(state["taken"])
        number, rounds = (int(count) for count in state["counts"])
        self._weights, self._readout, self._last = weights, readout, last
        self._taken, self._rounds = taken, rounds
        self._inbox.clear()
        self._shown_to.clear()
        self._moved = moved
        number = max([number, *(_ASK.unpack(entry)[0] for entry in journal if len(entry) == _ASK.size)])
        self._view = self._shown(number, self._payload(weights))

    def _payload(self, weights: Floats) -> bytes:
        return encode_values(weights - self._genesis, self._bits)

    def _shown(self, number: int, payload: bytes) -> View:
        return View(number, payload, decode_values(payload, len(self._genesis), self._bits), self._moved)

    def _message(self, kind: int, partner: str, known: int) -> bytes:
        view = self._view
        header = _HEADER.pack(kind, view.number, self._taken.get(partner, 0))
        return header + (view.payload if view.number > known else b"")

    def _header(self, message: bytes) -> tuple[int, int, int]:
        if not _HEADER.size <= len(message) <= _HEADER.size + max_bytes(len(self._genesis)):
            raise ValueError(f"a message of {len(message)} bytes")
        kind, number, known = _HEADER.unpack_from(message)
        if kind not in (_ANSWER, _PUSH) or max(number, known) >= 1 << 62:
            raise ValueError(f"a message of kind {kind}, number {number}")
        return kind, number, known

    def _remember(self, partner: str) -> None:
        self._shown_to.pop(partner, None)
        if len(self._shown_to) >= _MAX_SHOWN:
            self._shown_to.pop(next(iter(self._shown_to)))
        self._shown_to[partner] = self._view

    def _note(self, partner: str, number: int) -> None:
        self._taken.pop(partner, None)
        if len(self._taken) >= _MAX_PEERS:
            self._taken.pop(next(iter(self._taken)))
        self._taken[partner] = number


def mixed(readout: Floats, weights: Floats) -> Floats:
    """The running average of weights over rounds (EMA 0.8/0.2): what is worth keeping."""
    after: Floats = np.float32(EMA_KEPT) * readout + np.float32(1 - EMA_KEPT) * weights
    return after
