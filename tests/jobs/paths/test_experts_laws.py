"""Laws of experts: offers are their authors', all members end with the same ones, and rows tell data apart."""

from __future__ import annotations

from itertools import permutations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.jobs.paths.experts import (
    MAX_EXPERTS,
    MAX_OF_AUTHOR,
    ExpertOffer,
    check_offer,
    learn_row,
    merged,
    pack_weights,
    signed,
    unpack_weights,
)
from p2pnode.wire.ids import Identity

FEATURES = 16
ME, OTHER = Identity(bytes(31) + b"\1"), Identity(bytes(31) + b"\2")


def offer(
    name: str = "one", version: int = 1, withdrawn: bool = False, by: Identity = ME, content: int = 0
) -> ExpertOffer:
    row = b"" if withdrawn else bytes(FEATURES)
    return signed(
        ExpertOffer("run/text", name, by.peer_id, version, withdrawn, 0, 5, bytes([content]) * 32, row, 1.0, 0.0), by
    )


offers = st.builds(
    offer,
    st.sampled_from(["one", "two"]),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([ME, OTHER]),
    st.integers(0, 2),
)


@given(st.lists(offers, max_size=4))
def test_members_that_hear_the_same_offers_in_any_order_know_the_same(heard: list[ExpertOffer]) -> None:
    ends = []
    for order in permutations(heard):
        known: dict[tuple[str, str], ExpertOffer] = {}
        for one in order:
            known = merged(known, one)
        ends.append(dict(sorted(known.items())))
    assert all(end == ends[0] for end in ends)


def test_a_withdrawal_counts_for_everybody_who_hears_of_it() -> None:
    known = merged(merged({}, offer(version=1)), offer(version=2, withdrawn=True))
    assert [one.withdrawn for one in known.values()] == [True]
    assert merged(known, offer(version=1)) == known, "an old offer does not bring it back"


def test_offers_are_bounded_for_each_author_and_in_all() -> None:
    known: dict[tuple[str, str], ExpertOffer] = {}
    for number in range(20):
        known = merged(known, offer(f"e{number}"))
    assert len(known) == MAX_OF_AUTHOR
    for author in range(3, 20):
        for number in range(4):
            known = merged(known, offer(f"e{number}", by=Identity(bytes(31) + bytes([author]))))
    assert len(known) == MAX_EXPERTS


@pytest.mark.parametrize(
    "change",
    [{"name": "two"}, {"withdrawn": True, "row": b""}, {"version": 9}, {"author": OTHER.peer_id}, {"constant": 5.0},
     {"scope": "run/other"}, {"row": bytes(3)}, {"content": bytes(31) + b"x"}],
)  # fmt: skip
def test_nobody_but_the_author_can_change_an_offer(change: dict[str, object]) -> None:
    check_offer(offer(), "run/text", FEATURES)
    with pytest.raises(ValueError, match=r"signed|job|router"):
        check_offer(msgspec.structs.replace(offer(), **change), "run/text", FEATURES)


@given(st.lists(st.floats(-60, 60, width=16), min_size=1, max_size=20))
def test_weights_travel_whole(values: list[float]) -> None:
    weights = np.array(values, np.float32)
    assert np.array_equal(unpack_weights(pack_weights(weights), len(weights)), weights)


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0", np.array([np.nan, 1], "<f2").tobytes(), np.array([1, 6e4], "<f2").tobytes()]
)
def test_weights_that_cannot_be_used_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="weights"):
        unpack_weights(data, 2)


def test_a_row_is_high_on_own_beginnings_and_low_on_others() -> None:
    rng = np.random.default_rng(1)
    own, others = (
        rng.poisson(np.arange(FEATURES), (80, FEATURES)),
        rng.poisson(np.arange(FEATURES)[::-1], (90, FEATURES)),
    )
    row, scale, constant = learn_row(own.astype(np.float32), others.astype(np.float32), rng)
    made = msgspec.structs.replace(offer(), row=row, scale=scale, constant=constant)
    assert (made.scores(own.astype(np.float32)) > 0).mean() > 0.95
    assert (made.scores(others.astype(np.float32)) < 0).mean() > 0.95
