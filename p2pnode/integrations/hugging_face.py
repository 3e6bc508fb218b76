"""A callback for Hugging Face's Trainer: its training takes part in a run.

Trainer(..., callbacks=[p2pnode.integrations.HuggingFaceCallback(invite)]).train()
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .join import JoinedRun, join


class HuggingFaceCallback(TrainerCallback):  # type: ignore[misc]
    """Joins when training begins and leaves when it ends, or is interrupted. Takes the settings of `p2pnode.join`.

    `swarm` is what `p2pnode.join` returned, while training goes on.
    """

    def __init__(self, invite: str | None = None, **settings: Any) -> None:
        """TypeError from `p2pnode.join` for settings that it does not know, when training begins."""
        self.swarm: JoinedRun | None = None
        self._invite = invite
        self._settings = settings
        self._export = settings.pop("export", None)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.leave()
        self.swarm = join(kwargs["model"], kwargs["optimizer"], self._invite, **self._settings)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        loss = (kwargs.get("logs") or {}).get("loss")
        if self.swarm is not None and loss is not None:
            self.swarm.report(float(loss))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.swarm is not None and self.swarm.state == "ended":
            control.should_training_stop = True  # the user's goal (until=) is reached

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.swarm is not None and self._export is not None:
            self.swarm.export(self._export)
        self.leave()

    def leave(self) -> None:
        """Leave now, where training was ended by an exception. The end of the process does so too."""
        if self.swarm is not None:
            self.swarm.leave()
