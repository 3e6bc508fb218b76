"""Commands to the running node: `export`, `generate`, `revert`, `ban`, `unban`, `pause`, `resume`, `limits`, `queues`.

`export` and `generate` also work without one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..config.options import PATHS, Options
from ..config.resolve import changed
from ..jobs.contract import JobSettings
from ..jobs.registry import LOOP, load_kind
from ..jobs.train.plan import TrainPlan, train_plans
from ..node.control import WORK_LIMIT, NotRunning, ask
from ..node.joining import Run, last_run
from ..storage.files import DiskStorage
from ..storage.state_file import check_target
from ..wire.control import ControlRequest
from ..wire.errors import LocalProblem, UsageError, suggestion
from ..wire.status import NO_LIMITS, JobTable
from ..wire.types import MAX_REASON


def export_weights(options: Options, file: str, shared: bool, job: str = "", path: str = "") -> None:
    """Write the model's state dict to a file, whole or not at all, and print what was written."""
    target = Path(file).expanduser().absolute()
    check_target(target)
    try:
        request = ControlRequest("export", file=str(target), shared=shared, job=job, path=path)
        print(ask(options.data_dir, request, WORK_LIMIT).said)
    except NotRunning as problem:
        if path:
            raise NotRunning(f"{problem}; --path needs a running node") from None
        print(_export_saved(options, target, shared, job))


SETTLING_LOOK = 1.0  # seconds between two questions how far it is


def export_settled(data_dir: Path, file: str, job: str = "") -> None:
    """Let the members of the run settle, print how far that is, and write the model at the end of it."""
    target, last = Path(file).expanduser().absolute(), ""
    check_target(target)
    request = ControlRequest("export", file=str(target), settle=True, job=job)
    while (answer := ask(data_dir, request, WORK_LIMIT)).pending:
        if answer.pending != last:
            last = answer.pending
            print(last, flush=True)
        time.sleep(SETTLING_LOOK)
    print(answer.said)


MAX_PROMPT_BYTES = 1 << 15


def generate(data_dir: Path, model: str, request: ControlRequest) -> None:
    """Print the prompt and, as it comes, the text with which a model continues it.

    The model is the running node's, or that of the exported file `model`.
    """
    if len(request.prompt.encode(errors="replace")) > MAX_PROMPT_BYTES:
        raise UsageError(f"the prompt has more than {MAX_PROMPT_BYTES:,} bytes; shorten it")
    pieces = _from_file(Path(model).expanduser(), request) if model else _from_node(data_dir, request)
    first = next(pieces, "")  # what is wrong shows before anything is printed
    for text in chain((request.prompt, first), pieces):
        print(_printable(text), end="", flush=True)
    print()


def _from_node(data_dir: Path, request: ControlRequest) -> Iterator[str]:
    try:
        answer = ask(data_dir, request, WORK_LIMIT)
    except NotRunning as problem:
        raise NotRunning(f"{problem}, or name an exported file with --model") from None
    yield answer.said
    while answer.generation:
        answer = ask(data_dir, ControlRequest("generate", job=request.job, generation=answer.generation), WORK_LIMIT)
        yield answer.said


def _from_file(file: Path, request: ControlRequest) -> Iterator[str]:
    from ..storage.state_file import load_with_facts
    from ..tasks.find import installed_task
    from ..tasks.generation import Generation

    state, facts = load_with_facts(file)
    if "task" not in facts or "task_options" not in facts:
        raise UsageError(f"{file} does not say which task it is of; export it again with this version")
    try:
        task = installed_task(facts["task"], msgspec.json.decode(facts["task_options"], type=dict[str, Any]))
        task.use_facts(facts)
        model = task.model()
        model.load_state_dict(state)
    except (msgspec.DecodeError, RuntimeError) as error:
        raise LocalProblem(f"{file} does not fit the task {facts['task'][:60]!r} here: {str(error)[:200]}") from None
    how = Generation(request.length, request.temperature, request.top_k, request.seed)
    yield from task.generate(model.eval(), request.prompt, how)


def _printable(text: str) -> str:
    """Text as a terminal may show it: a model may write signs that would steer it."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "·" for sign in text)


def show_router(options: Options, job: str) -> None:
    """Print what each path got: of the running node's job, or of the data named here, before anything is founded."""
    if options.paths:
        kind = load_kind(PATHS)
        assert kind.preview is not None
        tables = kind.preview(kind.read(JobSettings(PATHS, {}, options, alone=True)))
    else:
        tables = ask(options.data_dir, ControlRequest("router", job=job), WORK_LIMIT).tables
    print_tables(tables)


