"""Which circle a node should be in: advice from the dendrogram, calm by hysteresis (node/partners/circling does it).

A circle shares one delta set, so its traffic grows with its size: 8 are aimed at, 16 are the most. Where the run's aim
is one model for all, circles are drawn across communities, so that each sees all kinds of data; where each community
is to be good at its own, within them. Bounds leave room between them: what joined does not split at once, and who moved
gains nothing by moving back.
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
SPLIT = 12  # a circle of so many splits: views differ, so that it may grow a little before all have noticed
FULL = 10  # the most a circle grows to by moves and joins
FEWEST = 4  # fewer look for another circle
SETTLE_ROUNDS = 10  # after a change, before a circle splits; it joins another after twice as many
HASTE_ROUNDS = 5  # the same for a circle above the most
REST_ROUNDS = 50  # before a node moves again
LOT = 0.05  # chance a decision that another than the first member splits a circle: the first may not want to
GAIN = 0.2  # of the dendrogram's top, that a move must bring
CROWD = 2 * MAX_CIRCLE  # a circle of more goes apart in several parts at once


@dataclass(frozen=True)
class Advice:
    """What to do about the own circle. `circle` is where to go, `members` who leave together in a split."""

    what: Literal["stay", "enter", "found", "split", "join", "move"]
    why: str
    circle: str = ""
    members: tuple[PeerId, ...] = ()


@dataclass(frozen=True)
class Declared:
    """Who says to be in which circle, this node included ("" where it is in none yet)."""

    me: PeerId
    circles: Mapping[PeerId, str]

    @property
    def mine(self) -> str:
        return self.circles.get(self.me, "")

    def by_name(self) -> dict[str, list[PeerId]]:
        """Circles and their members, both in order."""
        found: dict[str, list[PeerId]] = {}
        for peer in sorted(self.circles):
            if self.circles[peer]:
                found.setdefault(self.circles[peer], []).append(peer)
        return {name: found[name] for name in sorted(found)}


def advise(declared: Declared, tree: Dendrogram, aim: Aim, rounds_here: int, rng: random.Random) -> Advice:
    """What this node should do now, `rounds_here` after its circle last changed.

    One member of a circle splits or joins it: the first, whatever the dendrograms of the others are. In its place
    others may split it by lot; in a crowd the first of each part does.
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
    """How well peers go with a circle, the more the better: near to it, or far from it, as the run's aim wants."""
    inside, coming = list(circle), list(peers)
    heights = [tree.height(one, other) for one in coming for other in inside if one != other]
    known = [height for height in heights if height is not None]
    mean = sum(known) / len(known) if known else tree.top / 2
    return -mean if aim == "own" else mean


def _known(me: PeerId, circle: Iterable[PeerId], tree: Dendrogram) -> bool:
    """Whether anything is known of how far this node is from a circle."""
    return any(tree.height(me, member) is not None for member in circle)


def _words(aim: Aim) -> str:
    return "most like this node" if aim == "own" else "least like this node"


def _enter(me: PeerId, circles: Mapping[str, list[PeerId]], tree: Dendrogram, aim: Aim, rng: random.Random) -> Advice:
    """Small circles first: a newcomer is worth most there. By its fingerprint where there is one and it decides.

    Equal circles by lot, so that many who come at once do not all enter the same. Where none has room, the smallest
    will split soon.
    """
    if not circles:
        return Advice("found", "there is no circle yet")
    room = {name: members for name, members in circles.items() if len(members) < MAX_CIRCLE}
    wanting = {name: members for name, members in room.items() if len(members) < TARGET} or room or circles
    fits = {name: round(fit([me], members, tree, aim), 9) for name, members in wanting.items() if room}
    best = max(wanting, key=lambda name: (fits.get(name, 0.0), -len(wanting[name]), rng.random()))
    why = _words(aim) if len({*fits.values()}) > 1 else "the fewest of all"
    return Advice("enter", f"{len(wanting[best])} members, {why}", best)


def _split(
    me: PeerId, members: list[PeerId], tree: Dendrogram, aim: Aim, rounds_here: int, rng: random.Random
) -> Advice:
    """Two halves, or as many parts as a crowd makes; who splits goes with its part. One part stays."""
    if rounds_here < (SETTLE_ROUNDS if len(members) <= MAX_CIRCLE else HASTE_ROUNDS):
        return Advice("stay", f"{len(members)} members; the circle changed lately")
    parts = _services(members, tree, aim)
    part = next(part for part in parts if me in part)
    acts = me == members[0] or (len(parts) > 2 and me == min(part) and part is not parts[-1])
    if not acts and rng.random() * len(members) >= LOT:
        return Advice("stay", f"{len(members)} members: {min(part)} splits the circle")
    leaving = sorted(peer for peer in part if peer >= me)  # the smallest of them signs
    if len(leaving) < FEWEST:
        return Advice("stay", f"{len(members)} members; too few would go with this node")
    return Advice("split", f"{len(members)} members; {TARGET} are aimed at", members=tuple(leaving))


def _services(members: list[PeerId], tree: Dendrogram, aim: Aim) -> list[list[PeerId]]:
    """Adjacent branches each, or every second, third … peer along the branches."""
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
    """The smaller goes into the larger, of equal ones the later name into the earlier: no two go into each other."""
    own, fitting = circles[declared.mine], joinable(declared)
    few = f"only {len(own)} in the circle"
    if rounds_here < 2 * SETTLE_ROUNDS:
        return Advice("stay", f"{few}; others may be on their way")
    if not fitting:
        return Advice("stay", f"{few}, and no larger one has room")
    if declared.me != own[0]:
        return Advice("stay", f"{few}: {own[0]} joins it to another")
    best = max(fitting, key=lambda name: (fit(own, fitting[name], tree, aim), name))
    return Advice("join", f"{few}; {len(fitting[best])} in the other", best)


def joinable(declared: Declared) -> dict[str, list[PeerId]]:
    """The circles that ours may join: larger ones, of equal ones those with an earlier name, with room for us."""
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
    """Rarely: only for a clear gain that is known of, after a rest, and one member at a time, by lot."""
    own = circles[declared.mine]
    if rounds_here < REST_ROUNDS or len(own) <= FEWEST:
        return Advice("stay", "here for too short a time" if rounds_here < REST_ROUNDS else "the circle needs us")
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
    return Advice("move", f"fits better by {gains[best]:.3f}: {_words(aim)}", best)
