"""What is exported of a user's model: its state dict, and the files that `from_pretrained` expects with it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...compression.weights import Floats
from .replica import Replica, copied_state
from .weights import split_vector

ADAPTER_FILE = "adapter_model.safetensors"
MODEL_FILE = "model.safetensors"


class ModelFiles:
    """Makes the state dict and the configuration files of one model."""

    def __init__(self, model: nn.Module, tensors: Mapping[str, Tensor], replica: Replica | None) -> None:
        self._model = model
        self._tensors = tensors
        self._replica = replica
        self.adapters = hasattr(model, "peft_config") and hasattr(model, "get_base_model")
        self.file_name = ADAPTER_FILE if self.adapters else MODEL_FILE

    def state_dict(self, weights: Floats) -> dict[str, Any]:
        """Heavy. The whole state dict with these weights; of a model with adapters (peft) what peft saves of it."""
        if self._replica is not None:
            state = self._replica.state_dict(weights)
        else:
            parts = split_vector(torch.from_numpy(weights), self._tensors.values())
            state = copied_state(self._model, dict(zip(self._tensors, parts, strict=True)))
        if self.adapters:
            from peft import get_peft_model_state_dict

            state = dict(get_peft_model_state_dict(self._model, state_dict=state))
        return state

    def config(self) -> dict[str, bytes]:
        """The files that belong to the weights, by name; none for a plain torch model."""
        found: Any = self._model
        with tempfile.TemporaryDirectory(prefix="p2pnode-config-") as folder:
            if self.adapters:
                found.active_peft_config.save_pretrained(folder)
            else:
                for config in (getattr(found, name, None) for name in ("config", "generation_config")):
                    save = getattr(config, "save_pretrained", None)
                    if save is not None:
                        save(folder)
            return {file.name: file.read_bytes() for file in Path(folder).iterdir() if file.is_file()}
