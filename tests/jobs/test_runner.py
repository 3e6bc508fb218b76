"""Kinds of jobs from outside packages, and jobs whose ends are kept apart."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from p2pnode.config.options import JobOptions, Options, RunOptions, TrainOptions
from p2pnode.discovery.announcing import SelfDescription
from p2pnode.discovery.membership import Membership
from p2pnode.discovery.services import make_services
from p2pnode.jobs.registry import KINDS, known_kinds, load_kind
from p2pnode.jobs.runner import JobRunner
from p2pnode.network.sim import SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.runtime.seams import Seams, inline
from p2pnode.simulate import SimClock
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.errors import LocalProblem, PeerRefused, UsageError
from p2pnode.wire.ids import Identity
from p2pnode.wire.messages import JobAnnouncement
from p2pnode.wire.run import JobEntry, Manifest, RunAccess
from p2pnode.wire.status import NodeEvent

ME = Identity(b"m" * 32)
RUN = RunAccess.parse("abcdefghijklmnopqrstuvwxyz")
COUNTING = '''
import asyncio
from p2pnode.jobs.contract import Job, JobKind, JobPace, options_reader
from p2pnode.wire.control import ControlAnswer
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.messages import JobAnnouncement
from p2pnode.wire.status import Figure, JobState, JobStatus
from dataclasses import dataclass

@dataclass
class CountOptions:
    to: int = 1
    slowly: bool = False

class Counting(Job):
    """Counts to a number, and then has reached its goal, or fails."""

    unreplicated = 1

    def __init__(self, plan, context):
        super().__init__(context)
        self.to, self.fails = plan["to"], plan.get("fails", "")
        self.count, self.saved, self.handed_over = 0, 0, 0.0

    async def run(self):
        async with asyncio.TaskGroup() as group:
            await group.create_task(self._run())
        return f"counted to {self.count}"

    async def _run(self):
        while self.count < self.to:
            await self.context.services.seams.compute(lambda: None)
            await asyncio.sleep(1.0)
            self.count += 1
        if self.fails == "bug":
            raise ZeroDivisionError("a mistake in the package")
        if self.fails:
            raise LocalProblem(self.fails)

    async def save(self, limit=None): self.saved += 1
    async def hand_over(self, limit): self.handed_over = limit
    def announcement(self): return JobAnnouncement(self.name, "circle")
    def pace(self): return JobPace(self.count, 1, 1.0)
    def status(self): return JobStatus(state=JobState(figures=(Figure("count", self.count),)))
    async def execute(self, request): return ControlAnswer(said=f"{self.name} is at {self.count}")

class Raising(Counting):
    """Its author forgot something that only shows when it is asked."""

    def __init__(self, plan, context):
        super().__init__(plan, context)
        self.to = 1000

        def broken(*arguments): raise KeyError("figure")

        if plan["raises"] != "unreplicated":
            setattr(self, plan["raises"], broken)
        else:
            Raising.unreplicated = property(broken)

class Plain(Job):
    async def run(self): return "nothing to do"
    def status(self): return JobStatus()

async def found(options, services): return {"to": options.to}
async def prepare(plan, options, context): return (Raising if "raises" in plan else Counting)(plan, context)
async def prepare_plain(plan, options, context): return Plain(context)

KIND = JobKind(options_reader(CountOptions), found, prepare)
PLAIN = JobKind(options_reader(CountOptions), found, prepare_plain)
WRONG = object()
'''


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that offers a kind of job, and one that is no kind."""
    (tmp_path / "counting_jobs.py").write_text(COUNTING)
    info = tmp_path / "counting_jobs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting-jobs\nVersion: 1\n")
    points = {"count": "KIND", "plain": "PLAIN", "wrong": "WRONG", "gone": "NOTHING", "train": "KIND"}
    lines = [f"{name} = counting_jobs:{attribute}" for name, attribute in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[p2pnode.jobs]", *lines]))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("counting_jobs", None)


class Running:
    """A runner with what it needs, and what it said."""

    def __init__(self, options: Options | None = None) -> None:
        seams = Seams(SimClock(0.0), random.Random(1), MemoryStorage(), inline)
        self.services = make_services(ME, seams, SimSwarm(1).network(ME.peer_id))
        self.events: list[NodeEvent] = []
        self.services.events.listen(self.events.append)
        self.runner = JobRunner(self.services, options or Options())
        self.membership = Membership(
            SelfDescription("me", "node", RUN.tag, (), self.runner.announcements), self.services
        )

    async def run(self, kind: str = "count", **plans: dict[str, Any]) -> str:
        entries = tuple(JobEntry(name, kind, plan) for name, plan in plans.items())
        manifest = Manifest("run", ME.peer_id, 1.0, b"nonce", jobs=entries)
        self.runner.enter(manifest)
        return await self.runner.run(manifest, RUN, self.membership)

    def said(self, kind: str) -> list[str]:
        return [event.text for event in self.events if event.kind == kind]


def in_time(main: Callable[[], Any]) -> None:
    run_virtual(main())


# ---- the registry ----


@pytest.mark.usefixtures("counting")
def test_a_package_adds_a_kind_by_an_entry_point_but_cannot_replace_a_built_in_one() -> None:
    assert known_kinds()["count"] == "counting_jobs:KIND"
    assert known_kinds()["train"] == "p2pnode.jobs.train.prepare:KIND"
    assert load_kind("count") is sys.modules["counting_jobs"].KIND


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize(
    ("name", "message"),
    [("coun", "did you mean 'count'"), ("wrong", "is no p2pnode.jobs.contract.JobKind"), ("gone", "cannot be loaded")],
)
def test_a_kind_that_cannot_be_used_gets_one_line(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_kind(name)


def test_naming_kinds_imports_neither_torch_nor_numpy() -> None:
    program = "import sys, p2pnode.jobs.registry, p2pnode.jobs.train.plan; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ---- running ----


@pytest.mark.usefixtures("counting")
def test_a_run_is_founded_with_the_plans_that_its_kinds_make() -> None:
    async def main() -> None:
        jobs = tuple(JobOptions(name, "count", {"to": to}) for name, to in (("a", "3"), ("b", 5)))
        entries = await Running(Options(jobs=jobs)).runner.found()
        assert entries == (JobEntry("a", "count", {"to": 3}), JobEntry("b", "count", {"to": 5}))
        assert await Running(Options(run=RunOptions(meet_only=True))).runner.found() == ()

    in_time(main)


@pytest.mark.usefixtures("counting")
def test_jobs_go_on_until_each_has_reached_its_goal() -> None:
    async def main() -> None:
        node = Running()
        assert await node.run(a={"to": 3}, b={"to": 5}) == "a: counted to 3; b: counted to 5"
        assert node.said("job ended") == ["a: counted to 3", "b: counted to 5"]
        assert not any(event.warning for event in node.events)
        assert {name: (status.condition, status.reason) for name, status in node.runner.status().items()} == {
            "a": ("ended", "counted to 3"),
            "b": ("ended", "counted to 5"),
        }
        assert node.runner.routes("a") is not None, "what was reached may still be asked for"
        assert await Running().run(only={"to": 2}) == "counted to 2"

    in_time(main)


@pytest.mark.usefixtures("counting")
def test_a_problem_ends_one_of_several_jobs_and_the_others_go_on() -> None:
    async def main() -> None:
        node = Running()
        working = asyncio.create_task(node.run(bad={"to": 1, "fails": "the disk is full"}, good={"to": 4}))
        await asyncio.sleep(2.0)
        assert list(node.runner.jobs) == ["good"]
        assert node.runner.routes("bad") is None
        assert node.runner.announcements() == (JobAnnouncement("good", "circle"),), "it is no longer announced"
        status = node.runner.status()
        assert (status["bad"].condition, status["bad"].reason) == ("ended", "the disk is full")
        assert status["bad"].state.figures[0].value == 1, "where it was when it ended"
        assert status["bad"].kind == "count"
        assert status["good"].condition == "running"
        with pytest.raises(LocalProblem, match="has ended: the disk is full"):
            await node.runner.execute(ControlRequest("log", job="bad"))
        assert await working == "good: counted to 4"
        (event,) = [event for event in node.events if event.text == "bad: the disk is full"]
        assert (event.kind, event.warning) == ("job ended", True)

    in_time(main)


@pytest.mark.usefixtures("counting")
def test_the_problem_of_the_only_job_or_of_all_jobs_ends_the_node() -> None:
    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:  # as task groups wrap it
            await _raised(Running().run(only={"to": 1, "fails": "no data"}))
        assert [str(error) for error in caught.value.exceptions] == ["no data"]
        with pytest.raises(ExceptionGroup) as caught:
            await _raised(Running().run(a={"to": 1, "fails": "first"}, b={"to": 2, "fails": "last"}))
        assert [str(error) for error in caught.value.exceptions] == ["last"]

    async def _raised(working: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(working)

    in_time(main)


@pytest.mark.usefixtures("counting")
def test_a_mistake_in_a_package_ends_its_job_and_says_where() -> None:
    async def main() -> None:
        node = Running()
        assert await node.run(bad={"to": 1, "fails": "bug"}, good={"to": 3}) == "good: counted to 3"
        reason = node.runner.status()["bad"].reason
        assert "kind 'count' failed: ZeroDivisionError: a mistake in the package (" in reason
        assert "counting_jobs.py:" in reason

    in_time(main)


@pytest.mark.usefixtures("counting")
def test_a_mistake_in_this_program_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "count", "counting_jobs:KIND")

    async def main() -> None:
        with pytest.raises(BaseExceptionGroup) as caught:
            await Running().run(bad={"to": 1, "fails": "bug"}, good={"to": 100})
        assert caught.group_contains(ZeroDivisionError)

    in_time(main)


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slowy": "3"}, "the job 'a' has no option 'slowy'; did you mean 'slowly'?"),
        ({"to": "many"}, "the job 'a': to: Expected `int`, got `str`"),
    ],
)
def test_a_kind_checks_its_own_options(given: dict[str, str], message: str) -> None:
    async def main() -> None:
        with pytest.raises(UsageError) as caught:
            await Running(Options(jobs=(JobOptions("a", "count", given),))).runner.found()
        assert str(caught.value) == message

    in_time(main)


