"""Changes of a running queues job: models added, queues paused, other weights. Only the run's founder can sign one.

A change says everything that differs from the run's plan, so a member needs only the latest. Of two changes the one of
the higher number counts, and of equal numbers that of the higher hash.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from blake3 import blake3

from ...wire.errors import UsageError, suggestion
from ...wire.ids import signed_by
from ...wire.types import JobName, Signature
from ..leases.lease import Signer
from .plan import MAX_MODELS, PlannedModel, plan_of_model, read_model
from .priority import MOST_WEIGHT, PriorityWeights

MAX_ADDED_BYTES = 64 << 10  # all added models together
_DOMAIN = b"p2pnode queues change 1\0"


class QueuesChange(msgspec.Struct, frozen=True, array_like=True):
    """All that differs from the plan in the run's manifest."""

    scope: Annotated[str, msgspec.Meta(max_length=128)]
    number: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]
    added: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=MAX_ADDED_BYTES)], ...], msgspec.Meta(max_length=MAX_MODELS)
    ]
    paused: Annotated[tuple[JobName, ...], msgspec.Meta(max_length=MAX_MODELS)]
    weights: PriorityWeights
    signature: Signature = b""

    @property
    def rank(self) -> tuple[int, bytes]:
        return self.number, blake3(_content(self)).digest() if self.number else b""

    def models(self) -> list[PlannedModel]:
        """The models that were added; ValueError when one cannot be read."""
        return [read_model(data) for data in self.added]


def unchanged(scope: str, weights: PriorityWeights) -> QueuesChange:
    """The state before the first change."""
    return QueuesChange(scope, 0, (), (), weights)


def signed(me: Signer, change: QueuesChange) -> QueuesChange:
    """The same as the next change, signed by the founder."""
    following = msgspec.structs.replace(change, number=change.number + 1)
    return msgspec.structs.replace(following, signature=me.sign(_content(following)))


def check_change(change: QueuesChange, scope: str, founder: str) -> None:
    """ValueError with the reason unless the founder signed it for this job and its models can be read."""
    if change.scope != scope:
        raise ValueError("the change is of another job")
    if sum(map(len, change.added)) > MAX_ADDED_BYTES:
        raise ValueError("the change adds too much")
    if not signed_by(founder, _content(change), change.signature):
        raise ValueError("the change is not signed by the run's founder")
    names = [model.name for model in change.models()]
    if len(set(names)) < len(names):
        raise ValueError("the change adds a model twice")


VERBS = {
    "add": "add NAME=TASK[,KEY=VALUE...]",
    "pause": "pause QUEUE...",
    "resume": "resume QUEUE...",
    "weights": "weights convergence=1 complexity=0.25 length=1 idle=0.5",
}


@dataclass(frozen=True)
class Order:
    """What the founder's user wants to be changed."""

    verb: str
    model: str = ""  # to add, as NAME=TASK[,KEY=VALUE...]
    queues: tuple[str, ...] = ()  # to pause or resume
    weights: Mapping[str, float] = field(default_factory=dict)

    def applied_to(self, change: QueuesChange, planned: PlannedModel | None) -> QueuesChange:
        """The change after this order, not signed yet. `planned` is the model to add."""
        if planned is not None:
            change = msgspec.structs.replace(change, added=(*change.added, plan_of_model(planned)))
        paused = set(change.paused)
        paused = paused | set(self.queues) if self.verb == "pause" else paused - set(self.queues)
        weights = msgspec.structs.replace(change.weights, **self.weights)
        return msgspec.structs.replace(change, paused=tuple(sorted(paused)), weights=weights)

    @property
    def said(self) -> str:
        """What was done, in words."""
        queues, weights = ", ".join(self.queues), " ".join(f"{key}={value:g}" for key, value in self.weights.items())
        done = {
            "add": f"added the model {self.model.partition('=')[0]}",
            "pause": f"paused {queues}",
            "resume": f"resumed {queues}",
            "weights": f"set {weights}",
        }
        return done[self.verb]


def read_order(words: Sequence[str], names: Collection[str]) -> Order:
    """What a user ordered, of a job with queues of these names; UsageError in one line."""
    verb, rest = (words[0], tuple(words[1:])) if words else ("", ())
    if verb not in VERBS:
        raise UsageError(f"{verb[:40]!r} is no change of queues; {suggestion(verb, VERBS)}")
    if not rest or (verb == "add" and len(rest) > 1):
        raise UsageError(f"write: queues {VERBS[verb]}")
    if verb == "weights":
        return Order(verb, weights=_read_weights(rest))
    if verb == "add":
        name = rest[0].partition("=")[0]
        if name in names:
            raise UsageError(f"there is a model {name!r} already; give the new one another name")
        if len(names) >= MAX_MODELS:
            raise UsageError(f"there are {len(names)} models, and queues hold at most {MAX_MODELS}")
        return Order(verb, model=rest[0])
    for queue in rest:
        if queue not in names:
            raise UsageError(f"the run has no queue {queue[:60]!r}; {suggestion(queue, names)}")
    return Order(verb, queues=tuple(dict.fromkeys(rest)))


def _read_weights(words: Sequence[str]) -> dict[str, float]:
    known, found = PriorityWeights.__struct_fields__, {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in known:
            raise UsageError(f"the score has no part {key[:40]!r}; {suggestion(key, known)}")
        try:
            found[key] = float(value)
        except ValueError:
            raise UsageError(f"{word[:60]!r}: a weight is a number from 0 to 10, as in {key}=1.5") from None
        if not 0.0 <= found[key] <= MOST_WEIGHT:
            raise UsageError(f"{word[:60]!r}: a weight is a number from 0 to 10")
    return found


def encode_change(change: QueuesChange) -> bytes:
    return msgspec.msgpack.encode(change)


def decode_change(data: bytes) -> QueuesChange:
    """ValueError when it is malformed."""
    try:
        return msgspec.msgpack.decode(data, type=QueuesChange)
    except msgspec.DecodeError as error:
        raise ValueError(f"malformed change: {error}") from None


def _content(change: QueuesChange) -> bytes:
    return _DOMAIN + msgspec.msgpack.encode(msgspec.structs.replace(change, signature=b""))
