"""Changing circles, node by node in virtual time: who splits, who follows, who lies, and what a crash leaves behind."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from p2pnode.circles.advice import HASTE_ROUNDS, MAX_CIRCLE, REST_ROUNDS, SETTLE_ROUNDS, SPLIT
from p2pnode.circles.driver import FOLLOW_TRIES, SPREAD_ROUNDS, CircleDriver
from p2pnode.circles.founding import (
    CircleFounding,
    circle_lineage,
    circle_name,
    encode_found,
    read_found,
    sign_found,
)
from p2pnode.circles.messages import Bridge, CircleIs, GetCircle
from p2pnode.circles.splits import ASK_TRIES
from p2pnode.circles.transitions import split_off
from p2pnode.discovery.services import make_services
from p2pnode.jobs.train.job import TrainJob
from p2pnode.merging.deltaset.entry import UNION
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.deltaset.snapshots import decode_place, encode_place
from p2pnode.merging.messages import Exchange
from p2pnode.merging.policy import RoundFacts
from p2pnode.network.base import Payload
from p2pnode.network.sim import Links, SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.runtime.seams import Seams, inline
from p2pnode.similarity.partners import PartnerChoice
from p2pnode.simulate import SimClock
from p2pnode.storage.files import MemoryStorage, Part
from p2pnode.training.host import ModelHost
from p2pnode.training.newcomer_probe import NewcomerProbe
from p2pnode.wire.addresses import Address
from p2pnode.wire.envelope import open_envelope, unseal
from p2pnode.wire.errors import LocalProblem, PeerMisbehaved, PeerRefused, PeerUnreachable
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.messages import Announcement, Refused, encode_message
from p2pnode.wire.records import sign_record
from p2pnode.wire.run import Aim
from p2pnode.wire.status import NodeEvent
from tests.jobs.train.setups import job_context, with_plan
from tests.jobs.train.test_train_job import RUN, SETUP, Lines, policy_of
from tests.known import known
from tests.similarity.views import planted

GENESIS = b"g" * 32
HOST = ModelHost(Lines(), "cpu", seed=1)
PRINTS = [bytes([1, 1, 7, 7]) + row.tobytes() for row in planted(2, 12).values()]


class Member:
    """A learning that is moved by hand; it serves others, truly unless `bend` says otherwise."""

    def __init__(self, swarm: SimSwarm, number: int, storage: MemoryStorage | None = None, aim: Aim = "shared") -> None:
        self.identity, self.number = Identity(bytes([number + 1]) * 32), number
        self.network = swarm.network(self.identity.peer_id)
        self.storage = storage or MemoryStorage()
        world = Seams(SimClock(0.0), random.Random(number), self.storage, inline)
        self.services = make_services(self.identity, world, self.network)
        self.services.clock.established = True
        self.policy: DeltaSetPolicy = policy_of(HOST, self.identity, GENESIS.hex())
        setup = with_plan(SETUP, genesis=GENESIS.hex(), aim=aim)
        self.learning = TrainJob(job_context(self.services, RUN), HOST, self.policy, setup)
        self.learning.similarity.took(PRINTS[number % len(PRINTS)])
        self.asked: list[str] = []
        self.bend: Callable[[CircleIs], CircleIs] = lambda answer: answer
        self.words = 0

    @property
    def peer(self) -> PeerId:
        return self.identity.peer_id

    @property
    def circle_driver(self) -> CircleDriver:
        assert self.learning.circle_driver is not None
        return self.learning.circle_driver

    @property
    def circle(self) -> str:
        return self.learning.members.circle.name

    def learn(self, seed: int = 0) -> None:
        begun = self.policy.start()
        progress = np.random.default_rng([self.number, seed]).normal(0, 0.01, len(begun)).astype(np.float32)
        self.learning._publish(self.policy.record(begun, begun + progress, RoundFacts(5, 1.0, 160, 4)))

    def faults(self, other: Member) -> int:
        return self.services.reputation.faults_of(other.peer)

    # ---- network.base.Server ----

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        message = unseal(request, GetCircle)
        self.asked.append(message.circle)
        try:
            return encode_message(self.bend(known(self.learning.circle_driver).founding.answer(peer, message)))
        except PeerRefused as refusal:
            return encode_message(Refused(refusal.code, refusal.reason))

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        return await self.learning.routes.stream(peer, open_envelope(request).body)

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        self.services.reputation.fault(peer, reason, 0.0)


class Swarm:
    """Members by id that hear each other's words when `hear` is called."""

    def __init__(self, count: int, aim: Aim = "shared") -> None:
        self.swarm = SimSwarm(1, Links(latency=0.01, jitter=0.0))
        made = [Member(self.swarm, number, aim=aim) for number in range(count)]
        self.members = sorted(made, key=lambda member: member.peer)

    async def start(self) -> None:
        for member in self.members:
            await member.network.start(member)
            await member.learning.resume()
            await member.learning.save()
        first = next(host for host in self.swarm.hosts if host.peer == self.members[0].peer)
        for member in self.members[1:]:
            await member.network.contact(Address(first.address, first.peer), 5.0)

    def hear(self, *gone: Member) -> None:
        """Everybody hears where everybody is; `gone` have left."""
        for speaker in self.members:
            speaker.words += 1
            announced = (speaker.learning.announcement(),)
            word = Announcement(f"n{speaker.number}", RUN.tag, (), left=speaker in gone, jobs=announced)
            expiry = speaker.services.clock.now() + 300.0 + speaker.words
            record = sign_record(speaker.identity, f"peers/{RUN.tag}/p", encode_message(word), expiry)
            for other in self.members:
                if other is not speaker:
                    other.services.registry.take_in(record, speaker.peer)
                    other.network.learn(speaker.peer, word.addresses)

    def exchange(self) -> None:
        """All of a circle get all of its entries."""
        for _ in range(2):
            for one in self.members:
                for other in self.members:
                    if one is not other and one.circle == other.circle:
                        push = one.policy.take(other.peer, other.policy.answer(one.peer, one.policy.ask(other.peer)))
                        if push:
                            other.policy.take(one.peer, push)

    async def rounds(self, number: int, members: list[Member] | None = None) -> None:
        """What circles do after a round of that number."""
        for member in members or self.members:
            member.learning.train_progress.rounds = number
            await member.learning.similarity.look(member.learning.members.active(), 5, 0.0)
            if member.circle_driver._prepared is None:
                await member.circle_driver.once()
            await member.learning.change_circle()

    async def split(self) -> list[Member]:
        """A large circle splits, and all who should follow; those in the new one."""
        for member in self.members:
            member.learn()
        self.exchange()
        self.hear()
        await self.rounds(SETTLE_ROUNDS)
        await self.rounds(SETTLE_ROUNDS + SPREAD_ROUNDS)
        for number in range(3):
            self.hear()
            await self.rounds(SETTLE_ROUNDS + SPREAD_ROUNDS + 1 + number)
        self.hear()
        return [member for member in self.members if member.circle]


