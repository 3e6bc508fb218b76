"""Hugging Face's Trainer, Lightning and Accelerate with the real packages: one process each that founds a run.

These packages are imported by the tests, not with this file: every worker of the tests would import them. The nodes
are real. What two processes learn together is seen in tests/live/test_own_loop.py and test_loop_examples.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import p2pnode

pytestmark = pytest.mark.live
HERE: dict[str, Any] = {"listen": "/ip4/127.0.0.1/tcp/0", "no_lan": True, "quiet": True}


def test_hugging_faces_trainer_with_accumulation_exports_what_from_pretrained_loads(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    from p2pnode.integrations import HuggingFaceCallback

    rows = torch.arange(64).reshape(16, 4) % 32
    data = [{"input_ids": row, "labels": row} for row in rows]
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=1))
    first = model.transformer.wte.weight.detach().clone()
    callback = HuggingFaceCallback(data_dir=tmp_path / "node", **HERE)

    class Waits(TrainerCallback):  # type: ignore[misc]
        """Lets the node come up before the last step."""

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 3:
                assert callback.swarm is not None and callback.swarm.wait(120)
                assert callback.swarm.steps == 3  # of 12 batches, because 4 are accumulated
                callback.swarm.export(tmp_path / "exported")

    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=6, gradient_accumulation_steps=4, per_device_train_batch_size=2,
        learning_rate=0.1, report_to=[], disable_tqdm=True, use_cpu=True, save_strategy="no", logging_steps=1,
    )  # fmt: skip
    Trainer(model=model, args=arguments, train_dataset=data, callbacks=[callback, Waits()]).train()
    assert callback.swarm is not None and callback.swarm.state == "left"
    again = GPT2LMHeadModel.from_pretrained(tmp_path / "exported")
    assert again.config.n_embd == 8
    assert again.lm_head.weight is again.transformer.wte.weight  # tied as it was
    state = p2pnode.load(tmp_path / "exported" / "model.safetensors")
    assert torch.equal(again.transformer.wte.weight.detach(), state["transformer.wte.weight"])
    assert torch.allclose(state["transformer.wte.weight"], first, atol=1e-3)  # the run began with this model
    assert not torch.equal(model.transformer.wte.weight.detach(), first)


def test_lightnings_trainer_and_its_exceptions(tmp_path: Path) -> None:
    import lightning

    from p2pnode.integrations import LightningCallback

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self, fails: bool) -> None:
            super().__init__()
            self.layer, self.fails = nn.Linear(2, 1), fails

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            if self.fails and self.global_step == 2:
                raise ZeroDivisionError("the user's own")
            loss: torch.Tensor = self.layer(batch[0]).square().mean()
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    def fit(fails: bool) -> tuple[LightningCallback, Module]:
        callback, module = LightningCallback(data_dir=tmp_path / "node", **HERE), Module(fails)
        trainer = lightning.Trainer(
            max_steps=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, callbacks=[callback], accumulate_grad_batches=2, default_root_dir=tmp_path,
        )  # fmt: skip
        try:
            trainer.fit(module, DataLoader(TensorDataset(torch.ones(64, 2)), 4))
        finally:
            assert callback.swarm is not None and callback.swarm.state == "left"
        return callback, module

    with pytest.raises(ZeroDivisionError, match="the user's own"):
        fit(True)
    callback, module = fit(False)  # the same data directory: it was closed
    assert callback.swarm is not None
    assert callback.swarm._source.handover.total == 4  # of 8 batches
    assert float(module.layer(torch.ones(1, 2)).detach().abs()) < 1.0


def test_accelerates_wrapped_optimizer_and_adapters_of_peft(tmp_path: Path) -> None:
    """Only the adapters are shared, and exported so that peft reads them."""
    from accelerate import Accelerator
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    base = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=1))
    settings = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    model: Any = get_peft_model(base, settings)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    inner = torch.optim.AdamW([part for part in model.parameters() if part.requires_grad], 0.01)
    prepared, optimizer = accelerator.prepare(model, inner)
    rows = torch.arange(16).reshape(4, 4)
    with p2pnode.join(prepared, optimizer, data_dir=tmp_path / "node", **HERE) as swarm:
        for _ in range(6):
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(input_ids=rows, labels=rows).loss)
                optimizer.step()
                optimizer.zero_grad()
        assert swarm._source.handover.total == 3
        assert all("lora" in name for name, _ in swarm._source.layout.parameters)
        assert swarm.wait(120)
        swarm.export(tmp_path / "adapters")
    assert json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())["r"] == 2
    torch.manual_seed(0)
    fresh = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=1))
    again = PeftModel.from_pretrained(fresh, tmp_path / "adapters")
    state = p2pnode.load(tmp_path / "adapters" / "adapter_model.safetensors")
    name = next(name for name in state if "lora_A" in name)
    assert torch.equal(dict(again.named_parameters())[name.replace(".weight", ".default.weight")].detach(), state[name])
