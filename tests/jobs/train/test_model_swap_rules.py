"""What a model brings home from a visit: bounded, in form, and never far."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from p2pnode.jobs.train.model_swap_rules import FARTHEST, decode_result, encode_result, swap_entries, with_result

SIZE = 700
weights = arrays(np.float32, SIZE, elements=st.floats(-3, 3, width=32))


@given(weights, weights)
def test_what_comes_home_is_the_largest_of_what_changed_and_leads_no_farther_than_allowed(begun, after) -> None:
    delta = decode_result(encode_result(begun, after), SIZE)
    assert len(delta.indices) <= swap_entries(SIZE) < SIZE
    home = with_result(begun, delta)
    moved = np.flatnonzero(home != begun)
    assert set(moved) <= set(delta.indices.tolist())
    way = float(np.linalg.norm((home - begun).astype(np.float64)))
    assert way <= FARTHEST * float(np.linalg.norm(begun)) * 1.001 + 1e-4
    before = np.abs(after - begun)[delta.indices]
    assert not len(before) or before.min() >= np.sort(np.abs(after - begun))[-swap_entries(SIZE)] - 1e-6


@pytest.mark.parametrize("data", [b"", b"nonsense", encode_result(np.zeros(5, np.float32), np.ones(5, np.float32))])
def test_what_is_no_delta_of_this_model_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode_result(data, SIZE)
