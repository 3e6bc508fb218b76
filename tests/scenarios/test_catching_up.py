"""A node that was away for longer than entries are kept takes a snapshot, keeps its own log, and all agree again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from p2pnode.merging.deltaset.chains import KEPT
from p2pnode.network.sim import Fault
from tests.scenarios.test_training import PLAN, TRAINING, check_one_set, run_then_rest

pytestmark = pytest.mark.slow
AWAY = 2.0 * KEPT * TRAINING.round_seconds


def test_behind_what_is_kept_a_snapshot_is_taken() -> None:
    training = replace(TRAINING, rounds=2 * KEPT + 40)
    plan = replace(PLAN, peers=4, training=training, seconds=1500.0, faults=(Fault(30.0, "crash", (2,), seconds=AWAY),))
    result, found = run_then_rest(plan)
    check_one_set(found, 4)
    assert result.nodes[2].starts == 2
    dropped = found[0].set.log.dropped()
    assert len(dropped) == 4
    assert all(seq > KEPT for seq in dropped.values())
