"""The figures of all benchmarks as Markdown: docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from benchmarks.catalogue import BENCHMARKS, Benchmark
from benchmarks.common import columns, rounded

Records = Mapping[str, dict[str, Any]]
LONG = 24  # figures from which on the rest is folded away
HEAD = """# Benchmarks

`make bench` wrote this file; `make bench QUICK=1` runs shorter versions. Each benchmark runs by itself with the command
above its tables, and its module's documentation (`benchmarks/NAME.py`) explains every figure. Baselines are measured in
the same run on the same machine: where the machine was busy (a load above its number of cores), trust the ratios and
not the absolute figures. What was tried and did not work is in [log.md](log.md).
"""


def machine() -> str:
    """The machine in one line: processor, cores, memory, system."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    memory = psutil.virtual_memory().total / 2**30
    processor = model or platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def report(quick: Records, full: Records, before: str = "") -> str:
    """All benchmarks that have run, in the order of the catalogue: the full run, or else the quick one.

    `before` is the last report. Its sections and machines stay where there is no better run now: the runs themselves
    are kept only on the machine that made them.
    """
    chosen = {each.name: best(quick.get(each.name), full.get(each.name)) for each in BENCHMARKS}
    sections = {each.name: section(each, record) for each in BENCHMARKS if (record := chosen[each.name])}
    sections |= {name: text for name, text in sections_of(before).items() if stays(text, chosen.get(name))}
    machines = {f"Machine: {record['machine']}.\n" for record in chosen.values() if record is not None}
    machines |= {f"{line}\n" for line in before.splitlines() if line.startswith("Machine: ")}
    missing = [f"`{each.name}`" for each in BENCHMARKS if each.name not in sections and not each.part_of]
    parts = [HEAD, *sorted(machines), *(sections[each.name] for each in BENCHMARKS if each.name in sections)]
    parts += [f"Not run yet: {', '.join(missing)}.\n"] if missing else []
    return "\n".join(parts)


def sections_of(text: str) -> dict[str, str]:
    """The sections of a report by benchmark, without those that say that it did not run to its end."""
    found = text.split("\n## ")[1:]
    named = {one.partition("\n")[0]: f"## {one}" for one in found if "It did not run to its end" not in one}
    return {name: one.partition("\nNot run yet: ")[0].rstrip("\n") + "\n" for name, one in named.items()}


def stays(text: str, record: dict[str, Any] | None) -> bool:
    """Whether the section of an earlier run says more than the run there is now: none, a failed, or a shorter one."""
    return record is None or record["code"] != 0 or (" --quick" in record["command"] and " --quick" not in text)


def best(quick: dict[str, Any] | None, full: dict[str, Any] | None) -> dict[str, Any] | None:
    """A full run that ended, else a quick one that did, else whichever there is."""
    ended = [record for record in (full, quick) if record is not None and record["code"] == 0]
    return ended[0] if ended else full or quick


def section(benchmark: Benchmark, record: dict[str, Any]) -> str:
    date, load = record["date"].replace("T", " ")[:16], f"load {record['load_before']} to {record['load_after']}"
    lines = [f"## {benchmark.name}", benchmark.question, "", f"`{record['command']}`"]
    lines += ["", f"{date}, {record['seconds']:.0f} s, {load}.", ""]
    if record["code"]:
        return "\n".join([*lines, f"It did not run to its end: {record['error']}", ""])
    output = {name: value for name, value in record["output"].items() if name not in ("benchmark", "quick")}
    rows = output.pop("rows", [])
    pairs = {ours: theirs for ours, theirs in benchmark.baselines.items() if ours in output and theirs in output}
    single = [name for name in output if name not in pairs and name not in pairs.values()]
    if pairs:
        cells = [[f"`{ours}`", shown(output[ours]), shown(output[base]), f"`{base}`"] for ours, base in pairs.items()]
        lines += markdown(["figure", "p2pnode", "baseline", ""], cells)
    if rows:
        same = [name for name in columns(rows) if len(rows) > 1 and len({shown(row.get(name)) for row in rows}) == 1]
        names = [name for name in columns(rows) if name not in same]
        common = f"In all rows: {', '.join(f'{name} {shown(rows[0][name])}' for name in same)}."
        lines += [*textwrap.wrap(common, 120), ""] if same else []
        lines += markdown(names, [[shown(row.get(name)) for name in names] for row in rows])
    if single:
        figures = markdown(["figure", ""], [[f"`{name}`", shown(output[name])] for name in single])
        folded = ["<details><summary>all figures</summary>", "", *figures, "</details>", ""]
        lines += folded if len(single) > LONG else figures
    return "\n".join(lines)


def shown(value: Any) -> str:
    if isinstance(value, dict):  # for example bytes per parameter of each array
        return ", ".join(f"{name} {shown(item)}" for name, item in value.items())
    return rounded(value).replace("|", "\\|")


def markdown(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table, with an empty line after it."""
    lines = [head, ["---"] * len(head), *rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]
