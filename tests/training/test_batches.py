"""Batches: all samples in a pass, another order in the next, and a position that says everything."""

from __future__ import annotations

import pytest
import torch

from p2pnode.training.batches import Batches, seed_from


def drawn(batches: Batches, count: int) -> list[list[int]]:
    return [batches.next().tolist() for _ in range(count)]


def test_a_pass_has_every_sample_once():
    batches = Batches(torch.arange(100, 140), 8, seed=1)
    first = [sample for batch in drawn(batches, 5) for sample in batch]
    second = [sample for batch in drawn(batches, 5) for sample in batch]
    assert sorted(first) == sorted(second) == list(range(100, 140))
    assert first != second


def test_what_does_not_fill_a_batch_waits_for_the_next_pass():
    batches = Batches(torch.arange(10), 4, seed=1)
    assert [len(batch) for batch in drawn(batches, 6)] == [4] * 6
    assert batches.position == 6


def test_fewer_samples_than_a_batch_make_one():
    assert sorted(drawn(Batches(torch.arange(3), 32, seed=1), 1)[0]) == [0, 1, 2]


@pytest.mark.parametrize("position", [0, 1, 4, 5, 23])
def test_the_position_is_all_there_is_to_save(position):
    whole = Batches(torch.arange(40), 8, seed=5)
    drawn(whole, position)
    assert drawn(Batches(torch.arange(40), 8, seed=5, position=position), 12) == drawn(whole, 12)


def test_another_seed_another_order():
    assert drawn(Batches(torch.arange(40), 8, seed=1), 3) != drawn(Batches(torch.arange(40), 8, seed=2), 3)


def test_no_samples_are_refused():
    with pytest.raises(ValueError, match="no samples"):
        Batches(torch.arange(0), 8, seed=1)


def test_seeds_differ_by_every_word_and_stay():
    assert len({seed_from(1, "a"), seed_from(1, "b"), seed_from(2, "a"), seed_from("1", "a")}) == 4
    assert 0 <= seed_from(1, "a") < 2**63
