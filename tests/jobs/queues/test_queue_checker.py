"""Every order of takeovers, steps and messages: work of two owners never counts for one term, and nodes agree."""

from __future__ import annotations

from unittest.mock import patch

from p2pnode.jobs.queues import log as logs
from tests.jobs.queues.lease_checker import Checker, Scope


def test_no_order_of_events_breaks_the_rules() -> None:
    report = Checker(Scope(nodes=2, terms=2, steps=4, items=1, max_states=20_000)).run()
    assert report.complete and report.states > 500
    assert report.taken_back > 0, "splits did happen"
    assert (report.fenced_counted, report.items_twice, report.unequal) == (0, 0, 0)


def test_three_nodes() -> None:
    report = Checker(Scope(nodes=3, terms=1, steps=3, items=1, max_states=4_000)).run()
    assert report.states >= 4_000 or report.complete
    assert (report.fenced_counted, report.items_twice, report.unequal) == (0, 0, 0)


def test_the_checker_notices_a_log_that_prefers_long_branches() -> None:
    """Without fencing by term, nodes could follow a deposed owner for ever."""

    def by_length(step: logs.Step, id: bytes) -> logs.Rank:
        return 0, b"", step.index, b""

    with patch.object(logs, "_rank", by_length):
        report = Checker(Scope(nodes=2, terms=2, steps=4, items=1, max_states=5_000)).run()
    assert report.unequal > 0
