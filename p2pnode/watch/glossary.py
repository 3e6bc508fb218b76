"""Every figure that p2pnode shows: its label, its unit and its one definition.

Terminal, page, notebook, metrics and TensorBoard take labels and explanations from here; docs/figures.md is this table
(`make figures` writes it). A key is the name of a field in wire.status; where fields of several records have one name
and different meanings, the name of the record stands before it.

Units: `share` is 0 to 1 in JSON and metrics and is shown in per cent; `bytes` and `s` are shown with a fitting prefix;
a count has the name of what it counts; "" is for text and for plain numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Definition(NamedTuple):
    """What a figure is: how it is called everywhere, its unit, and what it means in a sentence."""

    label: str
    unit: str
    meaning: str


# fmt: off
TRAINING: Mapping[str, Definition] = {
    "kind": Definition("kind", "", "What kind of work the job is; `train` learns one model together."),
    "condition": Definition("state", "", "What a node, a peer or a job does at present."),
    "job.reason": Definition("reason", "", "Why the job waits, is paused or ended."),
    "task": Definition("task", "", "What is learned: model, data, loss and evaluation."),
    "round": Definition("round", "rounds", "Rounds of local steps that a node has done since it joined the run."),
    "steps": Definition("local steps", "steps", "Training steps on own samples since the node joined the run."),
    "steps_per_second": Definition("speed", "steps/s", "Local steps a second while the node computes."),
    "loss": Definition("training loss", "",
        "Mean loss over the local steps of the latest round, on the node's own samples, as the task defines it."),
    "accuracy": Definition("test accuracy", "share",
        "Share of right answers of the node's read-out on the task's test data."),
    "test_loss": Definition("test loss", "",
        "Mean loss of the node's read-out on the same test samples as the test accuracy."),
    "test_samples": Definition("test samples", "samples",
        "Test samples that test accuracy and test loss are of: few at the first look, then as many as time allows."),
    "test_available": Definition("all test samples", "samples", "Test samples that the task has."),
    "update_norm": Definition("update norm", "share",
        "How much the shared weights change in a round, relative to their size; smoothed over ten rounds."),
    "samples": Definition("samples trained on", "samples",
        "Samples that this node trains on at present; of a stream those it has read."),
    "parameters": Definition("parameters", "numbers", "Numbers in the model that are learned."),
    "head": Definition("own entries", "entries",
        "Number of the latest entry in the node's own log: what it has published."),
    "entries": Definition("entries of others", "entries", "Entries of other nodes that came in since this start."),
    "exchanges": Definition("exchanges", "exchanges", "Exchanges with partners that succeeded since this start."),
    "bridges": Definition("bridges", "entries",
        "Own entries that carried what another circle learned into this one, since this start."),
    "slowed": Definition("slowed down", "",
        "Why the node rests between rounds; empty while it trains at full speed."),
    "merged": Definition("latest merge", "", "What the latest merge brought, in words."),
    "problems": Definition("problems", "problems",
        "Things that went wrong in training since this start; each is an event."),
    "hash_checks": Definition("hash checks", "checks",
        "How often partners with equal entries compared their weights bit by bit."),
    "hash_mismatches": Definition("hash mismatches", "checks",
        "Hash checks in which the weights differed; there should be none."),
    "vetoed": Definition("authors with vetoes", "authors",
        "Authors that some member wants excluded (`ban`)."),
    "excluded": Definition("excluded authors", "authors",
        "Authors whose entries no longer count, because a moderator or most members signed a veto."),
    "let_in": Definition("let in during rounds", "times",
        "How often entries of others were let in between the local steps of a round."),
    "compute_share": Definition("share of compute", "share",
        "Share of this node's compute time that the job got lately."),
    "compute_idle": Definition("compute idle", "share",
        "Share of the latest time in which the compute thread had nothing to do."),
    "lineage_share": Definition("share of the weights", "share",
        "Share of all that was added to this node's weights by one author's entries, mean over layers."),
    "circle": Definition("circle", "",
        "The nodes that share one delta set with this one; the run's first circle is called genesis."),
    "community": Definition("community", "",
        "Nodes with similar models, as the node that looks measures it. Its name is that of the member with the "
        "smallest id, so nodes that compare the same peers use the same name."),
    "progress": Definition("annealing", "share", "How far the run has gone from many communities to one."),
}
ROUNDS: Mapping[str, Definition] = {
    "merge.time": Definition("ended at", "s", "When the round ended, by this machine's clock, in seconds since 1970."),
    "merge.sent_bytes": Definition("sent in round", "bytes", "Bytes sent in the exchanges since the merge before."),
    "merge.received_bytes": Definition("received in round", "bytes",
        "Bytes received in the exchanges since the merge before."),
    "merge.entries": Definition("entries in round", "entries",
        "Entries of others that came in since the merge before."),
    "merge.steps": Definition("steps in round", "steps",
        "Local steps of the round; drawn from a Poisson distribution."),
    "merge.values": Definition("weights sent (k)", "numbers",
        "Coordinates of the weights in the node's own entry of the round."),
    "merge.update_norm": Definition("update norm of round", "share",
        "How much the shared weights changed in this round, relative to their size; not smoothed."),
    "merge.partners": Definition("partners", "", "The peers this node exchanged with since the merge before."),
}
PEERS: Mapping[str, Definition] = {
    "nodes": Definition("other nodes", "nodes",
        "Other nodes of the run that answer; observers and meeting points are not counted."),
    "observers": Definition("observers", "observers", "Peers of the run that only look; they train nothing."),
    "role": Definition("role", "", "node, observer (only looks) or bootstrap (a meeting point)."),
    "heard_seconds_ago": Definition("last heard", "s", "Time since the peer last answered a call of this node."),
    "latency_ms": Definition("answer time", "ms", "Time until the peer answers a short call, smoothed."),
    "bytes_per_second": Definition("bandwidth", "bytes/s", "Speed of large calls to the peer, as measured."),
    "faults": Definition("faults", "faults", "Violations of the protocol by the peer; the count fades with time."),
    "similarity": Definition("similarity", "",
        "Similarity of two models by their fingerprints, 0 to 1: about linear CKA of what they compute on the probe."),
    "distance": Definition("distance to other models", "",
        "1 − similarity of this node's model to the models of others."),
    "reason": Definition("last chosen because", "", "Why this node last chose the peer as a partner."),
    "reached": Definition("reached", "", "Whether calls go to the peer directly or through a relay."),
    "exchange.count": Definition("exchanges of the pair", "exchanges",
        "Exchanges that the two nodes had since the start of the one that tells."),
    "exchange.sent_bytes": Definition("sent to the partner", "bytes",
        "Bytes that the first of the two sent in their exchanges."),
    "exchange.received_bytes": Definition("received from the partner", "bytes",
        "Bytes that the first of the two received in their exchanges."),
    "exchange.last": Definition("latest exchange", "s", "Time of the pair's latest exchange, in seconds since 1970."),
    "exchange.loss_change": Definition("change of training loss", "",
        "Training loss of the round after the latest exchange minus that of the round before."),
}
DATA: Mapping[str, Definition] = {
    "shards": Definition("shards", "shards", "Shards that may travel and are stored at the node."),
    "shards_here": Definition("shards here", "shards", "Shards whose samples are at this node."),
    "shards_in_all": Definition("shards in all", "shards",
        "Shards of the data set where every node has it whole; where nodes bring their own data, nobody knows."),
    "shards_received": Definition("shards received", "shards", "Shards here that came from another node."),
    "shard.samples": Definition("samples", "samples", "Samples in the shard."),
    "shard.size_bytes": Definition("size", "bytes", "Size of the shard's samples."),
    "holder": Definition("holder", "", "The one node that is responsible for the shard and may pass it on."),
    "keepers": Definition("keepers", "", "Nodes that keep a copy on disk so that the shard survives its holder."),
    "origin": Definition("origin", "", "Whether the shard is of this node's own data or came from another node."),
    "shard.reason": Definition("reason", "", "Why the shard is in its state, or why it was last sent."),
    "confidence": Definition("confidence", "",
        "Mean probability that this node's model gives to the right answers, 0 to 1."),
    "mean_confidence": Definition("mean confidence", "",
        "Confidence of this node's model, mean over the shards shown."),
    "visits": Definition("visits", "visits", "How often a model was trained on the shard, by its signed history."),
    "visit.time": Definition("visited at", "s", "When the visit ended, in swarm time."),
    "visit.before": Definition("confidence before", "", "Mean confidence of the model when it came to the shard."),
    "visit.after": Definition("confidence after", "", "Mean confidence of the model when it left the shard."),
    "active": Definition("active", "samples", "Samples that are trained on normally."),
    "reserve": Definition("reserve", "samples",
        "Samples that several models know well and that --reserve draws less often."),
    "retired": Definition("retired", "samples",
        "Samples that several models know very well and that --reserve draws least often."),
    "quarantined": Definition("quarantined", "samples",
        "Samples that models with work of other peers fail at although they learned the rest: labels may be wrong. "
        "They get no weight in training here; --quarantine off trains on them too."),
    "states": Definition("states of samples", "samples",
        "How many samples of the shard are trained on as active, reserve, retired and quarantined."),
    "copied": Definition("shards copied", "shards", "Shards passed on and kept here too, since this start."),
    "moved": Definition("shards moved", "shards", "Shards passed on because there was no room here, since this start."),
    "data_sent_bytes": Definition("data sent", "bytes", "Bytes of shards passed on since this start."),
    "data_received_bytes": Definition("data received", "bytes", "Bytes of shards that came to stay since this start."),
    "swaps": Definition("model swaps", "swaps", "Model swaps that brought something home since this start."),
    "swaps_hosted": Definition("models hosted", "swaps", "Models of others that were trained here since this start."),
    "swap_bytes": Definition("model swap traffic", "bytes", "Bytes sent and received in model swaps since this start."),
}
NODE: Mapping[str, Definition] = {
    "well": Definition("well", "", "1 while /health reports that the node is well."),
    "paused": Definition("paused", "", "The reason why the node rests; as a metric 1 while it rests."),
    "uptime_seconds": Definition("up", "s", "Time since this start of the node."),
    "clock_offset_seconds": Definition("clock offset", "s", "Swarm time minus this machine's clock."),
    "daemon_starts": Definition("daemon starts", "starts",
        "Starts of the libp2p daemon; more than one means that it was replaced."),
    "traffic.sent_bytes": Definition("sent", "bytes", "Bytes this node sent in calls and streams since this start."),
    "sent_total": Definition("sent in all", "bytes",
        "Bytes this node sent in this run, restarts included, as far as its kept history reaches."),
    "traffic.received_bytes": Definition("received", "bytes",
        "Bytes this node received in calls and streams since this start."),
    "calls_made": Definition("calls made", "calls", "Calls of this node to peers since this start."),
    "calls_served": Definition("calls served", "calls", "Calls of peers that reached this node since this start."),
    "refused": Definition("calls refused", "calls",
        "Calls of peers turned down since this start: malformed, too many, without the right, or not possible here; "
        "that a starting node is not ready yet does not count."),
    "traffic_rate": Definition("traffic", "bytes/s", "Bytes sent and received a second."),
    "max_upload": Definition("upload limit", "bytes/s", "Most bytes a second that the node sends."),
    "max_download": Definition("download limit", "bytes/s", "Most bytes a second that the node receives."),
    "max_cpu": Definition("processor limit", "share", "Largest share of all cores that the node uses."),
    "machine.cpu": Definition("processor in use", "share", "Share of all cores in use by anybody."),
    "own_cpu": Definition("this node's share", "share", "Share of all cores in use by this node, its daemon included."),
    "memory_bytes": Definition("memory", "bytes", "Memory of the node's process."),
    "memory_free_bytes": Definition("free memory", "bytes", "Memory of the machine that is free."),
    "battery": Definition("battery", "share", "Charge of the machine's battery."),
    "on_battery": Definition("on battery", "", "1 while the machine runs on its battery."),
}
# fmt: on

GROUPS: Mapping[str, Mapping[str, Definition]] = {
    "Training": TRAINING,
    "One round": ROUNDS,
    "Peers and pairs": PEERS,
    "Data": DATA,
    "The node and its machine": NODE,
}
FIGURES: Mapping[str, Definition] = {key: found for group in GROUPS.values() for key, found in group.items()}
_UNITS = {"share": "share, 0 to 1", "s": "seconds"}


def definition(path: str) -> Definition:
    """The definition of a field, by its name or by a dotted path to it. KeyError when it has none."""
    parts = path.split(".")
    return FIGURES.get(".".join(parts[-2:])) or FIGURES[parts[-1]]


def label(path: str) -> str:
    """What the figure is called."""
    return definition(path).label


def help_text(path: str) -> str:
    """The meaning and the unit as one line, for machines."""
    found = definition(path)
    return f"{found.meaning} ({_UNITS.get(found.unit, found.unit)})" if found.unit else found.meaning


def markdown() -> str:
    """The tables of docs/figures.md."""
    lines = []
    for title, group in GROUPS.items():
        lines += ["", f"## {title}", "| figure | unit | field | meaning |", "|---|---|---|---|"]
        for key, one in group.items():
            lines.append(f"| {one.label} | {_UNITS.get(one.unit, one.unit) or '–'} | `{key}` | {one.meaning} |")
    return "\n".join(lines) + "\n"
