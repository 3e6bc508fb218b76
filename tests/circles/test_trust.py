"""Circles that liars make up: nobody enters, moves, joins or follows there, and who did leaves again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from p2pnode.circles.advice import REST_ROUNDS, SETTLE_ROUNDS, SPLIT
from p2pnode.circles.founding import ASK_TIMEOUT, CircleFounding, circle_lineage, circle_name, sign_found
from p2pnode.circles.transitions import split_off
from p2pnode.circles.trust import WRONG_ROUNDS, is_fair, is_valid_founding, without_tiny_circles
from p2pnode.compression.weights import Units, to_units
from p2pnode.merging.deltaset.set import DeltaSet
from p2pnode.merging.messages import Exchanged
from p2pnode.network.base import Payload
from p2pnode.wire.ids import PeerId, sha256
from p2pnode.wire.run import GENESIS as FIRST
from tests.circles.test_circle_driver import (
    GENESIS,
    HOST,
    PRINTS,
    Look,
    Member,
    Swarm,
    claims,
    in_swarm,
    newcomer_to,
    shrink,
)

SIZE = HOST.layout.size
WRONG_SIDE = to_units(np.array([60, -60, -60, 60, 0, 0], np.float32))  # of the line that the task is about
HUGE = np.full(SIZE, (1 << 31) - 1, np.int32)
PEERS = [PeerId(f"peer {number:02}") for number in range(40)]


def lay_trap(liars: list[Member], units: Units, place: bytes | None = None) -> str:
    """The liars are in a circle of their own making, with these weights; its name."""
    first, *_ = sorted(liars, key=lambda liar: liar.peer)
    word, _ = split_off(first.policy, first.identity, [first.peer], 12, GENESIS)
    names = [first.peer, *(f"{first.peer}{letter}" for letter in "abc")]  # anybody can be named
    made_up = CircleFounding(word.place if place is None else place, b"w" * 32, 12, tuple(names))
    found = sign_found(first.identity, made_up)
    for liar in liars:
        rules = replace(liar.policy.set.rules, lineage=circle_lineage(GENESIS, circle_name(found)))
        there = DeltaSet(rules, units)
        liar.policy.move(there, there.weights(), 5)
        claims(liar, found)
    return circle_name(found)


@pytest.mark.parametrize("liars", [1, 3])
@pytest.mark.parametrize("units", [WRONG_SIDE, HUGE], ids=["wrong", "huge"])
def test_no_newcomer_enters_a_circle_that_liars_made_up(liars: int, units: Units) -> None:
    async def test(swarm: Swarm) -> None:
        trap = lay_trap(swarm.members[-liars:], units)
        swarm.hear()
        newcomer = await newcomer_to(swarm)
        assert not await newcomer.circle_driver.enter(Look())
        assert newcomer.circle != trap
        assert np.abs(newcomer.policy.weights()).max() < 1

    in_swarm(SPLIT - 1, test)


def test_what_no_other_member_confirms_is_not_taken_on_a_strangers_word() -> None:
    async def test(swarm: Swarm) -> None:
        liar, silent = swarm.members[-2:]
        trap = lay_trap([liar, silent], liar.policy.set.units)

        async def nothing(peer: PeerId, request: object) -> Payload:
            raise ConnectionError

        silent.payload = nothing  # type: ignore[method-assign, assignment]
        swarm.hear()
        newcomer = await newcomer_to(swarm)
        assert not await newcomer.circle_driver.enter(Look())
        assert newcomer.circle != trap

    in_swarm(8, test)


def test_nobody_moves_to_a_circle_of_one_however_unlike_it_is() -> None:
    async def test(swarm: Swarm) -> None:
        *honest, liar = sorted(swarm.members, key=lambda member: member.number)
        base = np.random.default_rng(1).integers(60, 120, 256)
        for member in honest:
            alike = base + np.random.default_rng(member.number).integers(-8, 8, 256)
            member.learning.similarity.took(PRINTS[0][:4] + alike.astype(np.int8).tobytes())
        trap = lay_trap([liar], liar.policy.set.units)
        liar.learning.similarity.fingerprint = PRINTS[0][:4] + (-base).astype(np.int8).tobytes()
        for number in range(REST_ROUNDS, REST_ROUNDS + 60, 5):
            swarm.hear()
            for member in honest:
                neighbours = member.learning.similarity._neighbours
                assert neighbours is not None
                member.learning.similarity._look_around(neighbours)
            await swarm.rounds(number, honest)
        assert not any(member.circle == trap for member in honest)

    in_swarm(SPLIT - 1, test)


@pytest.mark.parametrize("how", ["diverged", "loss"])
def test_who_does_badly_in_its_first_rounds_leaves_again_and_stays_away(how: str) -> None:
    async def test(swarm: Swarm) -> None:
        small, large = await shrink(swarm, await swarm.split(), 4)
        newcomer = await newcomer_to(swarm)
        assert await newcomer.circle_driver.enter(Look())
        assert newcomer.circle == small[0].circle
        train_progress = newcomer.learning.train_progress
        for number in range(1, 1 + WRONG_ROUNDS):
            assert newcomer.circle == small[0].circle
            train_progress.diverged, train_progress.loss = (number, None) if how == "diverged" else (0, 100.0)
            swarm.hear()
            await swarm.rounds(0 if how == "diverged" else number, [newcomer])
        assert newcomer.circle == large[0].circle == ""
        assert newcomer.policy.set.hash() == large[0].policy.set.hash()
        train_progress.rounds = 10 * SETTLE_ROUNDS
        assert small[0].circle not in newcomer.circle_driver._circles("").values()

    in_swarm(SPLIT, test)


def test_who_does_badly_much_later_stays() -> None:
    async def test(swarm: Swarm) -> None:
        small, _ = await shrink(swarm, await swarm.split(), 4)
        newcomer = await newcomer_to(swarm)
        assert await newcomer.circle_driver.enter(Look())
        for number in range(SETTLE_ROUNDS + 1, SETTLE_ROUNDS + 2 * WRONG_ROUNDS):
            newcomer.learning.train_progress.diverged = 1
            await swarm.rounds(number, [newcomer])
        assert newcomer.circle == small[0].circle

    in_swarm(SPLIT, test)


def test_a_founder_that_names_everybody_again_and_again_leads_nobody_around() -> None:
    async def test(swarm: Swarm) -> None:
        liar, others = swarm.members[0], swarm.members[1:]
        swarm.hear()
        await swarm.rounds(1, others)
        for number in range(2, 30, 5):
            found, deltas = split_off(
                liar.policy, liar.identity, [member.peer for member in swarm.members], SPLIT, GENESIS
            )
            liar.policy.move(deltas, deltas.weights(), number)
            claims(liar, found)
            for later in range(3):
                swarm.hear()
                await swarm.rounds(number + later, others)
        assert not any(member.circle for member in others)

    in_swarm(SPLIT, test)


def test_who_was_split_off_twice_lately_stays() -> None:
    async def test(swarm: Swarm) -> None:
        calm = swarm.members[1:7]
        for member in calm:
            member.circle_driver._splits._followed = [1, 2]
        new = await swarm.split()
        assert swarm.members[0] in new
        assert not any(member in new for member in calm)
        assert not any(one.faults(other) for one in swarm.members for other in swarm.members)

    in_swarm(SPLIT, test)


def test_nobody_is_bridged_to_alone_in_a_circle_or_again_under_another_name() -> None:
    async def test(swarm: Swarm) -> None:
        one, liar, *pair = swarm.members[:4]
        asked: list[PeerId] = []

        async def ask(peer: PeerId, *_: object) -> Exchanged:
            asked.append(peer)
            return Exchanged()

        one.services.calls.call = ask  # type: ignore[method-assign, assignment]
        for member in pair:
            member.learning.members.circle.name = "ab" * 20
        for number in range(4):
            liar.learning.members.circle.name = sha256(bytes([number])).hex()[:40]
            swarm.hear()
            assert one.learning.bridging.peers_of_other_circles() == [member.peer for member in pair]
        for number in range(10):
            pair[0].learning.members.circle.name = f"declared {number}"
            swarm.hear()
            one.learning.train_progress.rounds = number
            partner = one.services.table.get(pair[0].peer)
            assert partner is not None
            if partner.id in one.learning.bridging.peers_of_other_circles():
                await one.learning.bridging.ask(partner, 5)
        assert len(asked) == 2, "every five rounds"

    in_swarm(5, test)


@pytest.mark.parametrize("how", ["blocks", "captures"])
def test_a_mate_that_says_it_went_elsewhere_neither_blocks_a_join_nor_leads_it_there(how: str) -> None:
    async def test(swarm: Swarm) -> None:
        small, large = await shrink(swarm, await swarm.split(), 3)
        *honest, liar = small
        old, elsewhere = liar.circle, sha256(b"x").hex()[:40]
        swarm.hear()
        await swarm.rounds(39)
        if how == "captures":
            elsewhere = lay_trap([liar], WRONG_SIDE)
        for number in range(40, 70):
            liar.learning.members.circle.name = old if how == "blocks" and number % 5 == 4 else elsewhere
            swarm.hear()
            await swarm.rounds(number, [*honest, *large])
            assert not any(member.circle == elsewhere for member in honest)
        assert [member.circle for member in honest] == ["", ""]

    in_swarm(SPLIT, test)


def test_mates_that_never_answer_hold_up_one_question_not_ten() -> None:
    async def test(swarm: Swarm) -> None:
        honest, liars = swarm.members[:4], swarm.members[4:]
        swarm.hear()
        await swarm.rounds(1, honest[:1])

        async def hang(peer: PeerId, request: bytes) -> bytes:
            await asyncio.sleep(60)
            return b""

        for liar in liars:
            liar.answer = hang  # type: ignore[method-assign]
            liar.learning.members.circle.name = sha256(liar.peer.encode()).hex()[:40]
        swarm.hear()
        begun = asyncio.get_running_loop().time()
        await swarm.rounds(2, honest[:1])
        assert asyncio.get_running_loop().time() - begun <= ASK_TIMEOUT + 0.1

    in_swarm(14, test)


# ---- what is believed ----


def word(count: int, group: int, founder: int = 0) -> CircleFounding:
    return CircleFounding(b"", b"w" * 32, group, tuple(PEERS[founder : founder + count]))


@pytest.mark.parametrize(
    ("found", "mates", "fair"),
    [
        (word(6, 12), 11, True),
        (word(6, 13), 10, True),
        (word(7, 14), 9, True),
        (word(6, 12), 8, False),  # not large
        (word(12, 12), 11, False),  # everybody
        (word(3, 12), 11, False),  # too few for a circle
        (word(6, 1), 11, False),
        (word(6, 1 << 20), 11, False),
        (word(6, 12, founder=20), 11, False),  # of no mate
    ],
)
def test_a_split_is_fair_when_half_of_a_large_circle_goes(found: CircleFounding, mates: int, fair: bool) -> None:
    assert is_fair(found, PEERS[:mates]) == fair


def test_circles_of_one_are_nowhere_as_long_as_there_are_others() -> None:
    a, b, c, d = PEERS[:4]
    assert without_tiny_circles({a: "", b: "x", c: "y", d: "y"}, "") == {a: "", b: "", c: "y", d: "y"}
    assert without_tiny_circles({a: "", b: "x", c: FIRST}, "") == {a: "", b: "", c: FIRST}
    assert without_tiny_circles({a: "x", b: "y"}, "x") == {a: "x", b: "y"}, "two that are alone may join"
    assert without_tiny_circles({a: FIRST, b: "y"}, FIRST) == {a: FIRST, b: "y"}
    assert without_tiny_circles({a: "x", b: "y", c: "y"}, "x") == {a: "x", b: "y", c: "y"}


def test_a_word_must_be_of_this_model_and_name_a_circle() -> None:
    async def test(swarm: Swarm) -> None:
        one, rules = swarm.members[0], swarm.members[0].policy.set.rules
        found, _ = split_off(one.policy, one.identity, [member.peer for member in swarm.members], 8, GENESIS)
        assert is_valid_founding(found, rules)
        assert is_valid_founding(found, replace(rules, lineage=b"p" * 32)), "of any parent"
        assert not is_valid_founding(found, replace(rules, layout_hash="another"))
        assert not is_valid_founding(msgspec.structs.replace(found, place=b""), rules)
        assert not is_valid_founding(msgspec.structs.replace(found, members=found.members[:3]), rules)
        assert not is_valid_founding(msgspec.structs.replace(found, group=3), rules)

    in_swarm(4, test)
