"""Decides which circle a node should be in, from the tree of similarities. driver.py carries the advice out.

A circle shares one delta set, so its traffic grows with its size: the target is 8 members, the maximum 16. If the run's
aim is one model for all, circles are drawn across communities, so that each sees all kinds of data; if each community
should be good at its own data, circles are drawn within them. The thresholds leave room between them: a circle that was
joined does not split at once, and a node that moved gains nothing by moving back.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ..similarity.communities import Dendrogram
from ..wire.ids import PeerId
from ..wire.run import Aim

TARGET = 8
MAX_CIRCLE = 16
SPLIT = 12  # members at which a circle splits; it may grow a little further, since views differ
FULL = 10  # members up to which moves and joins fill a circle
FEWEST = 4  # a circle with fewer members joins another one
SETTLE_ROUNDS = 10  # after a change, before a circle splits; before it joins another one, twice as many
HASTE_ROUNDS = 5  # the same for a circle above the maximum
REST_ROUNDS = 50  # before a node moves again
LOT = 0.05  # chance per decision that some other member splits the circle: the first may not do its part
GAIN = 0.2  # what a move must gain, as a share of the height of the tree
CROWD = 2 * MAX_CIRCLE  # a circle with more members splits into several parts at once


@dataclass(frozen=True)
class Advice:
    """What to do about this node's circle: `circle` is where to go, `members` are those who split off together."""

    what: Literal["stay", "enter", "found", "split", "join", "move"]
    reason: str
    circle: str = ""
    members: tuple[PeerId, ...] = ()


@dataclass(frozen=True)
class Declared:
    """Which circle each peer says it is in, this node included; "" for none yet."""

    me: PeerId
    circles: Mapping[PeerId, str]

    @property
    def mine(self) -> str:
        return self.circles.get(self.me, "")

    def by_name(self) -> dict[str, list[PeerId]]:
        """The members of each circle; circles and members are sorted."""
        found: dict[str, list[PeerId]] = {}
        for peer in sorted(self.circles):
            if self.circles[peer]:
                found.setdefault(self.circles[peer], []).append(peer)
        return {name: found[name] for name in sorted(found)}


def advise(declared: Declared, tree: Dendrogram, aim: Aim, rounds_here: int, rng: random.Random) -> Advice:
    """What this node should do now; its circle last changed `rounds_here` rounds ago.

    The first member of a circle splits it or joins it to another one, so that differing views do no harm. Other members
    split it now and then by chance, in case the first does not; in a crowd the first of each part splits off.
    """
    circles = declared.by_name()
    if not declared.mine:
        return _enter(declared.me, circles, tree, aim, rng)
    members = circles[declared.mine]
    if len(members) >= SPLIT:
        return _split(declared.me, members, tree, aim, rounds_here, rng)
    if len(members) < FEWEST:
        return _join(declared, circles, tree, aim, rounds_here)
    return _move(declared, circles, tree, aim, rounds_here, rng)


def fit(peers: Iterable[PeerId], circle: Iterable[PeerId], tree: Dendrogram, aim: Aim) -> float:
    """How well peers fit a circle: how similar they are to it, or how different, as the run's aim wants."""
    inside, newcomers = list(circle), list(peers)
    heights = [tree.height(one, other) for one in newcomers for other in inside if one != other]
    known = [height for height in heights if height is not None]
    mean = sum(known) / len(known) if known else tree.top / 2
    return -mean if aim == "own" else mean


def _known(me: PeerId, circle: Iterable[PeerId], tree: Dendrogram) -> bool:
    """Whether anything is known of how similar this node is to a circle."""
    return any(tree.height(me, member) is not None for member in circle)


def _aim_text(aim: Aim) -> str:
    return "most similar to this node" if aim == "own" else "least similar to this node"


def _enter(me: PeerId, circles: Mapping[str, list[PeerId]], tree: Dendrogram, aim: Aim, rng: random.Random) -> Advice:
    """Small circles first, where a newcomer helps most; among them the one that fits its fingerprint, if it has one.

    Equal circles are chosen by chance, so that many newcomers do not all enter the same one. If no circle has room, the
    smallest is entered, which will split soon.
    """
    if not circles:
        return Advice("found", "there is no circle yet")
    room = {name: members for name, members in circles.items() if len(members) < MAX_CIRCLE}
    small = {name: members for name, members in room.items() if len(members) < TARGET} or room or circles
    fits = {name: round(fit([me], members, tree, aim), 9) for name, members in small.items() if room}
    best = max(small, key=lambda name: (fits.get(name, 0.0), -len(small[name]), rng.random()))
    reason = _aim_text(aim) if len({*fits.values()}) > 1 else "the fewest of all"
    return Advice("enter", f"{len(small[best])} members, {reason}", best)


