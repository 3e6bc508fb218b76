"""Rows that are described instead of listed: the same rows, whatever their number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.config.split import SplitPart, parse_split
from p2pnode.shards import rows
from p2pnode.shards.rows import RowSet, listed, row_range, same_rows
from p2pnode.shards.split import part_rows


@given(st.integers(0, 20), st.integers(1, 60), st.integers(1, 12), st.data())
def test_a_set_has_the_rows_of_its_pieces(start: int, count: int, pieces: int, data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, pieces - 1), min_size=1)))
    some = RowSet(start, start + count, pieces, np.array(chosen))
    expected = [row for row in range(start, start + count) if (row - start) % pieces in chosen]
    assert len(some) == len(expected)
    assert sorted(listed(some)) == expected
    every = np.arange(start + count + 5)
    assert every[some.holds(every)].tolist() == expected


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(rows, "LISTED", 10)
    return 10


def test_working_sets_are_different_and_cover_everything(few: int) -> None:
    some = RowSet(0, 95, 1, np.zeros(1, np.int64))
    sets = [some.working_set(seed=3, turn=turn) for turn in range(10)]
    assert all(len(one) == few == len(set(one.tolist())) for one in sets)
    assert len(set(np.concatenate(sets).tolist())) == 95
    assert np.array_equal(sets[4], some.working_set(3, 4)) and not np.array_equal(sets[4], some.working_set(4, 4))


def test_a_working_set_of_many_rows_is_made_without_listing_them() -> None:
    some = RowSet(0, 10**12, 1, np.zeros(1, np.int64))
    first = some.working_set(1, 0)
    assert len(first) == rows.LISTED and first.max() > 9 * 10**11 and first.min() < 10**11


def test_few_rows_are_listed_and_many_are_not(few: int) -> None:
    assert isinstance(row_range(3, 13), np.ndarray) and isinstance(row_range(3, 14), RowSet)
    assert same_rows(row_range(3, 14), row_range(3, 14)) and not same_rows(row_range(3, 14), row_range(3, 15))
    assert same_rows(np.arange(3), np.arange(3)) and not same_rows(np.arange(3), row_range(0, 14))


@pytest.mark.parametrize("how", ["iid", "parts"])
def test_many_rows_are_divided_among_nodes_without_gaps(how: str) -> None:
    count = rows.LISTED + 7
    parts = [listed(part_rows(None, count, parse_split(how), SplitPart(index, 3))) for index in range(3)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))
    assert max(len(part) for part in parts) - min(len(part) for part in parts) <= 1
