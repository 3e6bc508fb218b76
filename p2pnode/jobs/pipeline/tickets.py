"""Each gradient counts once: which gradients a server has added up, who sent them, and when it may step. Pure.

A driver may ask two servers for the same thing when the first is slow. So a server adds a gradient up at once, but
steps with it only after its driver has confirmed that this server's answer is the one it went on with. A driver
confirms one server for each ticket (micro-batch and blocks). What is not confirmed in time is taken out again.

Gradients are added up in windows. One that has enough is closed, and the next ones go into a new window; the closed one
is stepped with as soon as all that is in it is confirmed or taken out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from ...wire.bounded import put_bounded
from ...wire.types import Seconds

CONFIRM_WITHIN: Seconds = 10.0
REMEMBERED = 4096  # tickets that are settled

P = TypeVar("P")


class Ticket(NamedTuple):
    """One gradient of one driver: which of its micro-batches, and through which blocks."""

    driver: str
    number: int
    first: int
    stop: int


@dataclass
class Added(Generic[P]):
    """A gradient that was added up and is not settled yet. `payload` is what it takes to take it out again."""

    ticket: Ticket
    samples: int
    at: Seconds
    payload: P
    windows: dict[int, int]  # for each block the window that it went into


@dataclass
class _Block:
    window: int = 0  # where gradients are added up now
    samples: dict[int, int] = field(default_factory=dict)  # in each window


class TicketLedger(Generic[P]):
    """The gradients at one server."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._open: dict[Ticket, Added[P]] = {}
        self._settled: dict[Ticket, bool] = {}

    def knows(self, ticket: Ticket) -> bool:
        """Whether this gradient is in a sum, or was: then it must not be added again. One taken out may be."""
        return ticket in self._open or self._settled.get(ticket, False)

    def add(self, ticket: Ticket, samples: int, payload: P, now: Seconds) -> None:
        """A gradient was added up. ValueError when it was before."""
        if self.knows(ticket):
            raise ValueError(f"{ticket} is known")
        windows = {}
        for number in range(ticket.first, ticket.stop):
            block = self._blocks.setdefault(number, _Block())
            block.samples[block.window] = block.samples.get(block.window, 0) + samples
            windows[number] = block.window
        self._open[ticket] = Added(ticket, samples, now, payload, windows)

    def confirm(self, driver: str, numbers: Iterable[tuple[int, int, int]]) -> None:
        """The driver went on with these answers. Others than its own cannot be meant."""
        for number, first, stop in numbers:
            ticket = Ticket(driver, number, first, stop)
            if self._open.pop(ticket, None) is not None:
                self._note(ticket, True)

    def overdue(self, now: Seconds) -> list[Added[P]]:
        """What was not confirmed in time, and must be taken out."""
        return [added for added in self._open.values() if now - added.at > CONFIRM_WITHIN]

    def wanted_out(self, driver: str, numbers: Iterable[tuple[int, int, int]]) -> list[Added[P]]:
        """What is still open of the answers that a driver did not go on with, and must be taken out."""
        tickets = [Ticket(driver, *one) for one in numbers]
        return [self._open[ticket] for ticket in tickets if ticket in self._open]

    def taken_out(self, added: Added[P]) -> None:
        """A gradient was taken out of the windows it had gone into."""
        if self._open.pop(added.ticket, None) is None:
            return
        self._note(added.ticket, False)
        for number, window in added.windows.items():
            self._blocks[number].samples[window] -= added.samples

    def _note(self, ticket: Ticket, counted: bool) -> None:
        put_bounded(self._settled, ticket, counted, REMEMBERED)

    def counted(self, ticket: Ticket) -> bool:
        """Whether this gradient is confirmed here, as far as is remembered."""
        return self._settled.get(ticket, False)

    def counted_tickets(self) -> list[Ticket]:
        """What is confirmed here, as far as is remembered."""
        return [ticket for ticket, counted in self._settled.items() if counted]

    def was_taken_out(self, ticket: Ticket) -> bool:
        """Whether this gradient was taken out, as far as is remembered."""
        return ticket in self._settled and not self._settled[ticket]

    # ---- windows of one block ----

    def in_window(self, number: int) -> int:
        """Samples in the window of a block where gradients are added up now."""
        block = self._blocks.get(number, _Block())
        return block.samples.get(block.window, 0)

    def closed(self, number: int) -> bool:
        """Whether a closed window of a block waits to be stepped with."""
        block = self._blocks.get(number)
        return block is not None and block.window - 1 in block.samples

    def close(self, number: int) -> None:
        """Add up in a new window from now on. Only while no other one waits."""
        assert not self.closed(number)
        block = self._blocks.setdefault(number, _Block())
        block.samples.setdefault(block.window, 0)
        block.window += 1

    def ready(self, number: int) -> bool:
        """Whether a closed window waits and everything in it is settled."""
        block = self._blocks.get(number)
        if block is None or block.window - 1 not in block.samples:
            return False
        return not any(added.windows.get(number) == block.window - 1 for added in self._open.values())

    def is_closed(self, added: Added[P], number: int) -> bool:
        """Whether a gradient went into the window of a block that waits to be stepped with."""
        return added.windows[number] < self._blocks[number].window

    def take(self, number: int) -> int:
        """Samples in the closed window, which is stepped with now and forgotten."""
        block = self._blocks[number]
        return block.samples.pop(block.window - 1)

    def forget(self, number: int) -> None:
        """This server does not hold a block any more."""
        self._blocks.pop(number, None)
        for added in self._open.values():
            added.windows.pop(number, None)
