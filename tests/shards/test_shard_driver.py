"""Shards among nodes on a simulated network: claimed, kept, given, repaired, and never lost."""

from __future__ import annotations

import asyncio

import pytest

from p2pnode.shards.handoff.state import holder
from p2pnode.shards.route import Shipment
from p2pnode.shards.visits import with_visit
from p2pnode.storage.files import Part
from p2pnode.wire.errors import LocalProblem
from tests.shards.shard_nodes import RUN, ShardNode, Shards, columns, play, shard
from tests.shards.shard_storms import kill_everywhere, storm

ID, CONTENT = shard(1)
FILES = f"runs/{RUN.run}/main/shards/{ID}"


async def begun(shards: Shards) -> ShardNode:
    """Node 0 has the shard, and all have met."""
    shards.nodes[0].own = [(ID, CONTENT)]
    await shards.start()
    await asyncio.sleep(10.0)
    return shards.nodes[0]


async def give(shards: Shards, giver: int, to: int, move: bool = False) -> bool:
    shipment = Shipment(ID, shards.nodes[to].peer, "", len(CONTENT), move)
    given = await shards.nodes[giver].shard_driver.give(shipment)
    await asyncio.sleep(10.0)
    return given


# ---- the usual ----


def test_a_shard_is_claimed_and_kept_by_as_many_as_the_swarm_is_large() -> None:
    async def act(shards: Shards) -> tuple[list[int], int]:
        await begun(shards)
        return shards.holders(ID), len(shards.having(ID))

    assert [play(count, act) for count in (1, 2, 3, 8)] == [([0], 1), ([0], 1), ([0], 2), ([0], 3)]


@pytest.mark.parametrize(("count", "move", "having"), [(2, False, [0, 1]), (2, True, [1]), (3, False, [0, 1])])
def test_what_is_given_has_a_new_holder_and_stays_with_the_giver_unless_moved(count, move, having) -> None:
    async def act(shards: Shards) -> None:
        await begun(shards)
        assert await give(shards, 0, 1, move)
        assert shards.holders(ID) == [1] and set(having) <= set(shards.having(ID))
        assert (0 in shards.having(ID)) is not move
        samples = shards.nodes[1].shard_driver.read(ID)
        assert all((samples[name] == column).all() for name, column in columns(1).items())
        row = shards.nodes[1].shard_driver.row(ID)
        assert (row.holder, row.here, row.received, row.samples) == (shards.nodes[1].peer, True, True, 5)

    play(count, act)


def test_visits_travel_with_the_shard() -> None:
    async def act(shards: Shards) -> None:
        node = await begun(shards)
        history = with_visit(node.identity, node.shard_driver.history(ID), "m", 3, 0.2, 0.6, node.services.clock.now())
        node.shard_driver.set_history(history)
        await give(shards, 0, 1)
        assert shards.nodes[1].shard_driver.history(ID) == history and shards.nodes[1].shard_driver.row(ID).visits == 1

    play(2, act)


def test_only_the_holder_gives_and_one_at_a_time() -> None:
    async def act(shards: Shards) -> None:
        await begun(shards)
        assert not await give(shards, 1, 2)
        both = await asyncio.gather(*(give(shards, 0, to) for to in (1, 2)))
        assert both == [True, False] and shards.holders(ID) == [1]

    play(3, act)


def test_the_same_data_brought_by_two_have_one_holder_in_the_end() -> None:
    async def act(shards: Shards) -> list[int]:
        shards.nodes[0].own = shards.nodes[1].own = [(ID, CONTENT)]
        await shards.start()
        await asyncio.sleep(30.0)
        return shards.holders(ID)

    assert len(play(2, act)) == 1


def test_hundreds_of_shards_that_rest_cost_little() -> None:
    async def act(shards: Shards) -> None:
        shards.nodes[0].own = [shard(seed) for seed in range(300)]
        await shards.start()
        await asyncio.sleep(60.0)
        assert all(len(shards.having(id)) == 2 for id, _ in shards.nodes[0].own)
        before = [node.services.calls.traffic.frozen() for node in shards.nodes]
        await asyncio.sleep(60.0)
        after = [node.services.calls.traffic.frozen() for node in shards.nodes]
        sent = sum(b.sent_bytes - a.sent_bytes for a, b in zip(before, after, strict=True))
        assert sent < 300 * 8 * 150, "more than marks of what each knows"

    play(3, act)


