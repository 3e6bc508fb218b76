"""A delta set's way from one circle to another: splitting off, following a split, taking over elsewhere, uniting. Pure.

Nothing here changes the policy: each gives a set to go on with, and `FormsCircles.move` goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..compression.residual import within
from ..compression.weights import MAX_UNITS
from ..merging.capabilities import FormsCircles
from ..merging.deltaset.bridges import BridgeDraft, union_delta
from ..merging.deltaset.entry import UNION
from ..merging.deltaset.set import DeltaSet, weights_hash
from ..merging.deltaset.snapshots import decode_place, take_over, units_of
from ..merging.snapshots.outline import Snapshot
from ..wire.ids import Identity, PeerId
from ..wire.types import MAX_PLACE_BYTES
from .founding import CircleFounding, first_set, sign_found

MOST_UNITS = MAX_UNITS + MAX_UNITS // 4  # entries of several authors at once may lead a little beyond the bound
OLD_ENOUGH = 0.5  # of the larger circle's steps per member, for a smaller one's weights to be worth uniting


def split_off(
    policy: FormsCircles, identity: Identity, members: Iterable[PeerId], group: int, genesis: bytes
) -> tuple[CircleFounding, DeltaSet]:
    """Leave a circle of `group` together with `members`: the word for it, and the set the new circle begins with.

    ValueError when that cannot be told.
    """
    here = policy.snapshot()
    if here is None:
        raise ValueError("this node's weights are not in order")
    if len(here.place) > MAX_PLACE_BYTES:
        raise ValueError("too many logs to tell of")
    units = units_of(here, policy.set.rules)
    found = CircleFounding(here.place, weights_hash(units), group, tuple(members))
    signed = sign_found(identity, found)
    return signed, first_set(signed, genesis, policy.set.rules, units)


def follow_split(policy: FormsCircles, found: CircleFounding, genesis: bytes) -> DeltaSet | None:
    """The same beginning, made from our own entries; None when we lack some, or no longer keep them.

    ValueError when the founder signed anything but what the entries make.
    """
    there = policy.snapshot(found.place)
    if there is None:
        return None
    if there.place != found.place:
        raise ValueError("the founder of a circle signed other steps than its entries make")
    return first_set(found, genesis, policy.set.rules, units_of(there, policy.set.rules))


def elsewhere(policy: FormsCircles, lineage: bytes, snapshot: Snapshot) -> DeltaSet:
    """The set of another circle, from a snapshot of it; ValueError when it is none."""
    rules = replace(policy.set.rules, lineage=lineage)
    place, units = decode_place(snapshot.place, rules), units_of(snapshot, rules)
    if not -MOST_UNITS <= units.min() <= units.max() <= MOST_UNITS:
        raise ValueError("weights beyond what can be shared")
    return take_over(place, units, rules, kept=snapshot.kept)


def union_with(policy: FormsCircles, larger: DeltaSet, members: int, others: int) -> BridgeDraft | None:
    """What our circle of `members` adds to the larger one of `others` when it joins; None when it has nothing to add.

    A circle that has learned far less has not: half the way to it would undo what the larger one knows.
    """
    ours = policy.set
    if ours.steps * others < OLD_ENOUGH * larger.steps * members:
        return None
    delta = union_delta(ours.units, larger.units, members, others)
    return BridgeDraft(ours.rules.lineage, within(delta, larger.rules.max_union_norm_units), kind=UNION)
