"""The whole state dict goes through a file into a fresh model, which is then as good as the node says."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_model
from torch import Tensor, nn
from torch.nn import functional

import p2pnode
from p2pnode.compression.weights import Floats
from p2pnode.storage.state_file import check_target, load, pack_state, state_hash
from p2pnode.tasks.task import Samples, Task
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import LocalProblem, UsageError

LENGTH, CLASSES, WORDS = 16, 4, 40


def waves(seed: int, count: int) -> dict[str, Tensor]:
    """Noisy waves far from zero, whose frequency is the class; sorted by class, as data often are."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(count) * CLASSES // count
    phase = torch.rand(count, 1, generator=generator) * 6.3
    time = torch.arange(LENGTH) / LENGTH * 6.3
    clean = torch.sin(time * (1.0 + classes[:, None]) + phase) * 3 + 7
    return {"x": clean + 0.5 * torch.randn(count, LENGTH, generator=generator), "y": classes}


def texts(seed: int, count: int) -> dict[str, Tensor]:
    """Word numbers; each class prefers a quarter of the words."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(count) % CLASSES
    own = torch.randint(0, WORDS // CLASSES, (count, 8), generator=generator) + classes[:, None] * WORDS // CLASSES
    noise = torch.randint(0, WORDS, (count, 8), generator=generator)
    return {"x": torch.where(torch.rand(count, 8, generator=generator) < 0.5, own, noise), "y": classes}


class Waves(Task):
    learning_rate = 0.02

    def data(self) -> Samples:
        return waves(1, 800)

    def test_data(self) -> Samples:
        return waves(2, 800)


class Texts(Task):
    learning_rate = 0.2

    def data(self) -> Samples:
        return texts(1, 800)

    def test_data(self) -> Samples:
        return texts(2, 800)


class Lift(nn.Module):
    """One channel for convolutions."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, None]


class BatchNorm(Waves):
    def model(self) -> nn.Module:
        return nn.Sequential(
            Lift(), nn.Conv1d(1, 8, 5), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Conv1d(8, 8, 5),
            nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(64, CLASSES),
        )  # fmt: skip


class InstanceNorm(Waves):
    def model(self) -> nn.Module:
        return nn.Sequential(
            Lift(), nn.Conv1d(1, 8, 5), nn.InstanceNorm1d(8, affine=True, track_running_stats=True), nn.ReLU(),
            nn.Flatten(), nn.Linear(96, CLASSES),
        )  # fmt: skip


class Frozen(Texts):
    """Frozen random embeddings in half precision, as pretrained ones often are."""

    def model(self) -> nn.Module:
        embedding = nn.EmbeddingBag(WORDS, 32)
        embedding.weight.requires_grad_(False)
        return nn.Sequential(embedding.half(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, CLASSES))


class Embeddings(Texts):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.EmbeddingBag(WORDS, 16), nn.Linear(16, CLASSES))


class TiedModel(nn.Module):
    """Predicts the first word's successor class by comparing with the embeddings themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.hidden = nn.Linear(16, 16)
        self.head = nn.Linear(16, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.hidden(self.embedding(x).mean(1)))
        return scores[:, :CLASSES]


class Tied(Texts):
    def model(self) -> nn.Module:
        return TiedModel()


class Lora(nn.Module):
    """A frozen layer with a trained correction of low rank."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.base(x) + self.lora_B(self.lora_A(x))
        return result


class LowRank(Texts):
    def model(self) -> nn.Module:
        embedding = nn.EmbeddingBag(WORDS, 32).requires_grad_(False)
        return nn.Sequential(embedding, Lora(nn.Linear(32, 32)), nn.ReLU(), Lora(nn.Linear(32, CLASSES)))


class Peft(Texts):
    """The same by the package that most people use for it."""

    learning_rate = 0.1

    def model(self) -> nn.Module:
        peft = pytest.importorskip("peft")  # where nothing may be skipped (P2PNODE_TEST_REQUIRE_ALL), this fails
        base = nn.Sequential(
            OrderedDict(bag=nn.EmbeddingBag(WORDS, 32), a=nn.Linear(32, 32), relu=nn.ReLU(), b=nn.Linear(32, CLASSES))
        )
        found: nn.Module = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=4, target_modules=["a", "b"]))
        return found


