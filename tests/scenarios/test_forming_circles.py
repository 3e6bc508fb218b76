"""Unmodified nodes find their circles by themselves, stay calm in them, come back to them, and leave ones too small."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from p2pnode.circles.advice import FEWEST, MAX_CIRCLE, SPLIT
from p2pnode.circles.founding import circle_lineage
from p2pnode.config.split import parse_split
from p2pnode.jobs.train.job import TrainJob
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim, simulate
from p2pnode.simulate.compute import one_thread
from p2pnode.wire.run import GENESIS
from p2pnode.wire.status import NodeEvent
from tests.known import train_jobs
from tests.scenarios.test_training import policies

FOREVER = 100_000


class Watched(Simulation):
    """Counts how often nodes change circles."""

    changes = 0

    def _note(self, index: int, event: NodeEvent) -> None:
        super()._note(index, event)
        self.changes += event.kind == "circle"

    def learning(self) -> dict[int, TrainJob]:
        found = ((index, train_jobs(process.node).get("main")) for index, process in sorted(self.processes.items()))
        return {index: job for index, job in found if job is not None}

    def circles(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for index, learning in self.learning().items():
            found.setdefault(learning.status().state.circle, []).append(index)
        return found

    async def go_on_until(self, seconds: float, circles: int) -> None:
        """Until there are this many circles, at most `seconds`, and a little longer."""
        for _ in range(round(seconds / 2)):
            await self.go_on(2.0)
            if len(self.circles()) == circles:
                break
        await self.go_on(6.0)


def test_a_circle_splits_a_member_comes_back_to_it_and_what_is_left_of_it_joins_the_other() -> None:
    training = SimTraining(replace(SIMULATED, split=parse_split("dirichlet:0.3")), rounds=FOREVER)

    async def main() -> None:
        simulation = Watched(Scenario(peers=SPLIT + 1, seed=3, seconds=400.0, sample_every=0.0, training=training))
        await simulation.start()
        await simulation.go_on_until(60.0, circles=2)
        circles = simulation.circles()
        assert set(map(len, circles.values())) == {6, 7}
        assert "" in circles
        calm = simulation.changes
        assert calm <= 7, "each who leaves goes once"
        (name,) = [name for name in circles if name]
        back, *others = circles[name]
        simulation.crash(back)
        await simulation.go_on(3.0)
        simulation.restart(back)
        await simulation.go_on(12.0)
        again = simulation.learning()[back]
        assert again.status().state.circle == name, "it comes back to its circle"
        lineages = {policies(simulation)[index].set.rules.lineage for index in circles[name]}
        assert lineages == {circle_lineage(again._setup.genesis, name)}
        assert simulation.changes == calm
        for index in others[1:]:
            simulation.crash(index)
        await simulation.go_on_until(90.0, circles=1)
        assert list(simulation.circles()) == [""], "two are too few for a circle"
        simulation.rest()
        await simulation.go_on(20.0)
        hashes = {learning.policy.set.hash() for learning in simulation.learning().values()}  # type: ignore[attr-defined]
        assert len(hashes) == 1
        statuses = (await simulation.finish()).statuses
        assert not any(row.faults for status in statuses if status is not None for row in status.peers)

    with one_thread():
        run_sim(main())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("aim", ["shared", "own"])
def test_forty_peers_make_circles_of_a_good_size_and_rest(aim: str) -> None:
    result = simulate(40, task="digits", split="dirichlet:0.3", rounds=80, seed=4, aim=aim, alone=0)  # type: ignore[arg-type]
    sizes = list(result.circles().values())
    assert len(sizes) >= 3
    assert max(sizes) <= MAX_CIRCLE
    assert sum(size < FEWEST for size in sizes) <= 1, "one may be about to join another circle when the run ends"
    changes = Counter[str]()
    for graph, later in zip(result.pictures, result.pictures[1:], strict=False):
        before, now = ({peer.id: peer.job().circle or GENESIS for peer in seen.peers} for seen in (graph, later))
        changes.update(peer for peer, circle in now.items() if before.get(peer, GENESIS) != circle)
    assert max(changes.values()) <= 4
    assert sum(changes.values()) <= 2 * 40
    assert min(result.accuracies()) > 0.85
