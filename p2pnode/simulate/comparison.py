"""Merge policies compared: the same simulation with each of them and each of several seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from ..watch.rows import TableRows, need
from ..wire.errors import UsageError
from .result import SimResult
from .run import run_scenario
from .scenario import Scenario, check_scenario
from .watching import ignore

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

# The figures of `SimResult.summary` that are compared.
COMPARED = ("accuracy", "accuracy_worst", "test_loss", "mb_received_per_node", "mb_sent_per_node", "virtual_seconds")
OnComparison = Callable[[float, str], None]  # share of all simulations done, what runs now


@dataclass(frozen=True, repr=False)
class Comparison:
    """The results of simulations by policy (with its settings) and seed."""

    results: Mapping[tuple[str, int], SimResult]

    @property
    def policies(self) -> list[str]:
        return list(dict.fromkeys(policy for policy, _ in self.results))

    @property
    def seeds(self) -> list[int]:
        return list(dict.fromkeys(seed for _, seed in self.results))

    def describe(self) -> str:
        """What was compared, in a few words."""
        one = next(iter(self.results.values())).scenario
        assert one.training is not None
        return f"{one.peers} nodes, {one.training.what}, {one.training.split}, {one.training.rounds} rounds"

    def __repr__(self) -> str:
        means = (f"{row['policy']} {_percent(row['accuracy_mean'])}" for row in self.table())
        return f"<Comparison: {self.describe()}, {len(self.seeds)} seeds: accuracy {', '.join(means)}>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def rows(self) -> TableRows:
        """A row for each simulation: policy, seed and the figures at the end."""
        return TableRows(
            {"policy": policy, "seed": seed, **{name: result.summary()[name] for name in COMPARED}}
            for (policy, seed), result in self.results.items()
        )

    def table(self) -> TableRows:
        """A row for each policy: mean and standard deviation over the seeds of every figure (None for one seed)."""
        rows = self.rows()
        own = {policy: [row for row in rows if row["policy"] == policy] for policy in self.policies}
        return TableRows({"policy": policy, "seeds": len(found), **_statistics(found)} for policy, found in own.items())

    def frame(self) -> pandas.DataFrame:
        """The rows as a data frame. LocalProblem where pandas is not installed."""
        return self.rows().frame()

    def plot(self) -> Figure:
        """A line with a band for each policy. LocalProblem where matplotlib is not installed."""
        need("matplotlib")
        from .figures import plot_comparison

        return plot_comparison(self)


def _statistics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in COMPARED:
        values = [row[name] for row in rows if row[name] is not None]
        found[f"{name}_mean"] = fmean(values) if values else None
        found[f"{name}_std"] = stdev(values) if len(values) > 1 else None
    return found


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}"


def compare(results: Iterable[SimResult]) -> Comparison:
    """Compare simulations that differ in policy, its settings and the seed.

    UsageError where one is there twice, or where they differ in something else too.
    """
    found: dict[tuple[str, int], SimResult] = {}
    for result in results:
        training = result.scenario.training
        if training is None:
            raise UsageError(
                "only simulations that trained something can be compared; name a task, as in task='digits'"
            )
        key = " ".join((training.policy, *_words(training.options.settings))), result.scenario.seed
        if key in found:
            raise UsageError(f"{key[0]} with seed {key[1]} is there twice")
        found[key] = result
    if not found:
        raise UsageError("there is nothing to compare")
    _check_alike([result.scenario.facts() for result in found.values()])
    return Comparison(found)


def _words(settings: Mapping[str, float]) -> list[str]:
    return [f"{name}={value:g}" for name, value in sorted(settings.items())]


def _check_alike(facts: Sequence[Mapping[str, object]]) -> None:
    for name in set(facts[0]) - {"policy", "settings", "seed", "faults"}:  # faults are drawn from the seed
        values = {str(each[name]): None for each in facts}
        if len(values) > 1:
            raise UsageError(f"the simulations differ in {name} ({', '.join(values)}); compare such that do not")


def run_comparison(scenarios: Sequence[Scenario], progress: OnComparison = ignore) -> Comparison:
    """Run scenarios that differ in policy and seed only. All are checked before the first begins."""
    for scenario in scenarios:
        check_scenario(scenario)
    results = []
    for number, scenario in enumerate(scenarios):
        assert scenario.training is not None
        words = f"{scenario.training.policy}, seed {scenario.seed} ({number + 1} of {len(scenarios)})"
        results.append(run_scenario(scenario, progress=_part(progress, number, len(scenarios), words)))
    return compare(results)


def _part(progress: OnComparison, number: int, total: int, words: str) -> Callable[[float, float], None]:
    """The progress of one simulation of several."""
    return lambda share, _: progress((number + min(1.0, share)) / total, words)
