"""How small and how fast encoded deltas are, compared with hivemind's codecs and torch.topk.

    python -m benchmarks.codec --json [--quick]

On one thread, for residuals of 1e4, 1e6 and 1.6e7 coordinates, of which 1 % is sent. All speeds are relative to copying
the residual in the same run. Times are processor time of the thread: the best of several, three in a row and in turn.

    encode_vs_memcpy         copying / (select, quantise, code, and take out of the residual), at 1.6e7 and 4 bits
    decode_apply_vs_encode   encoding / (decode and add to the weights), there; _cold: each right after other work
    peak_memory_vs_model     most memory beyond the residual and the weights / size of the residual, there
    bits_per_entry           whole payload, at 1e6 and 4 bits
    index_bits_vs_bound      whole payload without the values / log2 of the number of ways to choose as many places
    value_bits_vs_entropy    values with their levels / entropy of the codes, each drawn independently
    quant_error_vs_lloyd     squared error / that of Lloyd and Max, iterated to convergence from four starts, the best

The same with _1e4, _1e6, _16e6 for other sizes, _2bit … _8bit for other bits (at 1e6), _trained for a residual of real
training (Fashion-MNIST, if it is installed), where indices have a pattern. All other residuals are synthetic: Student's
t with 4 degrees of freedom, without any pattern, which is hardest for the index code.

    hivemind_NAME_…, torch_topk_vs_memcpy   the same vector as float32: dense 16- and 8-bit codecs; selection alone
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Mapping
from math import lgamma, log

import numpy as np
import torch

from benchmarks.codec_baselines import hivemind_codecs, lloyd_max, trained_residual
from benchmarks.common import Figures, progress, run
from p2pnode.compression.codec import decode_delta, encode_delta
from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.quantise import BITS, quantise
from p2pnode.compression.residual import take_levels
from p2pnode.compression.selectors.magnitude import largest
from p2pnode.compression.values import CHUNK, WIDE_CHUNK, write_levels
from p2pnode.compression.weights import UNIT, Units
from p2pnode.merging.deltaset.set import apply

SIZES = {"1e4": 10_000, "1e6": 1_000_000, "16e6": 16_000_000}
DENSITY = 0.01
WEIGHT = 1 / 8


def residual_of(size: int) -> Units:
    rng = np.random.default_rng(size)
    return np.clip(rng.standard_t(4, size) * 3000, -(1 << 30), 1 << 30).astype(np.int32)


def sent(residual: Units, bits: int) -> bytes:
    """Encode part of the residual, which loses what is encoded."""
    taken = take_levels(residual, largest(residual, entries(residual)), bits)
    taken.leave(residual)
    return encode_delta(taken.delta(WEIGHT))


def entries(residual: Units) -> int:
    return round(DENSITY * len(residual))


def received(weights: Units, data: bytes, most: int) -> None:
    apply(weights, decode_delta(data, len(weights), most))


def best_of(times: int, works: Mapping[str, Callable[[], object]], in_a_row: int = 3) -> dict[str, float]:
    """Seconds of each work: `in_a_row` times, then the next one, so that a busy moment of the machine slows all.

    NAME_cold is the best of the runs right after another work, when the caches are cold.
    """
    best: dict[str, float] = {}
    for _ in range(times):
        for name, work in works.items():
            for number in range(in_a_row):
                begun = time.thread_time()
                work()
                took = time.thread_time() - begun
                for key in (name, f"{name}_cold") if number == 0 else (name,):
                    best[key] = min(best.get(key, took), took)
    return best


def speed(residual: Units, times: int) -> Figures:
    other, data = np.empty_like(residual), sent(residual.copy(), 4)
    seconds = best_of(
        times,
        {
            "copy": lambda: np.copyto(other, residual),
            "encode": lambda: sent(other, 4),
            "decode": lambda: received(other, data, entries(residual)),
        },
    )
    magnitudes = torch.from_numpy(residual * np.float32(UNIT)).abs()
    topk = best_of(max(1, times // 10), {"topk": lambda: torch.topk(magnitudes, entries(residual))}, 1)["topk"]
    return {
        "encode_vs_memcpy": seconds["copy"] / seconds["encode"],
        "decode_apply_vs_encode": seconds["encode"] / seconds["decode"],
        "decode_apply_vs_encode_cold": seconds["encode_cold"] / seconds["decode_cold"],
        "torch_topk_vs_memcpy": seconds["copy"] / topk,
        "encode_ms": 1e3 * seconds["encode"],
        "decode_apply_ms": 1e3 * seconds["decode"],
        **hivemind_codecs(residual * np.float32(UNIT), seconds["copy"], max(1, times // 10), best_of),
    }


def memory(residual: Units) -> Figures:
    data, weights = sent(residual.copy(), 4), residual.copy()
    peaks = []
    for work in (lambda: sent(weights, 4), lambda: received(weights, data, entries(residual))):
        tracemalloc.start()
        work()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return {"peak_memory_vs_model": max(peaks) / residual.nbytes}


def smallness(residual: Units, bits: int) -> Figures:
    places = largest(residual, entries(residual))
    delta = take_levels(residual, places, bits).delta(WEIGHT)
    total, values = 8 * len(encode_delta(delta)), 8 * len(write_levels(delta.values) or b"")
    return {
        "bits_per_entry": total / len(delta),
        "index_bits_vs_bound": (total - values) / bound(delta),
        "value_bits_vs_entropy": values / (len(delta) * code_entropy(delta.values, bits)),
        "quant_error_vs_lloyd": error_vs_lloyd(residual[places], bits),
    }


def bound(delta: SparseDelta) -> float:
    """log2 of the number of ways to choose the delta's places among all."""
    size, count = delta.size, len(delta)
    return (lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1)) / log(2)


def chunks(values: Units, bits: int) -> list[Units]:
    step = CHUNK if bits <= 4 else WIDE_CHUNK
    return [values[start : start + step] for start in range(0, len(values), step)]


def code_entropy(values: Units, bits: int) -> float:
    codes = np.concatenate(
        [2 * np.unique(np.abs(chunk), return_inverse=True)[1] + (chunk < 0) for chunk in chunks(values, bits)]
    )
    share = np.bincount(codes) / len(codes)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum())


def error_vs_lloyd(values: Units, bits: int) -> float:
    levels = quantise(values, bits)
    ours = np.square((values - levels).astype(np.float64)).sum()
    pairs = zip(chunks(values, bits), chunks(levels, bits), strict=True)
    return float(ours / sum(lloyd_max(chunk, 1 << (bits - 1), np.unique(np.abs(level))) for chunk, level in pairs))


def named(figures: Figures, suffix: str) -> Figures:
    return {f"{name}_{suffix}": value for name, value in figures.items()}


def measure(arguments: argparse.Namespace) -> Figures:
    torch.set_num_threads(1)
    times = 10 if arguments.quick else 40
    fast, small, others = Figures(), Figures(), Figures()
    for name, size in SIZES.items():
        progress(f"{size} coordinates")
        residual = residual_of(size)
        fast, small_here = {**speed(residual, times), **memory(residual)}, smallness(residual, 4)
        others |= named({**fast, **small_here}, name)
        small = small_here if name == "1e6" else small
    for bits in BITS:
        progress(f"{bits} bits")
        others |= named(smallness(residual_of(SIZES["1e6"]), bits), f"{bits}bit")
    trained = trained_residual(rounds=3 if arguments.quick else 30)
    others |= named(smallness(trained, 4), "trained") if trained is not None else {}
    return {**small, **fast, **others}


if __name__ == "__main__":
    run("codec", measure)
