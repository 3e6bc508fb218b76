"""Tensors as bytes: close to what was sent, and nothing that a peer sends gets past the checks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.jobs.pipeline.tensors import LEVELS, decode_tensor, distance, encode_tensor, encoded_size

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 9))
BITS = st.sampled_from([4, 8])


@given(SHAPES, BITS, st.integers(0, 1000), st.floats(1e-6, 1e4))
def test_each_row_comes_back_within_half_a_level(
    shape: tuple[int, int, int], bits: int, seed: int, size: float
) -> None:
    values = (np.random.default_rng(seed).standard_normal(shape) * size).astype(np.float32)
    data = encode_tensor(values, bits)
    assert len(data) == encoded_size(shape, bits)
    found = decode_tensor(data, shape)
    allowed = 0.5001 * np.abs(values).max(axis=-1, keepdims=True) / LEVELS[bits] + 1e-30
    assert (np.abs(found - values) <= allowed).all()


@given(st.binary(max_size=120), SHAPES)
def test_any_bytes_are_refused_or_finite(data: bytes, shape: tuple[int, int, int]) -> None:
    try:
        found = decode_tensor(data, shape)
    except ValueError:
        return
    assert found.shape == shape and np.isfinite(found).all()


@given(SHAPES, BITS, st.data())
def test_changed_bytes_are_refused_or_finite(shape: tuple[int, int, int], bits: int, drawn: st.DataObject) -> None:
    data = bytearray(encode_tensor(np.ones(shape, np.float32), bits))
    data[drawn.draw(st.integers(0, len(data) - 1))] = drawn.draw(st.integers(0, 255))
    try:
        found = decode_tensor(bytes(data), shape)
    except ValueError:
        return
    assert found.shape == shape and np.isfinite(found).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_what_cannot_be_sent_is_refused(bad: float) -> None:
    values = np.ones((1, 2, 3), np.float32)
    values[0, 1, 2] = bad
    with pytest.raises(ValueError, match=r"finite|large"):
        encode_tensor(values, 8)


def test_another_shape_or_size_is_refused() -> None:
    data = encode_tensor(np.ones((2, 3, 4), np.float32), 8)
    for shape in ((3, 2, 4), (2, 3, 5), (2, 12), (1, 3, 4)):
        with pytest.raises(ValueError, match="expected"):
            decode_tensor(data, shape)
    with pytest.raises(ValueError, match="bytes"):
        decode_tensor(data + b"\0", (2, 3, 4))


def test_zeros_stay_zeros() -> None:
    assert not decode_tensor(encode_tensor(np.zeros((1, 2, 3), np.float32), 4), (1, 2, 3)).any()


def test_distance() -> None:
    one = np.ones((2, 3), np.float32)
    assert distance(one, one) == 0
    assert distance(one, np.zeros_like(one)) == 1
