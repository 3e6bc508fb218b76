"""How existing training code takes part in a run: a loop of one's own, Hugging Face's Trainer, Lightning.

Start with join.py (`p2pnode.join`). thread.py runs the node next to the loop, ranks.py keeps the processes of one
torchrun together, schedule.py lets schedules follow the run's steps, hugging_face.py and lightning.py are callbacks.
Those two import their library only when used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["HuggingFaceCallback", "LightningCallback"]

_HOMES = {
    "HuggingFaceCallback": "p2pnode.integrations.hugging_face",
    "LightningCallback": "p2pnode.integrations.lightning",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"p2pnode.integrations has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)
