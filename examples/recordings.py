"""Makes the recordings that the notebooks replay, each by one command:

    python -m examples.recordings peer_graph        # 24 nodes, 45 s on a core of its own
    python -m examples.recordings simulation        # 256 nodes, ten minutes; --peers 64 for a smaller one

The same code makes the same recording.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import p2pnode
from p2pnode.simulate import SIMULATED

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Take:
    """What is simulated, and how much of it is kept: moments, and how many of them with exchanges and models."""

    plan: dict[str, Any]
    moments: int
    whole: int
    round_seconds: float = 2.0


TAKES = {
    "peer_graph": Take(
        {"peers": 24, "split": "labels:2", "aim": "own", "rounds": 40, "seed": 11, "churn": 0.15, "speeds": "1-3"},
        moments=60,
        whole=12,
    ),
    # A run's course takes 300 of its rounds. These are short and the nodes slow: fifty rounds of theirs show all of it.
    "simulation": Take(
        {"peers": 256, "split": "labels:2", "rounds": 100, "seconds": 195, "seed": 7, "speeds": "0.0165", "circle": 8},
        moments=60,
        whole=12,
        round_seconds=0.6,
    ),
}


def path_of(name: str) -> Path:
    return HERE / f"{name}.jsonl.zst"


def make(name: str, path: Path, peers: int | None = None) -> None:
    take, said = TAKES[name], -1

    def progress(share: float, seconds: float) -> None:
        nonlocal said
        if int(20 * share) > said:
            said = int(20 * share)
            print(f"{share:4.0%} of the rounds, {seconds:.0f} virtual seconds", flush=True)

    task = replace(SIMULATED, round_seconds=take.round_seconds)
    plan = take.plan if peers is None else {**take.plan, "peers": peers}
    result = p2pnode.simulate(task=task, alone=0, progress=progress, **plan)
    result.view().record(path, take.moments, take.whole)
    print(f"wrote {path}: {path.stat().st_size / 1e6:.2f} MB, {result.real_seconds:.0f} s, digest {result.digest}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make a recording for a notebook.")
    parser.add_argument("name", choices=sorted(TAKES))
    parser.add_argument("--to", type=Path, default=None, metavar="FILE", help="instead of examples/NAME.jsonl.zst")
    parser.add_argument("--peers", type=int, default=None, help="instead of as many as the recording has")
    arguments = parser.parse_args()
    make(arguments.name, arguments.to or path_of(arguments.name), arguments.peers)
