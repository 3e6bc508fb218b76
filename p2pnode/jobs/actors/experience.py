"""Rollouts of other laptops, within bounds: the latest few of each, each only once. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...wire.bounded import put_bounded

MAX_ACTORS = 64

T = TypeVar("T")


@dataclass
class LatestByActor(Generic[T]):
    """The latest things of each actor. A thing comes with a ticket, which rises: what comes again is not kept."""

    each: int = 1  # things kept of one actor
    _things: dict[str, tuple[T, ...]] = field(default_factory=dict)
    _tickets: dict[str, int] = field(default_factory=dict)

    def put(self, actor: str, ticket: int, thing: T) -> bool:
        """Keep it; returns False where the ticket is not above the actor's last one."""
        if ticket <= self._tickets.get(actor, -1):
            return False
        put_bounded(self._tickets, actor, ticket, 2 * MAX_ACTORS)
        put_bounded(self._things, actor, (*self._things.get(actor, ()), thing)[-self.each :], MAX_ACTORS)
        return True

    def all(self) -> list[T]:
        """All things, those of one actor after the other's."""
        return [thing for actor in sorted(self._things) for thing in self._things[actor]]

    def by_actor(self) -> dict[str, tuple[T, ...]]:
        return dict(self._things)

    def take(self) -> list[T]:
        """All things, which are then forgotten; tickets are not."""
        found = self.all()
        self._things.clear()
        return found

    def __len__(self) -> int:
        return sum(map(len, self._things.values()))
