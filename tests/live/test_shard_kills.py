"""Real processes that move shards among each other while they are killed: afterwards every shard is counted."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.handoff_live import measure_kills

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.xdist_group("shards")]


def test_no_shard_is_lost_when_real_processes_are_killed() -> None:
    figures = asyncio.run(measure_kills(kills=3, count=3, shards=8))
    assert figures == {"sigkills": 3, "sigkill_shards": 24, "lost": 0, "extra_holders": 0}
