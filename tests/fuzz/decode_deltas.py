"""Throw bytes at the delta codec until something gives: a crash, a passed bound, memory beyond it.

    python -m tests.fuzz.decode_deltas [--runs 1000000] [--plain]

Guided by coverage with atheris (`pip install -e ".[fuzz]"`); with --plain, by chance alone. `test_hostile_deltas.py`
runs the same check on fewer inputs.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np

if "--plain" not in sys.argv and __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["p2pnode.compression"]):
        from p2pnode.compression.codec import VERSION, decode_delta, encode_delta, with_checksum
else:
    from p2pnode.compression.codec import VERSION, decode_delta, encode_delta, with_checksum

from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.quantise import quantise
from p2pnode.compression.residual import make_delta
from tests.compression.dense import dense_delta

WITH_CHECKSUM = 1  # the first byte of an input that gets a valid version and checksum; others are taken as they are
MEMORY = 1 << 20  # bytes, for at most 1000 entries
MEMORY_UNTRACED = 4 << 30  # address space of the whole process


def example(size: int = 20_000, density: float = 0.01, bits: int = 2) -> SparseDelta:
    rng = np.random.default_rng(5)
    residual = (rng.standard_normal(size) * 30_000).astype(np.int32)
    return make_delta(residual, int(size * density), bits, 1 / 8)[0]


def clustered() -> SparseDelta:
    places = np.concatenate([np.arange(100, 400), np.arange(5000, 5600, 3), [9000]]).astype(np.uint32)
    return SparseDelta(10_000, places, np.where(places % 7 < 3, 5, -9).astype(np.int32))


def every_form() -> list[SparseDelta]:
    """Rice code, bytes and dense; levels of all widths and plain values."""
    values = np.random.default_rng(3).integers(-50, 50, 60).astype(np.int32)
    plain = SparseDelta(4000, np.arange(0, 4000, 20, dtype=np.uint32), np.arange(-100, 100, dtype=np.int32) * 7)
    dense = dense_delta(quantise(values, 4))
    return [example(2000, 0.02), example(3000, 0.3, 4), example(2000, 0.1, 8), clustered(), plain, dense]


FORMS = every_form()


def seeds() -> list[bytes]:
    """Inputs for `check` to start from: every form as it is."""
    return [bytes([WITH_CHECKSUM, place]) + encode_delta(delta)[:-4] for place, delta in enumerate(FORMS)]


def check(data: bytes) -> bool:
    """Whether an input was decoded; AssertionError, or whatever else goes wrong, where it is not refused properly.

    Memory is checked if it is traced.
    """
    kind, place, body = (data + b"\0\0")[0], (data + b"\0\0")[1], data[2:]
    expected = FORMS[place % len(FORMS)]
    payload = with_checksum(bytes([VERSION]) + body[1:]) if kind == WITH_CHECKSUM else body
    if tracemalloc.is_tracing():
        tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        delta = decode_delta(payload, expected.size, len(expected))
    except ValueError as refused:
        if not str(refused):
            raise AssertionError("refused without a reason") from refused
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1] - before
        assert peak < MEMORY, f"{peak} bytes of memory for {len(payload)} of payload"
    assert delta.size == expected.size
    assert len(delta) <= len(expected)
    assert decode_delta(encode_delta(delta), delta.size, len(delta)) == delta
    return True


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(2, len(out))
        action = rng.randrange(5)
        if action == 0:
            out[place] = rng.randrange(256)
        elif action == 1:
            out[place] ^= 1 << rng.randrange(8)
        elif action == 2:
            del out[place : place + rng.randrange(1, 9)]
        elif action == 3:
            out[place:place] = rng.randbytes(rng.randrange(1, 9))
        else:
            out[place:] = out[place + 3 :] + out[place : place + 3]
        if len(out) < 3:
            break
    return bytes(out)


def by_chance(beginnings: list[bytes], runs: int, seed: int) -> int:
    """How many of `runs` mutations were decoded."""
    rng = random.Random(seed)
    return sum(check(mutated(rng.choice(beginnings), rng)) for _ in range(runs))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.decode_deltas", description="Fuzz the delta codec.")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--plain", action="store_true", help="without atheris")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_UNTRACED, MEMORY_UNTRACED))
    beginnings = seeds()
    if arguments.plain:
        print(f"{by_chance(beginnings, arguments.runs, 1)} of {arguments.runs} mutations were decoded")
        return
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(beginnings):
            (Path(corpus) / str(number)).write_bytes(seed)
        options = [f"-runs={arguments.runs}", "-max_len=4096", "-rss_limit_mb=3000", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, corpus], sometimes_traced)
        atheris.Fuzz()


def sometimes_traced(data: bytes) -> None:
    """`check`; memory to the byte for a sixteenth of the inputs, chosen by their content, since that takes its time."""
    if sum(data) % 16 == 0:
        tracemalloc.start()
    try:
        check(data)
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    main()
