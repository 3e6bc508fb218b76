"""A node in a swarm several times its table: what it asks for stays the same, and it goes on hearing of others."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from benchmarks.directory_load import Crowd, Watched, counted
from p2pnode.discovery.table import PeerTable
from p2pnode.network.sim import Fault
from p2pnode.simulate import Scenario, run_scenario, run_sim

SETTLING, WATCHING = 150.0, 450.0


class Unread(Watched):
    """Reads nothing of those it has met, as in a directory of very many keys."""

    async def read_directory(self, thorough: bool = True) -> bool:
        self.table.crowd = True
        return False


def asked_for(peers: int, table: int) -> dict[str, float]:
    """What a node that has joined `peers` others asks for per minute."""

    async def main() -> dict[str, float]:
        crowd = Crowd(peers)
        async with crowd.there():
            node = Watched(crowd, table)
            life = asyncio.create_task(node.live())
            figures = {name: float(value) for name, value in (await counted([node], SETTLING, WATCHING)).items()}
            figures["listed"] = sum(peer.listed for peer in node.table)
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
        return figures

    return run_sim(main())


@pytest.mark.parametrize("peers", [80, 160])
def test_reads_greetings_and_pings_do_not_grow_with_the_swarm(peers: int) -> None:
    figures = asked_for(peers, table=20)
    assert figures["peers_known"] == 20
    assert figures["listed"] >= 10
    assert 0 < figures["reads_per_minute"] <= 1
    assert figures["records_per_minute"] <= figures["reads_per_minute"] * (peers + 2), "one storer is asked"
    assert figures["greetings_per_minute"] <= 20
    assert figures["pings_per_minute"] <= 60
    assert figures["asked_for_peers_per_minute"] <= 2, "at most, of those it contacts once a minute"


def test_a_newcomer_to_a_crowd_of_nodes_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pnode.discovery.services.PeerTable", partial(PeerTable, max_peers=6))
    late = Fault(0.0, "crash", (23,), seconds=180.0)
    result = run_scenario(Scenario(peers=24, seed=3, seconds=240.0, faults=(late,)))
    known = [[row.name for row in status.peers if row.present] for status in result.statuses if status is not None]
    assert len(known) == 24
    assert all(5 <= len(names) <= 6 for names in known), "a table of six, where one of them may just have gone"
    assert 3 <= sum("n23" in names for names in known) <= 12, "as anyone is: by six in the mean"
    assert result.message_counts["call"] <= 75 * 24 * 4, (
        "a node and minute, most of them pings: a peer that is named is tried"
    )
    assert result.message_counts["nearest"] <= 5 * 24 * 4, "a node and minute, with the many of the beginning"


def test_those_spoken_with_are_not_forgotten_though_nothing_is_read_of_them() -> None:
    async def main() -> None:
        crowd = Crowd(3)
        async with crowd.there():
            node = Unread(crowd, table=20)
            life = asyncio.create_task(node.live())
            await asyncio.sleep(60.0)
            before = node.counts.copy()
            for _ in range(90):
                await asyncio.sleep(10.0)
                assert len(node.table) == 3
            assert node.counts["GetPeers"] == before["GetPeers"], "nobody names them either"
            assert node.counts["Hello"] - before["Hello"] <= 4 * 3, "one each before their word runs out"
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    run_sim(main())
