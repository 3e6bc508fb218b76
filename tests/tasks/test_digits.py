"""The data that come along: whole, split once and for all."""

from __future__ import annotations

import hashlib
import lzma

import torch

from p2pnode.tasks.digits import FILE, Digits


def test_the_file_is_what_it_was_made_as():
    raw = lzma.decompress(FILE.read_bytes())
    assert hashlib.sha256(raw).hexdigest() == "e1d88a0854e29e01d16358d2cd026aa8fc20dfc4cdb3fce004300857ea82aa70"
    assert FILE.with_name("DIGITS.txt").is_file()


def test_training_and_test_samples_are_apart_and_complete():
    train, test = Digits().data(), Digits().test_data()
    assert (len(train["y"]), len(test["y"])) == (1437, 360)
    assert torch.bincount(torch.cat([train["y"], test["y"]])).tolist() == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180,
    ]  # fmt: skip
    assert train["x"].shape == (1437, 8, 8) and train["x"].dtype == torch.uint8 and int(train["x"].max()) == 16
    pictures = {bytes(picture.flatten().tolist()) for picture in test["x"]}
    assert not any(bytes(picture.flatten().tolist()) in pictures for picture in train["x"])


def test_the_split_is_the_same_everywhere():
    assert Digits().test_data()["y"][:12].tolist() == [2, 6, 1, 9, 6, 9, 0, 5, 0, 6, 7, 5]


def test_all_tasks_of_a_process_share_the_data():
    assert Digits().data()["x"].data_ptr() == Digits().data()["x"].data_ptr()
