"""What peers may try with shards: wrong bytes, messages and histories, endless offers, taking what is not theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from p2pnode.network.base import Payload
from p2pnode.shards import driver
from p2pnode.shards.handoff.certificate import Certificate, claim, countersign, following, offer, sign_release
from p2pnode.shards.handoff.messages import AnyMessage, Certified, Kept, MayDrop, Offer, Release, encode_handoff
from p2pnode.shards.messages import GetShard, SyncShards
from p2pnode.shards.route import Shipment
from p2pnode.shards.samples import MAX_SHARD_BYTES, encode_samples
from p2pnode.shards.visits import VisitHistory, encode_history, with_visit
from p2pnode.wire.errors import PeerMisbehaved, PeerRefused
from p2pnode.wire.run import RunAccess
from tests.shards.shard_nodes import RUN, ShardNode, Shards, play, shard

ID, CONTENT = shard(1)
OTHER_ID, OTHER_CONTENT = shard(2)
NO_VISITS = encode_history(VisitHistory(ID))


def packed(content: bytes = CONTENT, history: bytes = NO_VISITS) -> bytes:
    return len(history).to_bytes(4, "big") + history + content


async def begun(shards: Shards) -> tuple[ShardNode, ShardNode]:
    shards.nodes[0].own = [(ID, CONTENT)]
    await shards.start()
    await asyncio.sleep(3.0)
    return shards.nodes[0], shards.nodes[1]


async def given(giver: ShardNode, receiver: ShardNode, id: str = ID) -> bool:
    return await giver.shard_driver.give(Shipment(id, receiver.peer, "", 100))


async def send(sender: ShardNode, receiver: ShardNode, *messages: bytes) -> None:
    await receiver.shard_driver.answer(sender.peer, SyncShards(messages))


# ---- wrong bytes ----


FUTURE = with_visit(Shards(1).nodes[0].identity, VisitHistory(ID), "m", 1, 0.1, 0.2, 9e9)
FORGED = msgspec.structs.replace(FUTURE, visits=(msgspec.structs.replace(FUTURE.visits[0], after=0.9, time=1.0),))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (packed(OTHER_CONTENT), "not that of the shard"),
        (packed(encode_samples({"x": np.zeros((5, 4, 4), np.float32), "y": np.zeros(5)})), "another shape"),
        (packed(bytes(MAX_SHARD_BYTES + (1 << 20))), "offers"),
        (packed(CONTENT[:-1]), "announced"),
        (b"abc", "without content"),
        (packed(history=encode_history(FUTURE)), "from the future"),
        (packed(history=encode_history(FORGED)), "not signed by its visitor"),
        (packed(history=encode_history(VisitHistory(OTHER_ID))), "another shard"),
        (packed(history=b"\xc1"), "malformed visit history"),
    ],
    ids=["content", "shape", "oversize", "cut", "nothing", "future", "forged", "another's history", "junk history"],
)
def test_wrong_bytes_are_refused_cost_reputation_and_the_giver_keeps(data, reason) -> None:
    async def act(shards: Shards) -> None:
        giver, receiver = await begun(shards)
        giver.bend = lambda payload: Payload.of(data)
        assert not await given(giver, receiver)
        assert shards.holders(ID) == [0] and shards.having(ID) == [0]
        assert any(reason in fault for fault in receiver.faults(giver)), receiver.faults(giver)

    play(2, act)


def test_a_sender_that_leaves_out_its_own_visit_loses_reputation() -> None:
    async def act(shards: Shards) -> None:
        giver, receiver = await begun(shards)
        giver.shard_driver.set_history(
            with_visit(giver.identity, VisitHistory(ID), "m", 1, 0.1, 0.2, giver.services.clock.now())
        )
        assert await given(giver, receiver)
        assert await given(receiver, giver)
        await asyncio.sleep(5.0)
        receiver.disk.delete(f"runs/{RUN.run}/main/shards/{ID}.samples")  # its cache; the history stays
        await asyncio.sleep(3.0)
        giver.shard_driver.set_history(VisitHistory(ID))
        assert not await given(giver, receiver)
        assert any("left out" in fault for fault in receiver.faults(giver))

    play(2, act)


# ---- wrong messages ----


def certificates(me: ShardNode, other: ShardNode) -> dict[str, bytes]:
    own = claim(me.identity, RUN.tag, OTHER_ID, (me.peer, other.peer))
    offered = offer(me.identity, following(own, 1, other.peer, (other.peer,)))
    forged = msgspec.structs.replace(own, giver_signature=bytes(64))
    another = RunAccess.parse("zzzzzzzzzzzzzzzzzzzzzzzzzz").tag
    return {
        "junk": b"\xc1",
        "another run": encode_handoff(Certified(claim(me.identity, another, OTHER_ID, (me.peer,)))),
        "forged": encode_handoff(Certified(forged)),
        "one signature": encode_handoff(Certified(offered)),
        "not between us": encode_handoff(Offer(offer(me.identity, following(own, 1, me.peer, (me.peer,))))),
        "a keeper that is no peer": encode_handoff(
            Certified(claim(me.identity, RUN.tag, OTHER_ID, (me.peer, "x" * 20)))
        ),
        "too far ahead": encode_handoff(Offer(offer(me.identity, following(own, 1 << 40, other.peer, (other.peer,))))),
        "another's release": encode_handoff(Release(own, me.peer, bytes(64))),
        "forged release": encode_handoff(Release(own, other.peer, bytes(64))),
    }


@pytest.mark.parametrize("what", certificates(*Shards(2).nodes))
def test_wrong_messages_are_refused(what) -> None:
    async def act(shards: Shards) -> None:
        one, other = await begun(shards)
        with pytest.raises(PeerMisbehaved, match="shards: "):
            await send(one, other, certificates(one, other)[what])
        assert shards.having(OTHER_ID) == []

    play(2, act)


def test_marks_that_are_cut_off_are_refused() -> None:
    async def act(shards: Shards) -> None:
        one, other = await begun(shards)
        with pytest.raises(PeerMisbehaved, match="cut off"):
            await other.shard_driver.answer(one.peer, SyncShards((), True, b"123"))

    play(2, act)


def test_marks_that_are_cut_off_in_an_answer_cost_reputation_and_the_node_goes_on(monkeypatch) -> None:
    async def act(shards: Shards) -> None:
        one, liar = await begun(shards)
        monkeypatch.setattr(liar.shard_driver, "_marks", lambda: b"123")
        await asyncio.sleep(20.0)
        assert any("cut off" in fault for fault in one.faults(liar)) and not one.task.done()

    play(2, act)


# ---- too much ----


def test_one_peer_cannot_fill_the_room_with_offers() -> None:
    async def act(shards: Shards) -> None:
        shards.nodes[0].own = [shard(seed) for seed in range(10)]
        shards.nodes[1].room = 8 * len(CONTENT)
        await shards.start()
        await asyncio.sleep(3.0)
        giver, receiver = shards.nodes
        taken = [await given(giver, receiver, id) for id, _ in giver.own]
        assert sum(taken) == 5, "half of the room, and the one that goes beyond it"
        assert receiver.shard_driver.room.free_bytes == 3 * len(CONTENT)

    play(2, act)


def test_messages_without_end_are_refused() -> None:
    async def act(shards: Shards) -> None:
        one, other = await begun(shards)
        message = encode_handoff(Kept(RUN.tag, ID, bytes(32)))
        for _ in range(15):
            await send(one, other, *[message] * 100)
        with pytest.raises(PeerRefused, match="slow down"):
            await asyncio.gather(*(send(one, other, *[message] * 100) for _ in range(10)))

    play(2, act)


def test_messages_about_shards_that_do_not_concern_us_leave_nothing_behind(monkeypatch) -> None:
    monkeypatch.setattr(driver, "MAX_MISSING", 5)

    async def act(shards: Shards) -> None:
        one, other = await begun(shards)
        one.shard_driver.payload = refuse  # type: ignore[method-assign]
        for number in range(20):
            id = f"{number:032x}"
            strange = claim(one.identity, RUN.tag, id, (one.peer,))
            ours = claim(one.identity, RUN.tag, f"{number + 100:032x}", (one.peer, other.peer))
            messages: list[AnyMessage] = [
                Certified(strange),
                MayDrop(strange),
                Kept(RUN.tag, id, bytes(32)),
                Certified(ours),
            ]
            await send(one, other, *map(encode_handoff, messages))
        assert len(other.shard_driver._store.entries) == 5
        assert len(other.disk.names(f"runs/{RUN.run}/main/shards")) == 5

    play(2, act)


async def refuse(peer: str, request: GetShard) -> Payload:
    raise PeerRefused("no")


# ---- taking ----


def shown(giver: ShardNode, taker: ShardNode) -> dict[str, Callable[[], bytes]]:
    def made(certificate: Certificate) -> bytes:
        return msgspec.msgpack.encode(certificate)

    own = claim(taker.identity, RUN.tag, ID, (taker.peer,))
    return {
        "nothing": lambda: b"",
        "a claim of its own": lambda: made(own),
        "an offer to itself by itself": lambda: made(
            offer(taker.identity, following(own, 9, taker.peer, (taker.peer,)))
        ),
        "a certificate of another shard": lambda: made(claim(taker.identity, RUN.tag, OTHER_ID, (taker.peer,))),
    }


@pytest.mark.parametrize("what", shown(*Shards(2).nodes))
def test_who_is_neither_named_nor_offered_a_shard_does_not_get_it(what) -> None:
    async def act(shards: Shards) -> None:
        giver, taker = await begun(shards)
        request = GetShard(ID, shown(giver, taker)[what]())
        with pytest.raises((PeerRefused, PeerMisbehaved)):
            await giver.shard_driver.payload(taker.peer, request)
        assert shards.holders(ID) == [0]

    play(2, act)


def test_who_signs_itself_a_shard_and_releases_the_others_cannot_make_them_delete_it() -> None:
    async def act(shards: Shards) -> None:
        shards.nodes[0].room = len(CONTENT)
        one, liar = await begun(shards)
        before = one.shard_driver._store.state(ID).record.highest
        assert before is not None
        lie = countersign(liar.identity, offer(liar.identity, following(before, 50, liar.peer, (liar.peer,))))
        release = Release(lie, one.peer, sign_release(liar.identity, lie, one.peer))
        await send(liar, one, encode_handoff(Certified(lie)), encode_handoff(release))
        assert one.shard_driver.held() == [] and not one.shard_driver._store.state(ID).record.kept
        assert not await one.shard_driver._make_room(1)
        assert one.shard_driver.ids() == [ID]

    play(2, act)


def test_who_shows_a_newer_certificate_is_believed_and_served() -> None:
    async def act(shards: Shards) -> None:
        giver, taker = await begun(shards)
        before = giver.shard_driver._store.state(ID).record.highest
        assert before is not None
        offered = offer(giver.identity, following(before, 1, taker.peer, (taker.peer,)))
        request = GetShard(ID, msgspec.msgpack.encode(countersign(taker.identity, offered)))
        assert (await giver.shard_driver.payload(taker.peer, request)).size == len(packed())
        assert giver.shard_driver.held() == [] and giver.shard_driver.ids() == [ID]

    play(2, act)
