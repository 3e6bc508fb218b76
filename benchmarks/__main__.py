"""Run all benchmarks and write docs/benchmarks.md.

    python -m benchmarks [--quick] [--only network,codec] [--again] [--report FILE]

A benchmark that has ended is kept in build/bench and not run again, so an interrupted run goes on where it stopped;
`--again` runs all again. The exit code is 1 when a benchmark did not run to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.catalogue import BENCHMARKS, Benchmark
from benchmarks.common import words
from benchmarks.report import machine, report

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "build" / "bench"
LIMIT = {"quick": 20 * 60.0, "full": 3 * 3600.0}  # seconds after which a benchmark is ended
LOOK_EVERY = 0.5


def run(benchmark: Benchmark, mode: str) -> dict[str, Any]:
    """Run one benchmark to its end or to the limit; returns what build/bench keeps of it."""
    flags = ["--quick", "--json"] if mode == "quick" else ["--json"]
    base = KEPT / mode / benchmark.name
    base.parent.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "benchmark": benchmark.name,
        "command": " ".join(["python", "-m", benchmark.module, *flags]),
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "load_before": round(os.getloadavg()[0], 1),
        "machine": machine(),
    }
    begun = time.monotonic()
    with base.with_suffix(".out").open("w+b") as out, base.with_suffix(".log").open("w+b") as log:
        command = [sys.executable, "-m", benchmark.module, *flags]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=ROOT, start_new_session=True
        )
        try:
            follow(process, base.with_suffix(".log"), begun + LIMIT[mode])
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    record |= {"seconds": round(time.monotonic() - begun, 1), "load_after": round(os.getloadavg()[0], 1)}
    record["code"] = process.returncode
    record["output"] = base.with_suffix(".out").read_text()
    if process.returncode == 0:
        record["output"] = json.loads(record["output"])
    else:
        lines = base.with_suffix(".log").read_text(errors="replace").strip().splitlines()
        limit = f"ended after {LIMIT[mode]:.0f} s"
        record["error"] = limit if process.returncode == -signal.SIGKILL else lines[-1] if lines else "no output"
    base.with_suffix(".json").write_text(json.dumps(record))
    return record


def follow(process: subprocess.Popen[bytes], log: Path, deadline: float) -> None:
    """Show what a benchmark says while it runs, until it ends or the deadline has passed."""
    with log.open(errors="replace") as lines:
        while True:
            ended = process.poll() is not None
            sys.stderr.write(lines.read())
            sys.stderr.flush()
            if ended or time.monotonic() > deadline:
                return
            time.sleep(LOOK_EVERY)


def kept(mode: str) -> dict[str, dict[str, Any]]:
    """What build/bench has of the runs in a mode, by name of the benchmark."""
    files = (KEPT / mode).glob("*.json")
    return {file.stem: json.loads(file.read_text()) for file in files}


def write_report(path: Path) -> None:
    before = path.read_text() if path.exists() else ""
    path.write_text(report(kept("quick"), kept("full"), before))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run all benchmarks.")
    parser.add_argument("--quick", action="store_true", help="short runs, about half an hour for all of them")
    parser.add_argument("--only", type=words, default=[], help="names, with commas between")
    parser.add_argument("--again", action="store_true", help="run also those that have already ended")
    parser.add_argument(
        "--report", type=Path, default=ROOT / "docs" / "benchmarks.md", help="where to write the figures"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the benchmark ends too
    unknown = set(arguments.only) - {benchmark.name for benchmark in BENCHMARKS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(each.name for each in BENCHMARKS)}")
    mode = "quick" if arguments.quick else "full"
    wanted = [each for each in BENCHMARKS if each.name in arguments.only or not (arguments.only or each.part_of)]
    failed = []
    for number, benchmark in enumerate(wanted, 1):
        known = kept(mode).get(benchmark.name)
        if known is not None and known["code"] == 0 and not arguments.again:
            print(f"[{number}/{len(wanted)}] {benchmark.name}: done on {known['date']}", flush=True)
            continue
        print(f"[{number}/{len(wanted)}] {benchmark.name}: {benchmark.question}", flush=True)
        record = run(benchmark, mode)
        outcome = f"failed: {record['error']}" if record["code"] else "done"
        print(f"[{number}/{len(wanted)}] {benchmark.name}: {outcome} after {record['seconds']:.0f} s", flush=True)
        failed += [benchmark.name] if record["code"] else []
        write_report(arguments.report)
    write_report(arguments.report)
    print(f"figures are in {arguments.report}")
    if failed:
        print(f"did not run to their end: {', '.join(failed)}; run again to try only these")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