# ---- who goes and who comes back ----


def test_a_keeper_that_is_gone_for_long_is_replaced() -> None:
    async def act(shards: Shards) -> None:
        await begun(shards)
        (keeper,) = set(shards.having(ID)) - {0}
        shards.nodes[keeper].stop()
        await asyncio.sleep(30.0)
        assert shards.holders(ID) == [0] and len(shards.having(ID)) == 2

    play(4, act)


def test_after_long_silence_of_the_holder_a_keeper_takes_over_and_its_return_does_no_harm() -> None:
    async def act(shards: Shards) -> None:
        await begun(shards)
        shards.nodes[0].stop()
        await asyncio.sleep(60.0)
        (holder_now,) = shards.holders(ID)
        assert len(shards.having(ID)) == 2
        await asyncio.sleep(100.0)
        await shards.nodes[0].start()
        await asyncio.sleep(30.0)
        assert shards.holders(ID) == [holder_now]

    play(4, act)


def test_who_comes_back_with_an_old_certificate_believes_the_newer_one() -> None:
    async def act(shards: Shards) -> None:
        await begun(shards)
        old = {name: shards.nodes[0].disk.read(FILES + name) for name in (".record", ".samples")}
        assert await give(shards, 0, 1, move=True)
        assert await give(shards, 1, 2, move=True)
        node = shards.nodes[0]
        node.stop()
        node.disk.fate = None
        for name, data in old.items():
            node.disk.write(FILES + name, data or b"")
        await asyncio.sleep(5.0)
        node.own = []
        await node.start()
        await asyncio.sleep(30.0)
        assert shards.holders(ID) == [2]
        assert holder(node.shard_driver._store.state(ID)) == shards.nodes[2].peer

    play(3, act)


# ---- leaving ----


def test_who_leaves_hands_over_what_is_only_there_and_says_so() -> None:
    async def act(shards: Shards) -> None:
        node = await begun(shards)
        assert node.shard_driver.unreplicated == [ID]
        node.task.cancel()
        await node.shard_driver.hand_over_all(20.0)
        assert node.said("handing over") == [
            "1 shard is only here; handing over before leaving",
            "1 shard is handed over",
        ]
        node.stop()
        assert shards.holders(ID) == [1]

    play(2, act)


def test_who_leaves_takes_nothing_more_not_even_what_it_has() -> None:
    async def act(shards: Shards) -> None:
        await begun(shards)
        assert await give(shards, 0, 1) and shards.having(ID) == [0, 1]
        await shards.nodes[0].shard_driver.hand_over_all(20.0)
        assert not await give(shards, 1, 0) and shards.holders(ID) == [1]

    play(2, act)


def test_nothing_is_handed_over_that_others_keep() -> None:
    async def act(shards: Shards) -> None:
        node = await begun(shards)
        assert node.shard_driver.unreplicated == []
        await node.shard_driver.hand_over_all(20.0)
        assert shards.holders(ID) == [0] and not node.said("handing over")

    play(3, act)


def test_when_all_leave_at_once_the_shard_stays_where_it_was() -> None:
    async def act(shards: Shards) -> None:
        node = await begun(shards)
        await asyncio.gather(*(each.shard_driver.hand_over_all(20.0) for each in shards.nodes))
        assert shards.holders(ID) == [0] and "still only here" in node.said("handing over")[-1]

    play(2, act)


# ---- kills ----


@pytest.mark.parametrize(
    ("count", "victim", "every"),
    [(2, 0, 1), (2, 1, 1), (3, 0, 5), (3, 1, 5), (3, 2, 5)],
    ids=["giver", "receiver", "giver with keepers", "receiver with keepers", "keeper"],
)
def test_no_shard_is_lost_wherever_a_node_is_killed_in_a_handoff(count, victim, every) -> None:
    outcomes = kill_everywhere(count, victim, every)
    assert [place * every + 1 for place, after in enumerate(outcomes) if after.lost or len(after.holders) > 1] == []
    assert len(outcomes) * every > 15


