"""What taking part costs a user's training loop, and how fast loops learn together compared with hivemind.Optimizer.

    python -m benchmarks.ownloop [--quick] [--json] [--limit SECONDS] [--only cost|swarm] [--torchft-python FILE]

Cost, with one partner on this machine: `hook_p99_ms` of the optimizer's hook at steps without a copy or a merge;
`copy_vs_memcpy`, the speed of copying the weights out, fresh memory included, against copying into memory that is there
(`copy_vs_fresh_memcpy`: into fresh memory too); `bytes_per_parameter` that stay besides the user's, with the policy
deltaset, and `peak_bytes_per_parameter` at the worst moment of a round; `join_returns_s`; `overhead_share`, how much
slower the loop is than the same loop without hooks, in turns in one process while a partner trains too; and
`node_cpu_share`, the processor time of the node's threads and its daemon for each second: what the loop can lose to
them where all share one processor. Other programs change it little.
Swarm: the loop of benchmarks/ownloop_peer.py on Fashion-MNIST with `p2pnode.join` and with hivemind.Optimizer, behind
links of 20 Mbit/s and 50 ms: `…_lines_changed` against the loop alone, seconds until the mean accuracy reaches the
target (the median of three runs in turns), and MB that a peer's interface sent until then. Needs root; without it these
are "unknown". Learning rates are the task's own for all. torchft (LocalSGD, as many local steps between averages as
hivemind) is measured where a Python has it: this one, or `--torchft-python`, since its requirements do not go together
with hivemind's.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import Figures, need_fashion_mnist, progress, run
from benchmarks.swarm_net import Links, NoNamespaces, links
from benchmarks.swarm_relay import DEVICE

MBIT, ROUND_TRIP_MS = 20.0, 50.0
TARGET_BATCH = 65536  # samples of all peers between two averages of hivemind and torchft, the best of benchmarks.swarm
REPEATS = 3
LOOPBACK = "/ip4/127.0.0.1/tcp/0"


# ---- cost ----


def cost(quick: bool, root: Path) -> Figures:
    """Figures of one loop with one partner."""
    partner = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.ownloop", "--measured", "partner", str(root)], stdin=subprocess.PIPE
    )
    try:
        command = [sys.executable, "-m", "benchmarks.ownloop", "--measured", "quick" if quick else "full", str(root)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise RuntimeError(f"the measured loop failed: {done.stderr[-2000:]}")
        return dict(json.loads(done.stdout.splitlines()[-1]))
    finally:
        partner.kill()
        partner.wait()


class Bench:
    """A model whose step takes a few milliseconds, as a loop has it."""

    def __init__(self, width: int) -> None:
        import torch
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 8))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.x = torch.randn(512, 64)

    def step(self) -> None:
        self.model(self.x).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def rate(self, seconds: float) -> float:
        """Steps a second over some time."""
        begun, steps = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            self.step()
            steps += 1
        return steps / (time.perf_counter() - begun)


def be_partner(root: Path) -> None:
    """Found a run and train until killed."""
    import p2pnode

    bench = Bench(512)
    swarm = p2pnode.join(
        bench.model, bench.optimizer, data_dir=root / "partner", listen=LOOPBACK, no_lan=True, quiet=True
    )
    code = root / "code"
    while True:
        bench.step()
        if swarm.invite and not code.exists():
            code.with_suffix(".part").write_text(swarm.invite)
            code.with_suffix(".part").rename(code)


def measured(quick: bool, root: Path) -> Figures:
    """The figures of the loop in this process."""
    import p2pnode

    hooked, bare = Bench(512), Bench(512)
    while not (root / "code").exists():
        time.sleep(0.1)
    code = (root / "code").read_text()
    hooked.step()
    begun = time.perf_counter()
    swarm = p2pnode.join(
        hooked.model, hooked.optimizer, code, data_dir=root / "own", listen=LOOPBACK, no_lan=True, quiet=True
    )
    returned = time.perf_counter() - begun
    plain = timed_hook(swarm)
    swarm.wait(120)
    turns, seconds = (4, 3.0) if quick else (12, 5.0)
    hooked.rate(2.0)
    rates = []
    begun, node_cpu = time.perf_counter(), whole_cpu() - time.thread_time()
    for _ in range(turns):
        rates.append((hooked.rate(seconds), bare.rate(seconds)))
    node_cpu, seconds = whole_cpu() - time.thread_time() - node_cpu, time.perf_counter() - begun
    status = swarm.status()
    assert status is not None
    rounds = status.jobs["main"].state.training.round or 0
    figures: Figures = {
        "join_returns_s": returned,
        "hook_p99_ms": 1e3 * float(np.quantile(plain, 0.99)),
        "hook_median_ms": 1e3 * float(np.median(plain)),
        "overhead_share": 1.0 - median(one / other for one, other in rates),
        "node_cpu_share": node_cpu / seconds,
        "steps_per_s": median(rate for rate, _ in rates),
        "bare_steps_per_s": median(rate for _, rate in rates),
        "rounds": rounds,
        "entries_of_partner": status.jobs["main"].training.entries,
    }
    begun = time.perf_counter()
    swarm.leave()
    return {**figures, "leave_s": time.perf_counter() - begun, **copy_speed(quick), **memory()}


def whole_cpu() -> float:
    """Processor time of this process and of the daemon that it started."""
    import psutil

    daemons = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return time.process_time() + sum(times.user + times.system for times in daemons)


def timed_hook(swarm: Any) -> list[float]:
    """Times of the hook at steps without a copy or a change, from now on."""
    loop, plain = swarm._hooked, []
    step, handover = loop.step, loop.handover

    def timed(total: int) -> None:
        before = (handover._counted, handover.pending)
        begun = time.perf_counter()
        step(total)
        took = time.perf_counter() - begun
        if before == (handover._counted, False):
            plain.append(took)

    loop.step = timed
    return plain


def copy_speed(quick: bool) -> Figures:
    """Copying 16 million weights of 48 tensors out, against plain copies of as many bytes."""
    import torch
    from torch import nn

    from p2pnode.jobs.loop.weights import ModelWeights, shared_tensors

    model = nn.ModuleList([nn.Linear(578, 578) for _ in range(24 if quick else 48)])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    weights = ModelWeights(model, [optimizer], shared_tensors(model, [optimizer]))
    source = weights.read()
    there = source.copy()
    times: dict[str, list[float]] = {"copy": [], "memcpy": [], "fresh": []}
    for _ in range(15):
        for name, work in (
            ("copy", weights.read),
            ("memcpy", lambda: np.copyto(there, source)),
            ("fresh", lambda: source.copy()),
        ):
            begun = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - begun)
    best = {name: min(taken) for name, taken in times.items()}
    return {
        "copy_gb_per_s": source.nbytes / best["copy"] / 1e9,
        "copy_vs_memcpy": best["memcpy"] / best["copy"],
        "copy_vs_fresh_memcpy": best["fresh"] / best["copy"],
    }


def memory() -> Figures:
    """Bytes a parameter that stay between rounds: all arrays of the policy, and where the loop's round began.

    The peak is that of a round, with the copy of the weights and the change that is handed back.
    """
    from benchmarks.deltaset_memory import table
    from p2pnode.compression.weights import to_units
    from p2pnode.merging.deltaset.policy import DeltaSetPolicy
    from p2pnode.merging.policy import PolicySetup, RoundFacts
    from p2pnode.wire.ids import Identity

    size = 4_000_000
    weights = np.random.default_rng(0).normal(0, 0.05, size).astype(np.float32)
    policy = DeltaSetPolicy(PolicySetup(to_units(weights), Identity(bytes(32)), "00" * 32, "main", "00" * 32, {}, 0))
    begun, noise = policy.start(), np.random.default_rng(1)
    for _ in range(2):  # as LoopJob does it
        stays = sum(table({"policy": policy, "begun": begun}, size).values())
        tracemalloc.start()
        after = begun.copy()
        after[::7] += noise.normal(0, 1e-3, len(after[::7])).astype(np.float32)
        policy.publish(policy.record(begun, after, RoundFacts(1, 0.0, 0, 2)))
        policy.merge()
        begun = np.empty(0, np.float32)
        begun = policy.start()
        np.subtract(begun, after, out=after)
        peak = stays + tracemalloc.get_traced_memory()[1] / size
        tracemalloc.stop()
    del after, weights
    rows = table({"policy": policy, "begun": begun}, size)
    return {"bytes_per_parameter": round(sum(rows.values()), 2), "peak_bytes_per_parameter": round(peak, 1)}


# ---- the swarm ----


@dataclass
class Course:
    """How one of the two did."""

    seconds: float = nan
    megabytes: float = nan
    reached: float = 0.0


@dataclass
class LoopPeer:
    """One process in a namespace."""

    net: Links
    place: int
    root: Path
    words: dict[str, Any]
    python: str = sys.executable
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def output(self) -> Path:
        return self.root / f"{self.words['how']}-{self.place}.out"

    def start(self) -> None:
        self.words |= {"status": str(self.output.with_suffix(".json")), "part": self.place}
        command = [self.python, "-m", "benchmarks.ownloop_peer", json.dumps(self.words)]
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(self.net.inside(self.place, *command), stdout=out, stderr=out)

    def look(self) -> dict[str, Any]:
        file = Path(self.words["status"])
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def wait_for(self, limit: float, look: Any) -> str:
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if found := look():
                return str(found)
            if self.process is None or self.process.poll() is not None:
                break
            time.sleep(0.2)
        said = self.output.read_text(errors="replace").strip().splitlines()
        raise RuntimeError(
            f"the first peer of {self.words['how']} did not come up: {said[-1] if said else 'no output'}"
        )


def course_of(
    how: str, net: Links, peers: int, target: float, limit: float, root: Path, python: str = sys.executable
) -> Course:
    """Start peers with one of the loops, and watch until the mean accuracy reaches the target."""
    progress(f"{peers} peers: {how}")
    root = Path(tempfile.mkdtemp(prefix=f"{how}-{peers}-", dir=root))
    sent, begun = net.bytes_sent(net.places), time.monotonic()
    made: list[LoopPeer] = []
    course = Course()
    try:
        entrance = ""
        for place in range(peers):
            listen = f"/ip4/{net.address(place)}/tcp/0"
            words: dict[str, Any] = {"how": how, "task": "fashion-mnist", "split": "dirichlet:0.3", "parts": peers}
            words |= {"rate": 0.01, "batch_size": 32, "target_batch_size": TARGET_BATCH, "listen": listen}
            words |= {"initial_peers": [entrance] if entrance else [], "invite": entrance or None}
            words |= {
                "host": net.address(place),
                "device": DEVICE,
                "lighthouse": entrance,
                "sync_every": TARGET_BATCH // 32 // peers,
            }
            words["settings"] = {"data_dir": str(root / f"data-{place}"), "listen": listen, "no_lan": True}
            made.append(LoopPeer(net, place, root, words, python))
            made[-1].start()
            if place == 0:
                first, address = made[0], Path(made[0].words["status"]).with_suffix(".address")
                look = (lambda first=first: first.look().get("invite")) if how == "p2pnode" else (
                    lambda address=address: address.exists() and address.read_text()
                )  # fmt: skip
                entrance = first.wait_for(limit, look)
        while time.monotonic() - begun < limit:
            seen = [peer.look().get("accuracy", 0.0) for peer in made]
            course.reached = max(course.reached, sum(seen) / peers)
            if course.reached >= target:
                course.seconds = time.monotonic() - begun
                break
            time.sleep(0.5)
        course.megabytes = (net.bytes_sent(net.places) - sent) / 1e6 / peers
        progress(f"{peers} peers: {how}: {course.reached:.3f} in {time.monotonic() - begun:.0f} s")
        return course
    finally:
        net.clear()
        for peer in made:
            if peer.process is not None:
                peer.process.wait()


def changed_lines() -> Figures:
    """Lines that a user adds or changes, by the sources of the loops."""
    from benchmarks.ownloop_peer import loop_alone, loop_hivemind, loop_p2pnode, loop_torchft

    def body(function: Any) -> list[str]:
        lines = [line.strip() for line in inspect.getsource(function).splitlines()]
        return [line for line in lines if line and not line.startswith(('"""', "def ", "looked."))]

    def added(function: Any) -> int:
        return sum(line.startswith("+ ") for line in difflib.ndiff(body(loop_alone), body(function)))

    return {
        "lines_changed": added(loop_p2pnode),
        "hivemind_lines_changed": added(loop_hivemind),
        "torchft_lines_changed": added(loop_torchft),
    }


