"""Tickets: whatever a driver and a slow network do, a gradient is stepped with at most once, and only if confirmed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from p2pnode.jobs.pipeline.tickets import CONFIRM_WITHIN, Ticket, TicketLedger

Event = tuple[str, int, int]
EVENTS = st.lists(
    st.tuples(st.sampled_from(["ask", "confirm", "drop", "time", "step"]), st.integers(0, 1), st.integers(1, 6)),
    max_size=60,
)


@given(EVENTS)
def test_every_confirmed_gradient_counts_once_and_no_other(events: list[Event]) -> None:
    """Two servers, one driver that confirms one of them for each micro-batch, in any order of events."""
    servers: list[TicketLedger[None]] = [TicketLedger(), TicketLedger()]
    windows: list[dict[int, list[Ticket]]] = [{}, {}]  # what is added up in each window, as a server's tensors would be
    stepped: Counter[int] = Counter()
    chosen: dict[int, int] = {}
    confirmed: set[tuple[int, int]] = set()
    closed = [0, 0]
    now = 0.0
    for kind, server, number in events:
        ledger, ticket = servers[server], Ticket("driver", number, 0, 1)
        if kind == "ask" and not ledger.knows(ticket):
            ledger.add(ticket, 1, None, now)
            windows[server].setdefault(closed[server], []).append(ticket)
        elif kind == "confirm" and chosen.setdefault(number, server) == server:
            ledger.confirm("driver", [(number, 0, 1)])
            if ledger.counted(ticket):
                confirmed.add((server, number))
        elif kind == "drop" and chosen.get(number) != server:
            for added in ledger.wanted_out("driver", [(number, 0, 1)]):
                windows[server][added.windows[0]].remove(added.ticket)
                ledger.taken_out(added)
        elif kind == "time":
            now += CONFIRM_WITHIN / 2 + 0.1
            for added in ledger.overdue(now):
                windows[server][added.windows[0]].remove(added.ticket)
                ledger.taken_out(added)
        elif kind == "step":
            if not ledger.closed(0) and ledger.in_window(0):
                ledger.close(0)
                closed[server] += 1
            if ledger.ready(0):
                content = windows[server].pop(closed[server] - 1, [])
                assert ledger.take(0) == len(content), "the samples are those of the gradients in it"
                stepped.update(one.number for one in content)
                assert all((server, one.number) in confirmed for one in content)
    assert all(count == 1 for count in stepped.values())


def test_a_repeated_request_is_known() -> None:
    ledger: TicketLedger[None] = TicketLedger()
    ticket = Ticket("driver", 1, 0, 2)
    ledger.add(ticket, 4, None, 0.0)
    assert ledger.knows(ticket)
    ledger.confirm("driver", [(1, 0, 2)])
    assert ledger.knows(ticket) and ledger.counted(ticket)
    assert not ledger.knows(Ticket("another", 1, 0, 2)), "tickets are of one driver"


def test_nobody_confirms_for_another() -> None:
    ledger: TicketLedger[None] = TicketLedger()
    ledger.add(Ticket("driver", 1, 0, 1), 4, None, 0.0)
    ledger.confirm("stranger", [(1, 0, 1)])
    ledger.close(0)
    assert not ledger.ready(0)
    ledger.confirm("driver", [(1, 0, 1)])
    assert ledger.ready(0) and ledger.take(0) == 4


def test_a_block_that_is_given_up_is_forgotten() -> None:
    ledger: TicketLedger[None] = TicketLedger()
    ledger.add(Ticket("driver", 1, 0, 2), 4, None, 0.0)
    ledger.forget(0)
    (added,) = ledger.overdue(1000.0)
    ledger.taken_out(added)
    assert ledger.in_window(1) == 0
