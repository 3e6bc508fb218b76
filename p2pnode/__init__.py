"""p2pnode lets people train models together without a server.

    with p2pnode.join(model, optimizer, "CODE"): ...  # take part from a training loop of your own
    from p2pnode import Task                          # write a task of your own
    from p2pnode import PolicyTask                    # or one of reinforcement learning
    model.load_state_dict(p2pnode.load("FILE"))       # what `python -m p2pnode export FILE` wrote
    result = p2pnode.simulate(16, task="digits")      # a whole swarm in this process
    result = p2pnode.simulate(8, job=p2pnode.Queues({"small": "digits", "wide": ("digits", {"hidden": 256})}))
    p2pnode.run(p2pnode.Queues({...}))                # the same for real: founds a run and prints its invite
    comparison = p2pnode.compare([result, another])   # compare merge policies and seeds
    view = await p2pnode.Swarm.look("ADDRESS")        # look at a running swarm, for example in a notebook

Start reading in `p2pnode.node.node` (one process) and `p2pnode.jobs.train.job` (a round of training);
docs/architecture.md has the map.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .integrations.join import join
    from .integrations.run import run
    from .jobs.actors.task import PolicyTask
    from .jobs.queues.api import Queues
    from .simulate import compare, simulate
    from .storage.state_file import load
    from .tasks.optimizers import AdamW, Sgd
    from .tasks.task import Task
    from .tasks.tokens import Tokens
    from .watch.swarm import Swarm

__version__ = "0.1.0"
__all__ = [
    "AdamW",
    "PolicyTask",
    "Queues",
    "Sgd",
    "Swarm",
    "Task",
    "Tokens",
    "__version__",
    "compare",
    "join",
    "load",
    "run",
    "simulate",
]

# Imported when first used: torch alone takes a second, and `--help` should not wait for it.
_HOMES = {
    "AdamW": "p2pnode.tasks.optimizers",
    "PolicyTask": "p2pnode.jobs.actors.task",
    "Queues": "p2pnode.jobs.queues.api",
    "Sgd": "p2pnode.tasks.optimizers",
    "Swarm": "p2pnode.watch.swarm",
    "Task": "p2pnode.tasks.task",
    "Tokens": "p2pnode.tasks.tokens",
    "compare": "p2pnode.simulate",
    "join": "p2pnode.integrations.join",
    "load": "p2pnode.storage.state_file",
    "run": "p2pnode.integrations.run",
}


def __getattr__(name: str) -> Any:
    if name == "simulate":  # a package that can be called
        return import_module("p2pnode.simulate")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"p2pnode has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)
