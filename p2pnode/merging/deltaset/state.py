"""A delta set as plain arrays, for snapshots and for the disk, and back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...storage.checkpoints import Arrays
from ...wire.types import HASH_BYTES
from .entry import Chain, Entry, SetRules, decode_entry, encode_entry
from .exchange import bytes_array
from .heads import decode_heads, encode_heads
from .set import DeltaSet
from .vetoes import decode_vetoes, encode_vetoes


def set_arrays(deltas: DeltaSet) -> Arrays:
    """Everything in a set, including its kept entries."""
    log = deltas.log
    tips = b"".join(log.tips[chain] for chain in sorted(log.tips))
    kept = msgspec.msgpack.encode([encode_entry(entry) for entry in log])
    return {
        "lineage": bytes_array(deltas.rules.lineage),
        "roots": bytes_array(msgspec.msgpack.encode(deltas.rules.roots)),
        "units": deltas.units.copy(),
        "heads": bytes_array(encode_heads(deltas.heads)),
        "tips": bytes_array(tips),
        "exclusions": bytes_array(encode_heads(log.exclusions)),
        "vetoes": bytes_array(encode_vetoes(log.vetoes)),
        "steps": np.array([deltas.steps], np.int64),
        "entries": bytes_array(kept),
        "checksum": np.array([deltas.checksum], np.uint64),
    }


def set_from(arrays: Mapping[str, npt.NDArray[Any]], rules: SetRules) -> DeltaSet:
    """The set in arrays made by `set_arrays`, in the lineage they name; ValueError for anything else."""
    try:
        roots = msgspec.msgpack.decode(arrays["roots"].tobytes(), type=tuple[str, ...])
        return _set_from(arrays, replace(rules, lineage=arrays["lineage"].tobytes(), roots=roots))
    except (KeyError, IndexError, TypeError, msgspec.DecodeError) as error:
        raise ValueError(f"not a delta set: {error!r:.120}") from None


def _set_from(arrays: Mapping[str, npt.NDArray[Any]], rules: SetRules) -> DeltaSet:
    heads, tips, units = decode_heads(arrays["heads"].tobytes()), arrays["tips"].tobytes(), arrays["units"]
    if len(tips) != HASH_BYTES * len(heads) or units.shape != (rules.size,) or units.dtype != np.int32:
        raise ValueError("it does not fit this model")
    fresh = DeltaSet(rules, units)
    fresh.steps = int(arrays["steps"][0])
    fresh.checksum = int(arrays["checksum"][0])  # what the entries made; damage since shows when it is compared
    ordered = {chain: tips[HASH_BYTES * place : HASH_BYTES * (place + 1)] for place, chain in enumerate(sorted(heads))}
    vetoes = decode_vetoes(arrays["vetoes"].tobytes())
    fresh.log.start_at(heads, ordered, decode_heads(arrays["exclusions"].tobytes()), vetoes)
    chains: dict[Chain, list[Entry]] = {}
    for data in msgspec.msgpack.decode(arrays["entries"].tobytes(), type=list[bytes]):
        entry = decode_entry(data)
        chains.setdefault(entry.chain, []).append(entry)
    for entries in chains.values():
        fresh.log.keep(entries)
    return fresh
