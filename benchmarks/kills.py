"""Real nodes and their daemons killed again and again: do all come up, agree to the bit and learn as much as others?

    python -m benchmarks.kills [--json] [--quick] [--kills N] [--nodes N] [--seed N]

Nodes in processes of their own learn digits together while SIGKILL hits a random node or its p2pd about every second,
also while it starts; a killed node is started again at once by the same command. Then all must go on training, leave
cleanly, have written the same entries and weights (after one exchange of what was under way), and leave no process,
socket or half-written file behind. `accuracy_undisturbed` is that of as many rounds without kills.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from benchmarks.common import Figures, progress, run
from benchmarks.nodes import LOOPBACK, ROOT, WAIT, log_of, status, wait_for
from examples.demo_proof import close_the_books
from p2pnode.compression.weights import to_units
from p2pnode.config.options import TrainOptions
from p2pnode.jobs.contract import job_folder
from p2pnode.jobs.model.checkpoints import progress_folder
from p2pnode.jobs.train.binding import open_model_host
from p2pnode.jobs.train.plan import first_plan
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.policy import PolicySetup
from p2pnode.network.libp2p.orphans import read_record
from p2pnode.node.joining import last_run
from p2pnode.storage.checkpoints import CheckpointStore
from p2pnode.storage.files import UNFINISHED, DiskStorage
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.ids import Identity
from p2pnode.wire.status import MAIN_JOB, NodeStatus

KILLS, KILLS_QUICK = 300, 12
NODES, NODES_QUICK = 5, 3
PAUSE = (0.3, 1.7)  # seconds between kills
DAEMONS = 0.4  # share of the kills that hit a daemon
MORE_ROUNDS = 20  # that everybody does after the last kill
TIMED_RESTARTS = 3
SETTLE = 300.0
FAST = ("--round-seconds", "1", "--no-lan", "--task", "digits", "--log-format", "json", "--full-speed")


@dataclass
class Victim:
    """One node: the command that starts it again and again, and its process now."""

    place: Path
    arguments: list[str]
    process: subprocess.Popen[bytes] = field(init=False)
    starts: int = 0

    def start(self) -> None:
        named = ["--name", self.place.name, "--data-dir", str(self.place), "--listen", LOOPBACK]
        with log_of(self.place).open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "p2pnode", *named, *FAST, *self.arguments],
                stdout=log,
                stderr=log,
                env=_environment(self.place.parent),
                cwd=ROOT,
            )
        self.starts += 1

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def kill_daemon(self) -> bool:
        """Kill the p2pd of the node, if it has one now."""
        record = None
        if self.process.poll() is None and (self.place / "daemon.json").exists():
            record = read_record(self.place)
        try:
            if record is None or psutil.Process(record.pid).name() != "p2pd":
                return False
            psutil.Process(record.pid).kill()
        except psutil.Error:
            return False
        return True

    @property
    def rounds(self) -> int:
        found = status(self.place)
        return 0 if found is None else _round(found)


def _environment(root: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("P2PNODE_")}
    temporary = root / "tmp"
    temporary.mkdir(exist_ok=True)
    return {**inherited, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}


class Swarm:
    """The nodes of one run."""

    def __init__(self, root: Path, count: int) -> None:
        self.root = root
        self.nodes: list[Victim] = []
        try:
            self._start(count)
        except BaseException:
            self.end()
            raise

    def _start(self, count: int) -> None:
        founder = self._add("n0", [])
        invite = wait_for(founder.place, "an invite", lambda now: bool(now.invite)).invite
        for number in range(1, count):
            self._add(f"n{number}", ["--invite", invite.split()[-1]])
        for node in self.nodes:
            wait_for(node.place, "the first round", lambda now: _round(now) > 0)
            self._check_running()

    def _add(self, name: str, arguments: list[str]) -> Victim:
        node = Victim(self.root / name, arguments)
        node.start()
        self.nodes.append(node)
        return node

    def storm(self, kills: int, rng: random.Random) -> tuple[int, int]:
        """Kill nodes and daemons; returns how many of each."""
        killed = daemons = 0
        while killed + daemons < kills:
            time.sleep(rng.uniform(*PAUSE))
            self._check_running()
            victim = rng.choice(self.nodes)
            if rng.random() < DAEMONS:
                daemons += victim.kill_daemon()
            else:
                victim.kill()
                victim.start()
                killed += 1
            if (killed + daemons) % 25 == 0:
                progress(f"{killed} nodes and {daemons} daemons killed")
        return killed, daemons

    def _check_running(self) -> None:
        """A node that ended by itself is a failure: its log says why."""
        for node in self.nodes:
            if node.process.poll() is not None:
                tail = log_of(node.place).read_text(errors="replace")[-1500:]
                raise LocalProblem(f"{node.place.name} ended with code {node.process.returncode}:\n{tail}")

    def go_on(self, more: int) -> int:
        """Wait until everybody has done `more` more rounds; returns how many a node has done in all, in the median."""
        for place, rounds in {node.place: node.rounds + more for node in self.nodes}.items():
            wait_for(place, f"round {rounds}", partial(_reached, rounds), SETTLE, 0.2)
        return int(statistics.median(node.rounds for node in self.nodes))

    def restart_seconds(self, rng: random.Random) -> list[float]:
        """Seconds from a SIGKILL to the first local step of the next process, with nothing else going on."""
        found = []
        for _ in range(TIMED_RESTARTS):
            victim = rng.choice(self.nodes)
            victim.kill()
            begun = time.monotonic()
            victim.start()
            wait_for(victim.place, "training again", lambda now: any(job.steps for job in now.jobs.values()), WAIT)
            found.append(time.monotonic() - begun)
        return found

    def leave(self) -> list[int]:
        """Let all leave; returns their exit codes."""
        for node in self.nodes:
            node.process.send_signal(signal.SIGTERM)
        return [node.process.wait(WAIT) for node in self.nodes]

    def end(self) -> None:
        """Make sure that no process is left."""
        for node in self.nodes:
            if node.process.poll() is None:
                node.kill()

    def left_behind(self) -> list[str]:
        """Sockets, temporary files and processes that should be gone."""
        files = [str(path.relative_to(self.root)) for path in (self.root / "tmp").rglob("*")]
        for node in self.nodes:
            files += [path.name for path in node.place.rglob(f".*{UNFINISHED}")]
            files += [name for name in ("daemon.json", "control.sock") if (node.place / name).exists()]
        return files


def _reached(rounds: int, now: NodeStatus) -> bool:
    return _round(now) >= rounds


def _round(now: NodeStatus) -> int:
    return now.jobs[MAIN_JOB].state.training.round or 0 if MAIN_JOB in now.jobs else 0


def books(swarm: Swarm) -> tuple[list[DeltaSetPolicy], float]:
    """What the nodes left on disk, after one exchange of all with all, and the accuracy of these weights."""
    run_saved = last_run(DiskStorage(swarm.nodes[0].place))
    plan = None if run_saved is None else first_plan(run_saved.manifest)
    assert run_saved is not None and plan is not None
    host = open_model_host(TrainOptions(plan.task, plan.options, device="cpu"), plan.seed)
    policies = []
    for node in swarm.nodes:
        identity = Identity.from_key_file((node.place / "identity.key").read_bytes())
        setup = PolicySetup(
            to_units(host.genesis), identity, plan.genesis, MAIN_JOB, plan.layout, plan.settings, plan.seed
        )
        policy = DeltaSetPolicy(setup)
        folder = progress_folder(job_folder(run_saved.access.run, MAIN_JOB))
        saved = CheckpointStore(DiskStorage(node.place), folder).load()
        if saved is None:
            raise LocalProblem(f"{node.place.name} left nothing on its disk")
        policy.restore(*saved)
        policies.append(policy)
    for _ in range(2):
        close_the_books(policies)
    accuracy = Trainer(host, host.rows, 0).evaluate(policies[0].weights()).accuracy
    return policies, float(accuracy or 0.0)


def undisturbed(count: int, rounds: int) -> float:
    """The accuracy after as many rounds of as many nodes without kills."""
    with tempfile.TemporaryDirectory(prefix="p2pnode-kills-") as root:
        swarm = Swarm(Path(root), count)
        try:
            swarm.go_on(rounds)
            swarm.leave()
            return books(swarm)[1]
        finally:
            swarm.end()


def measure(arguments: argparse.Namespace) -> Figures:
    kills = arguments.kills or (KILLS_QUICK if arguments.quick else KILLS)
    count = arguments.nodes or (NODES_QUICK if arguments.quick else NODES)
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="p2pnode-kills-") as root:
        swarm = Swarm(Path(root), count)
        try:
            begun = time.monotonic()
            killed, daemons = swarm.storm(kills, rng)
            seconds = time.monotonic() - begun
            for node in swarm.nodes:
                wait_for(node.place, "training again", lambda now: any(job.steps for job in now.jobs.values()), SETTLE)
            restarts = swarm.restart_seconds(rng)
            progress("all train again")
            rounds = swarm.go_on(MORE_ROUNDS)
            codes = swarm.leave()
            policies, accuracy = books(swarm)
            left = swarm.left_behind()
        finally:
            swarm.end()
    progress(f"left behind: {left}" if left else "nothing left behind; now as many rounds without kills")
    baseline = undisturbed(count, rounds)
    return {
        "nodes": count,
        "sigkills": killed + daemons,
        "sigkills_of_daemons": daemons,
        "seconds": seconds,
        "restart_to_training_s": statistics.median(restarts),
        "rounds": rounds,
        "exit_codes": ",".join(map(str, codes)),
        "digests": len({policy.set.log.digest() for policy in policies}),
        "weights": len({policy.set.hash() for policy in policies}),
        "logs": len(policies[0].set.heads),
        "left_behind": len(left),
        "accuracy": accuracy,
        "accuracy_undisturbed": baseline,
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--kills", type=int, help=f"{KILLS}, with --quick {KILLS_QUICK}")
    made.add_argument("--nodes", type=int, help=f"{NODES}, with --quick {NODES_QUICK}")
    made.add_argument("--seed", type=int, default=1)
    return made


if __name__ == "__main__":
    run("kills", measure, parser())
