"""Compare merge policies: the same simulation with each of them and each of several seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from ..config.options import DEFAULT_TASK, TrainOptions
from ..watch.rows import Rows, need
from ..wire.errors import UsageError
from .result import SimResult
from .run import run_scenario
from .scenario import Scenario, check_scenario, read_scenario
from .watching import ignore

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

# The figures of `SimResult.summary` that are compared.
COMPARED = ("accuracy", "accuracy_worst", "test_loss", "mb_received_per_node", "mb_sent_per_node", "virtual_seconds")
OnComparison = Callable[[float, str], None]  # share of all simulations done, what runs now


@dataclass(frozen=True, repr=False)
class Comparison:
    """The results of all simulations by policy and seed."""

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

    def rows(self) -> Rows:
        """A row for each simulation: policy, seed and the figures at the end."""
        return Rows(
            {"policy": policy, "seed": seed, **{name: result.summary()[name] for name in COMPARED}}
            for (policy, seed), result in self.results.items()
        )

    def table(self) -> Rows:
        """A row for each policy: mean and standard deviation over the seeds of every figure (None for one seed)."""
        rows = self.rows()
        return Rows(
            {"policy": policy, "seeds": len(self.seeds), **_statistics([r for r in rows if r["policy"] == policy])}
            for policy in self.policies
        )

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


def compare(
    peers: int = 16,
    *,
    policy: str | Iterable[str] = "deltaset,gossip,average",
    seed: int | str | Iterable[int] = "1,2,3",
    task: str | TrainOptions = DEFAULT_TASK,
    progress: OnComparison = ignore,
    **options: Any,
) -> Comparison:
    """Simulate the same swarm once with each policy and each seed, and return the results beside each other.

    `policy` and `seed` are one value, several, or a text with commas. `options` are those of `simulate`; no node is
    trained alone unless `alone` says so. `progress` is called with the share of all simulations done and with what
    runs now. UsageError names a wrong argument before anything runs.
    """
    pairs = every_pair(policy, seed, lambda name: name)
    given = [{"peers": peers, "alone": 0, **options, "policy": each, "seed": number} for each, number in pairs]
    return run_comparison([read_scenario(values, task) for values in given], progress)


def every_pair(policies: object, seeds: object, label: Callable[[str], str]) -> list[tuple[object, object]]:
    """All pairs of the policies and seeds named; UsageError where one is named twice or none at all."""
    return list(product(_listed(policies, label("policy")), _listed(seeds, label("seed"))))


def _listed(given: object, label: str) -> list[object]:
    """One value, several, or several in a text with commas."""
    if isinstance(given, str):
        values: list[object] = [word.strip() for word in given.split(",")]
    else:
        values = list(given) if isinstance(given, Iterable) else [given]
    if not values or "" in values:
        raise UsageError(f"{label}: a name is missing in {given!r}")
    twice = [value for place, value in enumerate(values) if value in values[:place]]
    if twice:
        raise UsageError(f"{label}: {twice[0]} is named twice")
    return values


def run_comparison(scenarios: Sequence[Scenario], progress: OnComparison = ignore) -> Comparison:
    """Run scenarios that differ in policy and seed only. All are checked before the first begins."""
    for scenario in scenarios:
        check_scenario(scenario)
    results: dict[tuple[str, int], SimResult] = {}
    for number, scenario in enumerate(scenarios):
        assert scenario.training is not None
        key = scenario.training.policy, scenario.seed
        words = f"{key[0]}, seed {key[1]} ({number + 1} of {len(scenarios)})"
        results[key] = run_scenario(scenario, progress=_part(progress, number, len(scenarios), words))
    return Comparison(results)


def _part(progress: OnComparison, number: int, total: int, words: str) -> Callable[[float, float], None]:
    """The progress of one simulation of several."""
    return lambda share, _: progress((number + min(1.0, share)) / total, words)
