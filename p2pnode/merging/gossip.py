"""Sparse gossip with momentum, on coordinates that both partners name: for peers without a common base.

Source: NoLoCo (Kolehmainen et al. 2025), made sparse. On a common index set S (the most changed coordinates of both,
and some random ones) each partner does

    m ← β·m + η·½(Δi + Δj) + γ·½(φj − φi);   φ ← φ + m;   x ← φ + what was learned since;   Δ = x − φ

Outside S nothing changes, and Δ stays in the weights. Values travel at few bits; both sides use φ as it was sent, so
that equal partners do not change. Each coordinate of a node's Δ counts once, however many exchanges contained it.
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

from ..compression.delta import Indices
from ..compression.sections import SectionReader, section
from ..compression.selectors.magnitude import largest
from ..compression.weights import Floats, from_units, to_units
from ..storage.checkpoints import Arrays
from ..wire.bounded import put_bounded
from ..wire.ids import PeerId
from .policy import MergeResult, Policy, PolicySetup, RoundFacts, relative_change
from .readout import mixed
from .snapshots.outline import Snapshot
from .values import (
    checked_bits,
    decode_places,
    decode_values,
    encode_places,
    encode_values,
    max_bytes,
    setting,
    stored_vector,
)

_ASK = struct.Struct("<QQ")  # token, seed of the random coordinates
_HEADER = struct.Struct("<BQ")  # kind, token
_JOURNAL = struct.Struct("<Q")
_ANSWER, _PUSH = 1, 2
_MAX_INBOX = 32
_MAX_PENDING = 64
_RARELY = 1 / 15  # coordinates exchanged less often than this have no momentum
_RANDOM = 0.2  # share of the index set that is random


@dataclass(frozen=True)
class GossipView:
    """What a node shows to partners. It is replaced as a whole, never changed; `number` counts the versions."""

    number: int
    phi: Floats
    delta: Floats
    top: Indices


@dataclass(frozen=True)
class _Talk:
    """An exchange that has begun."""

    token: int
    seed: int
    view: GossipView
    places: Indices  # the whole set, once both tops are known


@dataclass(frozen=True)
class _Met:
    """A completed exchange: values on `places`, to be merged."""

    number: int
    places: Indices
    mine: Floats  # Δ
    theirs: Floats  # Δ
    apart: Floats  # φ of theirs − φ of mine, both as sent


class Gossip(Policy):
    """Settings: density (0.1, of the index set), bits (8), eta, beta, gamma (0.7, 0.5, 0.7; 1, 0, 1 when sparse)."""

    def __init__(self, origin: PolicySetup) -> None:
        settings = origin.settings
        self._genesis = from_units(origin.genesis)
        self._bits = checked_bits(settings, 8)
        self._density = setting(settings, "density", 0.1, 1e-6, 1.0)
        rare = self._density < _RARELY
        self._eta = setting(settings, "eta", 1.0 if rare else 0.7, 0.0, 2.0)
        self._beta = setting(settings, "beta", 0.0 if rare else 0.5, 0.0, 0.999)
        self._gamma = setting(settings, "gamma", 1.0 if rare else 0.7, 0.0, 2.0)
        self._seed = blake3(f"{origin.seed}/{origin.identity.peer_id}/{origin.lineage}".encode()).digest()
        size = len(self._genesis)
        self._top = max(1, int(size * self._density * (1 - _RANDOM) / 2))
        self._random_count = max(1, int(size * self._density * _RANDOM))
        self._phi, self._delta = self._genesis, np.zeros(size, np.float32)
        self._momentum = np.zeros(size, np.float32)
        self._merged = np.full(size, -1, np.int64)  # the view in which each coordinate was merged last
        self._readout = self._last = self._genesis
        self._token = 0
        self._asked: dict[str, _Talk] = {}
        self._answered: dict[str, _Talk] = {}
        self._inbox: deque[_Met] = deque(maxlen=_MAX_INBOX)
        self._view = self._seen(0, self._delta)

    def start(self) -> Floats:
        weights: Floats = self._phi + self._delta
        return weights

    def readout(self) -> Floats:
        return self._readout.copy()

    def record(self, begun: Floats, after: Floats, facts: RoundFacts) -> object:
        return self._seen(self._view.number + 1, self._delta + (after - begun))

    def publish(self, draft: object) -> bytes:
        assert isinstance(draft, GossipView)
        self._view, self._delta = draft, draft.delta
        return _JOURNAL.pack(self._token)

    def ask(self, partner: PeerId) -> bytes:
        self._token += 1
        seed = int.from_bytes(blake3(self._seed + self._token.to_bytes(8, "little")).digest(8), "little")
        put_bounded(self._asked, partner, _Talk(self._token, seed, self._view, self._view.top), _MAX_PENDING)
        return _ASK.pack(self._token, seed) + section(encode_places(len(self._genesis), self._view.top))

    def answer(self, partner: PeerId, request: bytes) -> bytes:
        reader = self._reader(request)
        token, seed = _ASK.unpack(reader.take(_ASK.size))
        top = decode_places(reader.section(max_bytes(self._top)), len(self._genesis), self._top)
        reader.end()
        view = self._view
        talk = _Talk(token, seed, view, self._union(top, view.top, seed))
        put_bounded(self._answered, partner, talk, _MAX_PENDING)
        places = section(encode_places(len(self._genesis), view.top))
        return _HEADER.pack(_ANSWER, token) + places + self._values(talk)

    def take(self, partner: PeerId, answer: bytes) -> bytes:
        reader = self._reader(answer)
        kind, token = _HEADER.unpack(reader.take(_HEADER.size))
        if kind == _ANSWER:
            return self._take_answer(partner, token, reader)
        if kind != _PUSH:
            raise ValueError(f"unknown kind of message {kind}")
        talk = self._answered.get(partner)
        if talk is not None and talk.token == token:  # otherwise it is late, or came twice
            self._inbox.append(self._met(talk, reader))
            del self._answered[partner]
        return b""

    def _take_answer(self, partner: PeerId, token: int, reader: SectionReader) -> bytes:
        asked = self._asked.get(partner)
        top = decode_places(reader.section(max_bytes(self._top)), len(self._genesis), self._top)
        if asked is None or asked.token != token:
            return b""
        talk = _Talk(token, asked.seed, asked.view, self._union(asked.view.top, top, asked.seed))
        self._inbox.append(self._met(talk, reader))
        del self._asked[partner]
        return _HEADER.pack(_PUSH, token) + self._values(talk)

    def merge(self) -> MergeResult:
        phi, delta, momentum = self._phi.copy(), self._delta.copy(), self._momentum
        number, entries = self._view.number + 1, 0
        while self._inbox:
            self._apply(self._inbox.popleft(), phi, delta, momentum, number)
            entries += 1
        self._phi, self._delta = phi, delta
        if entries:
            self._view = self._seen(number, delta)
        weights = self.start()
        change = relative_change(self._last, weights)
        self._last, self._readout = weights, mixed(self._readout, weights)
        return MergeResult(f"gossiped with {entries}", entries, change)

    def _apply(self, met: _Met, phi: Floats, delta: Floats, momentum: Floats, number: int) -> None:
        fresh = self._merged[met.places] <= met.number
        at = met.places[fresh]
        step = self._eta * 0.5 * (met.mine + met.theirs) + self._gamma * 0.5 * met.apart
        momentum[at] = self._beta * momentum[at] + step[fresh]
        phi[at] += momentum[at]
        delta[at] -= met.mine[fresh]
        self._merged[at] = number

    def snapshot(self, at: bytes = b"") -> Snapshot | None:
        return None if at else Snapshot(b"", encode_values(self.start(), 32))

    def adopt(self, snapshot: Snapshot) -> None:
        weights = decode_values(bytes(snapshot.content), len(self._genesis), 32)
        self._phi, self._delta = weights, np.zeros_like(weights)
        self._momentum = np.zeros_like(weights)
        self._readout = self._last = weights
        self._inbox.clear()
        self._view = self._seen(self._view.number + 1, self._delta)

    def state(self) -> Arrays:
        return {
            "phi": self._phi.copy(),
            "delta": self._delta.copy(),
            "momentum": self._momentum.copy(),
            "readout": self._readout.copy(),
            "last": self._last.copy(),
            "token": np.array([self._token], np.int64),
        }

    def restore(self, state: Mapping[str, npt.NDArray[Any]], journal: list[bytes]) -> None:
        size = len(self._genesis)
        names = ("phi", "delta", "momentum", "readout", "last")
        phi, delta, momentum, readout, last = (stored_vector(state, name, size) for name in names)
        token = int(state["token"][0])
        self._phi, self._delta, self._momentum = phi, delta, momentum
        self._readout, self._last = readout, last
        self._token = max([token, *(_JOURNAL.unpack(entry)[0] for entry in journal if len(entry) == _JOURNAL.size)])
        self._merged[:] = -1
        self._asked.clear()
        self._answered.clear()
        self._inbox.clear()
        self._view = self._seen(0, delta)

    # ---- the common index set ----

    def _seen(self, number: int, delta: Floats) -> GossipView:
        return GossipView(number, self._phi, delta, largest(to_units(delta), self._top))

    def _union(self, one: Indices, other: Indices, seed: int) -> Indices:
        size = len(self._genesis)
        drawn = np.random.Generator(np.random.PCG64(seed)).integers(0, size, self._random_count, dtype=np.uint32)
        places: Indices = np.unique(np.concatenate([one, other, drawn]))
        return places

    def _values(self, talk: _Talk) -> bytes:
        """Δ and φ − genesis on the index set, encoded."""
        delta, phi = self._own(talk)
        return section(encode_values(delta, self._bits)) + section(encode_values(phi, self._bits))

    def _own(self, talk: _Talk) -> tuple[Floats, Floats]:
        places = talk.places
        return talk.view.delta[places], talk.view.phi[places] - self._genesis[places]

    def _met(self, talk: _Talk, reader: SectionReader) -> _Met:
        """Their values together with mine; ValueError when theirs are malformed."""
        count = len(talk.places)
        most = max_bytes(count)
        theirs = decode_values(reader.section(most), count, self._bits)
        their_phi = decode_values(reader.section(most), count, self._bits)
        reader.end()
        mine, my_phi = self._own(talk)
        as_sent = decode_values(encode_values(my_phi, self._bits), count, self._bits)
        return _Met(talk.view.number, talk.places, mine, theirs, their_phi - as_sent)

    def _reader(self, message: bytes) -> SectionReader:
        if len(message) > 2 * max_bytes(len(self._genesis)):
            raise ValueError(f"a message of {len(message)} bytes")
        return SectionReader(message)
