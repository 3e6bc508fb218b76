"""Lineages: a circle's name gives them, and the word it was founded by cannot be bent."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from p2pnode.circles.founding import (
    CircleFounding,
    circle_lineage,
    circle_name,
    encode_found,
    first_set,
    is_split_off,
    read_found,
    sign_found,
    splits,
)
from p2pnode.merging.deltaset.set import DeltaSet, weights_hash
from p2pnode.merging.deltaset.snapshots import encode_place, log_position
from p2pnode.wire.messages import MAX_NAME_CHARS
from tests.merging.deltaset.chains import AUTHORS, GENESIS, LINEAGE, RULES

MEMBERS = sorted(AUTHORS[:3], key=lambda author: author.peer_id)
PLACE = log_position(DeltaSet(RULES, GENESIS))
FOUND = CircleFounding(
    encode_place(PLACE), weights_hash(GENESIS), 12, tuple(author.peer_id for author in reversed(MEMBERS))
)
SIGNED = sign_found(MEMBERS[0], FOUND)
NAME = circle_name(SIGNED)


def test_a_declared_circle_has_a_lineage_of_its_own_and_the_first_that_of_the_genesis() -> None:
    named = [circle_lineage(genesis, circle) for genesis in (LINEAGE, b"w" * 32) for circle in ("", "a", NAME)]
    assert len(set(named)) == 6
    assert {len(lineage) for lineage in named} == {32}
    assert named[0] == LINEAGE


def test_a_name_fits_an_announcement_and_is_known_for_what_it_is() -> None:
    assert len(NAME) <= MAX_NAME_CHARS
    assert is_split_off(NAME)
    assert not any(is_split_off(name) for name in ("", "circle 0", NAME[:-1], NAME.upper() + "g", f"{NAME}\n"))


def test_the_word_of_a_circle_is_read_back_under_its_name_alone() -> None:
    assert read_found(encode_found(SIGNED), NAME) == SIGNED
    assert SIGNED.founder == MEMBERS[0].peer_id
    with pytest.raises(ValueError, match="another circle"):
        read_found(encode_found(SIGNED), "ab" * 20)


def test_a_word_that_somebody_else_signed_does_not_hold() -> None:
    for forged in (sign_found(MEMBERS[1], FOUND), msgspec.structs.replace(SIGNED, signature=b"")):
        with pytest.raises(ValueError, match="not signed by the smallest"):
            read_found(encode_found(forged), circle_name(forged))
    with pytest.raises(ValueError, match="order"):
        read_found(encode_found(msgspec.structs.replace(SIGNED, members=FOUND.members)), NAME)


def test_a_bent_word_never_counts() -> None:
    whole, rng = encode_found(SIGNED), random.Random(1)
    for _ in range(3000):
        data = bytearray(whole)
        data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            assert read_found(bytes(data[: rng.randrange(1, len(data) + 1)]), NAME) == SIGNED
        except ValueError:
            continue


def test_a_circle_begins_with_the_weights_its_founder_signed_and_its_share_of_the_steps() -> None:
    place = msgspec.structs.replace(PLACE, steps=1200)
    found = sign_found(MEMBERS[0], msgspec.structs.replace(FOUND, place=encode_place(place)))
    begun = first_set(found, LINEAGE, RULES, GENESIS)
    assert np.array_equal(begun.units, GENESIS)
    assert begun.rules.lineage == circle_lineage(LINEAGE, circle_name(found))
    assert begun.steps == 300, "a quarter of the members"
    assert not begun.heads
    with pytest.raises(ValueError, match="other weights"):
        first_set(found, LINEAGE, RULES, GENESIS + 1)


def test_only_its_parent_is_split_by_it() -> None:
    assert splits(SIGNED, RULES)
    assert not splits(SIGNED, replace(RULES, lineage=b"o" * 32))
    assert not splits(msgspec.structs.replace(SIGNED, place=b"nowhere"), RULES)
