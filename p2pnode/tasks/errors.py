"""Turns exceptions from a task's own code into one line that names the task, the method and the place."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

import torch

from ..wire.errors import LocalProblem, TaskProblem, UsageError
from .task import Task


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
    except Exception as error:  # the user's code may raise anything
        raise TaskProblem(
            f"task {task.name}: {method}() raised {type(error).__name__}: {_first_line(error)}{_place(error)}"
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:200]


def _place(error: BaseException) -> str:
    """The deepest line outside torch and this file, where a task's author should look."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/torch/" not in frame.filename and frame.filename != __file__]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
