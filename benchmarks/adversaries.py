"""Hostile members of simulated swarms: each is an unmodified node whose entries, log or data an attack replaces.

They have valid identities and signatures and break no rule of the format. `ATTACKS` has all by name. An attack gets
what the node would publish and returns what it publishes instead; `begin` prepares the node, `late` acts on its set.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isqrt
from typing import Any

import msgspec
import numpy as np

from p2pnode.compression.codec import encode_delta
from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.weights import MAX_UNITS, Floats, norm_squared
from p2pnode.jobs.train.job import TrainJob
from p2pnode.merging.deltaset.author import Draft
from p2pnode.merging.deltaset.entry import Entry, Mark, delta_of, prove, sign_entry
from p2pnode.merging.deltaset.heads import Heads
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.tasks.data import InMemory
from p2pnode.wire.ids import Identity

MANY = 20  # entries of a hostile member in one round
GHOSTS = 200  # authors made up in one round
EARLY, LATE = 3, 10  # rounds at which a fork is signed, and at which it is shown
PATIENT = 15  # rounds for which an attacker behaves first


@dataclass
class Member:
    """A hostile member: its job, and what its attack remembers."""

    job: TrainJob
    policy: DeltaSetPolicy
    rng: random.Random
    rounds: int = 0
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def bound(self) -> int:
        """The largest norm of an entry."""
        return self.policy.set.rules.max_norm_units

    def others(self) -> list[SparseDelta]:
        """The latest entry of each other author."""
        latest: dict[str, Entry] = {}
        for entry in self.policy.set.log:
            if entry.peer != self.policy.author.identity.peer_id:
                latest[entry.peer] = entry
        return [delta_of(entry, self.policy.set.rules) for entry in latest.values()]

    def dense(self) -> Floats:
        """The latest entries of the others, a row each."""
        rows = np.zeros((len(self.others()), self.policy.set.rules.size), np.float32)
        for row, delta in zip(rows, self.others(), strict=True):
            row[delta.indices] = delta.values
        return rows

    def sparse(self, vector: Floats) -> SparseDelta:
        """The largest coordinates of a vector in units, scaled down to the norm that one entry may have."""
        rules = self.policy.set.rules
        count = min(rules.max_entries, int(np.count_nonzero(vector)))
        chosen = np.sort(np.argpartition(-np.abs(vector), count - 1)[:count]) if count else np.zeros(0, np.int64)
        values = vector[chosen].astype(np.float64)
        norm = float(np.sqrt(values @ values))
        if norm > 0.98 * rules.max_norm_units:
            values *= 0.98 * rules.max_norm_units / norm
        whole = np.clip(values, -MAX_UNITS, MAX_UNITS).astype(np.int32)
        return SparseDelta(rules.size, chosen.astype(np.uint32), whole)


Forge = Callable[[Member, Draft], list[Draft]]
Begin = Callable[[Member], None]


@dataclass(frozen=True)
class Attack:
    """One way to do harm."""

    what: str
    forge: Forge = lambda member, draft: [draft]
    begin: Begin = lambda member: None
    new_logs: bool = False  # each entry begins a new log
    overlooks: bool = False  # from round LATE on, it cites nothing new


def corrupt(job: TrainJob, attack: Attack, seed: int) -> None:
    """Let a node carry out an attack from now on. Nothing else about it changes."""
    policy = job.policy
    assert isinstance(policy, DeltaSetPolicy)
    member = Member(job, policy, random.Random(seed))
    usual = policy.publish

    def publish(draft: object) -> bytes:
        if not isinstance(draft, Draft):
            return usual(draft)
        member.rounds += 1
        journal = b""
        frozen = member.kept.setdefault("heads", dict(policy.set.heads)) if member.rounds >= LATE else None
        for forged in attack.forge(member, draft):
            with policy._lock:
                policy.author.incarnation += attack.new_logs
                journal = _publish(policy, forged, frozen if attack.overlooks else None) or journal
        return journal

    policy.publish = publish  # type: ignore[method-assign]
    attack.begin(member)


def _publish(policy: DeltaSetPolicy, draft: Draft, heads: Heads | None) -> bytes:
    """Publish as much of a draft as the rules allow: the attacker knows them. It cites `heads`, or what it should."""
    terms = policy.author.terms(policy.set, heads or policy._earlier_heads[1] or policy.set.heads)
    if terms.credit < 0 or not policy.set.log.judge.admits(policy.author.identity.peer_id):
        return b""
    draft = policy.author.cut(draft, terms)
    journal = policy._add_own(policy.author.sign(draft, policy.set, terms))
    policy._earlier_heads = (policy._earlier_heads[1], dict(policy.set.heads))
    policy.author.published(draft)
    return journal


def forged(draft: Draft, delta: SparseDelta, group: int | None = None) -> Draft:
    """The draft with another delta, and another claim about the number of authors."""
    claimed, gamma, discount = draft.weight
    return replace(draft, delta=delta, payload=encode_delta(delta), weight=(group or claimed, gamma, discount))


def scaled(draft: Draft, factor: float, most: int) -> SparseDelta:
    """The draft's delta times a factor, within a norm."""
    values = draft.delta.values.astype(np.float64) * factor
    norm = float(np.sqrt(values @ values)) if len(values) else 0.0
    values *= min(1.0, 0.98 * most / norm) if norm else 1.0
    return SparseDelta(draft.delta.size, draft.delta.indices, np.clip(values, -MAX_UNITS, MAX_UNITS).astype(np.int32))


