"""Pictures of every tab of the page, to be looked at: light and dark, at the width of a desktop and of a phone.

    python -m page.screenshots [--to DIR] [--of real|replay]

`real` starts five nodes on this machine that train a model, with data that travel and a job of another kind.
`replay` serves a recorded simulation as one of its nodes would. Both need Chromium and the extra `dev`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.fake_node import serving
from p2pnode.node.control import ask
from p2pnode.storage.checked import write_checked
from p2pnode.storage.files import MemoryStorage
from p2pnode.watch.graph import PeerGraph
from p2pnode.watch.history import history_file, pack_history, read_views
from p2pnode.watch.similarity import similarity_of
from p2pnode.wire.control import ControlAnswer, ControlRequest
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.status import JobStatus, NodeEvent, NodeStatus, TrainStatus

ROOT = Path(__file__).parents[1]
TABS = ("swarm", "jobs", "learning", "data", "lineage", "node")
MODES = {"light": (1280, False), "dark": (1280, True), "phone": (390, False), "phone-dark": (390, True)}
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
NAMES = ("anna", "ben", "cleo", "dara", "emil")
ENTRIES = 300  # of others at the first node, before pictures are taken
PATIENCE = 300.0  # seconds


# ---- real nodes ----


@contextlib.contextmanager
def real_swarm() -> Iterator[str]:
    """Five nodes in a run of two jobs and an observer; the link of the first one's page."""
    with tempfile.TemporaryDirectory(prefix="p2pnode-page-") as place, contextlib.ExitStack() as stack:
        root = Path(place)
        install_example(root / "packages")

        def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
            path = f"{root / 'packages'}{os.pathsep}{ROOT}"
            clean = {key: value for key, value in os.environ.items() if not key.startswith("P2PNODE_")}
            environment = {**clean, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
            output = stack.enter_context((root / f"{name}.log").open("wb"))
            command = [sys.executable, "-m", "p2pnode", *arguments, "--name", name, "--log-format", "json"]
            process = subprocess.Popen(
                [*command, "--listen", "/ip4/127.0.0.1/tcp/0"], env=environment, stdout=output, stderr=output
            )
            stack.callback(ended, process)
            return process

        def said(kind: str) -> str:
            lines = (root / f"{NAMES[0]}.log").read_text().splitlines()
            found = [json.loads(line) for line in lines if line.startswith("{")]
            return next((event["text"] for event in found if event["kind"] == kind), "")

        def node(number: int, *arguments: str) -> None:
            part = ["--split", "dirichlet:0.5", "--part", f"{number + 1}/{len(NAMES)}", "--share-data"]
            rest = ["--data-dir", str(root / NAMES[number]), "--no-lan", "--round-seconds", "0.5"]
            start(NAMES[number], *arguments, *part, *rest)

        jobs = ["--job", "model=digits", "--job", "temperature,kind=mean,value=3"]
        node(0, *jobs, "--dashboard", "0.0.0.0:0")
        code = waited("the invite", lambda: said("invite")).split()[-1]
        for number in range(1, len(NAMES)):
            node(number, "join", code)
        start("olga", "watch", code)
        waited("some rounds together", lambda: entries_of_others(root / NAMES[0]) >= ENTRIES)
        yield said("page")


def install_example(folder: Path) -> None:
    """Install examples/job_kind.py as a package of its own would be."""
    info = folder / "job_kind-1.dist-info"
    info.mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "job_kind.py", folder)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: job-kind\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[p2pnode.jobs]\nmean = job_kind:KIND\n")


def ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def entries_of_others(data_dir: Path) -> int:
    try:
        status = ask(data_dir, ControlRequest("status")).status
    except LocalProblem:
        return 0
    jobs = {} if status is None else status.jobs
    return sum(job.training.entries for job in jobs.values())


