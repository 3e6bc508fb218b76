"""The log of a queue: equal chains give equal weights, branches are taken back exactly, nothing is applied twice."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.compression.codec import encode_delta
from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.weights import MAX_UNITS
from p2pnode.jobs.queues.log import KEPT, NotConnected, QueueLog, Step, decode_step, encode_step, state_hash
from p2pnode.wire.ids import Identity

A, B = (Identity(bytes([number]) * 32) for number in (1, 2))
GENESIS = np.arange(8, dtype=np.int32)
LEASES = {0: b"0" * 32, 1: b"1" * 32, 2: b"2" * 32}


def fresh() -> QueueLog:
    return QueueLog("run/zoo/small", "small", GENESIS)


def step_of(log: QueueLog, me: Identity, term: int, items: Sequence[tuple[str, int]], values: dict[int, int]) -> Step:
    delta = SparseDelta(8, np.array(sorted(values), np.uint32), np.array([values[k] for k in sorted(values)], np.int32))
    return log.make(me, (term, LEASES[term]), items, delta, encode_delta(delta))


def grown(log: QueueLog, me: Identity, term: int, count: int, producer: str = "p") -> list[Step]:
    """Steps of one item each, put into the log."""
    made = []
    for number in range(count):
        seq = log.applied.get(producer, 0) + 1
        step = step_of(log, me, term, [(producer, seq)], {number % 8: seq, 7: -1} if number % 8 != 7 else {7: 3})
        assert log.add([step])
        made.append(step)
    return made


def test_who_has_the_same_steps_has_the_same_weights() -> None:
    owner, follower = fresh(), fresh()
    steps = grown(owner, A, 0, 5)
    assert follower.add(steps)
    assert (follower.weights == owner.weights).all() and follower.head == owner.head
    assert follower.applied == {"p": 5} and follower.items == 5
    assert not follower.add(steps), "they are known"


def test_the_branch_of_the_higher_term_wins_whatever_comes_first() -> None:
    common = fresh()
    shared = grown(common, A, 0, 2)
    old, new = fresh(), fresh()
    old.add(shared), new.add(shared)
    deposed = grown(old, A, 0, 6)
    cut = new.make(B, (1, LEASES[1]))
    new.add([cut])
    successor = [cut, *grown(new, B, 1, 1, "q")]
    one, other = fresh(), fresh()
    one.add([*shared, *deposed])
    assert one.add(successor)
    assert one.taken_back == 6
    other.add([*shared, *successor])
    assert not other.add(deposed)
    for log in (one, other):
        assert (log.weights == new.weights).all() and log.head == new.head
        assert {who: seq for who, seq in log.applied.items() if seq} == {"p": 2, "q": 1}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=6), st.randoms())
def test_all_orders_of_arrival_end_alike(plan: list[tuple[int, int]], random: object) -> None:
    """Branches made at different places of the chain, given to two nodes in different orders."""
    branches: list[list[Step]] = []
    current = fresh()
    chain: list[Step] = []
    for term, count in plan:
        log = fresh()
        kept = chain[: len(chain) // 2] if term else chain
        log.add(kept) if kept else None
        if log.term > term:
            continue
        branch = [*kept, *grown(log, A if term % 2 else B, term, count, f"p{term}")] if _fits(log, term) else kept
        branches.append(branch)
        if log.rank > current.rank:
            current, chain = log, branch
    ends = []
    for _ in range(2):
        log = fresh()
        random.shuffle(branches)  # type: ignore[attr-defined]
        for branch in branches:
            if branch:
                log.add(branch)
        ends.append((log.head, log.weights.tobytes()))
    assert ends[0] == ends[1]


def _fits(log: QueueLog, term: int) -> bool:
    """Whether the next step may have this term: one term has one owner."""
    return log.term < term or (log.term == term)


def test_an_item_counts_once_and_none_is_left_out() -> None:
    log = fresh()
    grown(log, A, 0, 2)
    for items in ([("p", 2)], [("p", 4)], [("p", 3), ("p", 3)]):
        with pytest.raises(ValueError, match=r"applied before|left out"):
            log.add([step_of(log, A, 0, items, {0: 1})])
    assert log.applied == {"p": 2}


@pytest.mark.parametrize(
    "forge",
    [
        {"owner": B.peer_id},
        {"state": b"x" * 32},
        {"payload": b"nonsense"},
        {"term": 1 << 40},
        {"queue": "wide"},
        {"index": 9},
        {"items": (("p", 1),)},
        {"lease": b"y" * 32},
    ],
)
def test_a_forged_step_changes_nothing(forge: dict[str, object]) -> None:
    log = fresh()
    grown(log, A, 0, 2)
    good = step_of(log, A, 0, [("p", 3)], {0: 5})
    forged = msgspec.structs.replace(good, **forge)
    before = log.weights.copy(), log.head, dict(log.applied)
    with pytest.raises(ValueError, match=r".+"):
        log.add([forged])
    resigned = msgspec.structs.replace(forged, owner=B.peer_id)
    with pytest.raises(ValueError, match=r".+"):
        log.add([resigned])
    assert (log.weights == before[0]).all() and (log.head, log.applied) == before[1:]
    assert log.add([good])


def test_a_branch_with_a_bad_step_leaves_the_old_one_in_place() -> None:
    log, other = fresh(), fresh()
    grown(log, A, 0, 3)
    good = grown(other, B, 1, 1, "q")
    bad = msgspec.structs.replace(step_of(other, B, 1, [("q", 2)], {1: 1}), state=b"x" * 32)
    before = log.weights.copy(), log.head, dict(log.applied)
    with pytest.raises(ValueError, match=r".+"):
        log.add([*good, bad])
    assert (log.weights == before[0]).all() and log.head == before[1]
    assert {who: seq for who, seq in log.applied.items() if seq} == before[2]


def test_steps_after_an_unknown_one_are_nobodys_fault() -> None:
    other = fresh()
    steps = grown(other, A, 0, 3)
    with pytest.raises(NotConnected):
        fresh().add(steps[1:])


def test_a_weight_never_leaves_the_grid() -> None:
    log = fresh()
    log.add([step_of(log, A, 0, [("p", 1)], {0: MAX_UNITS})])
    with pytest.raises(ValueError, match="leave the range"):
        step_of(log, A, 0, [("p", 2)], {0: 1})


def test_followers_catch_up_by_steps_and_newcomers_by_a_snapshot() -> None:
    owner, follower = fresh(), fresh()
    follower.add(grown(owner, A, 0, 10))
    grown(owner, A, 0, 20)
    data = owner.after(follower.positions(), 1 << 20)
    assert data is not None and len(data) == 20
    assert follower.add([decode_step(one) for one in data]) and follower.head == owner.head
    grown(owner, A, 0, 3 * KEPT)
    assert owner.after(fresh().positions(), 1 << 20) is None, "the beginning is forgotten"
    newcomer = fresh()
    assert newcomer.adopt(owner.snapshot())
    assert (newcomer.weights == owner.weights).all() and newcomer.applied == owner.applied
    newcomer.add(grown(owner, A, 0, 2))
    assert newcomer.head == owner.head
    assert not newcomer.adopt(owner.snapshot()), "it is no further"


def test_a_snapshot_must_be_what_the_last_owner_signed() -> None:
    owner = fresh()
    grown(owner, A, 0, 3)
    last, weights, applied, tail = msgspec.msgpack.decode(owner.snapshot())
    changed = bytearray(weights)
    changed[0] ^= 1
    for wrong in (
        (last, bytes(changed), applied, tail),
        (last, weights, [["p", 2]], tail),
        (last, weights[:-4], applied, tail),
        (last, weights, applied, tail[:-1]),
        (last, weights, applied, [tail[0], tail[2]]),
        (b"nonsense", weights, applied, tail),
    ):
        newcomer = fresh()
        with pytest.raises(ValueError, match=r".+"):
            newcomer.adopt(msgspec.msgpack.encode(wrong))
        assert newcomer.head == fresh().head
    with pytest.raises(ValueError, match="malformed"):
        fresh().adopt(b"\x00garbage")


@given(st.binary(max_size=300))
def test_bytes_of_strangers_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="step"):
        decode_step(data)


def test_a_step_travels_unchanged() -> None:
    step = grown(fresh(), A, 0, 1)[0]
    assert decode_step(encode_step(step)) == step
    assert state_hash(GENESIS, {"p": 0}) == state_hash(GENESIS, {}), "who had nothing applied is not in the table"