# ---- what entries say ----


def sign_flip(member: Member, draft: Draft) -> list[Draft]:
    return [forged(draft, scaled(draft, -1.0, member.bound))]


def sign_flip_at_the_bound(member: Member, draft: Draft) -> list[Draft]:
    norm = max(1, isqrt(norm_squared(draft.delta.values)))
    return [forged(draft, scaled(draft, -member.bound / norm, member.bound))]


def sign_flip_alone(member: Member, draft: Draft) -> list[Draft]:
    """Claims to be the only author, so that its entry counts in full."""
    return [forged(draft, scaled(draft, -float(draft.weight[0]), member.bound), group=1)]


def many_flips(member: Member, draft: Draft) -> list[Draft]:
    return sign_flip(member, draft) * MANY


def random_at_the_bound(member: Member, draft: Draft) -> list[Draft]:
    rng = np.random.default_rng(member.rng.randrange(1 << 30))
    return [forged(draft, member.sparse((1e9 * rng.standard_normal(draft.delta.size)).astype(np.float32)))]


def against_the_mean(factor: float, alone: bool = False) -> Forge:
    """Pushes against where the others go (inner product manipulation)."""

    def forge(member: Member, draft: Draft) -> list[Draft]:
        others = member.dense()
        if not len(others):
            return [draft]
        times = factor * (draft.weight[0] if alone else 1)
        return [forged(draft, member.sparse(-times * others.mean(0)), group=1 if alone else None)]

    return forge


def a_little_is_enough(member: Member, draft: Draft) -> list[Draft]:
    """Publishes values as far from the others' mean as some honest author might be, in every coordinate."""
    others = member.dense()
    if len(others) < 2:
        return [draft]
    return [forged(draft, member.sparse(others.mean(0) - 1.5 * others.std(0)))]


def empty(member: Member, draft: Draft) -> list[Draft]:
    nothing = SparseDelta(draft.delta.size, np.zeros(0, np.uint32), np.zeros(0, np.int32))
    return [forged(draft, nothing)]


def copied(member: Member, draft: Draft) -> list[Draft]:
    others = member.others()
    return [forged(draft, member.rng.choice(others))] if others else [draft]


def to_the_edge(member: Member, draft: Draft) -> list[Draft]:
    """Pushes one weight as far as entries can, so that nobody can train with it."""
    place = member.kept.setdefault("place", member.rng.randrange(draft.delta.size))
    value = min(MAX_UNITS, int(0.98 * member.bound))
    one = SparseDelta(draft.delta.size, np.array([place], np.uint32), np.array([value], np.int32))
    return [forged(draft, one)] * MANY


def to_zero(member: Member, draft: Draft) -> list[Draft]:
    return [forged(draft, member.sparse(-member.policy.set.units.astype(np.float32)))]


def behave_then_flip(member: Member, draft: Draft) -> list[Draft]:
    return [draft] if member.rounds <= PATIENT else sign_flip_at_the_bound(member, draft)


def one_tensor(member: Member, draft: Draft) -> list[Draft]:
    """Pushes against the others' mean, only where the last tensor is: its bound is the one that is easiest to fill."""
    others = member.dense()
    if not len(others):
        return [draft]
    mean = others.mean(0)
    mean[: -member.policy.set.rules.layers[-1]] = 0
    return [forged(draft, member.sparse(-1e3 * mean))]


def every_other_round(member: Member, draft: Draft) -> list[Draft]:
    """Honest work in between hides what the other rounds do."""
    return [draft] if member.rounds % 2 else sign_flip_at_the_bound(member, draft)


def a_few_weights(member: Member, draft: Draft) -> list[Draft]:
    """Honest but for the last layer's largest tenth, which goes the other way at ten times its size."""
    values = draft.delta.values.copy()
    late = np.flatnonzero(draft.delta.indices >= 0.9 * draft.delta.size)
    values[late] = np.clip(values[late].astype(np.int64) * -10, -MAX_UNITS, MAX_UNITS)
    changed = SparseDelta(draft.delta.size, draft.delta.indices, values.astype(np.int32))
    return [forged(draft, scaled(replace(draft, delta=changed), 1.0, member.bound))]