def waited(what: str, look: Callable[[], Any]) -> Any:
    """What `look` returns once it is true."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.2)
    raise SystemExit(f"not within {PATIENCE:.0f} s: {what}")


# ---- a recorded simulation ----


class Replay:
    """A node that stands at the end of a recording, as its first peer would see it (a `Watched`)."""

    def __init__(self, pictures: list[PeerGraph]) -> None:
        shift = time.time() - pictures[-1].time
        self._me = pictures[-1].peers[0].id
        self.pictures = [self._seen(replace(one, time=one.time + shift), shift) for one in pictures]
        self._latest = self.pictures[-1]
        known = similarity_of(self._latest)
        rows = dict(zip(known.peers, known.table[known.peers.index(self._me)].tolist(), strict=True))
        others = (replace(peer, similarity=rows.get(peer.id)) for peer in self._latest.peers if peer.id != self._me)
        self._others = tuple(others)

    def _seen(self, picture: PeerGraph, shift: float) -> PeerGraph:
        """A picture of everybody as one of the peers would take it."""
        peers = tuple(replace(peer, me=peer.id == self._me) for peer in picture.peers)
        exchanges = tuple(replace(edge, last=edge.last + shift) for edge in picture.exchanges)
        own = {peer.id: peer for peer in peers}.get(self._me)
        plan = TrainStatus(task="digits", parameters=2_410, samples=180, exchanges=len(exchanges))
        jobs = {} if own is None else {
            name: JobStatus("train", state=state, community=own.community, train=plan)
            for name, state in own.jobs.items()
        }  # fmt: skip
        return replace(picture, me=self._me, peers=peers, exchanges=exchanges, jobs=jobs)

    def status(self) -> NodeStatus:
        latest = self._latest
        name = next(peer.name for peer in latest.peers if peer.me)
        return NodeStatus(
            id=self._me, name=name, run=latest.run, role="node", condition="connected", reason=latest.reason,
            private=False, uptime_seconds=0.0, clock_offset_seconds=0.0, addresses=(), invite="", daemon_starts=1,
            traffic=latest.traffic, peers=self._others, events=latest.events, jobs=latest.jobs,
            exchanges=latest.exchanges, run_name="a recorded simulation", shards=latest.shards,
        )  # fmt: skip

    def on_event(self, listener: Callable[[NodeEvent], None]) -> None: ...

    def leave(self) -> None: ...

    async def look_around(self) -> None: ...

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        if request.do == "fingerprints":
            return ControlAnswer(fingerprints=self._latest.fingerprints)
        raise LocalProblem("a recording does not tell")


@contextlib.contextmanager
def replayed(recording: Path) -> Iterator[str]:
    """The page of a recording; its past comes from where a node keeps it."""
    node = Replay(read_views(recording))
    storage = MemoryStorage()
    write_checked(storage, history_file(node.status().run), pack_history(node.pictures, {}))
    with serving(node, storage=storage) as place:
        yield place.link


# ---- pictures ----


def take_all(link: str, source: str, folder: Path) -> None:
    """A picture of each tab that is there, in each mode."""
    from playwright.sync_api import sync_playwright

    browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        for mode, (width, dark) in MODES.items():
            theme = "dark" if dark else "light"
            page = browser.new_page(
                viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
            )
            page.goto(link)
            take_tabs(page, folder, f"{source}-{mode}")
            page.close()
        browser.close()


def take_tabs(page: Any, folder: Path, name: str) -> None:
    waited("the swarm", lambda: page.evaluate("p2pnode.views.swarm.graph.nodes.size > 1"))
    for tab in TABS:
        if page.is_visible(f"#tab-{tab}"):
            page.click(f"#tab-{tab}")
            page.wait_for_timeout(3000)  # for what the tab asks the node
            page.screenshot(path=folder / f"{name}-{tab}.png", full_page=True)


SOURCES: dict[str, Callable[[], contextlib.AbstractContextManager[str]]] = {
    "real": real_swarm,
    "replay": lambda: replayed(ROOT / "examples" / "peer_graph.jsonl.zst"),
    "large": lambda: replayed(ROOT / "examples" / "simulation.jsonl.zst"),
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Take pictures of every tab of the page.")
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "screenshots", metavar="DIR")
    parser.add_argument("--of", choices=sorted(SOURCES), action="append", help="all of them unless said")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    for name in given.of or SOURCES:
        with SOURCES[name]() as link:
            take_all(link, name, given.to)
        print(f"{name}: see {given.to}")
