"""Fingerprints: laws of similarity, what two machines must agree on, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from p2pnode.similarity.fingerprint import (
    DIMENSIONS,
    FINGERPRINT_BYTES,
    HEADER_BYTES,
    MAX_LAYERS,
    Projection,
    comparable,
    main_axes,
    read_fingerprint,
    similarities,
    similarity,
    similarity_table,
    unit_gram,
)

INPUTS = 48
PROBE = (np.arange(INPUTS * 12).reshape(INPUTS, 12) * 7919 % 101).astype(np.float64)
PROJECTION = Projection(5, PROBE)
seeds = st.integers(0, 2**32 - 1)


def activations(seed: int, width: int = 20) -> np.ndarray:
    """What some model might make of the probe."""
    rng = np.random.default_rng(seed)
    return np.tanh((PROBE - 50) / 50 @ rng.normal(size=(12, width)) + rng.normal(size=width))


def row(seed: int, width: int = 20) -> np.ndarray:
    return read_fingerprint(PROJECTION.fingerprint([activations(seed, width)]))


def cka(one: np.ndarray, other: np.ndarray) -> float:
    """By the textbook: HSIC of the two over the root of their own."""
    centre = np.eye(len(one)) - 1 / len(one)
    a, b = centre @ one @ one.T @ centre, centre @ other @ other.T @ centre
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


@given(seeds, seeds)
@settings(max_examples=30, deadline=None)
def test_similarity_is_symmetric_within_bounds_and_one_with_itself(a: int, b: int) -> None:
    one, other = row(a), row(b, 35)
    assert similarity(one, other) == similarity(other, one)
    assert 0 <= similarity(one, other) <= 1
    assert similarity(one, one) == 1.0


@given(seeds, st.floats(-1e6, 1e6).filter(lambda factor: abs(factor) > 1e-4))  # beside the offset, less is rounding
@settings(max_examples=30, deadline=None)
def test_rotating_and_scaling_activations_changes_nothing(seed: int, factor: float) -> None:
    before = activations(seed)
    turn, _ = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(20, 20)))
    after = read_fingerprint(PROJECTION.fingerprint([before @ turn * factor + 3.0]))  # nor does an offset
    assert np.abs(after.astype(int) - row(seed).astype(int)).max() <= 1, "rounding may move a number by one step"


@given(seeds, seeds, st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_similarity_is_close_to_cka_whatever_the_widths(a: int, b: int, width: int) -> None:
    exact = cka(activations(a), activations(b, width))
    assert float((unit_gram(activations(a)) * unit_gram(activations(b, width))).sum()) == pytest.approx(exact)
    assert similarity(row(a), row(b, width)) == pytest.approx(exact, abs=0.12)


def test_several_layers_compare_by_their_mean() -> None:
    first = PROJECTION.fingerprint([activations(1), activations(2)])
    second = PROJECTION.fingerprint([activations(3), activations(4)])
    mean = (cka(activations(1), activations(3)) + cka(activations(2), activations(4))) / 2
    assert similarity(read_fingerprint(first), read_fingerprint(second)) == pytest.approx(mean, abs=0.1)
    assert not comparable(first, PROJECTION.fingerprint([activations(1)]))


def test_tables_agree_with_pairs() -> None:
    rows = np.stack([row(seed) for seed in range(5)])
    table = similarity_table(rows)
    assert np.array_equal(table, table.T)
    assert np.array_equal(table[2], similarities(rows[2], rows))
    assert table[1, 3] == similarity(rows[1], rows[3])


def test_the_same_bytes_on_every_machine() -> None:
    """Whole-number activations: nothing here depends on a library's order of adding. A change raises VERSION."""
    whole = np.arange(INPUTS * 5).reshape(INPUTS, 5) * 31 % 17
    made = PROJECTION.fingerprint([whole, whole**2])
    assert made[:HEADER_BYTES].hex() == "01029636"
    assert blake3(made).hexdigest()[:16] == "2e0e3f76f8ff9555"
    assert len(made) == FINGERPRINT_BYTES == HEADER_BYTES + DIMENSIONS


def test_other_seeds_and_probes_are_kept_apart() -> None:
    layer = [activations(1)]
    same = Projection(5, PROBE.astype(np.float32)).fingerprint(layer)
    assert same == PROJECTION.fingerprint(layer)
    for other in (Projection(6, PROBE), Projection(5, PROBE + np.eye(INPUTS, 12))):
        assert not comparable(same, other.fingerprint(layer))


@given(arrays.arrays(np.float64, (6, 3), elements=st.floats(-4, 4)), seeds)
@settings(max_examples=50, deadline=None)
def test_axes_are_orthogonal_or_zero_for_any_probe(inputs: np.ndarray, seed: int) -> None:
    signs = np.random.default_rng(seed).integers(0, 256, (8, 1), np.uint8)
    try:
        axes = main_axes(inputs, signs)
    except ValueError:
        return  # inputs all alike
    lengths = np.diagonal(axes.T @ axes)
    assert np.allclose(axes.T @ axes, np.diag(np.rint(lengths)), atol=1e-9)
    assert 1 <= np.rint(lengths).sum() <= 3, "three columns have three axes at most"


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([np.zeros((INPUTS, 4))], "all zero"),
        ([np.full((INPUTS, 4), 3.7)], "the same for all"),
        ([np.full((INPUTS, 4), np.nan)], "not finite"),
        ([np.where(np.eye(INPUTS), np.inf, 1.0)], "not finite"),
        ([np.ones((INPUTS - 1, 4))], "47 inputs"),
        ([np.ones(INPUTS)], "shape"),
        ([np.ones((INPUTS, 0))], "shape"),
        ([], "0 layers"),
        ([np.eye(INPUTS)] * (MAX_LAYERS + 1), "layers"),
    ],
)
def test_activations_that_say_nothing_are_refused(layers: list[np.ndarray], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PROJECTION.fingerprint(layers)


@pytest.mark.parametrize(
    "probe", [np.ones((1, 4)), np.ones((513, 2)), np.ones(9), np.full((9, 2), np.nan), np.ones((9, 2))]
)
def test_probes_that_cannot_tell_models_apart_are_refused(probe: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"probe|same"):
        Projection(1, probe)


@given(st.binary(max_size=300) | st.binary(min_size=259, max_size=259).map(lambda data: bytes([1]) + data))
def test_bytes_of_a_peer_are_a_fingerprint_or_refused(data: bytes) -> None:
    if len(data) == FINGERPRINT_BYTES and data[0] == 1 and any(data[HEADER_BYTES:]):
        assert len(read_fingerprint(data)) == DIMENSIONS
    else:
        with pytest.raises(ValueError, match="fingerprint"):
            read_fingerprint(data)


def test_what_only_looks_like_a_fingerprint_is_refused() -> None:
    good = PROJECTION.fingerprint([activations(1)])
    for bad in (good[:-1], good + b"\0", bytes([9]) + good[1:], good[:HEADER_BYTES] + bytes(DIMENSIONS)):
        with pytest.raises(ValueError, match="fingerprint"):
            read_fingerprint(bad)
