"""A newcomer enters the circle that its own data fit, whatever the sizes, and stands where that circle stands."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from p2pnode.circles.advice import SPLIT
from p2pnode.config.options import Options
from p2pnode.config.split import SplitPart, parse_split
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.wire.status import NodeEvent
from tests.scenarios.test_forming_circles import FOREVER, Watched

LATE = SPLIT


class Latecomer(Watched):
    """The last node comes once its entry peer is known, with data of one kind: one half of the labels or the other."""

    entry = LATE
    kind = 0
    said: tuple[str, ...] = ()

    def restart(self, index: int) -> None:
        if index != LATE or self.entry != LATE:
            super().restart(index)

    def kind_of(self, index: int) -> int:
        return self.kind if index == LATE else index % 2

    def _options(self, index: int) -> Options:
        options = super()._options(index)
        train = replace(options.train, split=parse_split("labels:5"), part=SplitPart(self.kind_of(index), 2, 1))
        run = replace(options.run, bootstrap=(self.address(self.entry),)) if index == LATE else options.run
        return replace(options, run=run, train=train)

    def _note(self, index: int, event: NodeEvent) -> None:
        super()._note(index, event)
        if index == LATE and event.kind == "circle":
            self.said += (event.text,)


def test_a_newcomer_enters_by_what_its_data_teach() -> None:
    training = SimTraining(replace(SIMULATED, aim="own"), rounds=FOREVER, mean_steps=60.0)

    async def main() -> None:
        simulation = Latecomer(Scenario(peers=SPLIT + 1, seed=5, sample_every=0.0, training=training))
        await simulation.start()
        await simulation.go_on_until(60.0, circles=2)
        circles = simulation.circles()
        (name,) = [name for name in circles if name]
        simulation.kind = Counter(map(simulation.kind_of, circles[name])).most_common()[0][0]
        like = [index for index in circles[name] if simulation.kind_of(index) == simulation.kind]
        unlike = [index for index in circles[""] if simulation.kind_of(index) != simulation.kind]
        for index in {*range(SPLIT)} - {*like, *unlike[1:]}:  # one kind stays in each circle, and fewer in the other
            simulation.processes[index].node.leave()
        await simulation.go_on(15.0)  # all have new fingerprints
        simulation.entry = like[0]
        simulation.restart(LATE)
        await simulation.go_on(6.0)
        assert simulation.learning()[LATE].status().state.circle == name
        assert simulation.said == (f"in circle {name[:8]} now: {len(like)} members, most similar to this node",)
        await simulation.finish()

    with one_thread():
        run_sim(main())