# ---- what logs say ----


def made_up_authors(member: Member, draft: Draft) -> list[Draft]:
    """Fills the set with authors that do not exist."""
    policy, rules = member.policy, member.policy.set.rules
    nothing = encode_delta(SparseDelta(rules.size, np.zeros(0, np.uint32), np.zeros(0, np.int32)))
    with policy._lock:
        for _ in range(GHOSTS):
            ghost = Identity(member.rng.randbytes(32))
            entry = Entry(rules.lineage, rules.model, ghost.peer_id, 0, 1, bytes(32), payload=nothing)
            policy._follow(policy.set.add(sign_entry(ghost, entry)))
    return [draft]


def late_fork(member: Member, draft: Draft) -> list[Draft]:
    """Signs two entries of one number early, and shows that only much later."""
    policy = member.policy
    own = [entry for entry in policy.set.log if entry.peer == policy.author.identity.peer_id]
    if member.rounds == EARLY and own:
        other = msgspec.structs.replace(own[-1], trained=Mark(b"another", 1), signature=b"")
        member.kept["proof"] = prove(own[-1], sign_entry(policy.author.identity, other))
    if member.rounds == LATE and "proof" in member.kept:
        with policy._lock:
            policy._follow(policy.set.add_proof(member.kept["proof"]))
    return [draft]


# ---- what is learned ----


def wrong_labels(relabel: Callable[[Any], Any]) -> Begin:
    """Trains honestly on wrong labels."""

    def begin(member: Member) -> None:
        trainer = member.job.trainer
        usual = trainer.steps

        def steps(*arguments: Any, **named: Any) -> Any:
            with _relabelled(member, relabel):
                return usual(*arguments, **named)

        trainer.steps = steps  # type: ignore[method-assign]

    return begin


@contextmanager
def _relabelled(member: Member, relabel: Callable[[Any], Any]) -> Iterator[None]:
    """Other labels while this node trains: all nodes of a simulation share one copy of the data."""
    data = member.job.model_host.data
    assert isinstance(data, InMemory)
    before = data.columns
    data.columns = {**before, "y": relabel(before["y"])}
    try:
        yield
    finally:
        data.columns = before


ATTACKS: dict[str, Attack] = {
    "none": Attack("behaves"),
    "sign flip": Attack("publishes its progress with the sign turned", sign_flip),
    "sign flip at the bound": Attack("the same, as large as an entry may be", sign_flip_at_the_bound),
    "sign flip, G = 1": Attack("the same, claiming to be the only author", sign_flip_alone),
    "20 sign flips a round": Attack("many such entries", many_flips),
    "random at the bound": Attack("noise as large as an entry may be", random_at_the_bound),
    "- mean": Attack("the negative mean of the others' entries", against_the_mean(1.0)),
    "-5 mean": Attack("five times that", against_the_mean(5.0)),
    "-5 mean, G = 1": Attack("the same, claiming to be the only author", against_the_mean(5.0, alone=True)),
    "a little is enough": Attack("1.5 standard deviations off the others' mean", a_little_is_enough),
    "empty": Attack("publishes nothing", empty),
    "copied": Attack("publishes entries of others as its own", copied),
    "edge of the grid": Attack("pushes one weight as far as numbers go", to_the_edge),
    "to zero": Attack("pulls all weights to zero", to_zero),
    "behave, then flip": Attack("is honest for 15 rounds", behave_then_flip),
    "every other round": Attack("is honest in every other round", every_other_round),
    "a few weights": Attack("is honest but for a tenth of the last layer", a_few_weights),
    "one tensor": Attack("puts all that it may into the last tensor, against the others' mean", one_tensor),
    "new logs": Attack("20 sign flips a round, each in a new log", many_flips, new_logs=True),
    "overlooks": Attack("from round 10 on 20 flips a round that cite nothing new", many_flips, overlooks=True),
    "made-up authors": Attack("adds 200 authors a round", made_up_authors),
    "late fork proof": Attack("shows in round 10 that it signed entry 3 twice", late_fork),
    "label flip": Attack("trains on labels 9 − y", begin=wrong_labels(lambda y: 9 - y)),
    "backdoor 3 to 8": Attack("trains on threes labelled as eights", begin=wrong_labels(lambda y: y + 5 * (y == 3))),
    "half flip": Attack("trains on wrong labels from 5 on", begin=wrong_labels(lambda y: y.where(y < 5, 14 - y))),
}