def _split(
    me: PeerId, members: list[PeerId], tree: Dendrogram, aim: Aim, rounds_here: int, rng: random.Random
) -> Advice:
    """Split into two halves, or a crowd into several parts. Whoever splits leaves with its part; one part stays."""
    if rounds_here < (SETTLE_ROUNDS if len(members) <= MAX_CIRCLE else HASTE_ROUNDS):
        return Advice("stay", f"{len(members)} members; the circle changed recently")
    parts = _parts(members, tree, aim)
    part = next(part for part in parts if me in part)
    acts = me == members[0] or (len(parts) > 2 and me == min(part) and part is not parts[-1])
    if not acts and rng.random() * len(members) >= LOT:
        return Advice("stay", f"{len(members)} members: {min(part)} splits the circle")
    leaving = sorted(peer for peer in part if peer >= me)  # the smallest id must sign
    if len(leaving) < FEWEST:
        return Advice("stay", f"{len(members)} members; too few would go with this node")
    return Advice("split", f"{len(members)} members; the target is {TARGET}", members=tuple(leaving))


def _parts(members: list[PeerId], tree: Dendrogram, aim: Aim) -> list[list[PeerId]]:
    """Parts of a circle: adjacent branches of the tree for the aim `own`, else every n-th peer along the branches."""
    order = {peer: number for number, peer in enumerate(tree.leaves)}
    ranked = sorted(members, key=lambda peer: (order.get(peer, len(order)), peer))
    count = 2 if len(members) <= CROWD else len(members) // TARGET
    if aim == "shared":
        return [ranked[part::count] for part in range(count)]
    bounds = [len(ranked) * part // count for part in range(count + 1)]
    return [ranked[first:last] for first, last in pairwise(bounds)]


def _join(
    declared: Declared, circles: Mapping[str, list[PeerId]], tree: Dendrogram, aim: Aim, rounds_here: int
) -> Advice:
    """The smaller circle joins the larger, of equal ones the later name the earlier, so that no two join each other."""
    own, fitting = circles[declared.mine], joinable(declared)
    few = f"only {len(own)} in the circle"
    if rounds_here < 2 * SETTLE_ROUNDS:
        return Advice("stay", f"{few}; newcomers may be on their way")
    if not fitting:
        return Advice("stay", f"{few}, and no larger circle has room")
    if declared.me != own[0]:
        return Advice("stay", f"{few}: {own[0]} joins it to another")
    best = max(fitting, key=lambda name: (fit(own, fitting[name], tree, aim), name))
    return Advice("join", f"{few}; {len(fitting[best])} in the other", best)


def joinable(declared: Declared) -> dict[str, list[PeerId]]:
    """The circles that this node's may join: larger ones, or equal ones with an earlier name, with enough room."""
    circles = declared.by_name()
    own = circles[declared.mine]
    rank = (-len(own), declared.mine)
    return {
        name: members
        for name, members in circles.items()
        if (-len(members), name) < rank and len(members) + len(own) <= FULL
    }


def _move(
    declared: Declared,
    circles: Mapping[str, list[PeerId]],
    tree: Dendrogram,
    aim: Aim,
    rounds_here: int,
    rng: random.Random,
) -> Advice:
    """Moves are rare: only for a clear and known gain, after a rest, and one member at a time, by chance."""
    own = circles[declared.mine]
    if rounds_here < REST_ROUNDS or len(own) <= FEWEST:
        return Advice(
            "stay", "here for too short a time" if rounds_here < REST_ROUNDS else "the circle needs this node"
        )
    others = {
        name: members
        for name, members in circles.items()
        if name != declared.mine and len(members) < FULL and _known(declared.me, members, tree)
    }
    here = fit([declared.me], own, tree, aim)
    gains = {name: fit([declared.me], members, tree, aim) - here for name, members in others.items()}
    best = max(gains, key=lambda name: (gains[name], name), default="")
    if not best or gains[best] < GAIN * tree.top or tree.top == 0:
        return Advice("stay", "no other circle fits clearly better")
    if rng.random() * len(own) >= 1:
        return Advice("stay", f"{best} fits better; others may move first")
    return Advice("move", f"fits better by {gains[best]:.3f}: {_aim_text(aim)}", best)
