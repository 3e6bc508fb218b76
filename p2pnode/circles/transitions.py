"""The delta set to go on with in another circle: after splitting off, following a split, moving, or uniting circles.

Nothing here changes the policy: each function returns a set, and `FormsCircles.move` switches to it. Pure.
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

MOST_UNITS = MAX_UNITS + MAX_UNITS // 4  # concurrent entries may lead a little beyond the bound
OLD_ENOUGH = 0.5  # steps per member, as a share of the larger circle's, from which weights are worth uniting


def split_off(
    policy: FormsCircles, identity: Identity, members: Iterable[PeerId], group: int, genesis: bytes
) -> tuple[CircleFounding, DeltaSet]:
    """Leave a circle of `group` together with `members`: the signed founding record and the new circle's first set.

    ValueError when this node's weights are damaged, or the record would be too long.
    """
    here = policy.snapshot()
    if here is None:
        raise ValueError("this node's weights are damaged")
    if len(here.place) > MAX_PLACE_BYTES:
        raise ValueError("too many logs for a founding record")
    units = units_of(here, policy.set.rules)
    found = CircleFounding(here.place, weights_hash(units), group, tuple(members))
    signed = sign_found(identity, found)
    return signed, first_set(signed, genesis, policy.set.rules, units)


def follow_split(policy: FormsCircles, found: CircleFounding, genesis: bytes) -> DeltaSet | None:
    """The first set of a new circle, from this node's own entries; None when some are missing or no longer kept.

    ValueError when the founder signed anything but what the entries make.
    """
    there = policy.snapshot(found.place)
    if there is None:
        return None
    if there.place != found.place:
        raise ValueError("the founder of a circle signed other steps than its entries make")
    return first_set(found, genesis, policy.set.rules, units_of(there, policy.set.rules))


def set_from_snapshot(policy: FormsCircles, lineage: bytes, snapshot: Snapshot) -> DeltaSet:
    """The set of another circle, from a snapshot of it; ValueError when the snapshot is not one of that lineage."""
    rules = replace(policy.set.rules, lineage=lineage)
    place, units = decode_place(snapshot.place, rules), units_of(snapshot, rules)
    if not -MOST_UNITS <= units.min() <= units.max() <= MOST_UNITS:
        raise ValueError("weights beyond what can be shared")
    return take_over(place, units, rules, kept=snapshot.kept)


def union_with(policy: FormsCircles, larger: DeltaSet, members: int, others: int) -> BridgeDraft | None:
    """The entry that a circle of `members` adds to the larger one of `others` when it joins; None when there is none.

    A circle that has learned far less adds nothing: moving towards it would undo what the larger one knows.
    """
    ours = policy.set
    if ours.steps * others < OLD_ENOUGH * larger.steps * members:
        return None
    delta = union_delta(ours.units, larger.units, members, others)
    return BridgeDraft(ours.rules.lineage, within(delta, larger.rules.max_union_norm_units), kind=UNION)
