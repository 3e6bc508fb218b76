"""A model's whole state dict as a file: what `export` writes and `p2pnode.load` reads. The suffix decides the format.

`.safetensors` has tied weights once; its metadata names the others, as `safetensors.torch.save_model` does, so that
`safetensors.torch.load_model` reads it too. `.pt` is a state dict as torch saves it. torch is imported only where it is
needed: a command that asks a running node to export does without.
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from ..wire.errors import LocalProblem, UsageError

if TYPE_CHECKING:
    from torch import Tensor

SUFFIXES = (".safetensors", ".pt")
HASH = "hash"  # the metadata's entry with the hash of the state
_FACTS = "p2pnode"  # the attribute of a saved state dict that has the metadata


def check_target(file: Path) -> None:
    """UsageError when a state dict cannot be written to this file; found before any work is done."""
    _check_suffix(file)
    if file.is_dir():
        raise UsageError(f"{file} is a directory; name a file in it")
    if not file.parent.is_dir():
        raise UsageError(f"there is no directory {file.parent}; make it, or name another file")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise UsageError(f"the directory {file.parent} cannot be written to; name another file")


def _check_suffix(file: Path) -> None:
    if file.suffix not in SUFFIXES:
        raise UsageError(f"{file.name[:100]}: the name must end in {' or '.join(SUFFIXES)}, which decides the format")


def pack_state(suffix: str, state: Mapping[str, Any], facts: Mapping[str, str]) -> bytes:
    """The content of a file with this suffix. Names that share one tensor are tied. UsageError when it cannot be."""
    facts = {**facts, HASH: state_hash(state)}
    return _as_safetensors(state, facts) if suffix == ".safetensors" else _as_pt(state, facts)


def _as_safetensors(state: Mapping[str, Any], facts: Mapping[str, str]) -> bytes:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save

    first: dict[int, str] = {}
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(f"the model keeps {name!r}, which is no tensor; export to a .pt file instead")
        if first.setdefault(id(value), name) == name:
            tensors[name] = value
        else:
            tied[name] = first[id(value)]
    try:
        return bytes(save(tensors, metadata={"format": "pt", **facts, **tied}))
    except (SafetensorError, ValueError, KeyError) as error:
        raise UsageError(f"safetensors cannot hold this model ({error}); export to a .pt file instead") from None


def _as_pt(state: Mapping[str, Any], facts: Mapping[str, str]) -> bytes:
    import torch

    ordered, file = OrderedDict(state), io.BytesIO()
    setattr(ordered, _FACTS, dict(facts))
    torch.save(ordered, file)
    return file.getvalue()


def load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The state dict that `export` wrote, for `model.load_state_dict`; tied weights are there under all their names.

    UsageError when the file is of another kind, LocalProblem when it cannot be read or is damaged.
    """
    return load_with_facts(path)[0]


def load_with_facts(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The same with the file's metadata: where the state comes from, and what belongs to it."""
    file = Path(path).expanduser()
    _check_suffix(file)
    try:
        state, facts = _read_safetensors(file) if file.suffix == ".safetensors" else _read_pt(file)
    except OSError as error:
        raise LocalProblem(f"cannot read {file}: {error.strerror or error}") from None
    if facts.get(HASH, state_hash(state)) != state_hash(state):
        raise LocalProblem(f"{file} is damaged: its content is not what was exported; export it again")
    return state, facts


def _read_safetensors(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    file.open("rb").close()  # so that a file that is not there is an OSError
    try:
        with safe_open(file, framework="pt") as opened:
            facts: dict[str, str] = opened.metadata() or {}
            state = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  (it is no dict)
    except SafetensorError as error:
        raise LocalProblem(f"{file} is damaged, or no safetensors file: {error}") from None
    tied = {name: state[other] for name, other in facts.items() if name not in state and other in state}
    return {**state, **tied}, facts


def _read_pt(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    import torch

    with file.open("rb") as opened:
        try:
            state = torch.load(opened, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged archive or pickle fails in many ways
            reason = f"{type(error).__name__} {str(error).partition(chr(10))[0][:120]}".strip()
            raise LocalProblem(f"{file} is damaged, or no state dict ({reason})") from None
    if not isinstance(state, dict):
        raise UsageError(f"{file} has no state dict, but a {type(state).__name__}")
    return dict(state), getattr(state, _FACTS, {})


def state_hash(state: Mapping[str, Any]) -> str:
    """Hex blake3 of all tensors with their names, shapes and types, in the order of the names."""
    import torch

    digest = blake3()
    for name, value in sorted(state.items()):
        if isinstance(value, torch.Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
