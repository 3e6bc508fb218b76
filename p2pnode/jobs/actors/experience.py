"""Rollouts of other laptops, within bounds: the latest few of each, each only once. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...wire.bounded import put_bounded

MAX_ACTORS = 64

T = TypeVar("T")


@dataclass
class LatestByActor(Generic[T]):
    """The latest things of each actor, by tickets, which rise. They may come late, in any order, and more than once."""

    each: int = 1  # things kept of one actor
    _things: dict[str, tuple[tuple[int, T], ...]] = field(default_factory=dict)  # with their tickets, which rise
    _tickets: dict[str, tuple[int, ...]] = field(default_factory=dict)  # the highest that came, also of taken things

    def put(self, actor: str, ticket: int, thing: T) -> bool:
        """Keep it; returns False where it came before, or as many later things did."""
        known = self._tickets.get(actor, ())
        if ticket in known or (len(known) == self.each and ticket < known[0]):
            return False
        put_bounded(self._tickets, actor, tuple(sorted((*known, ticket)))[-self.each :], 2 * MAX_ACTORS)
        things = sorted((*self._things.get(actor, ()), (ticket, thing)), key=lambda one: one[0])
        put_bounded(self._things, actor, tuple(things)[-self.each :], MAX_ACTORS)
        return True

    def all(self) -> list[T]:
        """All things, those of one actor after the other's."""
        return [thing for actor in sorted(self._things) for _, thing in self._things[actor]]

    def by_actor(self) -> dict[str, tuple[T, ...]]:
        return {actor: tuple(thing for _, thing in things) for actor, things in self._things.items()}

    def take(self) -> list[T]:
        """All things, which are then forgotten; tickets are not."""
        found = self.all()
        self._things.clear()
        return found

    def __len__(self) -> int:
        return sum(map(len, self._things.values()))
