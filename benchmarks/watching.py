"""What watching a node costs the node, and how fast its page is in Chromium.

    python -m benchmarks.watching [--quick] [--json]

`training_slowdown` compares one node that trains while its page, with 64 made-up peers, follows it, with the same node
while the page rests; blocks alternate, and the median over neighbouring blocks counts. `serving_cpu` is the share of a
core that the node's event loop takes for this: all that training can lose where the browser has another core.
`browser_cpu` is Chromium's share. `page_load_ms` runs from opening the address until the graph of 64 peers is drawn,
with the longest history a node keeps. `frame_ms_500_peers` is one step of the layout and its drawing. `events_per_s` is
how many pictures of 64 peers the page takes, over some seconds. `rss_growth_mb` is how much a node grows while it makes
pictures of 20,000 seconds (500 with --quick) after its history is full.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from statistics import mean
from typing import Any

import psutil

from benchmarks.common import Figures, middle, percentile, progress, run
from benchmarks.fake_node import FakeNode, serving
from benchmarks.nodes import local_steps, log_of, log_tail, node, wait_for
from p2pnode.watch.dashboard import feed
from p2pnode.watch.history import MAX_PICTURES
from p2pnode.wire.errors import LocalProblem

PEERS, MANY = 64, 500
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
MB = 1_000_000
WAIT = 60.0
LONG = 3000  # seconds after which most pairs of 64 peers have exchanged
SETTLE = 0.5  # seconds before a block
LAYOUT = 5.0  # until the graph rests
FILES = ("index.html", "page.js", "page.css", "icon.svg")
DRAWN = "globalThis.p2pnode?.views.swarm.graph.frames.length > 0 && p2pnode.views.swarm.graph.nodes.size > {}"
FRAMES = """count => {
  const { graph } = p2pnode.views.swarm, times = [];
  graph.simulation.stop();
  for (let at = 0; at < count; at++) {
    const begun = performance.now();
    graph.simulation.alpha(0.5).tick();
    graph.frame();
    times.push(performance.now() - begun);
  }
  return times;
}"""
SHOWN_PER_SECOND = """seconds => new Promise((resolve) => {
  const { simulation } = p2pnode.views.swarm.graph;
  simulation.alpha(1).restart();
  let frames = 0;
  const begun = performance.now();
  const next = () => {
    frames += 1;
    if (performance.now() - begun < 1000 * seconds) requestAnimationFrame(next);
    else resolve((1000 * frames) / (performance.now() - begun));
  };
  requestAnimationFrame(next);
})"""
COUNT_EVENTS = """seconds => new Promise((resolve) => {
  let events = 0;
  const count = () => (events += 1);
  p2pnode.store.addEventListener("change", count);
  setTimeout(() => {
    p2pnode.store.removeEventListener("change", count);
    resolve([events / seconds, 1000 * (Date.now() / 1000 - p2pnode.store.latest.time)]);
  }, 1000 * seconds);
})"""


@contextlib.contextmanager
def browsing() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        raise LocalProblem("this measures the page in Chromium; install it with `apt-get install chromium`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def pictures_every(seconds: float) -> Iterator[None]:
    usual, feed.EVERY = feed.EVERY, seconds
    try:
        yield
    finally:
        feed.EVERY = usual


def until(page: Any, expression: str, pause: float = 0.01) -> None:
    """Wait for an expression to be true. The page forbids `eval`, which playwright itself would use for waiting."""
    deadline = time.monotonic() + WAIT
    while not page.evaluate(expression):
        if time.monotonic() > deadline:
            raise LocalProblem(f"not within {WAIT:.0f} s: {expression}")
        time.sleep(pause)


# ---- the page ----


def bundle_kb() -> float:
    static = resources.files("p2pnode.watch.dashboard").joinpath("static")
    return sum(len(gzip.compress(static.joinpath(name).read_bytes())) for name in FILES) / 1000


def loads_and_events(browser: Any, quick: bool) -> Figures:
    """The page of 64 peers: opened again and again, then sent pictures as fast as they are made."""
    seconds = 4 if quick else 15
    loads = []
    with serving(FakeNode(PEERS, 4, past=LONG)) as place:
        with pictures_every(0.001):
            time.sleep(max(4.0, MAX_PICTURES / 200))  # the past fills up
        for _ in range(3 if quick else 9):
            page = browser.new_page()
            begun = time.perf_counter()
            page.goto(place.address)
            until(page, DRAWN.format(PEERS))
            loads.append((time.perf_counter() - begun) * 1000)
            page.close()
        page = browser.new_page()
        page.goto(place.address)
        until(page, DRAWN.format(PEERS))
        with pictures_every(0.001):
            events, late = page.evaluate(COUNT_EVENTS, seconds)
        page.close()
    return {"page_load_ms": middle(loads), "events_per_s": events, "events_late_ms": late}


def frames(browser: Any, quick: bool) -> Figures:
    """500 peers in eight communities of circles, thousands of exchanges."""
    with serving(FakeNode(MANY, 8)) as place:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(place.address)
        until(page, DRAWN.format(MANY))
        shown = page.evaluate(SHOWN_PER_SECOND, 2 if quick else 6)
        times = page.evaluate(FRAMES, 60 if quick else 300)
        edges = page.evaluate("p2pnode.views.swarm.graph.links.length")
        page.close()
    return {
        "frame_ms_500_peers": middle(times),
        "frame_p95_ms_500_peers": percentile(times, 0.95),
        "frames_per_s_500_peers": shown,
        "edges_500_peers": edges,
    }


def rss_growth_mb(quick: bool) -> Figures:
    """Pictures one after the other as fast as they are made, each a second of a long run."""
    node, process = FakeNode(PEERS, 4, past=LONG), psutil.Process()
    looking = feed.Feed(node)

    def most_during(looks: int) -> float:
        """The peak memory in MB over some pictures: the history grows and is thinned again and again."""
        most = 0.0
        for at in range(looks):
            node.turn()
            looking.look()
            if at % 20 == 0:
                most = max(most, process.memory_info().rss / MB)
        return most

    looking.past()
    full = most_during(300 if quick else MAX_PICTURES)  # at 64 peers the bound on rows comes first
    looks = 500 if quick else 20_000
    begun = time.perf_counter()
    grown = most_during(looks) - full
    return {"rss_growth_mb": grown, "rss_looks": looks, "look_ms": (time.perf_counter() - begun) / looks * 1000}


# ---- the node that is watched ----


def page_address(place: Path) -> str:
    """The address of the page of a node that trains, from its output."""
    wait_for(place, "training", lambda now: any(job.steps for job in now.jobs.values()))
    found = re.search(r"http://127\.0\.0\.1:\d+/#token=\S+", log_of(place).read_text())
    if found is None:
        raise LocalProblem(f"the node does not name its page: {log_tail(place)}")
    return found.group(0)


def loop_seconds(process: psutil.Popen) -> float:
    """Processor time of the thread of the event loop."""
    threads = [thread for thread in process.threads() if thread.id == process.pid]
    return float(sum(thread.user_time + thread.system_time for thread in threads))


def block(place: Path, process: psutil.Popen, page: Any, watched: bool, seconds: float) -> tuple[float, float, float]:
    """Steps a second, and what the node's loop and the browser take of a core, with the page following or not."""
    page.evaluate("watched => (watched ? p2pnode.store.listen() : p2pnode.store.close())", watched)
    time.sleep(SETTLE)
    begun, steps, loop, browser = time.perf_counter(), local_steps(place), loop_seconds(process), browser_seconds()
    time.sleep(seconds)
    took = time.perf_counter() - begun
    work = local_steps(place) - steps, loop_seconds(process) - loop, browser_seconds() - browser
    return work[0] / took, work[1] / took, work[2] / took


