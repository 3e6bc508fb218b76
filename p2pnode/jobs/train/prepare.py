"""Making a node learn: from a run's plan to a `Learning` that stands where the run stands."""

from __future__ import annotations

import asyncio

import numpy as np
from numpy.typing import NDArray

from ...compression.selectors.importance import Beside, inline
from ...compression.weights import to_units
from ...config.task_choice import TaskChoice
from ...merging.deltaset.lineage import circle_lineage
from ...merging.policy import Origin, Policy
from ...network.base import Seconds
from ...node.assemble import Parts
from ...node.entrance import NodeSettings, Share
from ...runtime.events import Events
from ...runtime.seams import ThreadCompute
from ...shards.split import parse_split, split
from ...similarity.partners import partner_settings, without_partner_settings
from ...training.background import BesideThread
from ...training.fingerprinter import Fingerprinter
from ...training.host import Bench
from ...training.threads import choose_threads
from ...wire.errors import LocalProblem, UsageError
from ...wire.ids import Identity
from ...wire.run import Manifest, Plan, RunAccess
from .exchange import MODEL
from .job import Learning
from .options import Terms
from .plan import data_hash, follow_plan, has_genesis, known_policy, make_plan, probe_hash

ASK_PAUSE: Seconds = 1.0
ASKS_WITH_GENESIS = 3  # how often members are asked for a snapshot before starting from genesis


async def new_plan(choice: TaskChoice, parts: Parts) -> Plan:
    """The plan of a run founded for a task."""
    seed = parts.world.rng.getrandbits(60)
    return await parts.world.compute(lambda: _checked_plan(choice, seed, parts))


def _checked_plan(choice: TaskChoice, seed: int, parts: Parts) -> Plan:
    bench = parts.world.open_bench(choice, seed)
    plan = make_plan(bench, choice, seed)
    fresh_policy(plan, bench, parts.identity)  # a slip in a setting shows here, not at those who join
    return plan


async def prepare(manifest: Manifest, settings: NodeSettings, parts: Parts, access: RunAccess) -> Learning:
    """A learning that has its own saved progress, a member's snapshot, or the genesis to go on from."""
    plan = manifest.plan
    assert plan is not None
    world, choice = parts.world, settings.task or TaskChoice()
    bench = await world.compute(lambda: follow_plan(plan, choice, world.open_bench))
    if isinstance(world.compute, ThreadCompute):
        await world.compute(lambda: choose_threads(bench, parts.restraint.cores))
    rows = await world.compute(lambda: own_rows(bench, settings, manifest, parts.identity.peer_id))
    beside = BesideThread() if isinstance(world.compute, ThreadCompute) else inline
    policy = fresh_policy(plan, bench, parts.identity, settings.circle, beside)
    terms = Terms(
        round_seconds=plan.round_seconds,
        max_steps=plan.max_steps,
        rows=rows,
        circle=settings.circle,
        genesis=bytes.fromhex(plan.genesis),
        until=settings.until,
        max_disk=settings.max_disk,
        created=manifest.created,
        aim=plan.aim,
        partners=partner_settings(plan.settings),
        share_data=settings.share_data,
        stays_home=not settings.share_data and rows is not None,
        reserve=settings.reserve,
        visits=settings.visits,
    )
    learning = Learning(parts, access, bench, policy, terms)
    learning.fingerprints = await comparing(bench, plan, parts)
    await _find_start(learning, plan, parts)
    return learning


async def comparing(bench: Bench, plan: Plan, parts: Parts) -> Fingerprinter | None:
    """What compares this node's model with others'. Where it cannot, that is said, and the circle alone counts."""
    found, why = await parts.world.compute(lambda: _fingerprinter(bench, plan))
    if why:
        text = f"this node's model cannot be compared with those of others: {why}"
        parts.events.say("fingerprint", text, warning=True)
    return found


def _fingerprinter(bench: Bench, plan: Plan) -> tuple[Fingerprinter | None, str]:
    """And what is wrong with it, if anything: models compare on the same inputs only."""
    try:
        found = Fingerprinter(bench, plan.seed)
        same = probe_hash(bench) == plan.probe
    except (LocalProblem, ValueError) as problem:
        return None, str(problem)
    return found, "" if same else "its probe is not the run's; are the task's data here another version?"


def fresh_policy(plan: Plan, bench: Bench, identity: Identity, circle: str = "", beside: Beside = inline) -> Policy:
    """The plan's policy at the run's beginning; UsageError when it is not known here or cannot have its settings."""
    lineage = circle_lineage(bytes.fromhex(plan.genesis), circle)
    origin = Origin(
        genesis=to_units(bench.genesis),
        identity=identity,
        lineage=lineage.hex(),
        model=MODEL,
        layout=plan.layout,
        settings=without_partner_settings(plan.settings),
        seed=plan.seed,
        layers=bench.layout.layer_sizes,
        beside=beside,
    )
    try:
        partner_settings(plan.settings)
        return known_policy(plan.policy)(origin)
    except ValueError as error:
        raise UsageError(f"the run cannot be learned with these settings: {error}") from None


async def _find_start(learning: Learning, plan: Plan, parts: Parts) -> None:
    """Put the learning where this node was, else where the run is, else at the run's beginning."""
    if await learning.resume():
        parts.events.say("resumed learning", f"going on with {plan.task} after {learning.standings.rounds} rounds")
        return
    if await catch_up(learning, has_genesis(plan, learning.bench), parts.events):
        parts.events.say("caught up", f"learning {plan.task} from where the run stands")
    else:
        parts.events.say("learning", f"learning {plan.task} from its beginning")
    await learning.save()  # what is published from now on has something to follow


async def catch_up(learning: Learning, genesis: bool, events: Events) -> bool:
    """Take over where a member is, by its entries while they are few, else by its snapshot.

    Without the genesis a snapshot is the only way in, so it is asked for again and again.
    """
    asked, exchanging, circling, look = 0, learning.exchanging, learning.circling, learning.first_look()
    while True:
        if circling is not None and await circling.enter(look):
            return True
        members = exchanging.members()
        if genesis and members and await exchanging.catch_up_by_entries(members):
            return True
        if members and await exchanging.snapshots.adopt_from(members):
            return True
        asked += 1
        if genesis and (not members or asked >= ASKS_WITH_GENESIS):
            return False
        if asked == ASKS_WITH_GENESIS:
            text = (
                "no member gives its weights, and the run's first ones cannot be made here; waiting for one that does"
            )
            events.say("waiting", text, warning=True)
        await asyncio.sleep(ASK_PAUSE)


def own_rows(bench: Bench, settings: NodeSettings, manifest: Manifest, me: str) -> NDArray[np.int64] | None:
    """What an experiment deals, all that the user brought; None where others have the same, and each takes a part."""
    assert manifest.plan is not None
    if settings.share is not None:
        return fixed_rows(bench, settings.share)
    brought = settings.task is not None and settings.task.source is not None
    if not brought or (manifest.founder != me and data_hash(bench) == manifest.plan.data):
        return None
    return np.arange(bench.samples)


def fixed_rows(bench: Bench, share: Share) -> NDArray[np.int64]:
    """One part of the data, as an experiment deals it."""
    labels = bench.task.labels(bench.data)
    classes = None if labels is None else labels.numpy()
    return split(classes, bench.samples, share.parts, parse_split(share.how), share.seed)[share.part]
