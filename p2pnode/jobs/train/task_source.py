"""Tasks that are a file of the founder: described in the plan, given to those who join, and run only if they accept it.

Light: it is used before the node joins, without torch. A member keeps a copy of the file in the job's folder. The copy
is loaded only where `saved_task.py` remembers that this node's user named or accepted it.
"""

from __future__ import annotations

import ast
import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...config.options import TrainOptions
from ...storage.files import Storage
from ...tasks.names import installed, package_of
from ...wire.errors import LocalProblem, NetworkDown, PeerError, UsageError
from ...wire.ids import PeerId, sha256
from ...wire.messages import MAX_JOB_FILE_BYTES, GetJobFile, JobFileIs
from ...wire.types import Seconds
from ..contract import JobSettings
from ..offers import Admission, FileOffer, JobFiles
from .plan import INSTALL, PlanPackage, TaskSource, TrainPlan, read_plan
from .saved_task import file_of, load_task_options, save_task, source_hash, whole_path

FETCH_TRIES = 5
FETCH_PAUSE: Seconds = 1.0
FETCH_TIMEOUT: Seconds = 20.0
_SAFE = re.compile(r"\W", re.ASCII)


# ---- the founder ----


def task_source(task: str | None) -> tuple[TaskSource | None, str]:
    """What the plan says of a task in a file, and what to tell the founder about it; None where none is offered."""
    path, name = file_of(task) if task else (None, "")
    if path is None:
        return None, _about_installed(task or "")
    content = path.read_bytes()
    if len(content) > MAX_JOB_FILE_BYTES:
        reason = f"it has {len(content):,} bytes, and at most {MAX_JOB_FILE_BYTES:,} can be offered"
    elif siblings := _imported_siblings(content, path.parent):
        reason = f"it imports {', '.join(siblings)} from its directory, and only a single file can be offered"
    else:
        file = f"{_SAFE.sub('_', path.stem)[:40]}.py"
        source = TaskSource(file, len(content), sha256(content).hex(), name)
        return source, f"those who join are shown {_described(source)} and asked before it runs on their machine"
    return None, f"those who join need {path.name}, so send it to them, for --task: {reason}"


def _about_installed(task: str) -> str:
    package = package_of(task)
    if package is not None:
        how = f"`pip install {package.install}`" if package.install else "send it to them"
        return f"those who join need the package {package.name} {package.version}: {how}"
    return f"those who join need the module of --task {task} too; send it to them" if ":" in task else ""


def task_package(task: str) -> PlanPackage | None:
    """What the plan says of the package that a task comes from; None for tasks that come with p2pnode or in a file."""
    package = package_of(task)
    if package is None:
        return None
    safe = re.fullmatch(INSTALL, package.install) is not None
    return PlanPackage(package.name[:80], package.version[:40], package.install if safe else "")


def _imported_siblings(content: bytes, folder: Path) -> list[str]:
    """The modules of its own directory that a file imports."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return []  # loading it says what is wrong
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    roots = sorted({name.partition(".")[0] for name in names} - {"", "p2pnode"})
    return [root for root in roots if (folder / f"{root}.py").is_file() or (folder / root / "__init__.py").is_file()]


def keep_copy(plan: TrainPlan, options: TrainOptions, storage: Storage, folder: str) -> None:
    """Copy the run's file into the job's folder, for those who join later; LocalProblem when the disk fails."""
    path, _ = file_of(options.task) if options.task else (None, "")
    if plan.source is None or path is None or _copy(plan.source, storage, folder) is not None:
        return
    if source_hash(str(path)) == plan.source.sha256:
        storage.write(f"{folder}/{plan.source.file}", path.read_bytes())


def offered(plan: dict[str, Any], storage: Storage, folder: str) -> bytes | None:
    """The file that this node gives to those who join; None where it has none, or not the run's."""
    source = read_plan(plan).source
    return None if source is None else _copy(source, storage, folder)


def _copy(source: TaskSource, storage: Storage, folder: str) -> bytes | None:
    content = storage.read(f"{folder}/{source.file}")
    return content if content is not None and _fits(source, content) else None


def _fits(source: TaskSource, content: bytes) -> bool:
    return len(content) == source.size and sha256(content).hex() == source.sha256


def _described(source: TaskSource) -> str:
    return f"{source.file} ({source.size:,} bytes, sha256 {source.sha256})"


# ---- those who join, and those who come back ----