def in_swarm(count: int, test: Callable[[Swarm], Awaitable[None]], aim: Aim = "shared") -> None:
    async def main() -> None:
        swarm = Swarm(count, aim)
        await swarm.start()
        await test(swarm)
        for member in swarm.members:
            await member.network.close()

    run_virtual(main())


def test_a_large_circle_splits_once_and_both_halves_are_whole() -> None:
    async def test(swarm: Swarm) -> None:
        new = await swarm.split()
        old = [member for member in swarm.members if member not in new]
        assert swarm.members[0] in new
        assert len(new) == len(old) == SPLIT // 2
        for half in (new, old):
            assert (
                len({(member.circle, member.policy.set.rules.lineage, member.policy.set.hash()) for member in half})
                == 1
            )
        name = new[0].circle
        assert new[0].policy.set.rules.lineage == circle_lineage(GENESIS, name)
        found = read_found(new[-1].learning.members.circle.found, name)
        assert set(found.members) == {member.peer for member in new}
        assert not any(one.faults(other) for one in swarm.members for other in swarm.members)
        assert len({member.policy.set.steps for member in new}) == 1
        before = [member.circle for member in swarm.members]
        for number in range(20, 30):
            await swarm.rounds(number)
        assert [member.circle for member in swarm.members] == before, "nobody moves on"

    in_swarm(SPLIT, test)


@pytest.mark.parametrize(("aim", "kinds"), [("shared", {0, 1}), ("own", {0})])
def test_who_leaves_is_of_all_kinds_or_of_one_as_the_run_aims(aim: Aim, kinds: set[int]) -> None:
    async def test(swarm: Swarm) -> None:
        new = await swarm.split()
        first = new[0].number % 2
        assert {(member.number + first) % 2 for member in new} == kinds

    in_swarm(SPLIT, test, aim)


