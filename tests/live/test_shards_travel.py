"""Two real nodes with unlike data that may travel: a shard comes, is trained on, and its journey can be asked for."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from p2pnode.node.control import ask
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.errors import LocalProblem
from tests.live.cli_nodes import NodeProcess, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("learning")]
SHARE = ("--split", "labels:5", "--share-data")


@pytest.fixture
def nodes(tmp_path) -> Iterator[list[NodeProcess]]:
    ann = NodeProcess(tmp_path, "ann", "--name", "ann", "--round-seconds", "0.2", *SHARE, "--part", "1/2", learns=True)
    nodes = [ann]
    try:
        nodes.append(NodeProcess(tmp_path, "bob", argv=[*pasted(ann.invite()), *SHARE, "--part", "2/2"], learns=True))
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def shards(node: NodeProcess, shard: str = "") -> list[dict[str, Any]]:
    """What `shards --json` prints, without starting a process for it; nothing while the node does not answer."""
    try:
        return list(msgspec.to_builtins(ask(node.data_dir, ControlRequest("shards", shard=shard)).shards))
    except LocalProblem:
        return []


def travelled(node: NodeProcess) -> dict[str, Any] | None:
    """A shard of the other node that was trained on at both; one that has just come back has no confidence yet."""
    for row in shards(node):
        if row["received"] and row["visits"] > 1 and row["confidence"] is not None:
            for found in shards(node, row["id"]):  # none, if it has just gone
                if len({visit["model"] for visit in found["journey"]}) == 2 and found["confidence"] is not None:
                    return found
    return None


def test_a_shard_travels_and_its_journey_shows(nodes):
    ann, bob = nodes

    def somewhere() -> tuple[NodeProcess, dict[str, Any]] | None:
        return next(((node, found) for node in (bob, ann) if (found := travelled(node))), None)

    here, found = wait_for("a shard that both have trained on", somewhere, 90)
    assert found["samples"] > 50 and found["confidence"] > 0
    times = [visit["time"] for visit in found["journey"]]
    assert times == sorted(times)
    assert "confidence" in here.ask("shards").stdout
    assert json.loads(here.ask("shards", "--json").stdout)["shards"][0].keys() == found.keys()

    def journey() -> str:
        """In words, of a shard that may travel on before they are asked for."""
        node, shard = wait_for("a shard that both have trained on", somewhere, 90)
        return node.ask("shards", shard["id"][:8]).stdout

    wait_for("the journey of a shard", lambda: "held by" in journey(), 90)
    check_leaving(*((ann, bob) if here is bob else (bob, ann)))
    nothing = here.ask("shards", "zz")
    assert nothing.returncode != 0 and "no shard here begins with 'zz'" in nothing.stderr


def check_leaving(leaver: NodeProcess, other: NodeProcess) -> None:
    """Who leaves hands over what is only there; the other holds all shards then."""
    before = {row["id"] for node in (leaver, other) for row in shards(node)}
    leaver.signalled(signal.SIGTERM)
    assert leaver.process.returncode == 0, leaver.err
    assert "only here; handing over before leaving" in leaver.out
    me = other.status()["id"]

    def holds_all() -> bool:
        return {row["id"] for row in shards(other) if row["holder"] == me} == before

    wait_for("the other to hold all shards", holds_all, 20)
