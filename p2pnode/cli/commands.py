"""Commands to the running node: `export`, `revert`, `pause`, `resume`, `limits`. `export` also works without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from ..config.options import Options
from ..config.resolve import changed
from ..jobs.train.plan import TrainPlan, train_plans
from ..node.control import WORK_LIMIT, NotRunning, ask
from ..node.joining import last_run
from ..storage.files import DiskStorage
from ..wire.control import ControlRequest
from ..wire.errors import LocalProblem, UsageError, suggestion
from ..wire.status import NO_LIMITS


def export_weights(options: Options, file: str, ema: bool, job: str = "") -> None:
    """Write the weights to a file, whole or not at all, and print what was written."""
    target = Path(file).expanduser().absolute()
    try:
        print(ask(options.data_dir, ControlRequest("export", file=str(target), ema=ema, job=job), WORK_LIMIT).said)
    except NotRunning:
        print(_export_saved(options, target, ema, job))


def revert_peer(data_dir: Path, peer: str, job: str = "") -> None:
    print(ask(data_dir, ControlRequest("revert", peer=peer, job=job), WORK_LIMIT).said)


def order(data_dir: Path, do: Literal["pause", "resume"]) -> None:
    print(ask(data_dir, ControlRequest(do)).said)


def change_limits(data_dir: Path, written: dict[str, str]) -> None:
    """Change limits of the running node and print those in force; UsageError when one is wrong."""
    changed(NO_LIMITS, written)  # before the node is asked
    print(ask(data_dir, ControlRequest("limits", limits=dict(written))).said)


def _export_saved(options: Options, target: Path, ema: bool, job: str) -> str:
    from ..jobs.contract import job_folder
    from ..jobs.train.binding import follow_plan
    from ..jobs.train.checkpoints import progress_folder
    from ..jobs.train.export import as_safetensors, exported, write_export
    from ..jobs.train.prepare import fresh_policy
    from ..jobs.train.task_source import task_options
    from ..storage.checkpoints import CheckpointStore
    from ..storage.datadir import open_data_dir

    plan, run, job = _saved_plan(options.data_dir, job)
    own, _ = task_options(plan, options.train, DiskStorage(options.data_dir), job_folder(run, job))
    model_host = follow_plan(plan, replace(own, device="cpu"))
    data_dir = open_data_dir(options.data_dir)
    try:
        policy = fresh_policy(plan, model_host, data_dir.identity(), job)
        saved = CheckpointStore(data_dir.storage, progress_folder(job_folder(run, job))).load()
        if saved is None:
            raise LocalProblem(f"nothing that was learned is saved in {options.data_dir}; run the node first")
        policy.restore(*saved)
    except ValueError as error:
        raise LocalProblem(f"what is saved in {options.data_dir} cannot be used: {error}") from None
    finally:
        data_dir.close()
    data = as_safetensors(model_host.layout, exported(policy, ema), {"task": plan.task})
    write_export(target, data)
    return f"wrote {model_host.layout.size:,} parameters to {target} ({len(data):,} bytes), as the node had saved them"


def _saved_plan(data_dir: Path, job: str) -> tuple[TrainPlan, str, str]:
    """The plan of a train job of the run saved in a data directory, the run's id, and the job's name."""
    access, manifest = last_run(DiskStorage(data_dir))
    plans = train_plans(manifest)
    if access is None or not plans:
        raise LocalProblem(f"no run that learns is saved in {data_dir}; give the --data-dir of a node that learned")
    job = job or next(iter(plans))
    if job not in plans:
        raise UsageError(f"the saved run has no train job {job[:60]!r}; {suggestion(job, plans)}")
    return plans[job], access.run, job
