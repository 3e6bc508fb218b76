"""A local swarm of four nodes that learn one model together: four processes, each with its own libp2p daemon.

`make demo` runs it. Everybody has a part of the digits that is poor in some of the ten classes. Act 1: a founder starts
and two friends paste its invite. Act 2: one of them is killed and comes back with the same command. Act 3: a fourth
joins late. Act 4: all leave. Then the same training is done alone, and demo.png shows both.
Exit code 0 only if each node did better than alone, by the margins below, and nothing was lost.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from examples.demo_proof import Alone, close_the_books, draw, left_on_disk, plan_of
from examples.demo_stage import DemoNode, Failed, Stage, ended_afterwards, percent

PICTURE = Path("demo.png")
MARGIN = 0.10  # together must beat alone by so much on average
LEARN_TOGETHER = 10.0  # seconds before the accident, and again once all four are there
GONE = 2.0  # seconds until the killed node comes back
FOUNDER = ["--task", "digits", "--round-seconds", "0.5"]


class Demo:
    """The acts, in order; what happened when is kept for the picture."""

    def __init__(self, stage: Stage, root: Path) -> None:
        self.stage = stage
        self.root = root
        self.marks: dict[str, float] = {}

    def play(self) -> str:
        """All acts; returns the sentence to end with."""
        alice = self._start("alice", FOUNDER)
        self.stage.until("Act 1: alice founds a run to learn digits …", lambda: alice.learning)
        assert alice.status is not None
        run, plan = alice.status.run, plan_of(alice)
        invite = shlex.split(alice.status.invite)[3:]  # what follows `python -m p2pnode`
        friends = [self._start(name, invite) for name in ("bob", "carol")]
        alone = Alone(plan)
        alone.follow(self.stage.nodes)
        together = lambda: all(node.learning and node.peers == len(self.stage.nodes) - 1 for node in self.stage.nodes)  # noqa: E731
        self.stage.until("Act 1: bob and carol paste her invite …", together)
        self._learn("Act 1: three learn together …")
        before = self._accident(friends[0], invite)
        self.stage.until("Act 3: dave joins late and gets the weights from a member …", together)
        self._learn("Act 3: all four learn together …")
        received = self._leave()
        alone.finish(self.stage.nodes)
        policies = [left_on_disk(node, plan, run, alone.model_host) for node in self.stage.nodes]
        close_the_books(policies)
        _check_log(policies[1].author.rounds, before)
        accuracies = [
            node.learned.state.training.accuracy or 0.0 for node in self.stage.nodes if node.learned is not None
        ]
        return self._verdict(accuracies, received)

    def _start(self, name: str, arguments: list[str]) -> DemoNode:
        self.stage.nodes.append(DemoNode.start(name, self.root, arguments))
        return self.stage.nodes[-1]

    def _learn(self, what: str) -> None:
        end = self.stage.seconds + LEARN_TOGETHER
        self.stage.until(what, lambda: self.stage.seconds >= end)

    def _accident(self, victim: DemoNode, invite: list[str]) -> int:
        """Kill a node without warning and run its command again; returns the rounds it had published by then.

        The latecomer comes while it is away.
        """
        identity, before = victim.peer_id, victim.rounds
        victim.kill()
        self.marks[f"{victim.name} killed"] = self.stage.seconds
        end = self.stage.seconds + GONE
        self.stage.until(f"Act 2: {victim.name} was killed; the others go on …", lambda: self.stage.seconds >= end)
        self._start("dave", invite)
        self.marks["dave starts"] = self.stage.seconds
        victim.start_again()
        self.marks[f"{victim.name} starts again"] = self.stage.seconds
        back = lambda: victim.learning and victim.rounds > before  # noqa: E731
        self.stage.until(f"Act 2: {victim.name} runs the same command and goes on where it was …", back)
        if victim.peer_id != identity:
            raise Failed(f"{victim.name} came back under another identity")
        return before

    def _leave(self) -> int:
        """Everybody leaves; returns the bytes they received."""
        self.stage.look()
        received = sum(node.received for node in self.stage.nodes)
        self.stage.line = "Act 4: all leave; the same training is done alone …"
        for node in self.stage.nodes:
            node.process.terminate()
        codes = [node.process.wait(15) for node in self.stage.nodes]
        if any(codes):
            raise Failed(f"the nodes ended with exit codes {codes}")
        return received

    def _verdict(self, together: list[float], received: int) -> str:
        nodes = self.stage.nodes
        alone = [node.alone or 0.0 for node in nodes]
        mean, mean_alone = sum(together) / len(together), sum(alone) / len(alone)
        draw(nodes, self.marks, PICTURE)
        if mean < mean_alone + MARGIN or any(one <= other for one, other in zip(together, alone, strict=True)):
            raise Failed(f"together {percent(mean)}, alone {percent(mean_alone)}: less than {MARGIN:.0%} apart")
        return (
            f"Four nodes learned digits to {percent(mean)} together (worst {percent(min(together))}), against "
            f"{percent(mean_alone)} alone (best {percent(max(alone))}) with as many local steps; each received "
            f"{received / len(nodes) / 1000:.0f} kB; one was killed and one came late, and all ended with the same "
            f"weights, bit for bit. The curves are in {PICTURE}."
        )


def _check_log(rounds: int, before: int) -> None:
    if rounds <= before:
        raise Failed(f"the killed node's log has {rounds} rounds at the end, and had {before} before")


def main() -> int:
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="p2pnode-demo-") as directory, Stage(console) as stage:
        root = Path(directory)
        try:
            with ended_afterwards(stage):
                stage.line = Demo(stage, root).play()
        except Failed as failure:
            stage.line = f"The demo failed: {failure}"
            for log in sorted(root.glob("*.log")):
                console.print(f"--- last lines of {log.name}", *log.read_text().splitlines()[-8:], sep="\n")
            return 1
        finally:
            stage.line = f"{stage.line} ({stage.seconds:.0f} s)"
    return 0


if __name__ == "__main__":
    sys.exit(main())
