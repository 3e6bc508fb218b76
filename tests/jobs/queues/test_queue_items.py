"""Items on their way: every one is delivered, in order and once, within bounds."""

from __future__ import annotations

import asyncio
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.jobs.queues.items import MAX_BYTES, MOST_KEPT, PER_PRODUCER, TRIES, Inbox, Item, Outbox, Patience
from p2pnode.jobs.queues.messages import Push
from p2pnode.jobs.queues.producing import bounded_items
from p2pnode.jobs.queues.waiting import Signal
from p2pnode.wire.messages import decode_message, encode_message


def item(seq: int, size: int = 8) -> Item:
    return Item(seq, 0, 8, 64, 0.5, b"x" * size)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 12)), max_size=60), st.integers(1, 5))
def test_whatever_arrives_is_taken_in_order_and_once(arriving: list[tuple[str, int]], batch: int) -> None:
    inbox, applied = Inbox(64), {"a": 0, "b": 0}
    for producer, seq in arriving:
        inbox.put(producer, item(seq), applied[producer])
        if len(inbox) >= batch:
            for who, one in inbox.take(batch, applied):
                assert one.seq == applied[who] + 1
                applied[who] = one.seq


def test_an_inbox_is_bounded_in_items_bytes_and_by_producer() -> None:
    inbox = Inbox(10)
    assert [inbox.put("a", item(seq), 0) for seq in range(1, PER_PRODUCER + 2)][-1] == "full"
    assert inbox.put("b", item(1), 0) == "taken" and inbox.put("c", item(1), 0) == "taken"
    assert inbox.put("d", item(1), 0) == "full"
    heavy, size = Inbox(4096), 512 << 10
    received = [heavy.put(f"p{number}", item(1, size), 0) for number in range(MAX_BYTES // size + 1)]
    assert received[-1] == "full" and set(received[:-1]) == {"taken"}


def test_an_item_that_comes_again_or_too_early_changes_nothing() -> None:
    inbox = Inbox(64)
    assert [inbox.put("a", item(seq), 3) for seq in (3, 5, 4, 4)] == ["known", "early", "taken", "known"]
    assert len(inbox) == 1


def test_the_item_that_waited_longest_is_known() -> None:
    inbox = Inbox(64)
    assert inbox.oldest == math.inf
    inbox.put("a", item(1), 0, 5.0)
    inbox.put("b", item(1), 0, 7.0)
    inbox.take(1, {})
    assert inbox.oldest == 7.0


def test_items_are_kept_until_nothing_can_take_them_back() -> None:
    outbox = Outbox(keep=10.0)
    for _ in range(3):
        outbox.add(0, 8, 64, 0.5, b"x")
    outbox.settle(applied=2, everywhere=1, now=0.0)
    outbox.settle(applied=2, everywhere=1, now=20.0)
    assert [one.seq for one in outbox.unapplied(0)] == [2, 3], "a member does not have the second yet"
    outbox.settle(applied=0, everywhere=0, now=21.0)  # a split took both back
    assert [one.seq for one in outbox.unapplied(0)] == [2, 3]


def test_an_outbox_is_bounded_in_a_split_that_lasts() -> None:
    outbox = Outbox(keep=10.0)
    for _ in range(MOST_KEPT + 10):
        outbox.add(0, 8, 64, 0.5, b"x")
        outbox.settle(0, 0, 0.0)
    assert len(outbox.unapplied(0)) == MOST_KEPT


def test_a_producer_may_repeat_itself_and_may_not_flood() -> None:
    patience = Patience(0.0)
    assert not any(patience.useless(float(second)) for second in range(300)), "once a second is what retries do"
    flooding = Patience(0.0)
    assert [flooding.useless(1.0) for _ in range(int(TRIES) + 1)].count(True) == 1


def test_a_push_holds_as_many_items_as_a_message() -> None:
    assert len(bounded_items([item(seq, 300 << 10) for seq in range(1, 5)])) == 1
    assert len(bounded_items([item(seq) for seq in range(1, 40)])) == 16


@pytest.mark.parametrize(
    "wrong",
    [
        {"seq": 0},
        {"seq": 1 << 40},
        {"steps": 0},
        {"trained": -1},
        {"loss": 1e31},
        {"payload": b"x" * ((512 << 10) + 1)},
    ],
)
def test_an_item_out_of_bounds_is_no_message(wrong: dict[str, object]) -> None:
    good = Push("small", 0, (item(1),))
    assert decode_message(encode_message(good), Push) == good
    bad = Push("small", 0, (msgspec.structs.replace(item(1), **wrong),))
    with pytest.raises(Exception, match=r".+"):
        decode_message(encode_message(bad), Push)


def test_a_loop_that_is_cancelled_when_its_signal_comes_ends() -> None:
    async def main() -> None:
        signal = Signal()
        waiting = asyncio.create_task(signal.wait(1000.0))
        await asyncio.sleep(0)
        signal.give()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
