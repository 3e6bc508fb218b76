"""Processes of one run with queues: owners are killed and stopped, others take over, and all agree again."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.swarm_net import NoNamespaces
from tests.live.cli_nodes import NodeProcess, pasted, wait_for
from tests.live.namespaces import Internet, local_network
from tests.live.queue_nodes import all_applied, applied, exported, figure_of, has_applied, owner_of, queues_of

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("learning")]
LIMIT = 90.0
MODELS = ("--model", "small=digits,hidden=8", "--model", "wide=digits,hidden=32")
IN_PYTHON = """
import p2pnode, sys
models = {"small": ("digits", {"hidden": 8}), "wide": {"task": "digits", "hidden": 32}}
p2pnode.run(p2pnode.Queues(models, name="zoo"), sys.argv[1])
"""


@pytest.fixture
def nodes() -> Iterator[list[NodeProcess]]:
    started: list[NodeProcess] = []
    yield started
    for node in started:
        node.stop()


def test_an_owner_that_is_killed_is_replaced(tmp_path: Path, nodes: list[NodeProcess]) -> None:
    ann = NodeProcess(tmp_path, "ann", "--job", "zoo,kind=queues,lease=4,reallocate=600", *MODELS, learns=True)
    nodes.append(ann)
    invite = pasted(ann.invite())[3:]
    ben = NodeProcess(tmp_path, "ben", *invite, learns=True)
    cat = NodeProcess(tmp_path, "cat", argv=[sys.executable, "-c", IN_PYTHON, invite[-1]], learns=True)
    nodes += [ben, cat]
    for node in nodes:
        wait_for(f"items of both queues at {node.data_dir.name}", lambda node=node: has_applied(node, 10), LIMIT)  # type: ignore[misc]
    other = ben.ask("queues", "pause", "small")
    assert other.returncode != 0 and "only the run's founder can change its queues" in other.stderr
    added = ann.ask("queues", "add", "deep=digits,hidden=12", seconds=60.0)
    assert added.returncode == 0 and "added the model deep" in added.stdout, added.stderr
    wait_for("that cat trains the new model", lambda: queues_of(cat).get("deep", {}).get("applied", 0) >= 5, LIMIT)
    # The founder began; on a busy machine a lease of 4 s may have moved since, so ask who owns the queue now.
    by_id = {node.status()["id"]: node for node in nodes}
    first = wait_for("an owner", lambda: (owner := owner_of("wide", ann)) in by_id and owner, LIMIT)
    killed = by_id[first]
    survivors = [node for node in nodes if node is not killed]
    watcher = survivors[0]

    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    wait_for("another owner", lambda: owner_of("wide", watcher) not in ("", first), LIMIT)
    before = applied(watcher)
    wait_for("that it applies items", lambda: has_applied(watcher, 10, before), LIMIT)
    assert queues_of(watcher)["wide"]["term"] >= 1

    again = NodeProcess(tmp_path, killed.data_dir.name, learns=True)
    nodes.append(again)
    everyone = [again, *survivors]
    wait_for("the old owner to follow", lambda: has_applied(again, 10, before), LIMIT)
    for node in everyone:
        node.ask("pause")

    digests = lambda: {exported(node, tmp_path, "wide") for node in everyone}  # noqa: E731
    wait_for("equal weights at all nodes", lambda: len(digests()) == 1, LIMIT)
    wrong = watcher.ask("export", str(tmp_path / "one.pt"), "--job", "zoo")
    assert wrong.returncode != 0 and "say which model, as in --job zoo/small" in wrong.stderr
    for node in everyone:
        node.signalled(signal.SIGINT, 20.0)
        assert node.left_behind() == []


@pytest.mark.slow
def test_twenty_kills_lose_nothing(tmp_path: Path, nodes: list[NodeProcess]) -> None:
    """Two of four nodes are killed at a time, ten times; then each node's items are applied, and all logs are equal."""
    names, running = ("ann", "ben", "cat", "dan"), {}
    running["ann"] = NodeProcess(tmp_path, "ann", "--job", "zoo,kind=queues,lease=4", *MODELS, learns=True)
    nodes.append(running["ann"])
    invite = pasted(running["ann"].invite())[3:]
    for name in names[1:]:
        running[name] = NodeProcess(tmp_path, name, *invite, learns=True)
        nodes.append(running[name])
    wait_for("items of both queues", lambda: all(has_applied(node, 5) for node in running.values()), LIMIT)
    for number in range(10):
        victims = [names[number % 4], names[(number + 1 + number // 4 % 3) % 4]]
        for name in victims:
            running[name].process.send_signal(signal.SIGKILL)
            running[name].process.wait()
        watcher = next(node for name, node in running.items() if name not in victims)
        before = applied(watcher)
        for name in victims:
            running[name] = NodeProcess(tmp_path, name, learns=True)
            nodes.append(running[name])
        wait_for(f"items after kill {number}", lambda: has_applied(watcher, 3, before), LIMIT)  # noqa: B023
        back = [running[name] for name in victims]
        wait_for("the killed ones", lambda: all(queues_of(node) for node in back), LIMIT)  # noqa: B023
    for node in running.values():
        node.ask("pause")
    wait_for("that all items are applied", lambda: all_applied(running.values()), LIMIT)
    for model in ("small", "wide"):
        digests = lambda: {exported(node, tmp_path, model) for node in running.values()}  # noqa: E731, B023
        wait_for(f"equal weights of {model}", lambda: len(digests()) == 1, LIMIT)  # noqa: B023


@pytest.fixture
def network() -> Iterator[Internet]:
    try:
        with local_network() as made:
            yield made
    except NoNamespaces as problem:
        pytest.skip(str(problem))


@pytest.mark.slow
@pytest.mark.nat
def test_owners_that_stand_still_or_are_cut_off_lose_nothing(
    tmp_path: Path, nodes: list[NodeProcess], network: Internet
) -> None:
    """One owner is stopped for longer than its lease and goes on, the next one's cable is pulled and put back."""

    def start(name: str, *arguments: str) -> NodeProcess:
        command = network.inside(name, sys.executable, "-m", "p2pnode", *arguments, "--listen", "/ip4/0.0.0.0/tcp/0")
        nodes.append(NodeProcess(tmp_path, name, argv=command, learns=True))
        return nodes[-1]

    ann = start("ann", "--job", "zoo,kind=queues,lease=4,reallocate=600", *MODELS)
    invite = pasted(ann.invite())[3:]
    everyone = {"ann": ann, "bob": start("bob", *invite), "eve": start("eve", *invite)}
    wait_for("items of both queues", lambda: all(has_applied(node, 10) for node in nodes), LIMIT)
    by_id = {node.status()["id"]: name for name, node in everyone.items()}

    def owner(node: NodeProcess) -> str:
        return wait_for("an owner", lambda: by_id.get(owner_of("wide", node)), LIMIT)

    def another_takes_over(victim: str, watcher: NodeProcess) -> None:
        wait_for("another owner", lambda: by_id.get(owner_of("wide", watcher), victim) != victim, LIMIT)
        before = applied(watcher)["wide"]
        wait_for("that it applies items", lambda: applied(watcher)["wide"] >= before + 10, LIMIT)

    def is_back(victim: str, watcher: NodeProcess) -> None:
        """The old owner follows the new one."""
        term = queues_of(watcher)["wide"]["term"]
        known = lambda: queues_of(everyone[victim]).get("wide", {}).get("term")  # noqa: E731
        wait_for("that it follows", lambda: (known() or 0) >= term, LIMIT)

    stopped = owner(ann)
    watcher = next(node for name, node in everyone.items() if name != stopped)
    everyone[stopped].process.send_signal(signal.SIGSTOP)
    another_takes_over(stopped, watcher)
    everyone[stopped].process.send_signal(signal.SIGCONT)
    is_back(stopped, watcher)

    cut = owner(watcher)
    watcher = next(node for name, node in everyone.items() if name != cut)
    network.cut_off(cut)
    another_takes_over(cut, watcher)
    network.reconnect(cut)
    is_back(cut, watcher)

    for node in nodes:
        node.ask("pause")
    wait_for("that all items are applied", lambda: all_applied(nodes), LIMIT)
    for model in ("small", "wide"):
        digests = lambda: {exported(node, tmp_path, model) for node in nodes}  # noqa: E731, B023
        wait_for(f"equal weights of {model}", lambda: len(digests()) == 1, LIMIT)  # noqa: B023
    made = sum(figure_of(node, "items_trained") or 0 for node in nodes)
    assert [sum(applied(node).values()) for node in nodes] == [made] * 3, "every item was applied exactly once"
