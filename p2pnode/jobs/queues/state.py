"""What the loops of a queues job share at one node: its models, who takes part, who may act, which queue is next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...network.base import Clock
from ...wire.bounded import put_bounded
from ...wire.ids import PeerId, short
from ...wire.types import Seconds
from ..contract import JobContext
from ..leases.keeper import Company, LeaseKeeper
from ..leases.lease import Lease, Renewal
from .allocation import NodeLoad
from .announcing import Announced, announced, read_announced
from .changes import QueuesChange, check_change, unchanged
from .model import STALE, QueueModel
from .plan import MAX_MODELS, PlannedModel, QueuesPlan
from .priority import PriorityWeights, Score, score
from .saving import QueueFiles

MAX_REPORTS = 2000  # members whose reports are remembered
LONELY = 2.0  # times the lease that a node without the others waits before it goes on by itself
SILENT = 1 / 3  # of a lease: who takes a queue from an owner that was heard later than that is suspected
GRAB_FAULTS = 4  # that one such takeover counts as: five of them, and the member is ignored for a while


class QueuesState:
    """The shared state of a queues job. Its methods decide; what waits is in the loops (producing, owning, syncing)."""

    def __init__(
        self,
        context: JobContext,
        plan: QueuesPlan,
        models: dict[str, QueueModel],
        absent: dict[str, str],
        preferred: Sequence[str],
    ) -> None:
        self.context = context
        self.services = context.services
        self.plan = plan
        self.settings = plan.settings
        self.models = models
        self.absent = absent  # models that are not trained here, with the reason
        self.change: QueuesChange = unchanged(context.calls.scope, plan.settings.weights)
        self.names = [model.name for model in plan.models]  # of all queues, here or not, in an order all agree on
        self.files = QueueFiles(context.services.seams.storage, context.folder)
        self.me = context.services.identity
        self._preferred = preferred
        self._reported: dict[str, tuple[bytes, Seconds]] = {}  # what members said of themselves, and when
        self._clock: Clock = context.services.seams.clock
        first = context.founder == self.me.peer_id
        self.company = Company(self.members, self._clock, LONELY * plan.settings.lease, first)
        self._keepers: dict[str, LeaseKeeper] = {}

    @property
    def now(self) -> Seconds:
        return self._clock.monotonic()

    @property
    def idle(self) -> float:
        """The share of its time in which this node had nothing to compute lately."""
        return 1.0 - self.context.compute.busy.share()

    def say(self, text: str, warning: bool = False) -> None:
        self.services.events.say("queue", text, warning=warning)

    # ---- who is there ----

    def members(self) -> list[PeerId]:
        """The other members that answer and are not ignored for their faults."""
        return [peer for peer in self.context.members() if not self.distrusts(peer)]

    def members_with(self, model: QueueModel) -> list[PeerId]:
        """Those of them that have this model. One that has not announced its models yet may have it."""
        return [peer for peer in self.members() if self.announced_by(peer).has(model.name)]

    def distrusts(self, peer: str) -> bool:
        return self.services.reputation.ignored(peer, self.now)

    def note_report(self, peer: PeerId, state: bytes) -> None:
        """What a member says of itself. It announces the same in the DHT, but only every other minute."""
        put_bounded(self._reported, peer, (state, self.now), MAX_REPORTS)

    def announced_by(self, peer: PeerId) -> Announced:
        """What a member last said of itself."""
        state, at = self._reported.get(peer, (b"", 0.0))
        found = self.services.table.get(peer)
        if found is not None and (not state or self.now - at > STALE):
            state = found.announcement.job(self.context.name).state
        return read_announced(state, self.names)

    def announcement(self) -> bytes:
        """What this node announces to everybody."""
        speed = max((model.trainer.speed for model in self.models.values()), default=0.0)
        owned = [model.name for model in self.models.values() if model.watch.mine]
        return announced(self.names, list(self.models), owned, self._preferred, NodeLoad(speed, self.idle))

    def announcements(self) -> dict[str, Announced]:
        """What every member announces, with this node itself."""
        found = {str(peer): self.announced_by(peer) for peer in self.members()}
        return {**found, self.me.peer_id: read_announced(self.announcement(), self.names)}

    # ---- leases ----

    def keeper(self, model: QueueModel) -> LeaseKeeper:
        """Who keeps the lease of a queue at this node."""
        if model.name not in self._keepers:
            store, changed = partial(self.files.note_lease, model.name), partial(self._owner_changed, model)
            self._keepers[model.name] = LeaseKeeper(self.context, model.watch, self.company, store, changed)
        return self._keepers[model.name]

    def works(self, model: QueueModel) -> bool:
        """Whether this node may act as the owner of a queue now."""
        return self.keeper(model).works()

    def learn_lease(self, model: QueueModel, lease: Lease | None, renewal: Renewal | None) -> None:
        """What a member knows of a queue's lease; ValueError when that is not valid."""
        if lease is None:
            return
        before, silent = model.watch.lease, model.watch.silent(self.now)
        trusted = None if self.distrusts(lease.owner) else renewal
        if self.keeper(model).hear(lease, trusted):
            self._suspect(model, before, lease, silent)

    def _suspect(self, model: QueueModel, before: Lease | None, lease: Lease, silent: Seconds) -> None:
        """Note a member that takes a queue from an owner that is not silent. Once is what a split looks like.

        Who takes its own queue in a later term has restarted, or uses up terms.
        """
        if before is None or lease.giver or silent >= SILENT * self.settings.lease:
            return
        for _ in range(1 if before.owner == lease.owner else GRAB_FAULTS):
            self.services.fault(lease.owner, "it took a queue from an owner that works")

    def _owner_changed(self, model: QueueModel) -> None:
        """A queue has another lease. What waited at the owner before is pushed to the new one."""
        keeper = self.keeper(model)
        if not model.watch.mine:
            model.inbox.clear()
        who = "this node" if model.watch.mine else short(keeper.owner)
        self.say(f"{who} owns the queue {model.name} in term {keeper.term}")

    # ---- the log ----

    def settle(self, model: QueueModel) -> None:
        """The log of a queue has changed, here or at a member: forget items that nothing can take back."""
        known = [
            peer.id
            for peer in self.services.table
            if peer.announcement.run == self.context.calls.run
            and peer.takes_part(self.context.name)
            and not peer.announcement.left
            and self.announced_by(peer.id).has(model.name)
        ]
        model.settle(known, self.now)

    # ---- which queue is next ----

    @property
    def weights(self) -> PriorityWeights:
        return self.change.weights

    def paused(self, name: str) -> bool:
        return name in self.change.paused

    def score(self, model: QueueModel) -> Score:
        """The priority of a queue."""
        largest = max(len(other.log.weights) for other in self.models.values())
        return score(model.score_facts(self.idle, self.now), largest, self.weights)

    def need(self, model: QueueModel) -> float:
        """How much a model needs to be trained: its priority, but less for a queue that is full already."""
        found = self.score(model)
        return found.convergence + found.complexity + found.idle - found.length

    def good_enough(self, model: QueueModel) -> bool:
        """Whether a model has reached its target."""
        return model.good_enough(self.idle, self.now)

    def converged(self, model: QueueModel) -> bool:
        """Whether a model does not get better any more."""
        return model.converged(self.idle, self.now)

    # ---- changes by the founder ----

    def is_newer(self, change: QueuesChange) -> bool:
        """Whether a change is to be followed instead of the present one; ValueError when it is not the founder's."""
        if change.rank <= self.change.rank:
            return False
        check_change(change, self.context.calls.scope, self.context.founder)
        if len({model.name for model in (*self.plan.models, *change.models())}) > MAX_MODELS:
            raise ValueError("the change makes too many models")
        return True

    def follow(self, change: QueuesChange) -> list[PlannedModel]:
        """Go on with a newer change; returns the models that are to be prepared here."""
        self.change = change
        added = [model for model in change.models() if model.name not in self.names]
        self.names += [model.name for model in added]
        return added