def change_experts(data_dir: Path, request: ControlRequest) -> None:
    """Add, withdraw, use, ignore or list experts."""
    answer = ask(data_dir, request, WORK_LIMIT)
    if answer.said:
        print(answer.said)
    elif any(table.rows for table in answer.tables):
        print_tables(answer.tables)
    else:
        print("nobody offers an expert; `p2pnode expert add NAME --data PATH` makes one")


def print_tables(tables: tuple[JobTable, ...]) -> None:
    from .reports import console, job_table

    for table in tables:
        console().print(job_table(table, {}))


def revert_peer(data_dir: Path, peer: str, job: str = "") -> None:
    print(ask(data_dir, ControlRequest("revert", peer=peer, job=job), WORK_LIMIT).said)


def ban_peer(data_dir: Path, peer: str, reason: str, job: str = "", lift: bool = False) -> None:
    """Sign a veto against a peer's entries, or withdraw it; prints what follows."""
    if len(reason) > MAX_REASON or not reason.isprintable():
        raise UsageError(f"--why has {len(reason)} characters; at most {MAX_REASON} on one line are possible")
    request = ControlRequest("unban" if lift else "ban", peer=peer, reason=reason, job=job)
    print(ask(data_dir, request, WORK_LIMIT).said)


def order(data_dir: Path, do: Literal["pause", "resume"]) -> None:
    print(ask(data_dir, ControlRequest(do)).said)


def change_queues(data_dir: Path, words: Sequence[str], job: str) -> None:
    """Change the queues of the running node's run, for all members, and print what was done."""
    print(ask(data_dir, ControlRequest("queues", words=tuple(words), job=job), WORK_LIMIT).said)


def change_limits(data_dir: Path, written: dict[str, str]) -> None:
    """Change limits of the running node and print those in force; UsageError when one is wrong."""
    changed(NO_LIMITS, written)  # before the node is asked
    print(ask(data_dir, ControlRequest("limits", limits=dict(written))).said)


def _export_saved(options: Options, target: Path, shared: bool, job: str) -> str:
    from ..circles.members import CurrentCircle
    from ..jobs.contract import job_folder
    from ..jobs.model.checkpoints import progress_folder, restore
    from ..jobs.train.binding import follow_plan
    from ..jobs.train.export import ExportSource, export
    from ..jobs.train.prepare import fresh_policy, own_rows
    from ..jobs.train.task_source import task_options
    from ..storage.checkpoints import CheckpointStore
    from ..storage.datadir import open_data_dir
    from ..training.trainer import Trainer

    run, plan, job = _saved_plan(options.data_dir, job)
    folder = job_folder(run.access.run, job)
    own, _ = task_options(plan, options.train, DiskStorage(options.data_dir), folder)
    own = replace(own, device="cpu")
    model_host, circle = follow_plan(plan, own), CurrentCircle()
    data_dir = open_data_dir(options.data_dir)
    try:
        identity = data_dir.identity()
        policy = fresh_policy(plan, model_host, identity, job)
        trainer = Trainer(model_host, own_rows(model_host, own, plan, identity.peer_id == run.manifest.founder))
        store = CheckpointStore(data_dir.storage, progress_folder(folder))
        saved = store.peek()
        if saved is None:
            kept = "what was learned is damaged" if store.damaged else "nothing that was learned is saved"
            raise LocalProblem(f"{kept} in {options.data_dir}; run the node first")
        rounds = restore(*saved, trainer, policy, circle)
    except (ValueError, KeyError) as error:
        raise LocalProblem(f"what is saved in {options.data_dir} cannot be used: {error}") from None
    finally:
        data_dir.close()
    source = ExportSource(run.access.run, job, plan, rounds, circle.name, time.time())
    when = "as it was saved before the last time, which is damaged" if store.damaged else "as the node had saved it"
    return f"{export(target, trainer, policy, shared, source)}; {when}"


def _saved_plan(data_dir: Path, job: str) -> tuple[Run, TrainPlan, str]:
    """The run saved in a data directory, the plan of one of its train jobs, and the job's name."""
    run = last_run(DiskStorage(data_dir))
    plans = train_plans(None if run is None else run.manifest)
    if run is not None and not plans and any(entry.kind == LOOP for entry in run.manifest.jobs):
        raise LocalProblem(
            f"the model of the run in {data_dir} is in a script of yours; run that and export meanwhile, "
            "or call export(path) in it"
        )
    if run is None or not plans:
        raise LocalProblem(f"no run that learns is saved in {data_dir}; give the --data-dir of a node that learned")
    job = job or next(iter(plans))
    if job not in plans:
        raise UsageError(f"the saved run has no train job {job[:60]!r}; {suggestion(job, plans)}")
    return run, plans[job], job
