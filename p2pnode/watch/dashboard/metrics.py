"""A node's figures for Prometheus, and whether it is well. Names are here, meanings in the glossary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from ...wire.status import JobStatus, NodeStatus, fact
from ..glossary import help_text

WELL = ("connected", "alone")
JOB_LABEL = "job_name"  # Prometheus itself sets `job`, to the name of the scrape


class Metric(NamedTuple):
    """`path` leads from a NodeStatus, or from a job's status, to the value; None where nothing is known yet.

    It also names the figure's definition in the glossary, unless the metric has a `help` of its own.
    """

    name: str
    kind: Literal["gauge", "counter"]
    path: str
    help: str = ""


METRICS = (
    Metric("p2pnode_up_seconds", "gauge", "uptime_seconds"),
    Metric("p2pnode_daemon_starts_total", "counter", "daemon_starts"),
    Metric("p2pnode_sent_bytes_total", "counter", "traffic.sent_bytes"),
    Metric("p2pnode_received_bytes_total", "counter", "traffic.received_bytes"),
    Metric("p2pnode_calls_made_total", "counter", "traffic.calls_made"),
    Metric("p2pnode_calls_served_total", "counter", "traffic.calls_served"),
    Metric("p2pnode_calls_refused_total", "counter", "traffic.refused"),
    Metric("p2pnode_paused", "gauge", "paused"),
    Metric("p2pnode_max_upload_bytes_per_second", "gauge", "limits.max_upload"),
    Metric("p2pnode_max_download_bytes_per_second", "gauge", "limits.max_download"),
    Metric("p2pnode_max_cpu_share", "gauge", "limits.max_cpu"),
    Metric("p2pnode_cpu_share", "gauge", "machine.own_cpu"),
    Metric("p2pnode_memory_bytes", "gauge", "machine.memory_bytes"),
    Metric("p2pnode_machine_cpu_share", "gauge", "machine.cpu"),
    Metric("p2pnode_machine_memory_free_bytes", "gauge", "machine.memory_free_bytes"),
    Metric("p2pnode_machine_battery_share", "gauge", "machine.battery"),
    Metric("p2pnode_machine_on_battery", "gauge", "machine.on_battery"),
)
JOB_METRICS = (
    Metric("p2pnode_rounds_total", "counter", "state.train.round"),
    Metric("p2pnode_steps_total", "counter", "steps"),
    Metric("p2pnode_steps_per_second", "gauge", "state.steps_per_second"),
    Metric("p2pnode_samples", "gauge", "train.samples"),
    Metric("p2pnode_loss", "gauge", "state.train.loss"),
    Metric("p2pnode_test_loss", "gauge", "train.test_loss"),
    Metric("p2pnode_accuracy", "gauge", "state.train.accuracy"),
    Metric("p2pnode_test_samples", "gauge", "train.test_samples"),
    Metric("p2pnode_update_norm", "gauge", "state.train.update_norm"),
    Metric("p2pnode_exchanges_total", "counter", "train.exchanges"),
    Metric("p2pnode_entries_total", "counter", "train.entries"),
    Metric("p2pnode_bridges_total", "counter", "train.bridges"),
    Metric("p2pnode_hash_checks_total", "counter", "train.hash_checks"),
    Metric("p2pnode_hash_mismatches_total", "counter", "train.hash_mismatches"),
    Metric("p2pnode_vetoed_authors", "gauge", "train.vetoed"),
    Metric("p2pnode_excluded_authors", "gauge", "train.excluded"),
    Metric("p2pnode_model_swaps_total", "counter", "train.swaps"),
    Metric("p2pnode_model_swaps_hosted_total", "counter", "train.swaps_hosted"),
    Metric("p2pnode_model_swap_bytes_total", "counter", "train.swap_bytes"),
    Metric("p2pnode_problems_total", "counter", "train.problems"),
    Metric("p2pnode_compute_share", "gauge", "compute_share"),
)
WELL_METRIC = Metric("p2pnode_well", "gauge", "well")
PEERS = Metric(
    "p2pnode_peers",
    "gauge",
    "nodes",
    "Other nodes of the run, by whether they answer; observers and meeting points are not counted.",
)
OBSERVERS = Metric("p2pnode_observers", "gauge", "observers")


def metrics(status: NodeStatus) -> bytes:
    """All figures that are known, in the text format of Prometheus; those of a job carry its name as a label."""
    lines = []
    for metric in METRICS:
        lines += _lines(metric, {"": _value(status, metric.path)})
    for metric in JOB_METRICS:
        lines += _lines(
            metric, {_label(JOB_LABEL, name): _value(job, metric.path) for name, job in status.jobs.items()}
        )
    for metric, values in figure_metrics(status.jobs).items():
        lines += _lines(metric, values)
    lines += _lines(WELL_METRIC, {"": not health(status)})
    nodes = [row.present for row in status.peers if row.role == "node"]
    lines += _lines(PEERS, {_label("present", "true"): sum(nodes), _label("present", "false"): nodes.count(False)})
    lines += _lines(OBSERVERS, {"": sum(row.present and row.role == "observer" for row in status.peers)})
    return ("\n".join(lines) + "\n").encode()


def figure_metrics(jobs: Mapping[str, JobStatus]) -> dict[Metric, dict[str, float | None]]:
    """The numbers that kinds of work report about themselves, by metric and label. Jobs may report the same figure."""
    found: dict[str, tuple[Metric, dict[str, float | None]]] = {}
    for job, status in jobs.items():
        for figure in status.state.figures:
            if isinstance(figure.value, int | float):
                name = f"p2pnode_job_{figure.name.removesuffix('_total')}{'_total' if figure.total else ''}"
                about = figure.help or f"{figure.label or figure.name}{f', {figure.unit}' if figure.unit else ''}."
                metric = Metric(name, "counter" if figure.total else "gauge", "", " ".join(about.split()))
                found.setdefault(name, (metric, {}))[1][_label(JOB_LABEL, job)] = figure.value
    return dict(found.values())


def _lines(metric: Metric, values: Mapping[str, float | None]) -> list[str]:
    """The lines of one metric by label; none where no value is known."""
    known = {label: value for label, value in values.items() if value is not None and math.isfinite(value)}
    head = [f"# HELP {metric.name} {metric.help or help_text(metric.path)}", f"# TYPE {metric.name} {metric.kind}"]
    return [*head, *(f"{metric.name}{label} {value:.10g}" for label, value in known.items())] if known else []


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{{{name}="{escaped}"}}'


def health(status: NodeStatus) -> tuple[str, ...]:
    """Why the node is not well; empty when it is well. A paused node is well."""
    network = () if status.condition in WELL else (f"{status.condition}: {status.reason}",)
    return network + status.unwell


def _value(source: object, path: str) -> float | None:
    value = fact(source, path)
    if isinstance(value, str):  # a reason; "" means that there is none
        return float(bool(value))
    assert value is None or isinstance(value, int | float)
    return value
