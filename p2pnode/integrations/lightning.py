"""A callback for Lightning's Trainer: its training takes part in a run.

Trainer(callbacks=[p2pnode.integrations.LightningCallback(invite)]).fit(module, loader)
"""

from __future__ import annotations

from typing import Any

from ..wire.errors import LocalProblem
from .join import JoinedRun, join

try:
    from lightning.pytorch.callbacks import Callback
except ModuleNotFoundError:  # the older name of the same package
    try:
        from pytorch_lightning.callbacks import Callback
    except ModuleNotFoundError:
        raise LocalProblem("LightningCallback needs Lightning: `pip install lightning`") from None


class LightningCallback(Callback):  # type: ignore[misc]
    """Joins when fitting begins and leaves when it ends, also by an exception. Takes the settings of `p2pnode.join`.

    `swarm` is what `p2pnode.join` returned, while training goes on.
    """

    def __init__(self, invite: str | None = None, **settings: Any) -> None:
        """TypeError from `p2pnode.join` for settings that it does not know, when fitting begins."""
        super().__init__()
        self.swarm: JoinedRun | None = None
        self._invite = invite
        self._settings = settings
        self._export = settings.pop("export", None)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        optimizers = list(trainer.optimizers)
        self.swarm = join(pl_module, optimizers, self._invite, **self._settings)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.swarm is None:
            return
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None and hasattr(loss, "item"):
            self.swarm.report(loss.item())
        if self.swarm.state == "ended":
            trainer.should_stop = True  # the user's goal (until=) is reached

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.swarm is not None and self._export is not None:
            self.swarm.export(self._export)
        self._leave()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._leave()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._leave()

    def _leave(self) -> None:
        if self.swarm is not None:
            self.swarm.leave()
