"""Makes the setup of a training job from the few values a test cares about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from p2pnode.config.options import TrainOptions
from p2pnode.discovery.announcing import SelfDescription
from p2pnode.discovery.membership import Membership
from p2pnode.discovery.services import Services
from p2pnode.jobs.contract import JobContext
from p2pnode.jobs.scheduler import Scheduler
from p2pnode.jobs.train.options import TrainSetup
from p2pnode.jobs.train.plan import TrainPlan, write_plan
from p2pnode.runtime.calls import JobCalls
from p2pnode.wire.run import JobEntry, RunAccess

HASH = "ab" * 32


def train_setup(
    round_seconds: float = 2.0,
    max_steps: int = 8,
    rows: NDArray[np.int64] | None = None,
    genesis: bytes = bytes(32),
    **options: Any,
) -> TrainSetup:
    plan = TrainPlan(
        "lines", "1", {}, 1, HASH, genesis.hex(), HASH, 0, round_seconds=round_seconds, max_steps=max_steps
    )
    return TrainSetup(plan, TrainOptions(**options), rows=rows)


def job_context(services: Services, access: RunAccess, name: str = "main", role: str = "node") -> JobContext:
    """What a job of a node gets that is alone and founded its run."""
    me = services.identity.peer_id
    compute = Scheduler(services.seams.compute, services.seams.clock).add(name)
    membership = Membership(SelfDescription("me", role, access.tag, ()), services)
    return JobContext(name, services, JobCalls(services.calls, access, me, name), membership, compute, me, 0.0)


def train_entry(name: str, plan: TrainPlan) -> JobEntry:
    """A train job as a manifest lists it."""
    return JobEntry(name, "train", write_plan(plan))


def with_options(setup: TrainSetup, **options: Any) -> TrainSetup:
    return replace(setup, options=replace(setup.options, **options))


def with_plan(setup: TrainSetup, **plan: Any) -> TrainSetup:
    return replace(setup, plan=msgspec.structs.replace(setup.plan, **plan))