def test_those_chosen_are_asked_and_nobody_else() -> None:
    async def test(swarm: Swarm) -> None:
        new = await swarm.split()
        member = new[0]
        exchange_loop, asked, wanted = member.learning.exchange_loop, [], []
        choose = member.learning.similarity.choose

        def noted(*facts: Any) -> list[PartnerChoice]:
            wanted.append(choose(*facts))
            return wanted[-1]

        async def unheard(peer: PeerId, request: bytes, *_: object) -> Any:
            with contextlib.suppress(PeerMisbehaved):  # nothing else is counted
                asked.append((peer, isinstance(unseal(request, Exchange, Bridge), Bridge)))
            raise PeerUnreachable("no way")

        member.learning.similarity.choose = noted  # type: ignore[method-assign, assignment]
        member.services.calls.call = unheard  # type: ignore[method-assign, assignment]
        for number in range(20):
            member.learning.train_progress.rounds = number
            asked.clear()
            await exchange_loop.once()
            assert sorted(asked) == sorted((choice.peer, choice.bridge) for choice in wanted[-1])
        assert {choice.bridge for choices in wanted for choice in choices} == {False, True}

    in_swarm(SPLIT, test)


def test_circles_that_are_still_large_split_again() -> None:
    async def test(swarm: Swarm) -> None:
        assert len(await swarm.split()) == SPLIT
        swarm.exchange()
        for number in (30, 32, 33, 34, 35):
            await swarm.rounds(number)
            swarm.hear()
        circles = [member.circle for member in swarm.members]
        assert sorted(circles.count(name) for name in set(circles)) == [SPLIT // 2] * 4
        assert not any(one.faults(other) for one in swarm.members for other in swarm.members)

    in_swarm(2 * SPLIT, test)


def test_a_circle_above_the_most_is_below_it_some_rounds_after_it_began() -> None:
    async def test(swarm: Swarm) -> None:
        largest = []
        for number in range(1, 2 * HASTE_ROUNDS + 1):
            swarm.exchange()
            swarm.hear()
            await swarm.rounds(number)
            circles = [member.circle for member in swarm.members]
            largest.append(max(map(circles.count, circles)))
        assert largest[HASTE_ROUNDS + SPREAD_ROUNDS - 2] == len(swarm.members)
        assert largest[HASTE_ROUNDS + SPREAD_ROUNDS + 1] <= MAX_CIRCLE
        assert not any(one.faults(other) for one in swarm.members for other in swarm.members)

    in_swarm(MAX_CIRCLE + 2, test)


def test_a_circle_that_is_not_large_stays_as_it_is() -> None:
    async def test(swarm: Swarm) -> None:
        assert await swarm.split() == []
        assert not any(member.asked for member in swarm.members)

    in_swarm(SPLIT - 1, test)


def test_who_does_not_learn_makes_no_circle_large() -> None:
    async def test(swarm: Swarm) -> None:
        swarm.members[-1].learning.similarity.fingerprint = b""
        assert await swarm.split() == []

    in_swarm(SPLIT, test)


def test_circles_do_not_exchange_and_that_is_nobodys_fault() -> None:
    async def test(swarm: Swarm) -> None:
        new = await swarm.split()
        old = next(member for member in swarm.members if member not in new)
        request = Exchange(old.policy.ask(new[0].peer), circle=old.circle)
        with pytest.raises(PeerRefused, match="another circle"):
            new[0].learning.partner_exchange.answer(old.peer, request)
        with pytest.raises(PeerRefused, match="another circle"):
            known(new[0].learning.circle_driver).founding.answer(old.peer, GetCircle("ab" * 20))

    in_swarm(SPLIT, test)


def claims(liar: Member, found: CircleFounding) -> None:
    """The liar says to be in a circle of its own making."""
    own = liar.learning.members.circle
    own.name, own.found = circle_name(found), encode_found(found)


def word_of(liar: Member, swarm: Swarm) -> CircleFounding:
    members = [member.peer for member in swarm.members]
    return split_off(liar.policy, liar.identity, members[:6], len(members), GENESIS)[0]


def with_steps(found: CircleFounding, policy: DeltaSetPolicy, steps: int) -> CircleFounding:
    """The word of a split from where as many steps were done."""
    place = msgspec.structs.replace(decode_place(found.place, policy.set.rules), steps=steps)
    return msgspec.structs.replace(found, place=encode_place(place))


LIES = {
    "signed by another": lambda liar, found: sign_found(Identity(b"x" * 32), found),
    "other steps": lambda liar, found: sign_found(liar.identity, with_steps(found, liar.policy, 1 << 39)),
    "other weights": lambda liar, found: sign_found(liar.identity, msgspec.structs.replace(found, weights=b"l" * 32)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_forged_split_costs_standing_and_moves_nobody(lie: str) -> None:
    async def test(swarm: Swarm) -> None:
        liar, others = swarm.members[0], swarm.members[1:]
        swarm.hear()
        await swarm.rounds(1)
        claims(liar, LIES[lie](liar, word_of(liar, swarm)))
        swarm.hear()
        for number in range(2, 6):
            await swarm.rounds(number, others)
        named = others[:5]
        assert all(member.faults(liar) >= 1 for member in named)
        assert not any(member.circle for member in others)

    in_swarm(SPLIT, test)


def test_a_circle_without_a_word_is_asked_for_a_few_times_and_then_ignored() -> None:
    async def test(swarm: Swarm) -> None:
        liar, others = swarm.members[0], swarm.members[1:]
        swarm.hear()
        await swarm.rounds(1)
        liar.learning.members.circle.name = "ab" * 20
        liar.bend = lambda answer: CircleIs(b"nothing")
        swarm.hear()
        for number in range(11, 21):
            await swarm.rounds(number, others)
        assert not any(member.circle for member in others)
        assert len(liar.asked) <= ASK_TRIES * len(others)
        assert all(member.faults(liar) for member in others)

    in_swarm(SPLIT - 2, test)


@pytest.mark.parametrize("count", [6, 2 * SPLIT])
def test_nobody_is_split_off_a_small_circle_or_again_and_again(count: int) -> None:
    async def test(swarm: Swarm) -> None:
        members = await swarm.split() or swarm.members
        liar, others = members[0], members[1:]
        swarm.hear()
        await swarm.rounds(16, others)
        before = [member.circle for member in others]
        found, _ = split_off(liar.policy, liar.identity, [member.peer for member in members], 16, GENESIS)
        claims(liar, found)
        swarm.hear()
        await swarm.rounds(16, others)
        await swarm.rounds(16, others)
        assert liar.asked
        assert [member.circle for member in others] == before

    in_swarm(count, test)


def test_one_that_splits_again_and_again_is_followed_once() -> None:
    async def test(swarm: Swarm) -> None:
        liar, others = swarm.members[0], swarm.members[1:]
        stays = others[-1]
        changes = []
        for number in range(20, 60, 10):
            liar.learning.members.circle.name = ""
            swarm.hear()
            await swarm.rounds(number, [stays])
            named = [member.peer for member in others if member is not stays]
            found, _ = split_off(liar.policy, liar.identity, [liar.peer, *named[: 2 + number // 10]], SPLIT, GENESIS)
            claims(liar, found)
            swarm.hear()
            await swarm.rounds(number + 1, [stays])
            changes.append(stays.circle_driver._splits._stayed)
        assert changes == [21, 21, 21, 21], "others may split the circle ten rounds later"

    in_swarm(SPLIT, test)


def test_who_lacks_the_entries_of_a_split_takes_a_snapshot_of_the_new_circle() -> None:
    async def test(swarm: Swarm) -> None:
        founder = swarm.members[0]
        swarm.hear()
        await swarm.rounds(SETTLE_ROUNDS - 1)
        founder.learn(1)
        await swarm.rounds(SETTLE_ROUNDS, [founder])
        going = founder.circle_driver._prepared
        assert going is not None
        named = read_found(going.found, going.name).members
        late = next(member for member in swarm.members[1:] if member.peer in named)
        late.policy.take = lambda partner, answer: b""  # type: ignore[method-assign]
        swarm.exchange()
        await swarm.rounds(SETTLE_ROUNDS + SPREAD_ROUNDS, [founder])
        for number in range(13, 13 + 3 + FOLLOW_TRIES):
            swarm.hear()
            await swarm.rounds(number)
        assert late.circle == founder.circle
        assert late.policy.set.hash() == founder.policy.set.hash()

    in_swarm(SPLIT, test)


async def shrink(swarm: Swarm, new: list[Member], left: int) -> tuple[list[Member], list[Member]]:
    """All but `left` of the new circle leave the run; the small circle and the large one, well rested."""
    gone = new[left:]
    large = [member for member in swarm.members if member not in new]
    for member in [*new[:left], *large]:
        member.learn(2)
    swarm.exchange()
    swarm.hear(*gone)
    for member in gone:
        await member.network.close()
    swarm.members = [member for member in swarm.members if member not in gone]
    return new[:left], large


def test_a_small_circle_joins_the_larger_with_one_union() -> None:
    async def test(swarm: Swarm) -> None:
        small, large = await shrink(swarm, await swarm.split(), 2)
        residuals = [member.policy.author.residual.copy() for member in small]
        for number in range(45, 65, 5):
            await swarm.rounds(number)
            swarm.hear()
            await swarm.rounds(number + 1)
            swarm.exchange()
        assert [member.circle for member in small] == ["", ""]
        hashes = {member.policy.set.hash() for member in swarm.members}
        assert len(hashes) == 1
        unions = [entry for entry in large[0].policy.set.log if entry.kind == UNION]
        assert len(unions) == 1
        assert unions[0].peer in {member.peer for member in small}
        for member, residual in zip(small, residuals, strict=True):
            assert np.array_equal(member.policy.author.residual, residual)

    in_swarm(SPLIT, test)


def test_where_nobody_gives_a_snapshot_all_stays_as_it_was() -> None:
    async def test(swarm: Swarm) -> None:
        small, large = await shrink(swarm, await swarm.split(), 2)

        async def nothing(peer: PeerId, request: object) -> Payload:
            raise PeerRefused("cannot say", "not now")

        for member in large:
            member.learning.routes.stream = nothing  # type: ignore[method-assign, assignment]
        before = [(member.circle, member.policy.set.hash(), member.policy.author.incarnation) for member in small]
        await swarm.rounds(45)
        await swarm.rounds(46)
        assert [
            (member.circle, member.policy.set.hash(), member.policy.author.incarnation) for member in small
        ] == before

    in_swarm(SPLIT, test)


class DyingDisk(MemoryStorage):
    """Takes a number of writes, then none: what the process does after that is lost."""

    left = 1000

    def _spend(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def write(self, name: str, *services: Part) -> None:
        if self._spend():
            super().write(name, *services)

    def append(self, name: str, data: bytes) -> None:
        if self._spend():
            super().append(name, data)

    def delete(self, name: str) -> None:
        if self._spend():
            super().delete(name)


@pytest.mark.parametrize("writes", range(6))
def test_a_crash_between_any_two_writes_leaves_the_node_in_the_old_circle_or_in_the_new(writes: int) -> None:
    async def test(swarm: Swarm) -> None:
        mover = swarm.members[0]
        disk = DyingDisk()
        swarm.members[0] = mover = Member(swarm.swarm, mover.number, disk)
        await mover.network.start(mover)
        await mover.learning.resume()
        await mover.learning.save()
        mover.learn()
        swarm.exchange()
        swarm.hear()
        await swarm.rounds(SETTLE_ROUNDS, [mover])
        disk.left = writes
        await swarm.rounds(SETTLE_ROUNDS + SPREAD_ROUNDS, [mover])
        new = mover.circle
        mover.learn(5)
        assert new
        disk.left = 1000
        again = Member(swarm.swarm, mover.number, disk)
        assert await again.learning.resume()
        assert again.circle in ("", new)
        assert again.policy.set.rules.lineage == circle_lineage(GENESIS, again.circle)
        old = next(member for member in swarm.members if not member.circle)
        alike = mover if again.circle else old
        if writes >= 4 or not again.circle:
            assert again.policy.set.hash() == alike.policy.set.hash(), "nothing of the journal is dropped"
        again.learn(6)
        assert again.policy.set.log.heads

    in_swarm(SPLIT, test)


def test_without_a_disk_a_node_stays_where_it_is() -> None:
    async def test(swarm: Swarm) -> None:
        mover = swarm.members[0]
        swarm.exchange()
        swarm.hear()
        await swarm.rounds(SETTLE_ROUNDS, [mover])

        def full(name: str, *services: Part) -> None:
            raise LocalProblem("No space left on device")

        mover.storage.write = full  # type: ignore[method-assign]
        await swarm.rounds(SETTLE_ROUNDS + SPREAD_ROUNDS, [mover])
        assert mover.circle == ""
        assert mover.policy.set.rules.lineage == GENESIS

    in_swarm(SPLIT, test)


class Look(NewcomerProbe):
    """A probe that shows this; `asked` says how often it was taken."""

    def __init__(self, shows: bytes = b"") -> None:
        self.shows, self.asked = shows, 0

    async def fingerprint(self) -> bytes:
        self.asked += 1
        return self.shows


async def newcomer_to(swarm: Swarm) -> Member:
    newcomer = Member(swarm.swarm, 40)
    newcomer.learning.similarity.withdraw()
    await newcomer.network.start(newcomer)
    await newcomer.learning.resume()
    first = next(host for host in swarm.swarm.hosts if host.peer == swarm.members[0].peer)
    await newcomer.network.contact(Address(first.address, first.peer), 5.0)
    swarm.members.append(newcomer)
    swarm.hear()
    return newcomer


def test_a_newcomer_that_has_learned_nothing_enters_where_fewest_are_and_stands_where_they_stand() -> None:
    async def test(swarm: Swarm) -> None:
        small, large = await shrink(swarm, await swarm.split(), 4)
        newcomer = await newcomer_to(swarm)
        events: list[NodeEvent] = []
        newcomer.services.events.listen(events.append)
        assert len(large) > len(small)
        assert await newcomer.circle_driver.enter(Look())
        assert newcomer.circle == small[0].circle
        assert events[-1].text.endswith("4 members, the fewest of all")
        assert newcomer.policy.set.hash() == small[0].policy.set.hash()
        newcomer.learn()
        swarm.exchange()
        assert newcomer.policy.set.hash() == small[-1].policy.set.hash()

    in_swarm(SPLIT, test)


def test_a_newcomer_enters_by_what_its_first_look_shows_and_announces_it_to_nobody() -> None:
    async def test(swarm: Swarm) -> None:
        new = await swarm.split()
        newcomer = await newcomer_to(swarm)
        newcomer.learning.similarity.aim = "own"
        for member in swarm.members[:-1]:  # whoever split off is of one kind now, who stayed of the other
            member.learning.similarity.took(PRINTS[member.number // 2 * 2 + (member not in new)])
        swarm.hear()
        like_the_new = Look(PRINTS[-2])
        assert await newcomer.circle_driver.enter(like_the_new)
        assert newcomer.circle == new[0].circle
        assert like_the_new.asked == 1
        assert newcomer.learning.similarity.fingerprint == b""
        another = await newcomer_to(swarm)
        another.learning.similarity.aim = "own"
        assert not await another.circle_driver.enter(Look(PRINTS[-1])), "the first circle is begun in as ever"

    in_swarm(SPLIT, test)


def test_a_newcomer_in_a_circle_that_does_not_fit_moves_after_a_rest_and_once() -> None:
    async def test(swarm: Swarm) -> None:
        small, large = await shrink(swarm, await swarm.split(), 5)
        newcomer = await newcomer_to(swarm)
        newcomer.learning.similarity.aim = "own"
        assert await newcomer.circle_driver.enter(Look())
        wrong = newcomer.circle
        assert wrong == small[0].circle
        for member in [*small, *large]:
            member.learning.similarity.took(PRINTS[member.number // 2 * 2 + (member in large)])
        similarity = newcomer.learning.similarity
        similarity.took(PRINTS[-1])  # its data are like those of the larger circle
        circles = []
        for number in range(5, REST_ROUNDS + 200, 5):
            swarm.hear()
            known(similarity._neighbours).take_in(similarity._comparable(member.peer for member in swarm.members))
            for turn in (number, number + 1):
                await swarm.rounds(turn, [newcomer])
            circles.append(newcomer.circle)
        moved = circles.index("")
        assert moved >= REST_ROUNDS // 5 - 1
        assert circles == [wrong] * moved + [""] * (len(circles) - moved)
        assert newcomer.policy.set.hash() == large[0].policy.set.hash()
        assert not any(newcomer.faults(other) for other in swarm.members)

    in_swarm(SPLIT, test)


def test_in_the_first_circle_alone_a_newcomer_begins_as_ever_and_without_a_look() -> None:
    async def test(swarm: Swarm) -> None:
        swarm.hear()
        look = Look(PRINTS[0])
        assert not await swarm.members[0].circle_driver.enter(look)
        assert swarm.members[0].circle == ""
        assert look.asked == 0

    in_swarm(3, test)
