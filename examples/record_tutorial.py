"""Runs the terminal session of docs/tutorial.md with real processes and writes what they print into it.

    python -m examples.record_tutorial            # run it and write the new output into docs/tutorial.md
    python -m examples.record_tutorial --check    # run it; fail when the output no longer looks like the recorded one

A block of the tutorial after `<!-- recorded -->` is a piece of the session: lines that begin with `$ ` are commands,
the others what they print. After `<!-- recorded: bob -->` the command starts a node that goes on running, in a terminal
of its own; after `<!-- recorded: bob, killed first -->` the node that ran under this name is killed before.
`CODE` stands for the code of the invite that the latest founder printed.

Every recorded line must be printed again, in the same words: times, figures, ids and names may differ, other lines may
come between, rows that look alike may be fewer, and `…` is a part that is left out. A command with nothing but `…`
below it gets all that is printed. Output of nodes and about them is waited for, so a busy machine is no failure.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TUTORIAL = ROOT / "docs" / "tutorial.md"
PLACE, PORT = "/tmp/swarm", 8181  # as the tutorial names them; the session has its own
LIMIT = 180.0  # seconds until a line must have been printed
WIDTH = 116  # of recorded lines
GAP = "…"
BLOCK = re.compile(r"<!-- recorded(?:: (?P<node>\w+)(?P<killed>, killed first)?)? -->\n```\n(?P<body>.*?)```\n", re.S)
INVITE = re.compile(r"^python -m p2pnode join (\S+)$", re.M)
PAGE = re.compile(r"^http://\S+$", re.M)


class Failure(Exception):
    """A command of the tutorial failed, or printed something else than it did."""


@dataclass(frozen=True)
class Step:
    """A command and the lines it is expected to print."""

    command: str
    expected: tuple[str, ...]
    node: str = ""  # the name of the node that it starts
    killed: bool = False  # the node that ran under this name is killed first


def steps_of(block: re.Match[str]) -> list[Step]:
    """The steps of one block. ValueError for lines before the first command."""
    steps: list[Step] = []
    for line in block["body"].splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:], (), block["node"] or "", bool(block["killed"])))
        elif not steps:
            raise ValueError(f"the first line of a recorded block is no command: {line!r}")
        elif steps[-1].command.endswith("\\"):
            steps[-1] = replaced(steps[-1], command=f"{steps[-1].command}\n{line}")
        else:
            steps[-1] = replaced(steps[-1], expected=(*steps[-1].expected, line))
    return steps


def replaced(step: Step, command: str | None = None, expected: tuple[str, ...] | None = None) -> Step:
    """The same step with another command or other lines."""
    return Step(command or step.command, step.expected if expected is None else expected, step.node, step.killed)


# ---- what lines look like ----

SHAPES: Sequence[tuple[str, str]] = (
    (r"^\d\d:\d\d:\d\d ", ""),
    (r"[─━]+", "─"),
    (r"token=\S+", "token"),
    (r"\bjoin \S+", "join CODE"),
    (r"\b12D3KooW\w*…?", "ID"),
    (r"\((\w{8}|…)\) is here", "(ID) is here"),
    (r"\b[a-z2-7]{26}\b", "RUN"),
    (r"\b([0-9a-f]{8}|[0-9a-f]{16})\b", "HEX"),
    (r"[▁▂▃▄▅▆▇█]+", "BARS"),
    (r"\b(alice|bob|carol|dave)\b", "NAME"),
    (r"NAME(, NAME)+", "NAME"),
    (r"–|\d[\d,]*(\.\d+)?(e-?\d+)?%?", "N"),
    (r" of N of N test samples?", ""),
    (r"\bof NAME \(yours\)", "of NAME"),
    (r"\bN (h|min|s|ms)( N (min|s))?\b", "N s"),
    (r"\bN (B|kB|MB|GB)\b", "N B"),
    (r"\bN (other )?(\w+?)(ies|s|y)?\b", r"N \1\2"),
    (r"\s+", " "),
)


def shape(line: str, ids: Sequence[str] = ()) -> str:
    """A line without times, figures, ids, names and spacing. `ids` are the peer ids known, whose ends are shown too."""
    for each in ids:
        line = line.replace(each[-8:], "ID")
    for pattern, words in SHAPES:
        line = re.sub(pattern, words, line)
    return line.strip()


def peer_ids(text: str) -> list[str]:
    """All whole peer ids in a text."""
    return sorted(set(re.findall(r"\b12D3KooW\w{44}\b", text)))


def matched(step: Step, printed: str, recorded_ids: Sequence[str], ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """The printed lines that the expected ones stand for, and the expected ones that nothing was printed for.

    The peer ids are those of the tutorial as it is, and those of this session.
    """
    lines = [line.rstrip() for line in printed.splitlines() if line.strip()]
    if step.expected == (GAP,):
        return [shortened(line) for line in lines], []
    forms = [shape(line, ids) for line in lines]
    used: set[int] = set()
    found, missing = [], []
    for line in step.expected:
        if line.strip() in ("", GAP):
            found.append(line)
            continue
        cut, wanted = line.endswith(GAP), shape(line.removesuffix(GAP), recorded_ids)
        same = [at for at, form in enumerate(forms) if form == wanted or (cut and form.startswith(wanted))]
        if not same:
            missing.append(line)
        new = [at for at in same if at not in used][:1]  # of rows that look alike there may be fewer now
        used.update(new)
        found += [shortened(lines[at]) for at in new]
    return found, missing


def shortened(line: str) -> str:
    """A line that fits the tutorial; a long one is cut where a word ends."""
    if len(line) <= WIDTH or not line.strip(" ─━"):
        return line[:WIDTH]
    at = line.rfind(" ", WIDTH // 2, WIDTH - 2)
    return f"{line[: at if at > 0 else WIDTH - 2]} {GAP}"


# ---- the session ----


class Session:
    """Processes with a directory and a port of their own. `close` ends what is left of them."""

    def __init__(self, recorded_ids: Sequence[str]) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="p2pnode-tutorial-"))
        self._port = free_port()
        self._recorded_ids = recorded_ids
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._code = ""
        self._ids: set[str] = set()

    def run(self, step: Step) -> list[str]:
        """Run a step; returns the lines to record. Failure when it fails or prints something else."""
        arguments = self._arguments(step.command)
        if not step.node:
            return self._wait(step, lambda: self._finished(arguments))
        if step.killed:
            self._nodes[step.node].kill()
            self._nodes[step.node].wait(LIMIT)
        output = self._place / f"{step.node}.txt"
        with output.open("wb") as file:
            node = subprocess.Popen(arguments, cwd=ROOT, env=self._environment(), stdout=file, stderr=subprocess.STDOUT)
        self._nodes[step.node] = node
        found = self._wait(step, lambda: self._so_far(step, node, output))
        text = output.read_text()
        if " join " not in step.command:
            self._code = (INVITE.findall(text) or [self._code])[-1]
        for page in PAGE.findall(text):
            urllib.request.urlopen(page.partition("#")[0], timeout=LIMIT).close()
        return found

    def _wait(self, step: Step, printed: Callable[[], str]) -> list[str]:
        """Look at the output again and again until everything expected has been printed."""
        end = time.monotonic() + LIMIT
        while True:
            text = self._as_in_tutorial(printed())
            self._ids.update(peer_ids(text))
            found, missing = matched(step, text, self._recorded_ids, sorted(self._ids))
            if not missing:
                return found
            if time.monotonic() > end:
                lines = "\n  ".join(missing)
                raise Failure(f"$ {step.command}\ndid not print\n  {lines}\nbut\n{text}")
            time.sleep(0.5)

    def _finished(self, arguments: Sequence[str]) -> str:
        environment = self._environment()
        done = subprocess.run(
            arguments, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        if done.returncode:
            raise Failure(f"{shlex.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def _so_far(self, step: Step, node: subprocess.Popen[bytes], output: Path) -> str:
        text = output.read_text()
        if node.poll() is not None:
            raise Failure(f"$ {step.command}\nended with {node.poll()}: {text}")
        return text

    def _arguments(self, command: str) -> list[str]:
        own = command.replace(PLACE, str(self._place)).replace(str(PORT), str(self._port))
        program, *words = shlex.split(own.replace("\\\n", " "), comments=True)
        if program != "python":
            raise Failure(f"$ {command}\nis no command of python, and only those are run")
        return [sys.executable, *(self._code if word == "CODE" else word for word in words)]

    def _as_in_tutorial(self, text: str) -> str:
        return text.replace(str(self._place), PLACE).replace(f":{self._port}", f":{PORT}")

    def _environment(self) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("P2PNODE_")}
        return {**clean, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}

    def ended(self) -> None:
        """Wait until all nodes have ended by themselves; Failure when one does not, or not well."""
        for name, node in self._nodes.items():
            code = node.wait(LIMIT)
            if code:
                raise Failure(f"the node {name} ended with {code}")

    def close(self) -> None:
        for node in self._nodes.values():
            if node.poll() is None:
                node.terminate()
                node.wait(LIMIT)
        shutil.rmtree(self._place, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def record(tutorial: str) -> str:
    """The tutorial with what its session prints now. Failure as soon as something is not as recorded."""
    session = Session(peer_ids(tutorial))

    def again(block: re.Match[str]) -> str:
        body = ""
        for step in steps_of(block):
            begun = time.monotonic()
            body += "".join(f"{line}\n" for line in (f"$ {step.command}", *session.run(step)))
            print(f"{time.monotonic() - begun:5.1f} s  $ {step.command.splitlines()[0]}", flush=True)
        head, _, _ = block[0].partition("```\n")
        return f"{head}```\n{body}```\n"

    try:
        new = BLOCK.sub(again, tutorial)
        session.ended()
        return new
    finally:
        session.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the terminal session of docs/tutorial.md and record it.")
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    try:
        new = record(TUTORIAL.read_text())
    except Failure as failure:
        print(f"the tutorial is not as recorded: {failure}", file=sys.stderr)
        return 1
    if not check:
        TUTORIAL.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
