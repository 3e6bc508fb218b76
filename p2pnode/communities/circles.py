"""Which circle a node should be in: advice from the dendrogram, calm by hysteresis. Circles themselves are declared.

A circle shares one delta set, so its traffic grows with its size: 8 are aimed at, 16 are the most. Where the run's aim
is one model for all, circles are drawn across communities, so that each sees all kinds of data; where each community
is to be good at its own, within them. Bounds leave room between them: what joined does not split at once, and who moved
gains nothing by moving back.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ..ids import PeerId
from .annealing import Aim
from .dendrogram import Dendrogram

TARGET = 8
MOST = 16
SPLIT = 12  # a circle of so many splits: views differ, so that it may grow a little before all have noticed
FULL = 10  # the most a circle grows to by moves and joins
FEWEST = 4  # fewer look for another circle
REST_ROUNDS = 50  # before a node moves again
GAIN = 0.2  # of the dendrogram's top, that a move must bring


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
    """What this node should do now. At most one member of a circle is advised to split or join it."""
    circles = declared.by_name()
    if not declared.mine:
        return _enter(declared.me, circles, tree, aim)
    members = circles[declared.mine]
    if len(members) >= SPLIT:
        return _split(declared.me, members, tree, aim)
    if len(members) < FEWEST:
        return _join(declared, circles, tree, aim)
    return _move(declared, circles, tree, aim, rounds_here, rng)


def fit(peers: Iterable[PeerId], circle: Iterable[PeerId], tree: Dendrogram, aim: Aim) -> float:
    """How well peers go with a circle, the more the better: near to it, or far from it, as the run's aim wants."""
    inside, coming = list(circle), list(peers)
    heights = [tree.height(one, other) for one in coming for other in inside if one != other]
    known = [height for height in heights if height is not None]
    mean = sum(known) / len(known) if known else tree.top / 2
    return -mean if aim == "own" else mean


def _words(aim: Aim) -> str:
    return "most like this node" if aim == "own" else "least like this node"


def _enter(me: PeerId, circles: Mapping[str, list[PeerId]], tree: Dendrogram, aim: Aim) -> Advice:
    """Small circles first: a newcomer is worth most there."""
    room = {name: members for name, members in circles.items() if len(members) < MOST}
    if not room:
        return Advice("found", "no circle has room" if circles else "there is no circle yet")
    wanting = {name: members for name, members in room.items() if len(members) < TARGET} or room
    best = max(wanting, key=lambda name: (fit([me], wanting[name], tree, aim), -len(wanting[name]), name))
    return Advice("enter", f"{len(wanting[best])} members, {_words(aim)}", best)


def _split(me: PeerId, members: list[PeerId], tree: Dendrogram, aim: Aim) -> Advice:
    """Two halves: adjacent branches each, or every second peer along the branches. The first peer's half stays."""
    order = {peer: number for number, peer in enumerate(tree.leaves)}
    ranked = sorted(members, key=lambda peer: (order.get(peer, len(order)), peer))
    middle = len(ranked) // 2
    halves = (ranked[:middle], ranked[middle:]) if aim == "own" else (ranked[::2], ranked[1::2])
    leaving = next(half for half in halves if members[0] not in half)
    if me != min(leaving):
        return Advice("stay", f"{len(members)} members: {min(leaving)} splits the circle")
    return Advice("split", f"{len(members)} members; {TARGET} are aimed at", members=tuple(sorted(leaving)))


def _join(declared: Declared, circles: Mapping[str, list[PeerId]], tree: Dendrogram, aim: Aim) -> Advice:
    """The smaller goes into the larger, of equal ones the later name into the earlier: no two go into each other."""
    own = circles[declared.mine]
    rank = (-len(own), declared.mine)
    fitting = {
        name: members
        for name, members in circles.items()
        if (-len(members), name) < rank and len(members) + len(own) <= FULL
    }
    few = f"only {len(own)} in the circle"
    if not fitting:
        return Advice("stay", f"{few}, and no larger one has room")
    if declared.me != own[0]:
        return Advice("stay", f"{few}: {own[0]} joins it to another")
    best = max(fitting, key=lambda name: (fit(own, fitting[name], tree, aim), name))
    return Advice("join", f"{few}; {len(fitting[best])} in the other", best)


def _move(
    declared: Declared,
    circles: Mapping[str, list[PeerId]],
    tree: Dendrogram,
    aim: Aim,
    rounds_here: int,
    rng: random.Random,
) -> Advice:
    """Rarely: only for a clear gain, after a rest, and one member at a time, by lot."""
    own = circles[declared.mine]
    if rounds_here < REST_ROUNDS or len(own) <= FEWEST:
        return Advice("stay", "here for too short a time" if rounds_here < REST_ROUNDS else "the circle needs us")
    others = {name: members for name, members in circles.items() if name != declared.mine and len(members) < FULL}
    here = fit([declared.me], own, tree, aim)
    gains = {name: fit([declared.me], members, tree, aim) - here for name, members in others.items()}
    best = max(gains, key=lambda name: (gains[name], name), default="")
    if not best or gains[best] < GAIN * tree.top or tree.top == 0:
        return Advice("stay", "no other circle fits clearly better")
    if rng.random() * len(own) >= 1:
        return Advice("stay", f"{best} fits better; others may move first")
    return Advice("move", f"fits better by {gains[best]:.3f}: {_words(aim)}", best)
