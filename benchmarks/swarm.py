"""Four peers behind slow links train together: p2pnode against hivemind.Optimizer, with real processes and daemons.

    python -m benchmarks.swarm [--quick] [--json] [--case fashion-mnist|gpt] [--limit SECONDS]

Each peer has a network namespace whose link has 20 Mbit/s each way and a round trip of 50 ms (`round_trip_ms` is
measured; tbf limits the uplink, benchmarks.swarm_relay adds delay and limits the downlink; packets of up to 9000
bytes). `…_s` runs from the start of the first process until the mean of all four reaches the target on the test data;
`…_all_there_s` is the part of it before all four trained. `…_mb` is what a peer's interface sent until then, on
average. `utilisation` is the share of wall time in training steps once all train, from the steps and the speed that
nodes report; for hivemind the few steps that it takes itself are left out, because they look the same as waiting.
Where one did not reach the target within the limit, the ratios are "unknown". `load_before` is the load by other
programs: above 1, trust only the ratios. `--quick` is mostly start-up: do not trust its ratios much.
Needs root.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path

from benchmarks.common import Figures, need_fashion_mnist, progress, run
from benchmarks.swarm_net import Links, links
from benchmarks.swarm_peers import HivemindPeer, NodePeer, Peer, Seen

PEERS = 4
MBIT, ROUND_TRIP_MS = 20.0, 50.0
LOOK_EVERY = 0.5


@dataclass(frozen=True)
class Case:
    """What is learned, to where, and for how long at most."""

    task: str
    target: float  # accuracy, or loss where that is negative: minus the loss to get below
    limit: float  # seconds for each of the two
    split: str = "dirichlet:0.3"
    options: dict[str, str] = field(default_factory=dict)
    source: str = ""
    round_seconds: float = 2.0
    settings: dict[str, float] = field(default_factory=dict)
    target_batch_size: int = 65536  # of 16384, 65536 and 262144 the most accurate after 80 s


@dataclass
class Course:
    """How one of the two did."""

    seconds: float = float("nan")  # to the target
    megabytes: float = float("nan")  # sent by a peer, until the target or the end
    utilisation: float = float("nan")
    reached: float = float("nan")
    all_there: float = float("nan")
    steps: int = 0
    epochs: int = 0


def score(seen: Seen, case: Case) -> float:
    value = -seen.loss if case.target < 0 else seen.accuracy
    return float("-inf") if value is None else value


def follow(net: Links, peers: list[Peer], case: Case, begun: float, sent: int) -> Course:
    """Watch until the mean reaches the target or time is up."""
    course = Course()
    first: tuple[float, list[Seen]] | None = None
    while time.monotonic() - begun < case.limit:
        seen = [peer.look() for peer in peers]
        now = time.monotonic()
        there = [one for one in seen if one is not None]
        if len(there) == len(peers):
            if first is None:
                first, course.all_there = (now, there), now - begun
            course.epochs = max(one.epochs for one in there)
            course.reached = sum(score(one, case) for one in there) / len(there)
            course.steps = sum(one.steps for one in there)
            course.utilisation = share_of_time(first, (now, there))
            if course.reached >= case.target:
                course.seconds = now - begun
                break
        time.sleep(LOOK_EVERY)
    course.megabytes = (net.bytes_sent(net.places) - sent) / 1e6 / len(peers)
    return course


def share_of_time(first: tuple[float, list[Seen]], last: tuple[float, list[Seen]]) -> float:
    wall = (last[0] - first[0]) * len(first[1])
    busy = sum(after.busy - before.busy for before, after in zip(first[1], last[1], strict=True))
    return busy / wall if wall > 0 else float("nan")


def start_all(
    make: type[NodePeer] | type[HivemindPeer], net: Links, case: Case, root: Path
) -> tuple[list[Peer], float]:
    """The first peer, and once it can be joined the others; and when the first was started."""
    begun = time.monotonic()
    first = make(net, 0, case, root, ())
    peers: list[Peer] = [first]
    try:
        entrance = first.entrance(begun + case.limit)
        peers += [make(net, place, case, root, entrance) for place in range(1, PEERS)]
    except BaseException:
        stop(peers)
        raise
    return peers, begun


def stop(peers: list[Peer]) -> None:
    for peer in peers:
        peer.kill()


def come_back(peer: NodePeer, limit: float) -> float:
    """Seconds from running the same command again after kill -9 until it has trained a further round."""
    before = peer.rounds()
    peer.kill()
    begun = time.monotonic()
    peer.start()
    return peer.wait_for_rounds(before + 1, begun, limit)


def measure_p2pnode(net: Links, case: Case, root: Path) -> tuple[Course, Figures]:
    progress(f"{case.task}: p2pnode")
    sent = net.bytes_sent(net.places)
    peers, begun = start_all(NodePeer, net, case, root)
    try:
        course = follow(net, peers, case, begun, sent)
        late_begun = time.monotonic()
        first, last = peers[0], peers[-1]
        assert isinstance(first, NodePeer) and isinstance(last, NodePeer)
        late = NodePeer(net, PEERS, case, root, first.entrance(late_begun + 30))
        peers.append(late)
        joining = late.wait_for_rounds(1, late_begun, 90)
        return course, {
            "join_to_first_contribution_s": known(joining),
            "resume_s": known(come_back(last, 90)),
        }
    finally:
        stop(peers)
        net.clear()


def measure_hivemind(net: Links, case: Case, root: Path) -> Course:
    progress(f"{case.task}: hivemind.Optimizer")
    peers: list[Peer] = []
    sent = net.bytes_sent(net.places)
    try:
        peers, begun = start_all(HivemindPeer, net, case, root)
        return follow(net, peers, case, begun, sent)
    finally:
        stop(peers)
        net.clear()


def measure_case(net: Links, case: Case, mark: str) -> Figures:
    with tempfile.TemporaryDirectory(prefix="p2pnode-swarm-", ignore_cleanup_errors=True) as directory:
        ours, of_nodes = measure_p2pnode(net, case, Path(directory))
        theirs = measure_hivemind(net, case, Path(directory))
    figures: Figures = {"target": case.target, "limit_s": case.limit}
    for name, course in (("p2pnode", ours), ("hivemind", theirs)):
        figures |= {f"{name}_s": known(course.seconds, "not reached"), f"{name}_all_there_s": known(course.all_there)}
        figures |= {f"{name}_mb": course.megabytes, f"{name}_reached": known(course.reached)}
        figures |= {f"{name}_steps": course.steps}
    both = isfinite(ours.seconds) and isfinite(theirs.seconds)
    figures |= {
        "hivemind_epochs": theirs.epochs,
        "hivemind_utilisation": known(theirs.utilisation),
        "utilisation": known(ours.utilisation),
        "speedup_vs_hivemind": theirs.seconds / ours.seconds if both else "unknown",
        "bytes_vs_hivemind": ours.megabytes / theirs.megabytes if both else "unknown",
        **of_nodes,
    }
    return {f"{name}{mark}": value for name, value in figures.items()}


def known(value: float, otherwise: str = "unknown") -> float | str:
    return value if isfinite(value) else otherwise


def corpus(root: Path, megabytes: int = 4) -> str:
    """Text that is on every machine: Python's own library."""
    import sysconfig

    text = b"".join(file.read_bytes() for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")))
    (root / "corpus.txt").write_bytes(text[: megabytes << 20])
    return str(root / "corpus.txt")


def cases(quick: bool, only: str, root: Path) -> dict[str, Case]:
    if quick:
        return {"": Case("fashion-mnist", 0.7, 35, round_seconds=1.0)}
    big = {"size": "small", "layers": "7", "context": "64", "batch_size": "8", "algorithm": "adamw"}
    text = Case("gpt", -2.6, 900, "iid", big, corpus(root), 5.0, target_batch_size=512)
    both = {"_fashion_mnist": Case("fashion-mnist", 0.84, 240), "_text": text}
    return {mark: case for mark, case in both.items() if not only or case.task == only}


def measure(arguments: argparse.Namespace) -> Figures:
    figures: Figures = {"mbit": MBIT, "peers": PEERS, "load_before": os.getloadavg()[0]}
    if arguments.case != "gpt":
        need_fashion_mnist()
    with links(PEERS + 1, MBIT, ROUND_TRIP_MS) as net, tempfile.TemporaryDirectory() as directory:
        figures["round_trip_ms"] = net.round_trip_ms()
        for mark, case in cases(arguments.quick, arguments.case, Path(directory)).items():
            bounded = replace(case, limit=arguments.limit or case.limit)
            figures |= measure_case(net, bounded, mark)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=("fashion-mnist", "gpt"), default="", help="only this one")
    parser.add_argument("--limit", type=float, default=0.0, help="seconds for each of the two, instead of the case's")
    run("swarm", measure, parser)