def has_torchft(python: str) -> str:
    """ "" where a Python has torchft and what the task needs; else why it is not measured."""
    needed = "import torchft, p2pnode.training.host, p2pnode.tasks.find"
    done = subprocess.run([python, "-c", needed], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"not measured: {done.stderr.strip().splitlines()[-1]}"


def median_course(courses: list[Course]) -> Course:
    """The one in the middle by time; one that did not reach the target took longest."""
    return sorted(courses, key=lambda course: course.seconds if isfinite(course.seconds) else inf)[len(courses) // 2]


def course_figures(prefix: str, peers: int, courses: list[Course]) -> Figures:
    """The figures of one way of training together, and the times of all its repeats."""
    course = median_course(courses)
    times = ", ".join(f"{each.seconds:.0f}" if isfinite(each.seconds) else "not reached" for each in courses)
    return {
        f"{prefix}seconds_to_accuracy_{peers}": course.seconds if isfinite(course.seconds) else "not reached",
        f"{prefix}mb_{peers}": course.megabytes,
        f"{prefix}reached_{peers}": course.reached,
        f"{prefix}all_seconds_{peers}": times,
    }


def swarm(quick: bool, limit: float, root: Path, torchft: str) -> Figures:
    """All on shaped links, with two and with four peers. Those whose times count are repeated in turns."""
    figures: Figures = changed_lines()
    missing = "not measured: quick" if quick else has_torchft(torchft)
    if missing:
        figures["torchft"] = missing
    target, limit = (0.6, limit or 60.0) if quick else (0.82, limit or 240.0)
    figures |= {"target": target, "limit_s": limit}
    try:
        need_fashion_mnist()
        for peers in (2,) if quick else (2, 4):
            with links(peers, MBIT, ROUND_TRIP_MS) as net:
                ours, theirs = [], []
                for _ in range(1 if quick else REPEATS):
                    ours.append(course_of("p2pnode", net, peers, target, limit, root))
                    theirs.append(course_of("hivemind", net, peers, target, limit, root))
                figures |= course_figures("", peers, ours) | course_figures("hivemind_", peers, theirs)
                both = median_course(theirs).seconds / median_course(ours).seconds
                figures[f"speedup_vs_hivemind_{peers}"] = both if isfinite(both) else "unknown"
                if not missing:
                    try:
                        third = course_of("torchft", net, peers, target, limit, root, torchft)
                        figures |= course_figures("torchft_", peers, [third])
                    except RuntimeError as problem:
                        figures["torchft"] = missing = f"not measured: {problem}"
    except NoNamespaces as problem:
        progress(str(problem))
        figures["seconds_to_accuracy_2"] = "unknown"
    return figures


def measure(arguments: argparse.Namespace) -> Figures:
    figures: Figures = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="p2pnode-ownloop-", ignore_cleanup_errors=True) as directory:
        root = Path(directory)
        if arguments.only != "swarm":
            figures |= cost(arguments.quick, root)
        if arguments.only != "cost":
            figures |= swarm(arguments.quick, arguments.limit, root, arguments.torchft_python)
    return figures


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measured"]:  # a process that the benchmark starts
        how, place = sys.argv[2], Path(sys.argv[3])
        if how == "partner":
            be_partner(place)
        else:
            print(json.dumps(measured(how == "quick", place)))
        sys.exit(0)
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float, default=0.0, help="seconds for each of the two swarms")
    parser.add_argument("--only", choices=("cost", "swarm"), default="", help="only this half")
    parser.add_argument("--torchft-python", default=sys.executable, help="a Python that has torchft")
    run("ownloop", measure, parser)
