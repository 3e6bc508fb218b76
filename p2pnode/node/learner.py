"""Making a node learn: from a run's plan to a `Learning` that stands where the run stands."""

from __future__ import annotations

import asyncio

import numpy as np
from numpy.typing import NDArray

from ..merge.policy import Origin
from ..merge.registry import POLICIES
from ..network.base import Seconds
from ..run import Plan, RunAccess
from ..shards.share import parse_split, split
from ..weights import to_units
from .bench import Bench
from .entrance import Share
from .learning import MODEL, Learning
from .parts import Parts
from .taskchoice import TaskChoice
from .workshop import follow_plan, has_genesis, make_plan

ASK_PAUSE: Seconds = 1.0
ASKS_WITH_GENESIS = 3  # how often members are asked for a snapshot before starting from genesis


async def new_plan(choice: TaskChoice, parts: Parts) -> Plan:
    """The plan of a run founded for a task."""
    seed = parts.world.rng.getrandbits(60)
    return await parts.world.compute(lambda: make_plan(parts.world.open_bench(choice, seed), choice, seed))


async def prepare(
    plan: Plan, choice: TaskChoice, share: Share | None, parts: Parts, access: RunAccess, circle: str = ""
) -> Learning:
    """A learning that has its own saved progress, a member's snapshot, or the genesis to go on from."""
    world = parts.world
    bench = await world.compute(lambda: follow_plan(plan, choice, world.open_bench))
    origin = Origin(
        genesis=to_units(bench.genesis),
        identity=parts.identity,
        lineage=plan.genesis,
        model=MODEL,
        layout=plan.layout,
        settings=plan.settings,
        seed=plan.seed,
    )
    policy = POLICIES[plan.policy](origin)
    rows = None if share is None else fixed_rows(bench, share)
    learning = Learning(parts, access, bench, policy, plan.round_seconds, plan.max_steps, rows, circle)
    if await learning.resume():
        parts.events.say("resumed learning", f"going on with {plan.task} after {learning.standings.rounds} rounds")
        return learning
    if await _catch_up(learning, has_genesis(plan, bench)):
        parts.events.say("caught up", f"learning {plan.task} from where the run stands")
    else:
        parts.events.say("learning", f"learning {plan.task} from its beginning")
    return learning


async def _catch_up(learning: Learning, genesis: bool) -> bool:
    """Take over a member's snapshot. Without the genesis there is no other way in, so it is tried for ever."""
    asked = 0
    while True:
        members = learning.members()
        if members and await learning.adopt_from(members):
            return True
        asked += 1
        if genesis and (not members or asked >= ASKS_WITH_GENESIS):
            return False
        await asyncio.sleep(ASK_PAUSE)


def fixed_rows(bench: Bench, share: Share) -> NDArray[np.int64]:
    """One part of the data, as an experiment deals it."""
    labels = bench.task.labels(bench.data)
    classes = None if labels is None else labels.numpy()
    return split(classes, bench.samples, share.parts, parse_split(share.how), share.seed)[share.part]
