"""The example of a kind of work: from an installed package, next to training, in a simulated swarm."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import p2pnode
from p2pnode.cli.reports import job_table, jobs_table, status_lines
from p2pnode.config.options import JobOptions, Options
from p2pnode.config.settings import read_jobs
from p2pnode.network.sim import Fault
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_scenario, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.watch.dashboard.metrics import metrics
from p2pnode.watch.text import names_in
from p2pnode.wire.errors import UsageError
from p2pnode.wire.status import JobStatus, NodeStatus
from tests.known import known

EXAMPLE = Path(__file__).parents[2] / "examples" / "job_kind.py"
JOBS = read_jobs(["temperature,kind=mean,every=0.5", "model=digits,hidden=8"])
TRAINING = SimTraining(replace(SIMULATED, task="digits"), rounds=12, jobs=JOBS)
PLAN = Scenario(4, seed=4, seconds=200.0, sample_every=0.0, training=TRAINING)


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with the example in it and the entry point that the example names."""
    (tmp_path / "job_kind.py").write_text(EXAMPLE.read_text())
    info = tmp_path / "job_kind-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: job-kind\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[p2pnode.jobs]\nmean = job_kind:KIND\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("job_kind", None)


def numbered(options: Options, index: int, starts: int) -> Options:
    """Node 0 has the number 0, node 1 the number 10, and so on. After a restart its user writes another one."""
    mean = replace(options.jobs[0], given={**options.jobs[0].given, "value": 10.0 * index if starts == 1 else -1e6})
    return replace(options, jobs=(mean, *options.jobs[1:]))


def mean_of(status: JobStatus) -> float:
    (figure,) = [figure for figure in status.state.figures if figure.name == "mean"]
    assert isinstance(figure.value, float)
    return figure.value


def printed(shown: object) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def test_members_agree_on_the_mean_while_a_model_learns() -> None:
    result = run_scenario(replace(PLAN, adjust=numbered))
    assert result.finished and result.left_over == ()
    assert min(result.accuracies("model")) > 0.6
    assert {one.job for one in result.nodes} == {"model"}, "summaries are about training"
    for status in result.statuses:
        jobs = known(status).jobs
        assert list(jobs) == ["temperature", "model"]
        assert (jobs["temperature"].kind, jobs["temperature"].condition) == ("mean", "running")
        assert mean_of(jobs["temperature"]) == pytest.approx(15.0, abs=1.0)
        assert jobs["temperature"].train is None and jobs["temperature"].steps > 10


def test_every_view_shows_it_without_knowing_it() -> None:
    async def main() -> tuple[NodeStatus, p2pnode.SimResult]:
        simulation = Simulation(replace(PLAN, adjust=numbered))
        await simulation.start()
        await simulation.learn(known(simulation.watch), 60.0)
        node = simulation.processes[1].node
        await node.look_around()
        return node.status(), await simulation.finish()

    with one_thread():
        status, result = run_sim(main())
    mean = f"{mean_of(status.jobs['temperature']):.4g}"
    learning = next(line for line in status_lines(status) if line.startswith("learning: "))
    assert f"temperature: mean, mean so far {mean}, calls made " in learning
    assert f"mean so far {mean}" in printed(jobs_table(status.jobs))
    (table,) = status.jobs["temperature"].tables
    assert "n0" in printed(job_table(table, names_in(status))), "peers are shown by name"
    exported = metrics(status).decode()
    assert '# TYPE p2pnode_job_mean gauge\np2pnode_job_mean{job_name="temperature"} ' in exported
    assert '# TYPE p2pnode_job_calls_total counter\np2pnode_job_calls_total{job_name="temperature"} ' in exported
    others = [peer.jobs["temperature"] for peer in status.peers if peer.present]
    assert len(others) == 3
    assert all(figure.label for state in others for figure in state.figures), "peers report their figures"
    (row,) = [row for row in result.view().job("temperature").peers() if row["name"] == "n2"]
    assert row["mean"] == pytest.approx(15.0, abs=2.0)


def test_it_survives_a_restart() -> None:
    crash = Fault(15.0, "crash", (1, 2), seconds=3.0)
    result = run_scenario(replace(PLAN, adjust=numbered, faults=(crash,)))
    assert result.finished
    assert [one.starts for one in result.nodes] == [1, 2, 2, 1]
    for status in result.statuses:
        assert mean_of(known(status).jobs["temperature"]) == pytest.approx(15.0, abs=6.0), "not what was written anew"


def test_one_that_fails_ends_neither_the_model_nor_the_others(tmp_path: Path) -> None:
    source = EXAMPLE.read_text().replace(
        "        self._met: dict[str, int] = {}",
        '        if value == 20: raise ValueError("a slip")\n        self._met = {}',
    )
    (tmp_path / "job_kind.py").write_text(source)
    result = run_scenario(replace(PLAN, adjust=numbered))
    assert result.finished and result.errors == {}
    failed = known(result.statuses[2])
    assert failed.jobs["temperature"].condition == "ended"
    assert "ValueError: a slip" in failed.jobs["temperature"].reason
    assert failed.jobs["model"].condition == "running"
    assert len(result.accuracies("model")) == 4
    others = [known(result.statuses[index]).jobs["temperature"] for index in (0, 1, 3)]
    assert {other.condition for other in others} == {"running"}
    assert [mean_of(other) for other in others] == pytest.approx([40 / 3] * 3, abs=2.0)


def test_a_misspelt_option_ends_the_start_of_its_node_only() -> None:
    def mistaken(options: Options, index: int, starts: int) -> Options:
        wrong = JobOptions("temperature", "mean", {"valu": 1.0})
        return options if index != 2 else replace(options, jobs=(wrong, options.jobs[1]))

    result = run_scenario(replace(PLAN, adjust=mistaken))
    assert {index: str(error) for index, error in result.errors.items()} == {
        2: "the job 'temperature' has no option 'valu'; did you mean 'value'?"
    }


def test_it_needs_no_model() -> None:
    jobs = {"level": {"kind": "mean", "value": 3.0}}
    result = p2pnode.simulate(3, jobs=jobs, seconds=20, seed=1)
    assert not result.finished, "it never ends by itself"
    assert [mean_of(known(status).jobs["level"]) for status in result.statuses] == [3.0] * 3


def test_notebooks_show_what_it_reports_instead_of_training() -> None:
    result = p2pnode.simulate(3, jobs={"level": {"kind": "mean", "value": 3.0}}, seconds=5, seed=1)
    view = result.view()
    assert repr(result).startswith("<SimResult: 3 nodes did level, seed 1: ")
    assert "<th>mean so far</th>" in view._repr_html_() and "training loss" not in view._repr_html_()
    assert [axes.get_ylabel() for axes in view.plot_history().axes] == ["mean so far", "calls made", "peers"]


def test_a_wrong_value_is_refused_before_the_run_is_founded() -> None:
    with pytest.raises(UsageError, match="the job 'level': every: Expected `float` >= 0"):
        p2pnode.simulate(2, jobs={"level": {"kind": "mean", "every": 0.0}}, seconds=5)
    with pytest.raises(UsageError, match="no job kind 'maen' is installed here; did you mean 'mean'"):
        p2pnode.simulate(2, jobs={"level": {"kind": "maen"}}, seconds=5)
