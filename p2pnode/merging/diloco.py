"""DiLoCo without a barrier: every H local steps an outer step with the circle's mean progress and Nesterov momentum.

Source: DiLoCo (Douillard et al. 2023); with progress d = mean(x − φ), the outer step is that of SGD with Nesterov's
momentum on −d:  u ← μ·u + d;   φ ← φ + η·(d + μ·u).  The difference: nobody waits. A node publishes its H steps, trains
on, and makes its outer step `wait` merges later with whatever arrived by then; what comes later enters the next one. So
momentum and φ may drift apart: every tenth outer step φ is sent as well, and averaged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..compression.codec import decode_delta, encode_delta
from ..compression.residual import make_delta, record
from ..compression.weights import Floats, Units, from_units
from ..storage.checkpoints import Arrays
from ..wire.bounded import put_bounded
from ..wire.ids import PeerId
from ..wire.types import decoded
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

AVERAGE_EVERY = 10  # outer steps
_KEPT = 3  # own inner phases that can still be asked for
_MAX_INBOX = 128
_MAX_PEERS = 4096
_SPARSE_BITS = 2

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class InnerPhase(msgspec.Struct, frozen=True, array_like=True):
    """The progress of one inner phase from φ, and sometimes φ itself."""

    number: Number
    progress: bytes
    phi: bytes = b""


class PhaseMessage(msgspec.Struct, frozen=True, array_like=True):
    """The latest inner phase of the receiver that the sender has, and phases of the sender; a question has none."""

    known: Number
    phases: Annotated[tuple[InnerPhase, ...], msgspec.Meta(max_length=_KEPT)] = ()
    reply: bool = False


@dataclass(frozen=True)
class _Heard:
    author: str
    progress: Floats
    phi: Floats | None


@dataclass(frozen=True)
class _Draft:
    weights: Floats
    steps: int
    phase: InnerPhase | None
    residual: Units


_decoder = msgspec.msgpack.Decoder(PhaseMessage)
_encode = msgspec.msgpack.Encoder().encode


class DiLoCo(Policy):
    """Settings: steps (H, 50), wait (merges until the outer step, 1), rate (η, 0.7), momentum (μ, 0.9), bits (32).

    With a density below 1 progress is sent sparse; what was not sent is kept for the next time.
    """

    def __init__(self, origin: PolicySetup) -> None:
        settings = origin.settings
        self._me = origin.identity.peer_id
        self._genesis = from_units(origin.genesis)
        self._bits = checked_bits(settings, 32)
        self._steps = setting(settings, "steps", 50, 1, 1e6)
        self._wait = setting(settings, "wait", 1, 0, 1e6)
        self._rate = setting(settings, "rate", 0.7, 0.0, 2.0)
        self._mu = setting(settings, "momentum", 0.9, 0.0, 0.999)
        self._density = setting(settings, "density", 1.0, 1e-6, 1.0)
        size = len(self._genesis)
        self._phi = self._weights = self._readout = self._genesis
        self._momentum = np.zeros(size, np.float32)
        self._residual: Units = np.zeros(size if self._density < 1 else 0, np.int32)
        self._said: Floats | None = None  # the weights when the last inner phase was published, until its outer step
        self._own: deque[InnerPhase] = deque(maxlen=_KEPT)
        self._done, self._waited, self._outer, self._number = 0, 0, 0, 0
        self._taken: dict[str, int] = {}
        self._inbox: deque[_Heard] = deque(maxlen=_MAX_INBOX)

    def start(self) -> Floats:
        return self._weights.copy()

    def readout(self) -> Floats:
        return self._readout.copy()

    # ---- the round ----

    def record(self, begun: Floats, after: Floats, facts: RoundFacts) -> object:
        weights, steps = self._weights + (after - begun), self._done + facts.steps
        if steps < self._steps or self._said is not None:
            return _Draft(weights, steps, None, self._residual)
        progress, residual = self._progress(weights - self._phi)
        averaged = self._outer % AVERAGE_EVERY == AVERAGE_EVERY - 1
        phi = encode_values(self._phi - self._genesis, self._bits) if averaged else b""
        return _Draft(weights, steps, InnerPhase(self._number + 1, progress, phi), residual)

    def publish(self, draft: object) -> bytes:
        assert isinstance(draft, _Draft)
        self._weights, self._done = draft.weights, draft.steps
        if draft.phase is None:
            return b""
        self._said, self._residual, self._waited, self._done = draft.weights, draft.residual, 0, 0
        self._number = draft.phase.number
        self._own.append(draft.phase)
        self._inbox.append(self._heard(self._me, draft.phase))
        return draft.phase.number.to_bytes(8, "little")

    def merge(self) -> MergeResult:
        if self._said is None or self._waited < self._wait:
            self._waited += 1
            return MergeResult(f"{len(self._inbox)} received, outer step {self._outer + 1} to come", 0, 0.0)
        heard = [self._inbox.popleft() for _ in range(len(self._inbox))]
        before, weights = self._phi, self._weights
        phi = self._averaged([one.phi for one in heard if one.phi is not None and one.author != self._me])
        self._outer_step(phi, _mean([one.progress for one in sorted(heard, key=lambda one: one.author)]))
        self._weights = self._phi + (weights - self._said)
        self._said = None
        self._outer += 1
        self._readout = mixed(self._readout, self._phi) if self._outer > 1 else self._phi
        others = sum(one.author != self._me for one in heard)
        change = relative_change(before, self._phi)
        return MergeResult(f"outer step {self._outer} with {others} others", others, change)

    def _outer_step(self, phi: Floats, progress: Floats) -> None:
        mu, rate = np.float32(self._mu), np.float32(self._rate)
        self._momentum = (mu * self._momentum + progress).astype(np.float32)
        self._phi = (phi + rate * (progress + mu * self._momentum)).astype(np.float32)

    def _averaged(self, others: list[Floats]) -> Floats:
        if not others:
            return self._phi
        averaged: Floats = self._genesis + _mean([self._phi - self._genesis, *others])
        return averaged

    def _progress(self, progress: Floats) -> tuple[bytes, Units]:
        """Progress as bytes, and the part of it that is left for the next time."""
        if self._density >= 1:
            return encode_values(progress, self._bits), self._residual
        residual = record(self._residual, progress, 1.0)
        delta, left = make_delta(residual, max(1, round(self._density * len(progress))), _SPARSE_BITS, 1.0)
        return encode_delta(delta), left

    def _heard(self, author: str, phase: InnerPhase) -> _Heard:
        size = len(self._genesis)
        phi = decode_values(phase.phi, size, self._bits) if phase.phi else None
        if self._density >= 1:
            return _Heard(author, decode_values(phase.progress, size, self._bits), phi)
        delta = decode_delta(phase.progress, size, max(1, round(self._density * size)))
        progress = np.zeros(size, np.float32)
        progress[delta.indices] = from_units(delta.values)
        return _Heard(author, progress, phi)

    # ---- exchange ----

    def ask(self, partner: PeerId) -> bytes:
        return _encode(PhaseMessage(self._taken.get(partner, 0)))

    def answer(self, partner: PeerId, request: bytes) -> bytes:
        return _encode(PhaseMessage(self._taken.get(partner, 0), self._newer(self._read(request).known), reply=True))

    def take(self, partner: PeerId, answer: bytes) -> bytes:
        talk = self._read(answer)
        taken = self._taken.get(partner, 0)
        fresh = {phase.number: phase for phase in talk.phases if phase.number > taken}
        heard = [self._heard(partner, fresh[number]) for number in sorted(fresh)]
        if fresh:
            put_bounded(self._taken, partner, max(fresh), _MAX_PEERS)
            self._inbox.extend(heard)
        phases = self._newer(talk.known) if talk.reply else ()
        return _encode(PhaseMessage(self._taken.get(partner, 0), phases)) if phases else b""

    def _newer(self, known: int) -> tuple[InnerPhase, ...]:
        return tuple(phase for phase in self._own if phase.number > known)

    def _read(self, message: bytes) -> PhaseMessage:
        return decoded(_decoder, message, "exchange", 2 * _KEPT * max_bytes(len(self._genesis)))

    # ---- starting elsewhere, and again ----

    def snapshot(self, at: bytes = b"") -> Snapshot | None:
        if at:
            return None
        values = encode_values(np.concatenate([self._phi, self._momentum]), 32)
        return Snapshot(b"", self._outer.to_bytes(8, "little") + values)

    def adopt(self, snapshot: Snapshot) -> None:
        content = bytes(snapshot.content)
        values = decode_values(content[8:], 2 * len(self._genesis), 32)
        self._outer = int.from_bytes(content[:8], "little") & ((1 << 62) - 1)
        self._phi, self._momentum = values[: len(self._genesis)].copy(), values[len(self._genesis) :].copy()
        self._weights = self._readout = self._phi
        self._said, self._done, self._waited = None, 0, 0
        self._inbox.clear()

    def state(self) -> Arrays:
        said = self._said
        return {
            "phi": self._phi.copy(),
            "weights": self._weights.copy(),
            "momentum": self._momentum.copy(),
            "readout": self._readout.copy(),
            "said": np.zeros(0, np.float32) if said is None else said.copy(),
            "residual": self._residual.copy(),
            "counts": np.array([self._done, self._waited, self._outer, self._number], np.int64),
            "taken": pack_counts(self._taken),
            "own": np.frombuffer(_encode(tuple(self._own)), np.uint8).copy(),
            "inbox": np.frombuffer(_encode(self._packed_inbox()), np.uint8).copy(),
        }

    def _packed_inbox(self) -> list[tuple[str, bytes, bytes]]:
        return [
            (one.author, encode_values(one.progress, 32), b"" if one.phi is None else encode_values(one.phi, 32))
            for one in tuple(self._inbox)
        ]

    def restore(self, state: Mapping[str, npt.NDArray[Any]], journal: list[bytes]) -> None:
        size = len(self._genesis)
        names = ("phi", "weights", "momentum", "readout")
        phi, weights, momentum, readout = (stored_vector(state, name, size) for name in names)
        said = stored_vector(state, "said", size) if len(state["said"]) else None
        if state["residual"].shape != self._residual.shape:
            raise ValueError("the residual belongs to other settings")
        own = _unpacked(state["own"], tuple[InnerPhase, ...])
        inbox = _unpacked(state["inbox"], list[tuple[str, bytes, bytes]])
        heard = [
            _Heard(author, decode_values(progress, size, 32), decode_values(phi_sent, size, 32) if phi_sent else None)
            for author, progress, phi_sent in inbox
        ]
        self._taken = unpack_counts(state["taken"])
        self._phi, self._weights, self._momentum, self._readout, self._said = phi, weights, momentum, readout, said
        self._residual = state["residual"].astype(np.int32)
        self._done, self._waited, self._outer, number = (int(count) for count in state["counts"])
        self._number = max([number, *(int.from_bytes(entry, "little") for entry in journal if len(entry) == 8)])
        self._own = deque(own, maxlen=_KEPT)
        self._inbox = deque(heard, maxlen=_MAX_INBOX)


def _mean(vectors: list[Floats]) -> Floats:
    """The mean, added in the order given, so that nodes with the same inputs get the same result."""
    total = np.zeros_like(vectors[0])
    for vector in vectors:
        total += vector
    return total / np.float32(len(vectors))


def _unpacked(array: npt.NDArray[Any], kind: Any) -> Any:
    return decoded(msgspec.msgpack.Decoder(kind), np.ascontiguousarray(array, np.uint8).tobytes(), "state")
