"""The run's first weights: the founder's, when it joined. Every member keeps them, and newcomers get them from any.

They are checked against the hash in the manifest, so nobody can give others. A merge policy begins with them: bounds
on deltas follow from them, and some policies send weights relative to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ...compression.weights import Floats, Units, from_units, to_units
from ...discovery.services import Services
from ...merging.deltaset.set import weights_hash
from ...merging.snapshots.fetch import Fetching
from ...merging.snapshots.messages import GetSnapshot, SnapshotRequest
from ...merging.snapshots.offers import Offers
from ...merging.snapshots.outline import Assembly, Snapshot
from ...network.base import Payload
from ...runtime.calls import JobCalls
from ...runtime.seams import Seams
from ...storage.files import Storage
from ...wire.errors import LocalProblem, NetworkDown, PeerError
from ...wire.ids import PeerId
from ...wire.types import Seconds
from ..contract import JobContext
from .plan import LoopPlan

PLACE = b"genesis"  # how the stream is asked for, among snapshots
FILE = "genesis"
ASK_PAUSE: Seconds = 1.0
TELL_AFTER = 3  # tries


def genesis_file(folder: str) -> str:
    return f"{folder}/{FILE}"


def saved_genesis(storage: Storage, folder: str, plan: LoopPlan) -> Units | None:
    """Heavy. The first weights as this node keeps them; None where it does not, or they are damaged."""
    content = storage.read(genesis_file(folder))
    return None if content is None else checked_genesis(content, plan)


def first_weights(context: JobContext, plan: LoopPlan) -> Floats:
    """Heavy. The run's first weights as numbers; LocalProblem when they are not on disk any more."""
    found = saved_genesis(context.services.seams.storage, context.folder, plan)
    if found is None:
        raise LocalProblem("the run's first weights are missing on disk; the next start fetches them again")
    return from_units(found)


def checked_genesis(content: bytes | memoryview, plan: LoopPlan) -> Units | None:
    """The weights in some bytes; None when they are not those of the plan."""
    if len(content) != 4 * plan.parameters:
        return None
    units = np.frombuffer(content, "<i4").astype(np.int32)
    return units if weights_hash(units).hex() == plan.genesis else None


def keep_genesis(storage: Storage, folder: str, units: Units) -> None:
    """Heavy. Put the first weights on disk; LocalProblem when that fails."""
    if storage.read(genesis_file(folder)) is None:
        storage.write(genesis_file(folder), np.ascontiguousarray(units, "<i4").tobytes())


def own_genesis(weights: Floats, plan: LoopPlan) -> Units | None:
    """Heavy. The weights that the loop began with, where they are the run's first ones; else None."""
    units = to_units(weights)
    return units if weights_hash(units).hex() == plan.genesis else None


class GenesisOffers:
    """Gives the first weights to newcomers, as a snapshot at `PLACE`."""

    snapshots_in_background = True

    def __init__(self, seams: Seams, folder: str) -> None:
        self._storage = seams.storage
        self._folder = folder
        self._offers = Offers(self, seams)

    def snapshot(self, at: bytes = b"") -> Snapshot | None:
        content = self._storage.read(genesis_file(self._folder))
        return None if content is None else Snapshot(PLACE, content)

    def wants(self, request: SnapshotRequest) -> bool:
        """Whether a request is about the first weights."""
        return request.at == PLACE if isinstance(request, GetSnapshot) else self._offers.has(request.snapshot)

    async def payload(self, request: SnapshotRequest) -> Payload:
        return await self._offers.payload(request)

    def forget_old(self) -> None:
        """Free the memory of what nobody fetches any more."""
        self._offers.forget_old()


async def fetch_genesis(
    plan: LoopPlan, services: Services, calls: JobCalls, members: Callable[[], Sequence[PeerId]]
) -> Units:
    """The first weights from any member. Asks again and again: without them there is no way in."""
    fetching, assembly, tries = Fetching(calls, services.fault), None, 0
    while True:
        for giver in services.seams.rng.sample(list(members()), len(members())):
            try:
                outline = await fetching.outline(giver, 4 * plan.parameters, "", PLACE)
            except (PeerError, NetworkDown):
                continue
            assembly = Assembly(outline, assembly)
            await fetching.fill(assembly, [giver])
            if not assembly.complete:
                continue
            found = await services.seams.compute(partial(checked_genesis, assembly.content, plan))
            if found is not None:
                return found
            services.fault(giver, "genesis: not the weights that the manifest names")
            assembly = None
        tries += 1
        if tries == TELL_AFTER:
            text = "no member gives the run's first weights yet; waiting for one that does"
            services.events.say("waiting", text, warning=True)
        await asyncio.sleep(ASK_PAUSE)
