"""Data that are not tensors in memory: rows read by index, files of tokens; what is read, and what is wrong with it."""

from __future__ import annotations

import os
import pickle
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset

from p2pnode import Tokens
from p2pnode.tasks.data import BadData, Indexed, InMemory, as_data
from p2pnode.wire.errors import UsageError

Pair = namedtuple("Pair", "x y")


@dataclass
class Named:
    x: np.ndarray
    y: int


class Rows(Dataset):
    """Rows made by a function; counts what is read."""

    def __init__(self, make, count=10):
        self.make, self.count, self.read = make, count, []

    def __len__(self):
        return self.count

    def __getitem__(self, row):
        self.read.append(row)
        return self.make(row)


def picture(row: int) -> tuple[torch.Tensor, int]:
    return torch.full((2,), float(row)), row % 3


def labels_of(dataset: Dataset) -> list[int] | None:
    found = as_data(dataset).labels
    return None if found is None else found.tolist()


class TestRowsByIndex:
    @pytest.mark.parametrize(
        "make",
        [
            picture,
            lambda row: [np.full(2, row, np.float32), np.int64(row % 3)],
            lambda row: {"x": torch.full((2,), float(row)), "y": torch.tensor(row % 3)},
            lambda row: {"x": [float(row), float(row)], "y": row % 3},
            lambda row: Pair(torch.full((2,), float(row)), row % 3),
            lambda row: Named(np.full(2, row, np.float32), row % 3),
        ],
    )
    def test_a_sample_may_be_a_dict_a_tuple_or_a_record_of_tensors_arrays_or_numbers(self, make):
        found = as_data(Rows(make)).rows(torch.tensor([4, 7, 4]))
        assert torch.equal(found["x"], torch.tensor([[4.0, 4.0], [7.0, 7.0], [4.0, 4.0]]))
        assert found["y"].tolist() == [1, 1, 1] and found["y"].dtype == torch.int64

    def test_only_what_is_asked_for_is_read(self):
        rows = Rows(picture, 10**9)
        data = as_data(rows)
        assert len(data) == 10**9 and not data.in_memory and rows.read == [0]
        assert [tuple(column.shape) for column in data.empty.values()] == [(0, 2), (0,)]
        data.rows(torch.tensor([5, 999_999_999]))
        assert data.hash() == as_data(Rows(picture, 10**9)).hash() != as_data(Rows(picture, 10**9 - 1)).hash()
        assert len(rows.read) < 80

    def test_a_data_set_may_give_many_rows_at_once_as_samples_or_as_columns(self):
        class Lists(Rows):
            def __getitems__(self, rows):
                self.read.append(rows)
                return [picture(row) for row in rows]

        class Columns(Rows):
            def __getitems__(self, rows):
                return {"x": np.repeat(np.array(rows, np.float32)[:, None], 2, 1), "y": np.array(rows) % 3}

        lists = Lists(None)
        expected = as_data(Rows(picture)).rows(torch.tensor([3, 9]))
        for dataset in (lists, Columns(None)):
            found = as_data(dataset).rows(torch.tensor([3, 9]))
            assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert lists.read == [[0], [3, 9]]

    def test_types_that_torch_cannot_compute_with_become_wider(self):
        found = as_data(Rows(lambda row: {"x": np.array([row], np.uint16)})).rows(torch.tensor([1, 2]))
        assert found["x"].dtype == torch.int32

    def test_labels_are_those_that_the_data_set_lists(self):
        rows = Rows(picture)
        assert labels_of(rows) is None
        vars(rows)["targets"] = targets = [row % 3 for row in range(10)]
        assert labels_of(rows) == targets
        assert labels_of(Subset(rows, [7, 8])) == [1, 2]
        assert rows.read == [0, 0, 7]

    def test_pieces_are_read_one_after_the_other(self):
        rows = Rows(picture)
        pieces = as_data(rows).spread(5).pieces(2)
        assert next(pieces)["x"][:, 0].tolist() == [0.0, 2.0]
        assert rows.read == [0, 0, 2]
        assert [len(piece["x"]) for piece in pieces] == [2, 1]


def broken(bad):
    def make(row):
        if row == 3:
            return bad(row)
        return picture(row)

    return as_data(Rows(make))


def raises(row):
    raise OSError("disk\ngone")


def out_of_range(row):
    raise IndexError("list index out of range")


