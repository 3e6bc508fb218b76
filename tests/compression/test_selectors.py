"""Conformance: the laws that every registered selector keeps, whatever its rule is; and how a run chooses one."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.compression.delta import Indices
from p2pnode.compression.selector import MAX_HINT_BYTES, Budget, Selector, SelectorSetup
from p2pnode.compression.selectors.granularity import NAMES
from p2pnode.compression.selectors.magnitude import Magnitude
from p2pnode.compression.selectors.registry import GROUP, SELECTORS, make_selector, selector_named
from p2pnode.compression.selectors.scored import Scored
from p2pnode.compression.weights import Floats, Units

LAYERS = (100, 7, 293)
SIZE = sum(LAYERS)
GRANULARITIES = [{"granularity": float(number)} for number in range(1, len(NAMES))]
EVERYTHING = {"influence": 0.5, "importance": 1.0, "layer_scores": 0.5, "least_influence": 0.3, "granularity": 3.0}
SETTINGS = [{}, *({name: 1.0} for name in SELECTORS), *GRANULARITIES, EVERYTHING]
every_selector = pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "+".join(settings) or "default")


def rounds(seed: int, count: int = 12) -> Iterator[tuple[Units, Floats, Budget, float]]:
    """What an author asks in some rounds: residuals with zeros, large runs and single large values."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        residual = rng.integers(-50, 50, SIZE).astype(np.int32)
        start = int(rng.integers(0, SIZE - 30))
        residual[start : start + 30] = rng.integers(-50_000, 50_000, 30)
        residual[rng.integers(0, SIZE, 20)] = 90_000
        residual[rng.random(SIZE) < 0.2] = 0
        wanted = int(rng.integers(1, 60))
        budget = Budget(wanted, wanted + int(rng.integers(0, 60)), 2, float(rng.random()))
        yield residual, rng.normal(0, 1e-3, SIZE).astype(np.float32), budget, 2.0 / (1 + number)


def run(selector: Selector, seed: int) -> Iterator[tuple[Units, Budget, Indices]]:
    """Rounds as an author and a trainer go through them: select, send, hear a partner, measure gradients."""
    rng = np.random.default_rng(seed)
    for number, (residual, progress, budget, loss) in enumerate(rounds(seed)):
        indices = selector.select(residual, progress, budget, loss)
        yield residual, budget, indices
        selector.sent(len(indices), 40 + 2 * len(indices))
        selector.hear(selector.hint)
        if selector.gradients is not None:
            selector.gradients.follow(rng.normal(0, 1, SIZE).astype(np.float32))
            if selector.gradients.due(200 * number):
                points = selector.gradients.points(np.ones(SIZE, np.float32), 200 * number)
                selector.gradients.note(*points)


def made(settings: dict[str, float], seed: int) -> Selector:
    return make_selector(SelectorSetup(LAYERS, seed, settings))


@every_selector
@given(st.integers(0, 1 << 32))
def test_indices_are_increasing_in_range_changed_and_within_the_maximum(settings: dict[str, float], seed: int) -> None:
    for residual, budget, indices in run(made(settings, seed), seed):
        assert indices.dtype == np.uint32
        assert 0 < len(indices) <= budget.maximum
        assert (np.diff(indices.astype(np.int64)) > 0).all(), "increasing, so that none is there twice"
        assert int(indices[-1]) < SIZE
        assert (residual[indices] != 0).all()


@every_selector
@given(st.integers(0, 1 << 32))
def test_the_same_seed_makes_the_same_choices(settings: dict[str, float], seed: int) -> None:
    """Also over many rounds: what a selector learns in one round is still there in the next."""
    first, again = ([indices.tolist() for _, _, indices in run(made(settings, seed), seed)] for _ in range(2))
    assert first == again


@every_selector
def test_the_arguments_are_left_as_they_are(settings: dict[str, float]) -> None:
    selector = made(settings, 1)
    for residual, progress, budget, loss in rounds(1):
        before = residual.copy(), progress.copy()
        selector.select(residual, progress, budget, loss)
        assert np.array_equal(residual, before[0])
        assert np.array_equal(progress, before[1])


@every_selector
def test_a_residual_of_zeros_sends_nothing_and_the_selector_goes_on(settings: dict[str, float]) -> None:
    selector = made(settings, 1)
    for _ in range(3):
        nothing = selector.select(np.zeros(SIZE, np.int32), np.zeros(SIZE, np.float32), Budget(40, 60), 1.0)
        assert len(nothing) == 0
        selector.sent(0, 12)
    assert all(len(indices) for _, _, indices in run(selector, 2))


@every_selector
def test_a_restarted_node_goes_on_with_a_fresh_selector(settings: dict[str, float]) -> None:
    """Nothing of a selector is saved: a fresh one may meet any residual."""
    *_, (residual, _, _) = run(made(settings, 1), 1)
    indices = made(settings, 1).select(residual, np.zeros(SIZE, np.float32), Budget(40, 60), 0.1)
    assert 0 < len(indices) <= 60


@every_selector
def test_hints_are_bounded_and_those_of_others_are_not_trusted(settings: dict[str, float]) -> None:
    selector = made(settings, 1)
    for hint in (b"\xff", bytes(MAX_HINT_BYTES), b"\xff" * len(LAYERS)):
        selector.hear(hint)
    for _, _, indices in run(selector, 3):
        assert len(indices)
        assert len(selector.hint) <= MAX_HINT_BYTES


@every_selector
def test_single_says_whether_the_price_of_one_coordinate_can_be_learned(settings: dict[str, float]) -> None:
    selector = made(settings, 1)
    alone = {selector.single for _ in run(selector, 4)}
    assert True in alone, "now and then single coordinates go out"
    assert alone == {True} or settings.get("granularity")


# ---- choosing one ----


@pytest.mark.parametrize("settings", [{}, {"magnitude": 1.0}, {"influence": 0.0, "granularity": 0.0}])
def test_the_default_is_magnitude(settings: dict[str, float]) -> None:
    assert isinstance(made(settings, 1), Magnitude)


def test_factors_of_one_selector_can_be_combined() -> None:
    selector = made(EVERYTHING, 1)
    assert isinstance(selector, Scored)
    assert selector.gradients is not None
    assert selector.importance is not None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"nonsense": 1.0}, "no selector 'nonsense'; known are granularity, importance"),
        ({"magnitude": 1.0, "influence": 1.0}, "magnitude and influence choose two selectors"),
        ({"granularity": 5.0}, "granularity 5.0; one of 0 fine, 1 hybrid"),
        ({"granularity": 0.5}, "granularity 0.5"),
        ({"influence": -1.0}, "influence -1.0 is not between 0 and 2"),
        ({"importance": float("nan")}, "importance nan"),
        ({"least_influence": 11.0}, "least_influence 11.0 is not between 0 and 10"),
    ],
)
def test_wrong_settings_are_refused_with_a_reason(settings: dict[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        made(settings, 1)


def test_a_selector_of_another_package_is_chosen_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = metadata.EntryPoint("mine", f"{__name__}:Mine", GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry] if group == GROUP else [])
    assert selector_named("other") is None
    assert isinstance(made({"mine": 2.0}, 1), Mine)


def test_a_selector_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = metadata.EntryPoint("mine", f"{__name__}:Missing", GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry] if group == GROUP else [])
    with pytest.raises(ValueError, match=r"the selector 'mine' .* cannot be loaded: .*Missing"):
        made({"mine": 2.0}, 1)


class Mine(Magnitude):
    """A selector as another package would bring it."""
