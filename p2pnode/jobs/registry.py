"""The kinds of jobs there are, by name; outside packages add theirs as entry points `p2pnode.jobs`.

Kinds are named by strings, so that what they need (torch) is imported only where such a job is done.
"""

from __future__ import annotations

from importlib import metadata

from ..wire.errors import UsageError, suggestion
from .contract import JobKind
from .offers import JobFiles

GROUP = "p2pnode.jobs"
LOOP = "loop"  # the kind whose steps a script of the user makes (p2pnode.join)
KINDS = {
    "train": "p2pnode.jobs.train.prepare:KIND",
    "loop": "p2pnode.jobs.loop.prepare:KIND",
    "queues": "p2pnode.jobs.queues.prepare:KIND",
    "pipeline": "p2pnode.jobs.pipeline.prepare:KIND",
    "paths": "p2pnode.jobs.paths.prepare:KIND",
    "actors": "p2pnode.jobs.actors.prepare:KIND",
}
FILES = {"train": "p2pnode.jobs.train.task_source:FILES"}  # of kinds whose jobs bring a file along


def known_kinds() -> dict[str, str]:
    """Where each kind is found, as `module:attribute`. Nobody can replace a built-in kind."""
    return {**{entry.name: entry.value for entry in metadata.entry_points(group=GROUP)}, **KINDS}


def load_kind(name: str) -> JobKind:
    """The kind of this name; UsageError when it is not installed or cannot be imported. Slow the first time."""
    known = known_kinds()
    if name not in known:
        raise UsageError(f"no job kind {name[:60]!r} is installed here; {suggestion(name, known)}")
    try:
        kind = metadata.EntryPoint(name, known[name], GROUP).load()
    except (ImportError, AttributeError) as error:
        if name in KINDS and isinstance(error, ModuleNotFoundError):
            raise  # p2pnode itself is not installed whole: __main__ says what to run
        raise UsageError(
            f"the job kind {name!r} cannot be loaded ({error}); is its package installed whole?"
        ) from error
    if not isinstance(kind, JobKind):
        raise UsageError(f"the job kind {name!r} ({known[name]}) is no p2pnode.jobs.contract.JobKind")
    return kind


def load_files(kind: str) -> JobFiles | None:
    """How the files of a kind's jobs are offered and accepted; None for a kind whose jobs bring none. Quick."""
    if kind not in FILES:
        return None
    files: JobFiles = metadata.EntryPoint(kind, FILES[kind], GROUP).load()
    return files