@pytest.mark.usefixtures("counting")
def test_options_for_another_kind_than_the_runs_are_refused() -> None:
    async def main() -> None:
        node = Running(Options(jobs=(JobOptions("a", "train"),)))
        assert await node.run(a={"to": 1}, b={"to": 2}) == "b: counted to 2"
        assert node.runner.status()["a"].reason.startswith("--job a: its kind is 'count' in this run, not 'train'")

    in_time(main)


@pytest.mark.usefixtures("counting")
def test_a_kind_need_only_say_how_it_runs_and_goes() -> None:
    async def main() -> None:
        node = Running()
        assert await node.run("plain", a={}) == "nothing to do"
        (job,) = node.runner.jobs.values()
        assert node.runner.announcements() == (JobAnnouncement("a"),)
        assert (node.runner.unreplicated, job.pace(), job.describe([]), job.exchanges()) == (0, None, (), ())
        await node.runner.save(1.0)
        await node.runner.hand_over()
        with pytest.raises(UsageError, match="the job 'a' knows no 'blame'"):
            await job.execute(ControlRequest("blame"))
        with pytest.raises(PeerRefused):
            job.routes.read(b"anything")
        assert node.runner.status()["a"].kind == "plain"

    in_time(main)


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize(
    "method", ["status", "describe", "exchanges", "shard_rows", "pace", "announcement", "unreplicated"]
)
def test_a_package_that_raises_where_it_is_asked_ends_its_job_and_not_the_node(method: str) -> None:
    async def main() -> None:
        node = Running()
        asks: dict[str, Callable[[], object]] = {
            "status": node.runner.status,
            "describe": lambda: node.runner.describe(()),
            "exchanges": lambda: list(node.runner.exchanges()),
            "shard_rows": node.runner.shard_rows,
            "pace": node.runner.paces,
            "announcement": node.runner.announcements,
            "unreplicated": lambda: node.runner.unreplicated,
        }
        working = asyncio.create_task(node.run(bad={"to": 1, "raises": method}, good={"to": 5}))
        await asyncio.sleep(1.5)
        asks[method]()
        assert await working == "good: counted to 5"
        asks[method]()
        assert node.said("job ended")[0].startswith("bad: the package of the job kind 'count' failed: KeyError")
        status = node.runner.status()
        assert (status["bad"].condition, status["good"].condition) == ("ended", "ended")
        assert "KeyError: 'figure'" in status["bad"].reason

    in_time(main)


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("method", ["save", "hand_over", "execute"])
def test_a_package_that_raises_in_one_method_costs_only_that(method: str) -> None:
    async def main() -> None:
        node = Running()
        working = asyncio.create_task(node.run(bad={"to": 1, "raises": method}, good={"to": 5}))
        await asyncio.sleep(1.5)
        if method == "execute":
            with pytest.raises(LocalProblem, match="'count' failed: KeyError"):
                await node.runner.execute(ControlRequest("log", job="bad"))
        else:
            await (node.runner.save(1.0) if method == "save" else node.runner.hand_over())
            assert any("KeyError: 'figure'" in event.text for event in node.events if event.warning)
        good = node.runner.jobs["good"]
        assert (good.saved, good.handed_over > 0) == (method == "save", method == "hand_over")  # type: ignore[attr-defined]
        working.cancel()

    in_time(main)