def browser_seconds() -> float:
    """Processor time of all of Chromium."""
    found = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "chrom" in process.name():
                found += sum(process.cpu_times()[:2])
    return found


def training(browser: Any, quick: bool) -> Figures:
    seconds, pairs = (2.0, 6) if quick else (3.0, 60)
    losses, loops, browsers = [], [], []
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory, "node")
        with node(place, "--dashboard", "0", module="benchmarks.watched_node", WATCHED_PEERS=str(PEERS)) as process:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(page_address(place))
            until(page, DRAWN.format(PEERS))
            time.sleep(LAYOUT)
            page.evaluate("p2pnode.store.close()")
            for pair in range(pairs):
                order = (True, False) if pair % 2 else (False, True)
                found = {watched: block(place, process, page, watched, seconds) for watched in order}
                losses.append(1 - found[True][0] / found[False][0])
                loops.append(found[True][1] - found[False][1])
                browsers.append(found[True][2] - found[False][2])
                progress(f"{found[False][0]:.0f} steps/s alone, {found[True][0]:.0f} watched: {losses[-1]:+.1%}")
    return {
        "training_slowdown": middle(losses),
        "training_slowdown_quartiles": f"{percentile(losses, 0.25):.3f} {percentile(losses, 0.75):.3f}",
        "serving_cpu": mean(loops),
        "browser_cpu": mean(browsers),
        "pairs": pairs,
    }


def measure(arguments: argparse.Namespace) -> Figures:
    figures: Figures = {"bundle_kb": bundle_kb()}
    with browsing() as browser:
        for part in (training, loads_and_events, frames):
            figures |= part(browser, arguments.quick)
            progress(", ".join(f"{name} {value}" for name, value in figures.items()))
    return figures | rss_growth_mb(arguments.quick)


if __name__ == "__main__":
    run("watching", measure)