@pytest.mark.parametrize("victim", [0, 1], ids=["who leaves", "who takes over"])
def test_who_is_killed_while_one_leaves_loses_nothing(victim) -> None:
    outcomes = kill_everywhere(2, victim, leaving=True)
    assert [place + 1 for place, after in enumerate(outcomes) if after.lost or len(after.holders) > 1] == []
    assert len(outcomes) > 10 and outcomes[-1].holders == [1]


@pytest.mark.parametrize(("count", "seed"), [(2, 0), (3, 1), (5, 2)])
def test_nothing_is_lost_in_a_storm(count, seed) -> None:
    """Many shards at once, messages lost, nodes killed every other second."""
    after = storm(seed, count)
    assert after.lost == after.extra == []
    assert after.kills > 5 and after.moves > 10


# ---- disks ----


def test_a_receiver_whose_disk_is_full_refuses_and_the_giver_keeps(monkeypatch) -> None:
    async def act(shards: Shards) -> None:
        await begun(shards)

        def full(name: str, *services: Part) -> None:
            raise LocalProblem("the disk is full")

        monkeypatch.setattr(shards.nodes[1].disk, "write", full)
        assert not await give(shards, 0, 1, move=True)
        assert shards.holders(ID) == [0] and shards.having(ID) == [0]
        assert "the disk is full" in shards.nodes[1].said("disk")[0]

    play(2, act)


def test_a_disk_that_deletes_and_lists_nothing_any_more_is_said_and_the_node_goes_on(monkeypatch) -> None:
    async def act(shards: Shards) -> None:
        giver = await begun(shards)

        def read_only(name: str) -> list[str]:
            raise LocalProblem("read-only file system")

        monkeypatch.setattr(giver.disk, "delete", read_only)
        assert await give(shards, 0, 1, move=True)
        assert "read-only" in giver.said("disk")[0] and not giver.task.done()
        said = len(giver.said("disk"))
        monkeypatch.setattr(giver.disk, "delete", lambda name: None)
        monkeypatch.setattr(giver.disk, "names", read_only)
        await asyncio.sleep(10.0)
        assert len(giver.said("disk")) > said and not giver.task.done()

    play(2, act)


def test_a_receiver_without_room_refuses_and_drops_cache_first() -> None:
    async def act(shards: Shards) -> None:
        other, content = shard(2)
        shards.nodes[1].room = 2 * len(CONTENT) - 1
        shards.nodes[0].own = [(ID, CONTENT), (other, content)]
        await shards.start()
        await asyncio.sleep(5.0)
        assert await give(shards, 0, 1)
        assert not await shards.nodes[0].shard_driver.give(Shipment(other, shards.nodes[1].peer, "", 100))
        assert shards.holders(other) == [0] and shards.holders(ID) == [1]
        assert await give(shards, 1, 0)  # what is left of it at node 1 is cache now
        assert await shards.nodes[0].shard_driver.give(Shipment(other, shards.nodes[1].peer, "", 100))
        assert shards.having(ID) == [0] and shards.holders(other) == [1]

    play(2, act)


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("damage", ["deleted", "damaged"])
def test_files_deleted_or_damaged_by_hand_are_noticed_and_fetched_again(running, damage) -> None:
    async def act(shards: Shards) -> None:
        await begun(shards)
        (keeper,) = (shards.nodes[number] for number in set(shards.having(ID)) - {0})
        if not running:
            keeper.stop()
            await asyncio.sleep(1.0)
        name = f"{FILES}.samples"
        keeper.disk.fate = None
        keeper.disk.delete(name) if damage == "deleted" else keeper.disk.write(name, CONTENT[:-1] + b"x")
        if not running:
            await keeper.start()
        await asyncio.sleep(10.0)
        assert keeper.disk.read(name) == CONTENT and keeper.number in shards.having(ID)
        assert "deleted or damaged" in keeper.said("shards")[0]

    play(3, act)
