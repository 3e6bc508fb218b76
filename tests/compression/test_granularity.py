"""Blocks and single coordinates: within the budget, never across a layer, never a coordinate that did not change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.compression.codec import encode_delta
from p2pnode.compression.delta import Indices
from p2pnode.compression.quantise import quantise
from p2pnode.compression.residual import weighted
from p2pnode.compression.selector import Budget
from p2pnode.compression.selectors.granularity import (
    ARMS,
    COARSE,
    FINE,
    HOLD,
    HYBRID,
    LEARNED,
    RULE,
    Bandit,
    Blocks,
    GranularityControl,
    best,
    coarse,
    fine,
    granularity_for,
    hybrid,
)
from p2pnode.compression.selectors.magnitude import largest
from p2pnode.compression.weights import Floats, Units

layers = st.lists(st.integers(1, 90), min_size=1, max_size=6)


def magnitude(residual: Units):  # type: ignore[no-untyped-def]
    return lambda places: np.abs(residual[places]).astype(np.float32)


def spiky(size: int, seed: int) -> Units:
    """Small values everywhere, large ones in runs and here and there, zeros too."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-50, 50, size).astype(np.int32)
    for start in rng.integers(0, size, 1 + size // 100):
        values[start : start + 20] = rng.integers(-5000, 5000)
    values[rng.integers(0, size, 1 + size // 50)] = 3000
    return values


@given(layers, st.integers(1, 64))
def test_blocks_cover_every_coordinate_once_and_no_border(sizes: list[int], length: int) -> None:
    blocks = Blocks(sizes, length)
    everything = blocks.indices(np.arange(len(blocks.starts)))
    assert everything.tolist() == list(range(sum(sizes)))
    assert (blocks.lengths <= length).all()
    borders = np.cumsum(sizes)
    assert (
        np.searchsorted(borders, blocks.starts, "right")
        == np.searchsorted(borders, blocks.starts + blocks.lengths - 1, "right")
    ).all()
    assert np.array_equal(blocks.containing(everything), np.repeat(np.arange(len(blocks.starts)), blocks.lengths))


@given(layers, st.integers(1, 120), st.integers(0, 99), st.sampled_from([FINE, HYBRID, COARSE]))
def test_what_is_chosen_is_sorted_changed_and_within_the_budget(sizes: list[int], k: int, seed: int, what: int) -> None:
    residual = spiky(sum(sizes), seed)
    score = magnitude(residual)
    chosen = {
        FINE: lambda: fine(residual, k, score),
        COARSE: lambda: coarse(residual, k, score, Blocks(sizes, 16)),
        HYBRID: lambda: hybrid(residual, k, score, [Blocks(sizes, 16), Blocks(sizes, 8)], 2, 10.0),
    }[what]()
    assert chosen.dtype == np.uint32
    assert (np.diff(chosen.astype(np.int64)) > 0).all()
    assert (residual[chosen] != 0).all()
    most = k * 10.0 / 2.75 if what == HYBRID else k  # a follower in a block takes 2.75 of the 10 bits
    assert len(chosen) <= most + 1
    assert len(chosen) or not residual.any()


@given(st.integers(1, 200), st.integers(0, 99))
def test_fine_by_magnitude_is_the_largest(k: int, seed: int) -> None:
    residual = spiky(300, seed)
    assert np.array_equal(fine(residual, k, magnitude(residual)), largest(residual, k))


def test_coarse_takes_the_blocks_of_largest_average() -> None:
    residual = np.ones(64, np.int32)
    residual[16:32], residual[40] = 5, 60  # 5 on average, and 4.7: one large value does not make a block
    assert coarse(residual, 16, magnitude(residual), Blocks([64], 16)).tolist() == list(range(16, 32))


def test_hybrid_takes_dense_blocks_whole_and_single_coordinates_elsewhere() -> None:
    residual = np.ones(4096, np.int32)
    residual[640:704] = 100
    residual[650] = 10  # goes along with its neighbours
    residual[[100, 2000, 3000]] = 90
    chosen = set(hybrid(residual, 40, magnitude(residual), [Blocks([4096], 64)], 2, 10.0).tolist())
    assert chosen >= {*range(640, 704), 100, 2000, 3000}


@pytest.mark.parametrize("what", [FINE, HYBRID, COARSE])
def test_what_scores_nothing_is_dropped_altogether(what: int) -> None:
    residual = spiky(512, 3)

    def score(places: Indices) -> Floats:
        return np.where(places % 3 == 0, 0, np.abs(residual[places])).astype(np.float32)

    blocks = Blocks([512], 16)
    chosen = {
        FINE: lambda: fine(residual, 60, score),
        COARSE: lambda: coarse(residual, 60, score, blocks),
        HYBRID: lambda: hybrid(residual, 60, score, [blocks], 2, 10.0),
    }[what]()
    large = np.abs(residual[chosen]) > 50  # among candidates
    assert len(chosen)
    assert not (chosen[large] % 3 == 0).any()


def test_equal_scores_go_by_index() -> None:
    assert best(np.arange(9, dtype=np.uint32), np.ones(9, np.float32), 4).tolist() == [0, 1, 2, 3]


# ---- the rule ----


def test_the_rule_goes_from_coarse_to_fine_and_back_when_the_link_is_short() -> None:
    level, seen = COARSE, []
    for confidence in np.linspace(-0.2, 0.9, 60):
        choice = granularity_for(float(confidence), 0.0, level)
        level = choice.level
        seen.append(choice.granularity)
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == {COARSE, HYBRID, FINE}
    short = granularity_for(0.9, 1.0, level)
    assert (short.granularity, short.level) == (HYBRID, FINE)
    assert "short" in short.reason
    assert granularity_for(0.9, 0.0, short.level).granularity == FINE
    assert granularity_for(0.0, 1.0, COARSE).granularity == COARSE


@given(st.lists(st.floats(0.46, 0.54), max_size=30), st.sampled_from([FINE, HYBRID]))
def test_noise_at_a_border_changes_nothing(confidences: list[float], level: int) -> None:
    for confidence in confidences:
        assert granularity_for(confidence, 0.0, level).level == level


# ---- the bandit ----


def test_the_bandit_settles_on_what_takes_away_most_loss_per_byte() -> None:
    """An arm that is twice as good as the others, on a loss that falls ever more slowly, with noise."""
    bandit, rng, good, loss, rate = Bandit(), np.random.default_rng(1), ARMS[5], 2.0, 1e-6
    used = []
    for _ in range(400):
        arm = bandit.arm
        used.append(arm)
        sent = int(1000 * arm.share)
        bandit.note(loss, sent)
        loss -= rate * sent * (2.0 if arm == good else 1.0) * float(rng.uniform(0.5, 1.5))
        rate *= 0.997
    late = used[200:]
    assert set(used[: 3 * HOLD * len(ARMS)]) == set(ARMS), "every arm is tried"
    assert late.count(good) > 3 * max(late.count(arm) for arm in ARMS if arm != good)


def test_a_bandit_that_sees_no_progress_still_goes_round() -> None:
    bandit = Bandit()
    used = set()
    for _ in range(200):
        used.add(bandit.arm)
        bandit.note(1.0, 0)
        bandit.note(1.0, 100)
    assert len(used) > 3


# ---- bytes ----


@pytest.mark.parametrize("setting", [HYBRID, COARSE, RULE])
def test_every_granularity_comes_to_the_bytes_of_single_coordinates(setting: int) -> None:
    """The rounds after it has found its prices: within a fifth, though blocks carry several times the coordinates."""
    size, k = 40_000, 400
    rng = np.random.default_rng(2)
    residual = (rng.laplace(0, 1e4, size) * np.repeat(rng.lognormal(0, 1, size // 32), 32)).astype(np.int32)
    plain = payload(residual, largest(residual, k))
    control, spent, entries = GranularityControl(setting, [30_000, 10_000]), [], []
    for _ in range(15):
        places = control.select(residual, Budget(k, 4000), 1.0, magnitude(residual))
        data = payload(residual, places)
        control.sent(len(places), len(data))
        spent.append(len(data))
        entries.append(len(places))
    assert np.mean(spent[8:]) == pytest.approx(len(plain), rel=0.2)
    assert np.mean(entries[8:]) > 1.2 * k


def test_the_bandit_spends_its_share() -> None:
    residual = spiky(20_000, 5)
    control = GranularityControl(LEARNED, [20_000])
    counts = set()
    for round_ in range(60):
        places = control.select(residual, Budget(300, 2000), 2.0 / (1 + round_), magnitude(residual))
        counts.add(len(places))
        control.sent(len(places), len(payload(residual, places)))
    assert min(counts) <= 150
    assert max(counts) >= 600


def payload(residual: Units, places: Indices) -> bytes:
    return encode_delta(weighted(len(residual), places, quantise(residual[places], 2), 1.0))
