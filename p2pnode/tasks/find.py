"""Finds the task that a user names after --task: built in, installed, a class in a module, or a class in a file.

Only `load_task` runs code by path or module name, and only what this machine's user named or accepted
(`p2pnode/jobs/train/task_source.py`). The task in a run's manifest is looked up by `installed_task` among those that
are built in or installed: a name that a peer chose is never imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from ..wire.errors import TaskProblem, UsageError, near, suggestion
from .errors import error_place
from .names import installed
from .task import Option, Task

P = TypeVar("P")


class OtherKindOfTask(UsageError):
    """What the user names is a task, but of another kind of work."""


def load_task(spec: str, options: Mapping[str, Option] | None = None, source: str | None = None) -> Task:
    """The task that a user names; UsageError when there is none.

    `source` is the place of its data (--data). A task that brings its own data takes none.
    """
    return make_task(task_class(spec.strip()), options, source)


def installed_task(name: str, options: Mapping[str, Option] | None = None, source: str | None = None) -> Task:
    """The task that a run's manifest names, if it is built in or installed here; else UsageError."""
    known = installed()
    if name not in known:
        raise UsageError(
            f"the run's task {name[:60]!r} is not installed here; install the package that has it, "
            "or give its file with --task"
        )
    return make_task(_from_module(known[name], Task), options, source)


def make_task(found: type[Task], options: Mapping[str, Option] | None, source: str | None) -> Task:
    """An instance with these options; UsageError for a local one, such as the place of the data."""
    given = dict(options or {})
    local = sorted(found.LOCAL & given.keys())
    if local:
        raise UsageError(f"task {found.name or found.__name__}: {local[0]} is not an option of a run; use --data")
    if source is not None:
        if not hasattr(found, "source"):
            raise UsageError(f"task {found.name or found.__name__} carries its own data; leave out --data")
        given["source"] = source
    return _instance(found, found.__name__, given)


def _instance(found: type[P], name: str, options: Mapping[str, Option]) -> P:
    """Made by the user's code; TaskProblem when that raises."""
    try:
        return found(**options)
    except (UsageError, TaskProblem):
        raise
    except Exception as error:  # the user's code may raise anything
        place = error_place(error)
        where = f" ({place})" if place else ""
        raise TaskProblem(f"task {name} cannot be made: {type(error).__name__}: {error}{where}") from error


def task_class(spec: str) -> type[Task]:
    """The class that a user names; UsageError when there is none."""
    return _find_class(spec, Task)


def make_policy_task(spec: str | type[P], options: Mapping[str, Option], base: type[P]) -> P:
    """An instance of the subclass of `base` (jobs/actors/task.py) that a user names; UsageError when there is none."""
    found = _find_class(spec.strip(), base) if isinstance(spec, str) else spec
    return _instance(found, found.__name__, options)


def _find_class(spec: str, base: type[P]) -> type[P]:
    known = installed()
    if spec in known:
        return _from_module(known[spec], base)
    path, _, name = spec.rpartition(":") if not spec.endswith(".py") else (spec, "", "")
    if path.endswith(".py"):
        return _pick(_run_file(Path(path)), name, path, base)
    if path and name and all(word.isidentifier() for word in [*path.split("."), name]):
        return _from_module(spec, base)
    raise UsageError(f"no task {spec[:60]!r}; {suggestion(spec, known)} (or give file.py or package.module:Class)")


def _from_module(spec: str, base: type[P]) -> type[P]:
    """The class in `package.module:Class`. The current directory is searched too."""
    module, _, name = spec.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise UsageError(f"no module {module!r} for the task {spec[:60]!r}; is its package installed?") from None
        raise _cannot_load(spec[:60], error) from error
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise _cannot_load(spec[:60], error) from error
    return _pick(loaded, name, module, base)


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        hint = near(path.name, [one.name for one in path.parent.glob("*.py")])
        raise UsageError(f"there is no file {str(path)[:200]!r} to take a task from{hint}")
    name = f"p2pnode_task_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and pickling look classes up there
    sys.path.insert(0, str(path.resolve().parent))  # a task may import its neighbours
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise _cannot_load(str(path), error) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _cannot_load(what: str, error: BaseException) -> TaskProblem:
    """The problem of a task whose code cannot be imported, with the line to look at."""
    place = error_place(error)
    where = f" ({place})" if place else ""
    if isinstance(error, ModuleNotFoundError):
        return TaskProblem(f"{what} needs the module {error.name!r}, which is not installed{where}")
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    return TaskProblem(f"{what} cannot be loaded: {type(error).__name__}: {reason}{where}")


def _pick(module: ModuleType, name: str, place: str, base: type[P]) -> type[P]:
    """The class called `name`, or else the only task that the module itself defines."""
    own = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base) and value is not base
    }
    if name:
        found = getattr(module, name, None)
        other = getattr(found, "job_kind", "")
        if name not in own and other:
            raise OtherKindOfTask(f"{place}:{name} is a task of the job kind {other}; add --job NAME,kind={other}")
        if name not in own and isinstance(found, type) and issubclass(found, Task):
            raise UsageError(f"{place}:{name} is not a {base.__name__}, which this kind of job needs")
        if name not in own:
            others = (key for key, value in vars(module).items() if getattr(value, "job_kind", ""))
            raise UsageError(f"{place} has no task {name!r}; {suggestion(name, {*own, *others})}")
        return own[name]
    defined = {key: value for key, value in own.items() if value.__module__ == module.__name__}
    if len(defined) != 1:
        many = (
            f"several tasks ({', '.join(sorted(defined))}); name one as"
            if defined
            else f"no task: no subclass of {base.__name__} in"
        )
        raise UsageError(f"{place} has {many} {place}{':NAME' if defined else ''}")
    return next(iter(defined.values()))