@pytest.mark.usefixtures("counting")
def test_orders_and_paces_go_by_job() -> None:
    async def main() -> None:
        node = Running()
        assert node.runner.announcements() is None, "the node does not know its run yet"
        working = asyncio.create_task(node.run(a={"to": 10}, b={"to": 10}))
        await asyncio.sleep(0)
        assert set(node.runner.paces().values()) <= {None, (0, 1, 1.0)}
        await asyncio.sleep(3.5)
        assert (await node.runner.execute(ControlRequest("log"))).said == "a is at 3", "the first where none is named"
        assert (await node.runner.execute(ControlRequest("log", job="b"))).said == "b is at 3"
        with pytest.raises(UsageError, match="no job 'c'"):
            await node.runner.execute(ControlRequest("log", job="c"))
        assert node.runner.paces() == {"a": (3, 1, 1.0), "b": (3, 1, 1.0)}
        assert node.runner.unreplicated == 2
        await node.runner.save(1.0)
        await node.runner.hand_over()
        assert {(job.saved, job.handed_over) for job in node.runner.jobs.values()} == {(1, 20.0)}  # type: ignore[attr-defined]
        working.cancel()

    in_time(main)


@pytest.mark.usefixtures("counting")
def test_the_user_chooses_among_the_jobs_of_the_run() -> None:
    async def main() -> None:
        node = Running(Options(only=("b",)))
        assert await node.run(a={"to": 1}, b={"to": 2}) == "counted to 2"
        assert node.runner.names == ("b",)
        with pytest.raises(UsageError, match="the run has no job 'c'"):
            await Running(Options(only=("c",))).run(a={"to": 1})
        with pytest.raises(UsageError, match="which learns nothing"):
            await Running(Options(train=TrainOptions(task="digits"))).run()

    in_time(main)


@pytest.mark.usefixtures("counting")
def test_events_name_the_job_only_where_there_are_several() -> None:
    async def main() -> None:
        node = Running()
        asyncio.get_running_loop().call_later(0.5, lambda: _say(node))
        await node.run(a={"to": 1}, b={"to": 1})
        assert node.said("progress") == ["a: so far", "b: so far"]
        alone = Running()
        asyncio.get_running_loop().call_later(0.5, lambda: _say(alone))
        await alone.run(a={"to": 1})
        assert alone.said("progress") == ["so far"]

    def _say(node: Running) -> None:
        for job in node.runner.jobs.values():
            job.context.services.events.say("progress", "so far")  # type: ignore[attr-defined]

    in_time(main)
