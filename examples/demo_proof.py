"""What the demo measures itself by: the same training alone, what the nodes left on disk, and a picture of both."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

from examples.demo_stage import NAMES, SPLIT, DemoNode, Failed
from p2pnode.compression.weights import to_units
from p2pnode.config.options import TrainOptions
from p2pnode.config.split import SplitPart, parse_split
from p2pnode.jobs.contract import job_folder
from p2pnode.jobs.model.checkpoints import progress_folder
from p2pnode.jobs.train.binding import open_model_host
from p2pnode.jobs.train.plan import TrainPlan, first_plan
from p2pnode.jobs.train.prepare import fixed_rows
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.policy import PolicySetup
from p2pnode.node.joining import last_run
from p2pnode.storage.checkpoints import CheckpointStore
from p2pnode.storage.files import DiskStorage
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.status import MAIN_JOB

CHUNK = 100  # local steps of the lonely training at a time
PAUSE = 0.05
NOBODY = PeerId("")  # an exchange on disk has no peer to remember


class Alone:
    """The same trainers on the same parts from the same first weights, as many local steps as the nodes do."""

    def __init__(self, plan: TrainPlan) -> None:
        self.model_host: ModelHost = open_model_host(TrainOptions(plan.task, plan.options, device="cpu"), plan.seed)
        parts = [SplitPart(part, len(NAMES)) for part in range(len(NAMES))]
        self._trainers = [
            Trainer(self.model_host, fixed_rows(self.model_host, parse_split(SPLIT), part), seed=part.index)
            for part in parts
        ]
        self._weights = [self.model_host.genesis.copy() for _ in NAMES]
        self._stop = Event()
        self._thread: Thread | None = None

    def follow(self, nodes: list[DemoNode]) -> None:
        """Keep up with the nodes, in the background."""
        self._thread = Thread(target=self._keep_up, args=(nodes,), daemon=True)
        self._thread.start()

    def finish(self, nodes: list[DemoNode]) -> None:
        """Do what is still missing, at full speed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for node in nodes:
            while self._advance(node):
                pass

    def _keep_up(self, nodes: list[DemoNode]) -> None:
        while not self._stop.is_set():
            if not sum(self._advance(node) for node in list(nodes)):
                self._stop.wait(PAUSE)

    def _advance(self, node: DemoNode) -> int:
        """A few steps for a node that is ahead; how many."""
        trainer = self._trainers[node.part]
        steps = min(CHUNK, node.steps - trainer.steps_done)
        if steps > 0:
            self._weights[node.part] = trainer.steps(self._weights[node.part], steps).weights
            node.alone = trainer.evaluate(self._weights[node.part]).accuracy
        return max(0, steps)


def plan_of(node: DemoNode) -> TrainPlan:
    """The plan of the run a node is in, from its disk."""
    run = last_run(DiskStorage(node.data_dir))
    plan = None if run is None else first_plan(run.manifest)
    assert plan is not None
    return plan


def left_on_disk(node: DemoNode, plan: TrainPlan, run: str, model_host: ModelHost) -> DeltaSetPolicy:
    """A node's delta set as it saved it on leaving."""
    identity = Identity.from_key_file((node.data_dir / "identity.key").read_bytes())
    genesis = to_units(model_host.genesis)
    policy = DeltaSetPolicy(
        PolicySetup(genesis, identity, plan.genesis, MAIN_JOB, plan.layout, plan.settings, plan.seed)
    )
    saved = CheckpointStore(DiskStorage(node.data_dir), progress_folder(job_folder(run, MAIN_JOB))).load()
    if saved is None:
        raise Failed(f"{node.name} left nothing on its disk")
    policy.restore(*saved)
    return policy


def close_the_books(policies: list[DeltaSetPolicy]) -> None:
    """One last exchange of all with all; Failed unless every entry is then everywhere and the weights are bit-equal."""
    for one in policies:
        for other in policies:
            if one is not other:
                asked = one.ask(NOBODY)
                push = one.take(NOBODY, other.answer(NOBODY, asked)) or one.answer(NOBODY, other.ask(NOBODY))
                other.take(NOBODY, push)
    if any(policy.set.log.exclusions for policy in policies):
        raise Failed("a node's log was left out: it contradicted itself")
    if len({policy.set.log.digest() for policy in policies}) > 1:
        raise Failed("the nodes do not know the same entries")
    if len({policy.set.hash() for policy in policies}) > 1:
        raise Failed("the nodes know the same entries and have other weights")


def draw(nodes: list[DemoNode], marks: dict[str, float], file: Path) -> None:
    """The curves as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5))
    for number, node in enumerate(nodes):
        colour = f"C{number}"
        seconds = [sample.second for sample in node.samples]
        axes.plot(seconds, [_points(sample.together) for sample in node.samples], colour, label=f"{node.name}")
        axes.plot(seconds, [_points(sample.alone) for sample in node.samples], colour, linestyle=":", alpha=0.8)
    for number, (words, second) in enumerate(marks.items()):
        axes.axvline(second, color="grey", linewidth=0.8)
        axes.text(second, 2 + 6 * number, f" {words}", color="grey", fontsize=8)
    axes.plot([], [], "k-", label="together")
    axes.plot([], [], "k:", label="alone, same local steps")
    axes.set(xlabel="seconds", ylabel="accuracy on test data, %", ylim=(0, 100), title="Four nodes learn digits")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def _points(share: float | None) -> float:
    return float("nan") if share is None else 100 * share
