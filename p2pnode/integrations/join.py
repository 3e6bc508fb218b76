"""`p2pnode.join`: a training loop of one's own takes part in a run, by two lines around it.

    with p2pnode.join(model, optimizer, invite) as swarm:
        for batch in loader:
            ...
            optimizer.step()      # hooked: never waits for the network

The node runs in a thread of its own (thread.py). The optimizer's hook counts steps, copies weights out at the end of a
round and adds what the node hands back (jobs/loop/handover.py).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..config.options import JobOptions, Options
from ..config.resolve import unknown_variables
from ..config.settings import SETTINGS
from ..node.load import load
from ..node.place import check_against_saved, open_place
from ..storage.datadir import DataDir
from ..wire.control import ControlRequest
from ..wire.errors import LocalProblem, P2pnodeError, UsageError
from ..wire.status import MAIN_JOB, NodeStatus, PeerState
from .ranks import Ranks, ranks_of
from .thread import NodeThread

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LambdaLR

    from ..jobs.loop.shared_data import SharedData
    from ..jobs.loop.source import LoopSource
    from ..tasks.task import Evaluation

LEAVE_LIMIT = 4.5  # seconds from leaving to the end of the thread,
SHARE_LIMIT = 2.5  # of them for the last round
JOIN_TIMEOUT = 60.0  # for finding the run of an invite, unless the user gives another
_FOREVER = "without --join-timeout it keeps trying"  # a node of the command line does; a loop has JOIN_TIMEOUT
_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)( [A-Z]+)?")
_joined: weakref.WeakSet[Any] = weakref.WeakSet()  # models that take part in a run now


def join(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    invite: str | None = None,
    *,
    task: str | None = None,
    version: str = "1",
    probe: Any = None,
    evaluate: Callable[[Any], Any] | None = None,
    share: Any = None,
    buffers: str = "own",
    name: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    found: bool = False,
    private: bool = False,
    bootstrap: Sequence[str] | str | None = None,
    join_timeout: float | str | None = None,
    policy: str | None = None,
    settings: Mapping[str, float] | None = None,
    aim: str | None = None,
    round_seconds: float | str | None = None,
    until: str | None = None,
    max_disk: int | str | None = None,
    listen: Sequence[str] | str | None = None,
    announce: Sequence[str] | str | None = None,
    no_listen: bool = False,
    reachability: str | None = None,
    no_lan: bool = False,
    max_upload: float | str | None = None,
    max_download: float | str | None = None,
    pause_on_battery: bool = False,
    idle_only: bool = False,
    schedule: str | None = None,
    dashboard: int | str | None = None,
    tensorboard: str | os.PathLike[str] | None = None,
    log_format: str | None = None,
    quiet: bool = False,
) -> JoinedRun:
    """Take part in a run with a model that this process trains; returns at once, while the node joins.

    Without an invite (or P2PNODE_INVITE) it goes on with the run saved in `data_dir`, or founds one whose first weights
    are the model's. Raises UsageError or LocalProblem for what is wrong now; later problems are raised by the next
    `optimizer.step()`.
    """
    given = {key: value for key, value in locals().items() if key not in _OWN and value not in (None, False)}
    if invite is not None:
        given["invite"] = invite
    ranks = ranks_of()
    with _in_python():
        hooked = HookedLoop(model, optimizer, LoopExtras(task, version, probe, evaluate, buffers, share), ranks)
        if not ranks.speaks:
            return JoinedRun(hooked, None, ranks)
        try:
            return JoinedRun(hooked, _start(given, hooked.source), ranks)
        except BaseException:
            hooked.close()
            raise


_OWN = {"model", "optimizer", "invite", "task", "version", "probe", "evaluate", "share", "buffers"}
_KEYS = {"settings": "set"}


def _start(given: Mapping[str, Any], source: LoopSource) -> NodeThread:
    """Start the node of a loop. UsageError or LocalProblem for what is found wrong before the network starts."""
    flags: dict[str, object] = {_KEYS.get(key, key.replace("_", "-")): _plain(value) for key, value in given.items()}
    for line in unknown_variables(os.environ):
        print(f"p2pnode: {line}", file=sys.stderr)

    def options_at(path: Path | None) -> Options:
        resolved = load(flags, os.environ, default=path)
        options = resolved.options
        if options.jobs or options.run.meet_only or options.train.task is not None or options.role != "node":
            raise UsageError("a training loop is a run's only job here; leave out task, job and meet-only settings")
        run = options.run
        if run.join_timeout is None:
            run = replace(run, join_timeout=JOIN_TIMEOUT)
        return replace(options, run=run, jobs=(JobOptions(MAIN_JOB, "loop", {"loop": source}),))

    options = options_at(None)
    if options.output.tensorboard is not None:
        from ..watch.tensorboard import check_installed

        check_installed()
    named = "data-dir" in flags or "P2PNODE_DATA_DIR" in os.environ
    options, data_dir = open_place(wanted := options, None if named else options_at)
    try:
        check_against_saved(options, data_dir)
        _check_saved_plan(options, data_dir, source)
        return NodeThread(options, data_dir, wanted.data_dir, sys.stdout, on_end=source.node_ended)
    except BaseException:
        data_dir.close()
        raise


def _check_saved_plan(options: Options, data_dir: DataDir, source: LoopSource) -> None:
    """UsageError when the run that would go on is known here and is not one of this loop's model."""
    from ..node.joining import load_manifest, load_saved, same_bootstrap
    from ..wire.run import read_manifest

    run = options.run
    if run.found:
        return
    if run.access is not None:
        signed = load_manifest(data_dir.storage, run.access)
    else:
        saved = load_saved(data_dir.storage)
        signed = saved.manifest if saved is not None and same_bootstrap(run, saved) else None
    if signed is None:
        return
    manifest = read_manifest(signed)
    entry = next((job for job in manifest.jobs if job.kind == "loop" and job.name == MAIN_JOB), None)
    if entry is None:
        raise UsageError(
            f"the run {manifest.name!r} saved in {data_dir.path} is none of training loops; give data_dir= another "
            "directory, or found=True to found a run"
        )
    from ..jobs.contract import JobSettings  # only where there is something to compare: these imports take time
    from ..jobs.loop.prepare import check, read

    try:
        check(entry.plan, read(JobSettings(MAIN_JOB, {"loop": source}, options, True)), data_dir.storage, "")
    except UsageError as problem:
        raise UsageError(f"the run saved in {data_dir.path} cannot go on: {problem}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [f"{key}={number}" for key, number in value.items()] if isinstance(value, Mapping) else value


class _in_python:
    """Says what is wrong in the words of Python's arguments: `data_dir=` instead of `--data-dir`."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, UsageError | LocalProblem):
            error.args = (in_python(str(error)), *error.args[1:])


def in_python(text: str) -> str:
    """An error's text with flags written as arguments of `join`."""

    def written(match: re.Match[str]) -> str:
        key = match[1]
        if key not in SETTINGS:
            return match[0]
        argument = next((own for own, flag in _KEYS.items() if flag == key), key.replace("-", "_"))
        return f"{argument}=True" if SETTINGS[key].switch else f"{argument}={match[2] or ''}".replace("= ", "=")

    return _FLAG.sub(written, text.replace(_FOREVER, "join_timeout= gives it more time"))


@dataclass(frozen=True)
class LoopExtras:
    """What the user says of a loop, besides its model and optimizers; as in `join`."""

    task: str | None = None
    version: str = "1"
    probe: Any = None
    evaluate: Callable[[Any], Any] | None = None
    buffers: str = "own"
    share: Any = None

    def check(self) -> None:
        """UsageError for what can be seen without the model."""
        if self.buffers not in ("own", "mean"):
            raise UsageError(f"buffers={self.buffers!r} is neither 'own' nor 'mean'")
        for what, word in (("task", self.task), ("version", str(self.version))):
            if word is not None and not 0 < len(word) <= 120:
                raise UsageError(f"{what}= must have 1 to 120 characters")


class HookedLoop:
    """The user's model and optimizers with our hooks on them. `close` takes them off again."""

    def __init__(self, model: Any, optimizer: Any, extras: LoopExtras, ranks: Ranks) -> None:
        """UsageError when these do not belong together, or the model takes part in a run already."""
        from torch import nn

        from ..jobs.loop.handover import Handover
        from ..jobs.loop.weights import ModelWeights, plain_optimizer, shared_tensors, unwrapped

        if not isinstance(model, nn.Module):
            raise UsageError(f"p2pnode.join needs a torch model, not {type(model).__name__}")
        extras.check()
        if extras.share is not None and ranks.several:
            raise UsageError("share= works in loops of one process; under torchrun leave it out: ranks need equal data")
        several = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
        if not several:
            raise UsageError("p2pnode.join needs an optimizer, or a list of them")
        self.optimizers = [plain_optimizer(one) for one in several]
        self.model = unwrapped(model)
        if self.model in _joined:
            raise UsageError("this model takes part in a run already; leave() it first, or join once")
        tensors = shared_tensors(self.model, self.optimizers, extras.buffers)  # type: ignore[arg-type]
        self.weights = ModelWeights(self.model, self.optimizers, tensors)
        self.handover = Handover(self.weights)
        self.ranks = ranks
        self._counts = [0] * len(self.optimizers)
        self._owner = os.getpid()
        self._warned = False
        self.source = self._source(model, tensors, extras)
        self._hooks = [one.register_step_post_hook(self._hook(number)) for number, one in enumerate(self.optimizers)]
        _joined.add(self.model)

    def _source(self, model: nn.Module, tensors: Mapping[str, Tensor], extras: LoopExtras) -> LoopSource:
        from ..jobs.loop.pretrained import ModelFiles
        from ..jobs.loop.replica import Probe, RecentInputs, Replica
        from ..jobs.loop.shared_data import SharedData
        from ..jobs.loop.source import LoopSource
        from ..jobs.loop.weights import describe_tensors
        from ..training.input_statistics import norms_of

        share = None if extras.share is None else SharedData(extras.share)
        probe = None if extras.probe is None else Probe(extras.probe)
        self.inputs = RecentInputs(model) if norms_of(self.model) else None
        needed = extras.evaluate is not None or probe is not None or self.inputs is not None
        replica = Replica(self.model, list(tensors), self.inputs) if needed and self.ranks.speaks else None
        files = ModelFiles(self.model, tensors, replica)
        return LoopSource(
            handover=self.handover,
            layout=self.weights.layout,
            rows=describe_tensors(tensors),
            task=extras.task or type(self.model).__name__,
            version=str(extras.version),
            buffers=extras.buffers,  # type: ignore[arg-type]
            state_dict=files.state_dict,
            config=files.config,
            file_name=files.file_name,
            replica=replica,
            evaluate=extras.evaluate,
            probe=probe,
            share=share,
        )

    def _hook(self, number: int) -> Callable[..., None]:
        def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
            if os.getpid() != self._owner:
                return  # a process forked for data has a copy of the hook
            skipped = getattr(optimizer, "found_inf", None)  # a fused optimizer steps and changes nothing
            if skipped is not None and getattr(optimizer, "grad_scale", None) is not None and bool(skipped.item()):
                return
            self._counts[number] += 1
            self.step(max(self._counts))

        return stepped

    def step(self, total: int) -> None:
        """The loop has made so many steps. Raises what ended the node before the loop had the run's weights."""
        problem = self.problem()
        if self.ranks.several:
            self.ranks.step(total, self.handover, self.weights, self.source, problem)
            return
        if problem is not None:
            self.fail(problem)
        self.handover.stepped(total)

    def problem(self) -> BaseException | None:
        """What ended the node, in the words of Python's arguments; None while it runs, and after a farewell."""
        found = self.source.problem
        if found is None:
            return None  # perhaps it left by itself: the user's goal was reached, or another terminal said so
        if isinstance(found, P2pnodeError):
            kind = UsageError if isinstance(found, UsageError) else LocalProblem
            return kind(in_python(str(found)))
        return LocalProblem(f"the node failed: {type(found).__name__}: {found}")

    def fail(self, problem: BaseException) -> None:
        """The node has ended: the loop ends too if it never had the run's weights, else it goes on alone."""
        if not self.source.arrived.is_set():
            self.close()
            raise problem
        if not self._warned:
            self._warned = True
            text = f"the node of this training loop has ended, and training goes on alone: {in_python(str(problem))}"
            warnings.warn(text, RuntimeWarning, stacklevel=4)

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        if self.inputs is not None:
            self.inputs.close()
        _joined.discard(self.model)


class JoinedRun:
    """A run that a training loop takes part in. Leave it by `leave()`, or at the end of a `with` block."""

    def __init__(self, hooked: HookedLoop, node: NodeThread | None, ranks: Ranks) -> None:
        self._hooked = hooked
        self._source = hooked.source
        self._node = node
        self._ranks = ranks
        self._left = False
        self._owner = os.getpid()
        self._last: NodeStatus | None = None
        _at_exit(self)

    def __enter__(self) -> JoinedRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<p2pnode.join of {self._source.task!r}: {self._source.handover.total} steps, {self.state}>"

    # ---- how it goes ----

    @property
    def state(self) -> str:
        """One word: starting, joined, left, or ended when the node left by itself."""
        if self._left:
            return "left"
        if self._node is not None and self._node.ended.is_set():
            return "ended"
        return "joined" if self._source.arrived.is_set() else "starting"

    @property
    def invite(self) -> str:
        """The code by which others take part; "" while there is none yet."""
        return "" if self._node is None else self._node.invite

    @property
    def steps(self) -> int:
        """Steps of the lineage, for schedules: a loop that has just joined goes on where the run is."""
        return self._source.steps

    @property
    def evaluation(self) -> Evaluation | None:
        """The loss and accuracy of the shared model, as `evaluate` found them last; None before the first time."""
        return self._source.evaluation

    @property
    def data(self) -> SharedData:
        """The data set given as `share=`, with what other members sent. UsageError where none was given."""
        if self._source.share is None:
            raise UsageError("swarm.data is there when a data set is shared: p2pnode.join(..., share=dataset)")
        return self._source.share

    def status(self) -> NodeStatus | None:
        """Everything the node shows of itself; None while it starts, and in processes whose rank is not 0."""
        if self._node is not None and not self._node.ended.is_set():
            found = self._node.status()
            self._last = found or self._last
        return self._last

    def peers(self) -> tuple[PeerState, ...]:
        """The other members that this node knows."""
        status = self.status()
        return () if status is None else status.peers

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the model has the run's weights; returns whether it has. Raises what keeps it from joining.

        Training need not wait. A loop whose first steps should count waits: what is learned before is dropped, unless
        the run begins with this loop's weights.
        """
        until = None if timeout is None else time.monotonic() + timeout
        if self._ranks.several:
            return self._ranks.wait(self._hooked, timeout)
        while not self._source.arrived.wait(0.05):
            ended = self._left or self._node is None or self._node.ended.is_set()
            problem = None if self._left else self._hooked.problem()
            if problem is not None:
                self._hooked.fail(problem)
            if ended or (until is not None and time.monotonic() >= until):
                return False
        self._source.handover.settle()
        return True

    # ---- what to do ----

    def report(self, loss: float) -> None:
        """Tell the loss of a step, for the views. Integrations do so by themselves."""
        self._source.losses.note(float(loss))

    def pause(self) -> str:
        """Share nothing until `resume`, also after a restart. Training goes on."""
        return self._order(ControlRequest("pause"))

    def resume(self) -> str:
        """End a pause."""
        return self._order(ControlRequest("resume"))

    def export(self, path: str | os.PathLike[str], shared: bool = False) -> str:
        """Write the model to a file (.safetensors, .pt) or, as `from_pretrained` reads it, to a directory.

        The weights are the average over the last rounds; if `shared`, those that all members have bit by bit.
        """
        file = str(Path(path).expanduser().absolute())
        return self._order(ControlRequest("export", file=file, shared=shared))

    def scheduler(self, optimizer: Optimizer, rate: Callable[[int], float]) -> LambdaLR:
        """A torch LambdaLR that follows the steps of the lineage instead of counting its own calls."""
        from .schedule import LineageLR, plain

        return LineageLR(plain(optimizer), rate, lambda: self.steps)

    def _order(self, request: ControlRequest) -> str:
        if self._node is None:
            return ""  # the process of rank 0 does it
        with _in_python():
            return self._node.execute(request).said

    def leave(self) -> None:
        """Share what is left, say goodbye and end the node, within five seconds. Once is enough; more do nothing."""
        if self._left or os.getpid() != self._owner:
            return
        begun, node, source = time.monotonic(), self._node, self._source
        self._left = True
        try:
            if node is not None:
                self._last_round(node)
                node.leave()
                if not node.wait(max(0.1, begun + LEAVE_LIMIT - time.monotonic())):
                    node.sweep()
                if not self._ranks.several:  # ranks change their weights together, or not at all
                    with contextlib.suppress(UsageError):  # a model that was changed: the loop has heard of it
                        source.handover.settle()
        except KeyboardInterrupt:
            if node is not None:
                node.sweep()
            raise
        finally:
            self._hooked.close()

    def _last_round(self, node: NodeThread) -> None:
        """Give the node the steps that no round has included yet, and let it share them, within limits."""
        self._last = node.status() or self._last if not node.ended.is_set() else self._last
        if not self._source.arrived.is_set() or node.ended.is_set() or self._ranks.several:
            return
        try:
            self._source.handover.finish()
        except UsageError:
            return  # the model was changed: the loop has heard of it, or does not care any more
        self._source.closing.set()
        self._source.handover.wake()
        node.wait(SHARE_LIMIT)


def _at_exit(run: JoinedRun) -> None:
    """Have a process that ends without `leave` say goodbye: while the threads that save its progress still work."""
    reference = weakref.ref(run)

    def leave() -> None:
        joined = reference()
        if joined is not None:
            joined.leave()

    register = getattr(threading, "_register_atexit", None)
    if register is None:
        import atexit

        atexit.register(leave)
        return
    with contextlib.suppress(RuntimeError):  # the process is ending already
        register(leave)
