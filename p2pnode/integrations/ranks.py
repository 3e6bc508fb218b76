"""The processes of one torchrun as one member: rank 0 has the node, all get the merged weights at the same step.

Every SYNC_EVERY steps rank 0 tells the others whether its weights changed. If so they are broadcast, so that all ranks
go on from bit-equal weights. A problem of the node is raised by all ranks at the same step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..wire.errors import LocalProblem

if TYPE_CHECKING:
    from ..jobs.loop.handover import Handover
    from ..jobs.loop.source import LoopSource
    from ..jobs.loop.weights import ModelWeights
    from .join import HookedLoop

SYNC_EVERY = 8  # steps
NOTHING, CHANGED, FAILED = 0, 1, 2


class Ranks:
    """The process group that this process belongs to, if any."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank = rank
        self.count = count

    @property
    def speaks(self) -> bool:
        """Whether this process has the node."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        return self.count > 1

    def step(
        self,
        total: int,
        handover: Handover,
        weights: ModelWeights,
        source: LoopSource,
        problem: BaseException | None,
    ) -> None:
        """After a step of the loop, at the same step in all ranks."""
        if total % SYNC_EVERY:
            handover.total = total
            return
        self.exchange(total, handover, weights, source, problem)

    def exchange(
        self,
        total: int,
        handover: Handover,
        weights: ModelWeights,
        source: LoopSource,
        problem: BaseException | None,
    ) -> bool:
        """Tell or hear what happened, and bring all ranks to rank 0's weights; returns whether they changed."""
        state = NOTHING
        if self.speaks:
            failed = problem is not None and not source.arrived.is_set()
            state = FAILED if failed else CHANGED if handover.stepped(total) else NOTHING
        else:
            handover.total = total
        state, at = self._numbers_of_rank_0((state, source.steps), weights)
        if not self.speaks:
            source.lineage = (at, total)
        if state == FAILED:
            raise problem or LocalProblem("the node in the process of rank 0 could not join; its output says why")
        if state == CHANGED:
            self._broadcast(weights.tensors)
            source.arrived.set()
        return state == CHANGED

    def _numbers_of_rank_0(self, numbers: tuple[int, int], weights: ModelWeights) -> tuple[int, int]:
        import torch
        import torch.distributed as dist

        shared = torch.tensor(numbers, dtype=torch.int64, device=weights.tensors[0].device)
        dist.broadcast(shared, 0)
        state, at = shared.tolist()
        return state, at

    def _broadcast(self, tensors: Sequence[Any]) -> None:
        import torch
        import torch.distributed as dist

        with torch.no_grad():
            for tensor in tensors:
                whole = tensor.contiguous()
                dist.broadcast(whole, 0)
                if whole is not tensor:
                    tensor.copy_(whole)

    def wait(self, hooked: HookedLoop, timeout: float | None) -> bool:
        """All ranks wait until rank 0 has the run's weights, and take them."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            changed = self.exchange(
                hooked.handover.total, hooked.handover, hooked.weights, hooked.source, hooked.problem()
            )
            if changed:
                return True
            late = until is not None and time.monotonic() > until
            if self._numbers_of_rank_0((int(late), 0), hooked.weights)[0]:
                return False
            time.sleep(0.05)


def ranks_of() -> Ranks:
    """The process group of this process; one process alone where torch.distributed is not in use."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return Ranks()
    return Ranks(dist.get_rank(), dist.get_world_size())