class TestBadRows:
    @pytest.mark.parametrize(
        ("bad", "said"),
        [
            (raises, "row 3 raised OSError: disk ("),
            (out_of_range, "row 3 raised IndexError: list index out of range ("),
            (lambda row: (torch.zeros(3), 1), "row 3 has x of shape (3,), and the first one (2,)"),
            (lambda row: (torch.zeros(2), 0.5), "row 3 has y of type torch.float32, and the first one torch.int64"),
            (lambda row: (torch.tensor([1.0, float("nan")]), 1), "row 3 has values in x that are not finite"),
            (lambda row: {"x": torch.zeros(2)}, "row 3 has the columns x, and the first one has x, y"),
            (lambda row: "text", "row 3 is a str; return a dict"),
            (lambda row: ("text", 1), "row 3 has a str in 'x'; give tensors, arrays or numbers"),
            (lambda row: (1, 2, 3), "row 3 is a tuple of 3 values; give them names: return a dict"),
            (lambda row: None, "row 3 is a NoneType"),
        ],
    )
    def test_a_bad_row_is_left_out_and_reported_once(self, bad, said):
        data = broken(bad)
        found, kept = data.read(torch.tensor([2, 3, 4]))
        assert kept is not None and kept.tolist() == [0, 2]
        assert found["x"][:, 0].tolist() == [2.0, 4.0]
        assert data.problem(3).startswith(said) and not data.problem(2)
        with pytest.raises(BadData, match="row 3"):
            data.rows(torch.tensor([2, 3]))
        assert [len(piece["x"]) for piece in data.pieces(4)] == [3, 4, 2]

    def test_the_line_of_the_users_code_is_named(self):
        data = broken(raises)
        data.read(torch.tensor([3]))
        assert f"({__file__}:" in data.problem(3)

    def test_a_batch_without_a_good_row_is_empty_and_tried_again(self):
        there = [True]
        data = as_data(Rows(lambda row: picture(row) if there[0] else raises(row)))
        there[0] = False
        found, kept = data.read(torch.tensor([3, 4]))
        assert kept is not None and len(kept) == 0 and len(found["x"]) == 0
        assert "disk" in data.problem(3) and not data.problems
        there[0] = True
        assert data.read(torch.tensor([3, 4]))[1] is None

    @pytest.mark.parametrize(
        ("made", "said"),
        [
            ([1, 2], "must give a dict of tensors"),
            (torch.zeros(3), "must give a dict of tensors"),
            (None, "must give a dict of tensors"),
            (Rows(picture, 0), "gave no samples"),
            (Rows(raises), "cannot be read: row 0 raised OSError"),
            (Rows(lambda row: "text"), "cannot be read: row 0 is a str"),
        ],
    )
    def test_what_is_no_data_is_refused(self, made, said):
        with pytest.raises(BadData, match=said):
            as_data(made)

    def test_a_data_set_without_a_length_is_refused(self):
        class Endless(Dataset):
            def __getitem__(self, row):
                return picture(row)

        with pytest.raises(BadData, match="without a length"):
            as_data(Endless())

    def test_a_first_row_that_cannot_be_read_does_not_hide_the_others(self):
        data = as_data(Rows(lambda row: raises(row) if row == 0 else picture(row)))
        assert isinstance(data, Indexed)
        assert len(data.read(torch.tensor([0, 1]))[0]["x"]) == 1 and data.problem(0)


class TestTokens:
    def tokens(self, tmp_path: Path, count: int = 101, **options) -> Tokens:
        np.arange(count, dtype=options.get("dtype", "uint16")).tofile(tmp_path / "train.bin")
        return Tokens(tmp_path / "train.bin", 10, **options)

    @pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int32", "int64"])
    def test_windows_follow_each_other_and_y_is_one_token_later(self, tmp_path, dtype):
        tokens = self.tokens(tmp_path, dtype=dtype)
        assert len(tokens) == 10
        assert tokens[9]["x"].tolist() == list(range(90, 100)) and tokens[9]["y"].tolist() == list(range(91, 101))
        found = as_data(tokens).rows(torch.tensor([1, 0]))
        assert found["x"][:, 0].tolist() == [10, 0] and found["x"].shape == (2, 10)

    def test_parts_of_a_file_do_not_overlap(self, tmp_path):
        train, test = self.tokens(tmp_path, part=(0, 0.7)), self.tokens(tmp_path, part=(0.7, 1))
        assert (len(train), len(test)) == (7, 3)
        assert test[0]["x"][0] == 70 and train[6]["x"][-1] == 69

    def test_it_can_be_given_to_other_processes(self, tmp_path):
        tokens = self.tokens(tmp_path)
        again = pickle.loads(pickle.dumps(tokens))
        assert torch.equal(again[3]["x"], tokens[3]["x"])

    def test_a_file_that_is_deleted_is_still_read_and_one_that_was_cut_off_is_reported(self, tmp_path):
        tokens = self.tokens(tmp_path)
        data = as_data(tokens)
        os.truncate(tmp_path / "train.bin", 100)
        (tmp_path / "train.bin").unlink()
        found, kept = data.read(torch.tensor([0, 9]))
        assert kept is not None and kept.tolist() == [0] and found["x"][0, 0] == 0
        assert data.problem(9) == f"row 9 cannot be read: {tmp_path}/train.bin ends before byte 202; it was cut off"

    @pytest.mark.parametrize(
        ("options", "said"),
        [({"context": 0}, "a context from 1"), ({"dtype": "float32"}, "a dtype of"), ({"part": (0.5, 0.2)}, "a part")],
    )
    def test_wrong_arguments_are_named(self, tmp_path, options, said):
        self.tokens(tmp_path)
        with pytest.raises(UsageError, match=said):
            Tokens(**{"path": tmp_path / "train.bin", "context": 10, **options})

    def test_a_missing_or_too_short_file_is_reported(self, tmp_path):
        with pytest.raises(UsageError, match=r"none\.bin cannot be opened: No such file or directory"):
            Tokens(tmp_path / "none.bin", 10)
        with pytest.raises(UsageError, match="has 10 tokens of 2 bytes, too few for a window of 10"):
            self.tokens(tmp_path, 10)
        with pytest.raises(IndexError):
            self.tokens(tmp_path)[10]


def test_tensors_in_memory_are_not_copied():
    columns = {"x": torch.zeros(4, 2), "y": torch.zeros(4)}
    data = as_data(columns)
    assert isinstance(data, InMemory) and next(data.pieces(1)) is columns
    assert data.sample_bytes == 12 and data.small and data.spread(10) is data
