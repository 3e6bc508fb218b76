"""Results of simulations as tables and figures, and policies compared over seeds."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

import pytest

import p2pnode
from p2pnode.simulate import Comparison, SimResult
from p2pnode.simulate.result import course
from p2pnode.wire.errors import LocalProblem, UsageError


@pytest.fixture(scope="module")
def compared() -> Comparison:
    return p2pnode.compare(simulated(policy=policy, seed=seed) for policy in ("average", "gossip") for seed in (4, 5))


def simulated(**given: Any) -> SimResult:
    return p2pnode.simulate(**{"peers": 3, "task": "digits", "rounds": 3, "alone": 0, **given})


@pytest.fixture
def result(compared: Comparison) -> SimResult:
    return compared.results["gossip", 5]


def test_a_result_is_a_frame_a_figure_and_a_line(result: SimResult) -> None:
    frame = result.frame()
    assert set(frame["node"]) == {"n0", "n1", "n2"}
    assert list(frame["mb_received"]) == [row["mb_received"] for row in result.rows()]
    assert frame.groupby("node")["round"].max().min() >= 3
    drawn, spent = result.plot().axes
    assert drawn.get_ylabel() == "test accuracy (%)"
    assert (drawn.get_xlabel(), spent.get_xlabel()) == ("virtual seconds", "MB received per node")
    assert len(drawn.lines) == 4, "three nodes and their mean"
    line = repr(result)
    assert line.startswith("<SimResult: 3 nodes trained digits with gossip, iid, 3 rounds, seed 5: accuracy ")
    assert f"{mean(result.accuracies()):.1%}" in line
    assert "\n" not in line


def test_nodes_that_only_meet_have_rows_and_no_curves() -> None:
    met = p2pnode.simulate(2, seconds=20, seed=1)
    assert repr(met) == "<SimResult: 2 nodes met, seed 1: 21 virtual seconds>"
    assert list(met.frame().columns) == ["time", "node", "condition", "peers"]
    assert "nothing was trained" in [text.get_text() for text in met.plot().axes[0].texts]


def test_without_pandas_or_matplotlib_one_line_says_so(result: SimResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pnode.watch.rows.find_spec", lambda name: None)
    for package, act in (("pandas", result.frame), ("matplotlib", result.plot)):
        with pytest.raises(LocalProblem, match=rf"^{package} is not installed; pip install 'p2pnode\[notebook\]'"):
            act()
    assert result.rows(), "rows need nothing"


def test_results_are_known_by_policy_and_seed(compared: Comparison) -> None:
    assert list(compared.results) == [("average", 4), ("average", 5), ("gossip", 4), ("gossip", 5)]
    for (policy, seed), one in compared.results.items():
        assert f"with {policy}, iid, 3 rounds, seed {seed}" in one.scenario.describe()
    assert (compared.policies, compared.seeds) == (["average", "gossip"], [4, 5])


def test_the_table_has_mean_and_standard_deviation_over_the_seeds(compared: Comparison) -> None:
    row = compared.table()[0]
    loss = [mean(known_losses(compared.results["average", seed])) for seed in (4, 5)]
    assert (row["policy"], row["seeds"]) == ("average", 2)
    assert row["test_loss_mean"] == pytest.approx(mean(loss))
    assert row["test_loss_std"] == pytest.approx(stdev(loss))
    assert [(row["policy"], row["seed"]) for row in compared.rows()] == list(compared.results)
    accuracies = [mean(one.accuracies()) for one in compared.results.values()]
    assert compared.frame()["accuracy"].tolist() == pytest.approx(accuracies)
    assert "average" in compared._repr_html_()
    assert repr(compared).startswith("<Comparison: 3 nodes, digits, iid, 3 rounds, 2 seeds: accuracy average ")


def known_losses(result: SimResult) -> list[float]:
    return [one.status.training.test_loss for one in result.nodes if one.status.training.test_loss is not None]


def test_the_figure_has_a_line_and_a_band_for_each_policy(compared: Comparison) -> None:
    figure = compared.plot()
    for axes in figure.axes:
        assert [line.get_label() for line in axes.lines] == ["average", "gossip"]
        assert len(axes.collections) == 2, "bands"
    assert "mean ± standard deviation of 2 seeds" in figure.get_suptitle()


def test_one_seed_has_no_spread(compared: Comparison) -> None:
    one = Comparison({key: result for key, result in compared.results.items() if key[1] == 4})
    assert all(row["accuracy_std"] is None for row in one.table())
    assert "seed 4" in one.plot().get_suptitle()


def test_a_course_needs_no_nodes_and_its_traffic_never_falls(result: SimResult) -> None:
    received = [moment.mb_received for moment in course(result.curves)]
    assert received == sorted(received)
    assert received[-1] > 0
    assert len(course(result.curves, points=3)) <= 5


def test_settings_tell_policies_apart() -> None:
    few = simulated(rounds=1, seed=1, settings={"density": 0.01})
    compared = p2pnode.compare([few, simulated(rounds=1, seed=1)])
    assert compared.policies == ["deltaset density=0.01", "deltaset"]


def test_what_cannot_be_compared_is_said(result: SimResult) -> None:
    with pytest.raises(UsageError, match="there is nothing to compare"):
        p2pnode.compare([])
    with pytest.raises(UsageError, match="gossip with seed 5 is there twice"):
        p2pnode.compare([result, result])
    with pytest.raises(UsageError, match=r"the simulations differ in peers \(3, 2\)"):
        p2pnode.compare([result, simulated(peers=2, policy="average")])
    with pytest.raises(UsageError, match="trained something"):
        p2pnode.compare([p2pnode.simulate(2, seconds=5)])
