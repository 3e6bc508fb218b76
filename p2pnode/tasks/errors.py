"""Turns exceptions from a task's own code into one line that names the task, the method and the place."""

from __future__ import annotations

import contextlib
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from ..wire.errors import LocalProblem, TaskProblem, UsageError
from .data import BadData
from .task import ContractBroken, Task

BASE = str(Path(__file__).with_name("task.py"))
PACKAGE = f"{Path(__file__).parents[1]}/"
LIBRARIES = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib"))
DEFAULT_LOSSES = (
    "losses() is not overridden, so it is the cross entropy of model(batch['x']), one row of outputs for each sample, "
    "and batch['y'], a class as a whole number for each: give such columns and outputs, or override losses()"
)


@contextlib.contextmanager
def task_errors(task: Task, method: str) -> Iterator[None]:
    """Raises TaskProblem for whatever the task's code raises inside, LocalProblem when memory runs out."""
    try:
        yield
    except (LocalProblem, UsageError):
        raise
    except NotImplementedError as error:
        raise TaskProblem(str(error) or f"task {task.name}: {method}() is not implemented") from None
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise LocalProblem(f"task {task.name}: {method}() ran out of memory; {_first_line(error)}") from error
    except (ContractBroken, BadData) as error:
        what, _, remedy = str(error).partition("; ")
        culprit = error.method if isinstance(error, ContractBroken) else method
        place = "" if ".py:" in what else f" ({method_place(task, culprit)})"
        advice = f"; {remedy}" if remedy else ""
        raise TaskProblem(f"task {task.name}: {culprit}() {what}{place}{advice}") from error
    except Exception as error:  # the user's code may raise anything
        place = error_place(error, _own_files(task)) or method_place(task, method)
        what = f"task {task.name}: {method}() raised {type(error).__name__}: {_first_line(error)} ({place})"
        raise TaskProblem(f"{what}; {DEFAULT_LOSSES}" if _in_default_losses(error) else what) from error


def error_place(error: BaseException, own: tuple[str, ...] = ()) -> str:
    """The file and line where the author of a task should look: the deepest one of their own code; "" without any.

    `own` are files that count as theirs, wherever they lie.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename, own)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def method_place(task: Task, method: str) -> str:
    """The file and line where a task defines a method; those of its class where the method is inherited from Task."""
    code = getattr(inspect.unwrap(getattr(task, method, None) or type(task).__init__), "__code__", None)
    if code is not None and code.co_filename != BASE:
        return f"{code.co_filename}:{code.co_firstlineno}"
    try:
        return f"{inspect.getsourcefile(type(task))}:{inspect.getsourcelines(type(task))[1]}"
    except (OSError, TypeError):
        return f"class {type(task).__name__}"  # made in a notebook or by type()


def _own_files(task: Task) -> tuple[str, ...]:
    """The files of the task's classes, which may be those of an installed package or of this one."""
    modules = [sys.modules.get(owner.__module__) for owner in type(task).__mro__ if owner not in (Task, object)]
    return tuple(str(getattr(module, "__file__", "")) for module in modules)


def _is_own(file: str, own: tuple[str, ...]) -> bool:
    return file in own or not (file.startswith((PACKAGE, "<frozen", *LIBRARIES)))


def _in_default_losses(error: BaseException) -> bool:
    """Whether the error came up in Task.losses itself, not in the model that it calls."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename, (BASE,))]
    return bool(frames) and frames[-1].filename == BASE and frames[-1].name == "losses"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:200]
