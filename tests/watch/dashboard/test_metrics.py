"""Every figure has one documented line; what is not known has none."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from p2pnode.watch.dashboard.metrics import JOB_METRICS, METRICS, health, metrics
from p2pnode.wire.status import Figure, JobState, JobStatus, LimitOptions, Machine
from tests.watch.test_terminal import TRAINING, row, status, training

LIMITS = LimitOptions(1e6, 2e6, 0.5)
MACHINE = Machine(0.9, 0.2, 10, 20, battery=0.7, on_battery=True)
ROWS = (row(), row("owl", present=False))


@dataclass(frozen=True)
class Line:
    name: str
    value: float


def lines(text: str) -> list[Line]:
    found = [
        re.fullmatch(r"([a-z0-9_]+)(?:\{[a-z_]+=\"[a-z]+\"\})? (\S+)", line)
        for line in text.splitlines()
        if line[0] != "#"
    ]
    return [Line(match[1], float(match[2])) for match in found if match]


def test_everything_known_is_there_once_with_help_and_type() -> None:
    text = metrics(
        status(
            jobs={"main": replace(TRAINING, compute_share=1.0)},
            paused="paused by you",
            limits=LIMITS,
            machine=MACHINE,
            peers=ROWS,
        )
    ).decode()
    found = {line.name: line.value for line in lines(text)}
    assert set(found) == {metric.name for metric in (*METRICS, *JOB_METRICS)} | {
        "p2pnode_peers",
        "p2pnode_observers",
        "p2pnode_well",
    }
    assert found["p2pnode_paused"] == found["p2pnode_well"] == found["p2pnode_machine_on_battery"] == 1
    assert found["p2pnode_max_cpu_share"] == 0.5
    assert found["p2pnode_accuracy"] == TRAINING.state.training.accuracy
    assert 'p2pnode_peers{present="true"} 1' in text and 'p2pnode_peers{present="false"} 1' in text
    for name in found:
        assert text.count(f"# HELP {name} ") == text.count(f"# TYPE {name} ") == 1


def test_the_figures_of_a_job_carry_its_name() -> None:
    text = metrics(status(jobs={"small": TRAINING, 'the "wide"\n': TRAINING})).decode()
    assert 'p2pnode_rounds_total{job_name="small"} 12\n' in text
    assert r'p2pnode_rounds_total{job_name="the \"wide\"\n"} 12' in text
    assert text.count("# TYPE p2pnode_rounds_total ") == 1
    assert "p2pnode_up_seconds 75\n" in text


def test_what_a_kind_of_work_reports_is_a_metric_without_knowing_the_kind() -> None:
    figures = (Figure("mean", 2.5, unit="m"), Figure("calls", 3, help="Calls\nmade.", total=True), Figure("who", "fox"))
    jobs = {name: JobStatus("mean", state=JobState(figures=figures)) for name in ("a", "b")}
    text = metrics(status(jobs=jobs)).decode()
    assert (
        '# HELP p2pnode_job_mean mean, m.\n# TYPE p2pnode_job_mean gauge\np2pnode_job_mean{job_name="a"} 2.5\n' in text
    )
    assert "# HELP p2pnode_job_calls_total Calls made.\n# TYPE p2pnode_job_calls_total counter\n" in text
    assert 'p2pnode_job_mean{job_name="b"} 2.5\n' in text
    assert "p2pnode_job_who" not in text and "p2pnode_rounds_total" not in text


@pytest.mark.parametrize("loss", [None, math.nan, math.inf])
def test_what_is_not_known_has_no_line(loss: float | None) -> None:
    text = metrics(status(jobs=training(loss=loss))).decode()
    assert "p2pnode_loss" not in text
    assert "p2pnode_rounds_total" not in metrics(status()).decode()


def test_health_says_why() -> None:
    assert health(status()) == ()
    assert health(status(paused="paused by you", limits=LIMITS)) == (), "a rest is no illness"
    down = status(condition="network down", reason="no daemon", unwell=("no local step for 200 s",))
    assert health(down) == ("network down: no daemon", "no local step for 200 s")
    assert "p2pnode_well 0" in metrics(down).decode()


def test_what_is_not_limited_or_not_there_has_no_line() -> None:
    text = metrics(status()).decode()
    assert "p2pnode_max_" not in text and "p2pnode_machine" not in text
    assert "p2pnode_paused 0" in text