class Centred(nn.Module):
    """Keeps a running mean by replacing its buffer, and one that only a state dict could bring back."""

    mean: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(LENGTH))
        self.register_buffer("scale", torch.full((), 0.3))
        self.register_buffer("cache", torch.zeros(3), persistent=False)
        self.layers = nn.Sequential(nn.Linear(LENGTH, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        result: Tensor = self.layers((x - self.mean) * self.scale)
        return result


class Replaced(Waves):
    def model(self) -> nn.Module:
        return Centred()


TASKS = [BatchNorm, InstanceNorm, Frozen, Embeddings, Tied, LowRank, Replaced, Peft]


def learned(task: Task) -> tuple[Trainer, Floats]:
    trainer = Trainer(ModelHost(task, seed=3), seed=1)
    return trainer, trainer.steps(trainer.model_host.genesis, 300).weights


def exported(trainer: Trainer, weights: Floats) -> dict[str, Any]:
    with trainer.fitted(weights):
        return trainer.model_host.state_dict()


def fresh(task: Task, state: Mapping[str, Any]) -> nn.Module:
    """A model that a user makes and loads."""
    torch.manual_seed(99)
    model = task.model()
    model.load_state_dict(state, strict=True)
    return model.float().eval()


def accuracy(task: Task, model: nn.Module) -> float:
    test = task.test_data()
    with torch.no_grad():
        return float((model(test["x"]).argmax(1) == test["y"]).float().mean())


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("kind", TASKS)
def test_a_fresh_model_with_the_exported_state_is_as_good_as_the_node_says(
    kind: type[Task], suffix: str, tmp_path: Path
) -> None:
    task, file = kind(), tmp_path / f"model{suffix}"
    trainer, weights = learned(task)
    shown = trainer.evaluate(weights).accuracy
    file.write_bytes(pack_state(suffix, exported(trainer, weights), {"task": task.name}))
    assert shown is not None and shown > (0.4 if kind is InstanceNorm else 0.8)  # it trains by other statistics
    assert abs(accuracy(task, fresh(task, p2pnode.load(file))) - shown) <= 0.005
    assert trainer.evaluate(weights).accuracy == shown


def test_without_the_fitted_statistics_the_model_would_be_wrong() -> None:
    """The tests above would pass if nothing depended on the buffers."""
    trainer, weights = learned(BatchNorm())
    state = exported(trainer, weights)
    for name in state:
        if "running_mean" in name:
            state[name] = torch.zeros_like(state[name])
    assert accuracy(trainer.model_host.task, fresh(trainer.model_host.task, state)) < 0.6


def test_statistics_are_those_of_own_samples_whatever_their_order() -> None:
    """Without dropout and from all classes, though the data are sorted by class."""
    trainer, weights = learned(BatchNorm())
    state = exported(trainer, weights)
    inputs = trainer.model_host.task.data()["x"][:, None]
    outputs = functional.conv1d(inputs, state["1.weight"], state["1.bias"])
    assert torch.allclose(state["2.running_mean"], outputs.mean((0, 2)), atol=0.02)
    assert torch.allclose(state["2.running_var"], outputs.var((0, 2)), rtol=0.05)
    assert int(state["2.num_batches_tracked"]) > 0


def test_fitting_changes_nothing_in_training() -> None:
    one, other = (Trainer(ModelHost(BatchNorm(), seed=3), seed=1) for _ in range(2))
    weights = one.steps(one.model_host.genesis, 5).weights
    other.steps(other.model_host.genesis, 5)
    exported(one, weights)
    assert np.array_equal(one.steps(weights, 5).weights, other.steps(weights, 5).weights)
    assert {module.momentum for module in one.model_host.norms} == {0.1}


def test_a_node_without_samples_takes_the_tasks_data() -> None:
    trainer, weights = learned(BatchNorm())
    shown = trainer.evaluate(weights).accuracy
    trainer.use(np.empty(0, np.int64))
    again = trainer.evaluate(weights).accuracy
    assert shown is not None and again is not None and abs(again - shown) <= 0.005


def test_buffers_other_than_batchnorms_are_those_of_training() -> None:
    trainer, weights = learned(Replaced())
    state = exported(trainer, weights)
    assert torch.equal(state["mean"], torch.from_numpy(trainer.state()["buffer/mean"]))
    assert float(state["mean"].mean()) > 6 and float(state["scale"]) == pytest.approx(0.3)
    assert "cache" not in state and "buffer/cache" not in trainer.state()


def test_a_model_may_hold_its_statistics_still() -> None:
    class Still(nn.BatchNorm1d):
        def train(self, mode: bool = True) -> Still:
            return super().train(False)

    class Pretrained(Waves):
        def model(self) -> nn.Module:
            norm = Still(LENGTH)
            nn.init.constant_(norm.running_mean, 7.0)  # type: ignore[arg-type]
            return nn.Sequential(norm, nn.Linear(LENGTH, 32), nn.ReLU(), nn.Linear(32, CLASSES))

    trainer, weights = learned(Pretrained())
    assert torch.equal(exported(trainer, weights)["0.running_mean"], torch.full((LENGTH,), 7.0))


def test_frozen_parameters_keep_their_precision_and_trained_ones_all_their_bits() -> None:
    trainer, weights = learned(Frozen())
    state = exported(trainer, weights)
    assert state["0.weight"].dtype == torch.float16
    assert {value.dtype for name, value in state.items() if name != "0.weight"} == {torch.float32}
    assert torch.equal(state["0.weight"].float(), trainer.model_host.model.state_dict()["0.weight"])


def test_tied_weights_are_in_the_file_once_and_safetensors_own_reader_takes_it(tmp_path: Path) -> None:
    trainer, weights = learned(Tied())
    file = tmp_path / "tied.safetensors"
    file.write_bytes(pack_state(file.suffix, exported(trainer, weights), {}))
    with safe_open(file, "pt") as opened:
        assert set(opened.keys()) == {"embedding.weight", "hidden.weight", "hidden.bias"}
    state = load(file)
    assert state["head.weight"] is state["embedding.weight"]
    model = TiedModel()
    load_model(model, file, strict=True)
    assert accuracy(trainer.model_host.task, model) == accuracy(trainer.model_host.task, fresh(Tied(), state))


def test_a_frozen_parameter_that_shares_memory_with_a_trained_one_follows_it() -> None:
    class Sharing(Texts):
        def model(self) -> nn.Module:
            model = TiedModel()
            model.head.weight = nn.Parameter(model.embedding.weight.data, requires_grad=False)
            return model

    trainer, weights = learned(Sharing())
    state = exported(trainer, weights)
    assert torch.equal(state["head.weight"], state["embedding.weight"])
    genesis = trainer.model_host.genesis
    assert not np.array_equal(state["head.weight"].numpy().reshape(-1), genesis[: state["head.weight"].numel()])


def test_tensors_of_every_type_come_back(tmp_path: Path) -> None:
    state = {
        "float": torch.randn(2, 3), "half": torch.randn(3).half(), "brain": torch.randn(3).bfloat16(),
        "double": torch.randn(2).double(), "count": torch.tensor(7), "mask": torch.tensor([True, False]),
        "byte": torch.arange(3, dtype=torch.uint8), "empty": torch.empty(0, 4), "complex": torch.randn(2) * 1j,
    }  # fmt: skip
    for suffix in (".safetensors", ".pt"):
        file = tmp_path / f"types{suffix}"
        file.write_bytes(pack_state(suffix, state, {}))
        found = load(file)
        assert found.keys() == state.keys()
        assert all(
            torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in state.items()
        )


def test_state_that_is_no_tensor_needs_pt(tmp_path: Path) -> None:
    class Counting(nn.Linear):
        seen = 0

        def get_extra_state(self) -> dict[str, int]:
            return {"seen": self.seen}

        def set_extra_state(self, state: Any) -> None:
            self.seen = state["seen"]

    class Extra(Waves):
        def model(self) -> nn.Module:
            return Counting(LENGTH, CLASSES)

    host = ModelHost(Extra())
    assert isinstance(host.model, Counting)
    host.model.seen = 5
    with pytest.raises(UsageError, match=r"keeps '_extra_state', which is no tensor; export to a \.pt file"):
        pack_state(".safetensors", host.state_dict(), {})
    file = tmp_path / "extra.pt"
    file.write_bytes(pack_state(".pt", host.state_dict(), {}))
    model = Counting(LENGTH, CLASSES)
    model.load_state_dict(load(file), strict=True)
    assert model.seen == 5


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty"])
def test_a_damaged_file_is_noticed(suffix: str, damage: str, tmp_path: Path) -> None:
    file = tmp_path / f"model{suffix}"
    data = pack_state(suffix, {"weight": torch.zeros(1000), "bias": torch.ones(3)}, {"run": "r"})
    place = data.rindex(bytes(100)) + 50 if suffix == ".safetensors" else data.index(bytes(1000)) + 100
    flipped = data[:place] + b"\x40" + data[place + 1 :]
    file.write_bytes({"flipped": flipped, "truncated": data[:-1000], "empty": b""}[damage])
    with pytest.raises(LocalProblem, match="is damaged"):
        load(file)


def test_the_hash_is_of_names_and_contents() -> None:
    one = {"a": torch.ones(2), "b": torch.zeros(2)}
    assert state_hash(one) == state_hash(dict(reversed(one.items())))
    assert len({state_hash(one), state_hash({"a": one["b"], "b": one["a"]}), state_hash({"a": one["a"]})}) == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.bin", r"model\.bin: the name must end in \.safetensors or \.pt"),
        ("model", r"must end in \.safetensors or \.pt"),
        ("gone/model.pt", r"there is no directory .*/gone; make it, or name another file"),
        ("folder.pt", r"folder\.pt is a directory; name a file in it"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_line(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "folder.pt").mkdir()
    with pytest.raises(UsageError, match=said):
        check_target(tmp_path / name)
    check_target(tmp_path / "model.safetensors")


def test_what_is_no_state_dict_is_one_line(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(UsageError, match="no state dict, but a list"):
        load(tmp_path / "list.pt")
    with pytest.raises(LocalProblem, match="No such file"):
        load(tmp_path / "gone.safetensors")
    with pytest.raises(UsageError, match="must end in"):
        load(tmp_path / "model.bin")
