"""A node's figures for Prometheus, and whether it is well. Names and meanings are in METRICS, and nowhere else."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from ...wire.status import NodeStatus

WELL = ("connected", "alone")


class Metric(NamedTuple):
    """`path` leads from a Status to the value; a part of it that is None means that nothing is known yet."""

    name: str
    kind: Literal["gauge", "counter"]
    path: str
    help: str


METRICS = (
    Metric("p2pnode_up_seconds", "gauge", "uptime_seconds", "Seconds since the node started."),
    Metric("p2pnode_daemon_starts_total", "counter", "daemon_starts", "Starts of the libp2p daemon."),
    Metric("p2pnode_sent_bytes_total", "counter", "traffic.sent_bytes", "Bytes sent in calls and streams."),
    Metric("p2pnode_received_bytes_total", "counter", "traffic.received_bytes", "Bytes received in them."),
    Metric("p2pnode_calls_made_total", "counter", "traffic.calls_made", "Calls to peers."),
    Metric("p2pnode_calls_served_total", "counter", "traffic.calls_served", "Calls of peers that were answered."),
    Metric("p2pnode_calls_refused_total", "counter", "traffic.refused", "Calls of peers that were refused."),
    Metric("p2pnode_rounds_total", "counter", "learning.rounds", "Rounds of local steps."),
    Metric("p2pnode_steps_total", "counter", "learning.steps", "Local steps."),
    Metric("p2pnode_steps_per_second", "gauge", "learning.steps_per_second", "Local steps a second."),
    Metric("p2pnode_samples", "gauge", "learning.samples", "Samples this node trains on."),
    Metric("p2pnode_loss", "gauge", "learning.loss", "Mean training loss of the latest round."),
    Metric("p2pnode_test_loss", "gauge", "learning.test_loss", "Loss of the read-out on the test data."),
    Metric("p2pnode_accuracy", "gauge", "learning.accuracy", "Accuracy of the read-out on the test data."),
    Metric("p2pnode_update_norm", "gauge", "learning.update_norm", "Relative change of the shared weights a round."),
    Metric("p2pnode_exchanges_total", "counter", "learning.exchanges", "Exchanges that went well."),
    Metric("p2pnode_entries_total", "counter", "learning.entries", "Entries of others that came in."),
    Metric("p2pnode_bridges_total", "counter", "learning.bridges", "Own entries that bridge to other circles."),
    Metric("p2pnode_hash_checks_total", "counter", "learning.hash_checks", "Comparisons of weights with partners."),
    Metric("p2pnode_hash_mismatches_total", "counter", "learning.hash_mismatches", "Of them, those that differed."),
    Metric(
        "p2pnode_visits_total", "counter", "learning.visits", "Visits of the own model that brought something home."
    ),
    Metric("p2pnode_visits_hosted_total", "counter", "learning.visits_hosted", "Visits of other models here."),
    Metric("p2pnode_visit_bytes_total", "counter", "learning.visit_bytes", "Bytes sent and brought home in visits."),
    Metric("p2pnode_problems_total", "counter", "learning.problems", "Things that went wrong in learning."),
    Metric("p2pnode_paused", "gauge", "guest.paused", "1 while the node rests, whoever or whatever wants it."),
    Metric("p2pnode_max_upload_bytes_per_second", "gauge", "guest.max_upload", "Limit on what it sends."),
    Metric("p2pnode_max_download_bytes_per_second", "gauge", "guest.max_download", "Limit on what it receives."),
    Metric("p2pnode_max_cpu_share", "gauge", "guest.max_cpu", "Limit on its share of all cores, 0 to 1."),
    Metric("p2pnode_cpu_share", "gauge", "machine.own_cpu", "Its share of all cores lately, daemon included, 0 to 1."),
    Metric("p2pnode_memory_bytes", "gauge", "machine.memory_bytes", "Memory of the node's process."),
    Metric("p2pnode_machine_cpu_share", "gauge", "machine.cpu", "Share of all cores in use by anybody, 0 to 1."),
    Metric(
        "p2pnode_machine_memory_free_bytes", "gauge", "machine.memory_free_bytes", "Memory of the machine to spare."
    ),
    Metric("p2pnode_machine_battery_share", "gauge", "machine.battery", "Charge of the battery, 0 to 1."),
    Metric("p2pnode_machine_on_battery", "gauge", "machine.on_battery", "1 while the machine runs on battery."),
)
WELL_METRIC = Metric("p2pnode_well", "gauge", "", "1 while /health says that the node is well.")
PEERS = Metric("p2pnode_peers", "gauge", "", "Peers, by whether they are there.")


def metrics(status: NodeStatus) -> bytes:
    """All that is known, in Prometheus' text format."""
    lines = []
    for metric in METRICS:
        value = _value(status, metric.path)
        if value is not None and math.isfinite(value):
            lines += [*_head(metric), f"{metric.name} {value:.10g}"]
    lines += [*_head(WELL_METRIC), f"{WELL_METRIC.name} {int(not health(status))}"]
    present = sum(row.present for row in status.peers)
    lines += _head(PEERS)
    for word, count in (("true", present), ("false", len(status.peers) - present)):
        lines.append(f'{PEERS.name}{{present="{word}"}} {count}')
    return ("\n".join(lines) + "\n").encode()


def health(status: NodeStatus) -> tuple[str, ...]:
    """Why the node is not well; nothing when it is. One that rests on purpose is."""
    network = () if status.condition in WELL else (f"{status.condition}: {status.why}",)
    return network + status.unwell


def _head(metric: Metric) -> list[str]:
    return [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]


def _value(status: NodeStatus, path: str) -> float | None:
    value = status.fact(path)
    if isinstance(value, str):  # a reason, or none
        return float(bool(value))
    assert value is None or isinstance(value, int | float)
    return value