def task_options(plan: TrainPlan, options: TrainOptions, storage: Storage, folder: str) -> tuple[TrainOptions, str]:
    """The options with the task that is used here, and a note where its file is not the one the run was founded with.

    A file that the user names counts, whatever is in it. A remembered file that has changed or gone since is replaced
    by the copy in the job's folder. A copy that the user accepted and that has changed is not run: no task is the
    answer, and members are asked for the file again. UsageError when a file is gone and there is no copy, or when
    accepted code would run where private data are.
    """
    found, source = load_task_options(storage, folder, options), plan.source
    path, _ = file_of(found.task) if found.task else (None, "")
    hash = "" if path is None else source_hash(str(path))
    if source is not None and options.task is None and found.task == whole_path(_copy_as_task(source, storage, folder)):
        if hash != source.sha256:
            return replace(found, task=None), f"{path} is damaged; members are asked for the run's file again"
        remembered = load_task_options(storage, folder, replace(options, data=None)).data
        if options.data not in (None, remembered) and not options.share_data:
            raise UsageError(
                f"code of others is not run where private data are (--data); read {path}, "
                f"then name it yourself: --task {path}"
            )
    if path is None or (source is not None and hash == source.sha256):
        return found, ""
    if options.task is None and source is not None and _copy(source, storage, folder) is not None:
        changed = f"{path} {'has changed' if hash else 'is gone'} since the run was founded"
        return replace(found, task=_copy_as_task(source, storage, folder)), f"{changed}; the run's own copy is used"
    if options.task is None and not hash:
        raise UsageError(f"{path}, the task that this node used last, is gone; bring it back, or name it by --task")
    if source is None:
        return found, ""
    return found, (
        f"{path} (sha256 {hash[:16] or 'not readable'}…) is not the file that the run was founded with "
        f"({source.file}, sha256 {source.sha256[:16]}…)"
    )


def _copy_as_task(source: TaskSource, storage: Storage, folder: str) -> str:
    return f"{storage.path(f'{folder}/{source.file}')}{source.name}"


async def admit(entry: dict[str, Any], settings: JobSettings, admission: Admission) -> None:
    """Make sure that the task is here, before the node joins: as the user named it, installed, or accepted now.

    UsageError or LocalProblem when it is not, with what to do.
    """
    plan, storage, folder = read_plan(entry), admission.services.seams.storage, admission.folder
    options, note = task_options(plan, settings.node.train_options(settings.name, settings.alone), storage, folder)
    if note:
        admission.services.events.say("task", note, warning=True)
    if options.task is not None:
        return
    source = plan.source
    if source is None:
        if plan.task not in installed():
            raise UsageError(_not_here(plan))
        return
    content = _copy(source, storage, folder)
    if content is None:
        content = await _fetched(plan.task, source, admission)
        storage.write(f"{folder}/{source.file}", content)
    copy = storage.path(f"{folder}/{source.file}")
    offer = FileOffer(admission.run, plan.task, source.file, source.size, source.sha256, copy)
    await _ask_user(offer, options, admission)
    save_task(storage, folder, replace(options, task=_copy_as_task(source, storage, folder)))
    admission.services.events.say("task", f"accepted {_described(source)}; the copy here is {copy}")


def _not_here(plan: TrainPlan) -> str:
    text = f"this run learns {plan.task!r}, which is not installed here"
    package = plan.package
    if package is None:
        return f"{text}; ask the founder for its file and give it with --task"
    if package.install:
        return f"{text}; it comes with {package.name} {package.version}: pip install {package.install}"
    return f"{text}; ask the founder for the package {package.name} {package.version}"


async def _ask_user(offer: FileOffer, options: TrainOptions, admission: Admission) -> None:
    """Return if the user lets the file run; UsageError or LocalProblem otherwise."""
    what = f"{offer.file} ({offer.size:,} bytes, sha256 {offer.sha256})"
    if options.data is not None and not options.share_data:
        raise UsageError(
            f"this run learns by {what}, and code of others is not run where private data are (--data); "
            f"read the copy, then name it yourself: --task {offer.copy}"
        )
    if options.accept_task:
        if offer.sha256 not in options.accept_task:
            raise UsageError(f"--accept-task names another file: this run learns by {what}; read {offer.copy}")
        return
    answer = await admission.consent(offer)
    if answer is None:
        raise UsageError(
            f"this run learns by {offer.file} ({offer.size:,} bytes), which nobody here has accepted; "
            f"read {offer.copy}, then add --accept-task {offer.sha256}"
        )
    if not answer:
        raise LocalProblem(f"not joined, because {offer.file} was not accepted; a copy to read is {offer.copy}")


async def _fetched(task: str, source: TaskSource, admission: Admission) -> bytes:
    """The run's file from any member; UsageError when none gives it."""
    for attempt in range(FETCH_TRIES):
        if attempt:
            await asyncio.sleep(FETCH_PAUSE)
        for peer in await admission.members():
            content = await _fetched_from(peer, source, admission)
            if content is not None:
                return content
    raise UsageError(
        f"this run learns {task!r} by {_described(source)}, and no member gives it; "
        "try again later, or ask the founder for the file and give it with --task"
    )


async def _fetched_from(peer: PeerId, source: TaskSource, admission: Admission) -> bytes | None:
    try:
        answer = await admission.calls.ask(peer, GetJobFile(admission.job), JobFileIs, FETCH_TIMEOUT)
    except (PeerError, NetworkDown):
        return None
    if _fits(source, answer.content):
        return answer.content
    admission.services.fault(peer, "sent another file than the run's")
    return None


FILES = JobFiles(admit, offered)
