"""The actors job of one node: it trains its own policy and shares a critic with the others.

work      collect a rollout → values of its states → improve the policy → the critic learns
critic    replicas: every node teaches its copy, and copies merge by the delta set
          queue: rollouts go to the critic's owner, who teaches it; the others' copies follow the owner's entries
meet      tell members how this node gets on, and what it knows of the critic's lease
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from ...compression.weights import Floats
from ...merging.policy import Policy, RoundFacts
from ...runtime.routes import Handler, Routes
from ...similarity.partners import partner_settings
from ...training.progress import Reached, reached
from ...wire.bounded import put_bounded
from ...wire.errors import NetworkDown, PeerError, PeerMisbehaved, PeerRefused
from ...wire.ids import PeerId, short
from ...wire.messages import Message
from ...wire.status import JobStatus, PeerState
from ...wire.types import Seconds
from ..contract import JobContext, JobPace
from ..leases.keeper import open_lease
from ..leases.messages import LeaseTaken, OfferLease
from ..leases.watch import turn_order
from ..model.job import ModelJob, SharingSetup
from .advantage import Array
from .critic import MOST, Critic
from .experience import LatestByActor
from .learner import CRITIC_BATCH, KEPT, Learned, NoPolicy, PolicyLearner, lessons
from .messages import (
    Judge,
    Judged,
    LaptopFacts,
    LaptopMet,
    MeetLaptop,
    MemberFacts,
    RolloutShared,
    ShareRollout,
    read_experience,
    write_experience,
)
from .plan import ActorsOptions, ActorsPlan
from .rollout import Rollout, decode_halves, encode_halves
from .status import ReturnCurve, actors_status, describe_laptops

LEASE = "critic"
ROLLOUT_COST, JUDGE_COST, LEARN_COST = 5, 2, 3  # local steps that a simulation charges for them
MEET_EVERY: Seconds = 1.0
MET = 2  # members that are met each time, besides the owner
SLICE: Seconds = 0.5
GIVEN_TO = 8  # members that get a rollout
UNDER_WAY = KEPT  # rollouts on their way to the owner
MAX_JUDGING = 16  # rollouts of others that are judged at the same time
AT_ONCE = 8  # gradient steps of the owner's critic, about 5 ms, for which questions about values wait
MAX_ARRIVALS = 16  # that are made up for; more come faster than they can be learned from
MAX_FACTS = 256
MOST_STEPS = 10_000  # that one entry may tell of (merging/deltaset/entry.py)


class ActorsJob(ModelJob):
    """One laptop with a policy of its own, and the critic that all share."""

    def __init__(
        self, context: JobContext, policy: Policy, plan: ActorsPlan, options: ActorsOptions,
        critic: Critic, learner: PolicyLearner | None, genesis: bytes,
    ) -> None:  # fmt: skip
        settings = plan.settings
        sharing = SharingSetup(
            genesis, "shared", partner_settings({}), settings.publish, max_disk=options.max_disk, until=options.until
        )
        super().__init__(context, policy, sharing, learner or NoPolicy())
        self._clock = context.services.seams.clock
        self.plan = plan
        self.settings = settings
        self.learner = learner
        self.critic = critic
        self.iterations = 0
        self.asked = self.in_time = 0  # rollouts for which the owner's values were wanted, and came in time
        self.shared_in = self.shared_out = 0  # rollouts of others that were learned from, and own ones that were given
        self.speed = 0.0  # steps of the environments a second
        self.facts: dict[PeerId, tuple[MemberFacts, Seconds]] = {}  # what members said, and when
        self.curve = ReturnCurve()
        self.keeper = open_lease(context, LEASE, settings.lease, self._say_owner)
        self._options = options
        self._begun: Floats = np.empty(0, np.float32)  # the weights from which the critic's unpublished steps began
        self._taught = 0  # gradient steps since
        self._published = self._clock.monotonic()
        self._seen: object = None  # what others had published when this copy last followed them
        self._newer: Floats | None = None  # weights that `critic` shall have at the next iteration
        # The critic as its owner teaches and asks it, in the background thread, while the compute thread uses `critic`.
        self._judge = Critic(settings.features, settings.width, critic.weights, self.plan.seed)
        self._judging = 0
        self._queue = LatestByActor[Rollout](KEPT)
        self._others = LatestByActor[Rollout]()
        self._arrived = asyncio.Event()
        self._arrivals = 0  # rollouts that the critic was not taught from yet
        self._ticket = int(self._clock.time() * 100)
        self._given: set[PeerId] = set()  # members that are being given a rollout
        self._on_the_way = 0
        self._done = False  # the user's goal is reached
        self._answers = True  # whether the owner answered the latest rollout
        self._wanted_by = ""  # who should own the critic, as found the last time
        answers: dict[type[Message], Handler] = {
            MeetLaptop: self._answer_meet,
            Judge: self._answer_judge,
            ShareRollout: self._answer_share,
            OfferLease: self._answer_offer,
        }
        self.routes = self.sharing_routes().plus(Routes(answers))

    # ---- life ----

    async def run(self) -> str:
        """Act and learn until cancelled, or until the user's goal is reached: then returns the reason."""
        self.train_progress.begun = self._clock.monotonic()
        await self._restart_critic()
        tasks = [self._meet()]
        if self.settings.mode == "queue":
            tasks += [self.keeper.run(), self._keep_critic()]
        return await self.share_while(self._work(), *tasks)

    async def _work(self) -> str:
        async with asyncio.TaskGroup() as sending:
            while True:
                await self._services.limiter.free()
                if self.learner is None:
                    await asyncio.sleep(SLICE)
                    if self.settings.mode == "replicas":
                        await self._follow(self._begun)
                else:
                    await self._iterate(self.learner, sending)
                await self.save_if_due()
                reason = self._goal_reached()
                if reason:
                    self._done = True
                    return reason

    def _goal_reached(self) -> str:
        until, steps = self._options.until, 0 if self.learner is None else self.learner.steps
        if until is None:
            return ""
        found = self.train_progress.reached(self._clock.monotonic(), steps)
        return reached(
            until, Reached(self.iterations, found.seconds, None, found.update_norm, found.calm_rounds, steps)
        )

    # ---- acting and learning ----

    async def _iterate(self, learner: PolicyLearner, sending: asyncio.TaskGroup) -> None:
        compute, begun = self._services.seams.compute, self._clock.monotonic()
        rollout, _ = await compute(learner.collect, ROLLOUT_COST)
        self._ticket += 1
        if self.settings.share:
            self._give(rollout, learner, sending)
        answer = await self._ask_owner(rollout, sending)
        took = self._clock.monotonic() - begun
        own_values = await compute(partial(learner.judge, rollout), JUDGE_COST)  # while the owner's are on their way
        judged = await self._owners_values(answer, self.settings.wait * took)
        if self.settings.mode == "replicas":  # others taught their copies during this rollout: fresh values count
            await self._follow(self.critic.weights if self._newer is None else self._newer)
        others = self._others.take()
        learned = await compute(partial(self._learn, learner, rollout, own_values, judged, others), LEARN_COST)
        self.shared_in += learned.taken
        self.iterations += 1
        if learned.changed:
            self._services.events.say("critic", f"{learner.name} uses {learner.trust.reason}")
        if self.settings.mode == "replicas":
            await self._follow(self.critic.weights)
        self._note_speed(rollout.steps, self._clock.monotonic() - begun)
        if learner.reward is not None:
            self.curve.add(learner.reward)

    def _learn(
        self, learner: PolicyLearner, rollout: Rollout, own: Array, judged: Array | None, others: Sequence[Rollout]
    ) -> Learned:
        """Heavy. Improve the policy, and in mode `replicas` this node's copy of the critic."""
        settings, critic = self.settings, self.critic
        newer, self._newer = self._newer, None
        if newer is not None:
            critic.load(newer)
        values = critic.values(rollout.features) if judged is None else judged
        if settings.mode != "replicas":
            return learner.learn(rollout, own, values, critic, others)
        data = [lessons(rollouts, critic, settings) for rollouts in (learner.recent, *((one,) for one in others))]
        learned = learner.learn(rollout, own, values, critic, others)
        critic.learn(data, settings.critic_steps * len(data), CRITIC_BATCH)
        self._taught += settings.critic_steps * len(data)
        return learned

    def _note_speed(self, steps: int, seconds: Seconds) -> None:
        if seconds > 0:
            now = steps / seconds
            self.speed = now if not self.speed else 0.7 * self.speed + 0.3 * now

    # ---- the shared critic ----

    async def _restart_critic(self) -> None:
        """Go on from the weights that members share."""
        self._begun = await self._services.seams.compute(self.policy.start)
        self._seen = self.work_of_others()
        await self._use(self._begun)

    async def _use(self, weights: Floats) -> None:
        """Use these weights of the critic, here and for those who ask."""
        self._newer = weights
        if self.settings.mode == "queue":
            await self._services.seams.background(partial(self._judge.load, weights))

    async def _follow(self, taught_weights: Floats) -> None:
        """Let in what others taught the critic, and publish now and then what this node taught it."""
        if not np.isfinite(taught_weights).all():
            self._warn("diverged", "the critic's weights are not finite numbers; it goes on from the last good ones")
            self._taught = 0
            await self._use(self._begun)
            return
        now, compute = self._clock.monotonic(), self._services.seams.compute
        progress: Floats = np.zeros_like(self._begun)  # that is kept for the next entry
        if self._taught and now - self._published >= self.settings.publish:
            queue = self.settings.mode == "queue"  # only the owner teaches: its steps count whole
            peers = 1 if queue else len(self.members.active()) + 1
            facts = RoundFacts(min(self._taught, MOST_STEPS), 0.0, 0, peers)
            self._taught, self._published = 0, now
            await self.end_round(self._begun, taught_weights, facts)
        elif self.work_of_others() != self._seen:
            progress = taught_weights - self._begun if self._taught else progress
            await self.merge_between_rounds()
        else:
            return
        self._seen = self.work_of_others()
        self._begun = await compute(self.policy.start)
        await self._use(self._begun + progress)

    async def _keep_critic(self) -> None:
        """Mode `queue`: teach the critic while this node owns it, else follow its owner."""
        while True:
            arrived, self._arrivals = min(self._arrivals, MAX_ARRIVALS), 0
            if self.keeper.works() and arrived:
                await self._teach_judge(arrived * self.settings.critic_steps)
            if not self.keeper.works():
                self._taught = 0  # steps of a term that is over
            await self._follow(self._judge.weights)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SLICE):
                    await self._arrived.wait()
            self._arrived.clear()

    async def _teach_judge(self, steps: int) -> None:
        """The owner's critic learns from the latest rollouts of all actors, of each as much.

        In short pieces, so that whoever asks for values does not wait, and at most half of the time: the owner's own
        policy has to learn too.
        """
        background, begun = self._services.seams.background, self._clock.monotonic()
        data = await background(self._lessons)
        for start in range(0, steps, AT_ONCE):
            await background(partial(self._judge.learn, data, min(AT_ONCE, steps - start), CRITIC_BATCH))
        self._newer = await background(lambda: self._judge.weights)
        self._taught += steps
        await asyncio.sleep(self._clock.monotonic() - begun)

    def _lessons(self) -> list[tuple[Array, Array]]:
        """Heavy. What the owner's critic should learn of each actor."""
        return [lessons(rollouts, self._judge, self.settings) for rollouts in self._queue.by_actor().values()]

    # ---- values of the owner ----

    async def _ask_owner(self, rollout: Rollout, sending: asyncio.TaskGroup) -> asyncio.Future[Array] | None:
        """Send a rollout to the critic's owner; returns where its values come in. None where there is no owner."""
        if self.settings.mode != "queue":
            return None
        answer: asyncio.Future[Array] = asyncio.get_running_loop().create_future()
        if self.keeper.works():
            answer.set_result(await self._services.seams.background(partial(self._judge.values, rollout.features)))
            self._teach(self._services.identity.peer_id, self._ticket, rollout)
            return answer
        if not self.keeper.owner or self.keeper.watch.mine:
            return None
        if self._on_the_way >= UNDER_WAY:
            answer.cancel()
            return answer
        request = Judge(self._ticket, write_experience(rollout, actions=False))
        sending.create_task(self._send(request, rollout.rows, answer))
        return answer

    async def _owners_values(self, answer: asyncio.Future[Array] | None, patience: Seconds) -> Array | None:
        """The owner's values, for which this node waits a little; None where they are late: then the own copy judges.

        After late ones nobody waits until the owner has answered again.
        """
        if answer is None:
            return None
        if not answer.done() and self._answers:
            await asyncio.wait([answer], timeout=max(0.001, patience))
        late = not answer.done() or answer.cancelled()
        if not self.keeper.watch.mine:
            self.asked += 1
            self.in_time += not late
        if late:
            self._answers = False
            return None
        return answer.result()

    async def _send(self, request: Judge, rows: int, answer: asyncio.Future[Array]) -> None:
        """Send a rollout until the owner has it, or later ones to learn from. Its values count if they are in time."""
        self._on_the_way += 1
        try:
            while not self._done and self._ticket - request.ticket < KEPT:
                owner = self.keeper.owner
                if owner and owner != self._services.identity.peer_id:
                    with contextlib.suppress(PeerError, NetworkDown):
                        found = await self.context.calls.ask(PeerId(owner), request, Judged)
                        self._take_values(PeerId(owner), found, rows, answer)
                        return
                await asyncio.sleep(MEET_EVERY)
        finally:
            self._on_the_way -= 1
            answer.cancel()

    def _take_values(self, owner: PeerId, found: Judged, rows: int, answer: asyncio.Future[Array]) -> None:
        try:
            values = decode_halves(found.values, (rows,), MOST)
        except ValueError as problem:
            self._services.fault(owner, f"values: {problem}")
            return
        self._answers = True
        if not answer.done():
            answer.set_result(values)

    async def _answer_judge(self, peer: PeerId, request: Judge) -> Judged:
        if not self.keeper.works():
            raise PeerRefused("not owner", "another node owns the critic")
        if self._judging >= MAX_JUDGING:
            raise PeerRefused("busy", "too many rollouts at once")
        self._judging += 1
        try:
            rollout = read_experience(request.experience, self.settings.features)
            values = await self._services.seams.background(partial(self._judge.values, rollout.features))
        except ValueError as problem:
            raise PeerMisbehaved(f"rollout: {problem}") from None
        finally:
            self._judging -= 1
        self._teach(peer, request.ticket, rollout)
        return Judged(request.ticket, self._judge.steps, encode_halves(values))

    def _teach(self, actor: str, ticket: int, rollout: Rollout) -> None:
        """Put a rollout where the critic learns from; one that came before is left out."""
        if self._queue.put(actor, ticket, rollout):
            self._arrivals += 1
            self._arrived.set()

    # ---- shared rollouts ----

    def _give(self, rollout: Rollout, learner: PolicyLearner, sending: asyncio.TaskGroup) -> None:
        """Give a rollout to some members whose spaces agree. Nobody waits for it."""
        free = [peer for peer in self.context.members() if peer not in self._given and self._fits(peer, learner)]
        if not free:
            return
        request = ShareRollout(self._ticket, learner.spaces, write_experience(rollout, actions=True))
        for peer in self._services.seams.rng.sample(free, min(GIVEN_TO, len(free))):
            self._given.add(peer)
            sending.create_task(self._give_to(peer, request))

    def _fits(self, peer: PeerId, learner: PolicyLearner) -> bool:
        """Whether a member can learn from this node's rollouts."""
        found = self.facts.get(peer)
        return found is not None and found[0].laptop is not None and found[0].laptop.spaces == learner.spaces

    async def _give_to(self, peer: PeerId, request: ShareRollout) -> None:
        try:
            await self.context.calls.ask(peer, request, RolloutShared)
            self.shared_out += 1
        except (PeerError, NetworkDown):
            pass  # it misses one rollout; the next comes soon
        finally:
            self._given.discard(peer)

    def _answer_share(self, peer: PeerId, request: ShareRollout) -> RolloutShared:
        learner = self.learner
        if learner is None or not self.settings.share or request.spaces != learner.spaces:
            raise PeerRefused("spaces", "this node has no use for the rollout")
        try:
            rollout = read_experience(request.experience, self.settings.features, learner.envs.actions)
        except ValueError as problem:
            raise PeerMisbehaved(f"rollout: {problem}") from None
        self._others.put(peer, request.ticket, rollout)
        return RolloutShared()

    # ---- meeting ----

    async def _meet(self) -> None:
        while True:
            members = self.context.members()
            chosen = set(self._services.seams.rng.sample(members, min(MET, len(members))))
            chosen |= {peer for peer in members if peer == self.keeper.owner}
            await asyncio.gather(*(self._meet_one(peer) for peer in sorted(chosen)))
            await self._hand_to_preferred()
            await asyncio.sleep(MEET_EVERY)

    async def _meet_one(self, peer: PeerId) -> None:
        try:
            self._hear(peer, (await self.context.calls.ask(peer, MeetLaptop(self._facts()), LaptopMet)).facts)
        except (PeerError, NetworkDown):
            return
        except ValueError as problem:
            self._services.fault(peer, f"lease of the critic: {problem}")

    def _answer_meet(self, peer: PeerId, request: MeetLaptop) -> LaptopMet:
        try:
            self._hear(peer, request.facts)
        except ValueError as problem:
            raise PeerMisbehaved(f"lease of the critic: {problem}") from None
        return LaptopMet(self._facts())

    def _facts(self) -> MemberFacts:
        watch = self.keeper.watch
        return MemberFacts(watch.lease, watch.renewal, self._options.prefer_owner, self.own_facts())

    def _hear(self, peer: PeerId, said: MemberFacts) -> None:
        self.keeper.hear(said.lease, said.renewal)
        put_bounded(self.facts, peer, (said, self._clock.monotonic()), MAX_FACTS)

    def own_facts(self) -> LaptopFacts | None:
        """How this laptop gets on; None where it has no policy."""
        learner = self.learner
        if learner is None:
            return None
        share = min(1.0, self.in_time / self.asked) if self.asked else None
        curve = self.curve.points()
        used = learner.trust.reason if self.settings.mode != "own" else "its own critic"
        return LaptopFacts(
            learner.name, learner.steps, self.speed, learner.reward, self.critic_version, share, used[:80],
            learner.spaces if self.settings.share else b"", curve,
        )  # fmt: skip

    @property
    def kept_rollouts(self) -> int:
        """Rollouts that the critic is taught from here."""
        return len(self._queue)

    @property
    def critic_version(self) -> int:
        """How many entries of all authors are in this node's copy of the critic."""
        return sum(self.heads().values())

    # ---- owning ----

    def _say_owner(self) -> None:
        who = "this node" if self.keeper.watch.mine else short(self.keeper.owner)
        self._services.events.say("critic", f"{who} owns the critic in term {self.keeper.term}")

    async def _hand_to_preferred(self) -> None:
        """Hand the critic to a member that wants to own it whenever it is there, if it was there the last time too."""
        if self._options.prefer_owner or not self.keeper.works():
            self._wanted_by = ""
            return
        facts = ((peer, self.facts.get(peer)) for peer in self.context.members())
        wanted = min((peer for peer, found in facts if found is not None and found[0].prefers), default="")
        if wanted and wanted == self._wanted_by:
            await self.keeper.give(wanted)
        self._wanted_by = wanted

    def _answer_offer(self, peer: PeerId, request: OfferLease) -> LeaseTaken:
        return self.keeper.accept(peer, request.lease)

    async def hand_over(self, limit: Seconds) -> None:
        """Before leaving: give the critic to another, so that nobody has to wait until it is taken over."""
        members = self.context.members()
        if self.keeper.watch.mine and members:
            await self.keeper.give(turn_order(LEASE, members)[0])

    # ---- for peers and views ----

    def pace(self) -> JobPace:
        steps = 0 if self.learner is None else self.learner.steps
        return JobPace(steps, 0 if self.learner is None else 1, self.speed)

    def describe(self, peers: Iterable[PeerState]) -> tuple[PeerState, ...]:
        return describe_laptops(self, super().describe(peers))

    def status(self) -> JobStatus:
        return actors_status(self, self._clock.monotonic())
