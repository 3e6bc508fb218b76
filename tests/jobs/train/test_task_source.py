"""Task files of a founder: what the plan says of them, who gets them, and that nothing runs which nobody accepted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from p2pnode.config.options import Options, TrainOptions
from p2pnode.discovery.services import make_services
from p2pnode.jobs.contract import JobSettings
from p2pnode.jobs.offers import Admission, FileOffer
from p2pnode.jobs.train import task_source as module
from p2pnode.jobs.train.plan import PlanPackage, TaskSource, TrainPlan, read_plan, write_plan
from p2pnode.jobs.train.saved_task import load_task_options, save_task
from p2pnode.jobs.train.task_source import admit, keep_copy, offered, task_options, task_package, task_source
from p2pnode.network.sim import SimSwarm
from p2pnode.runtime.seams import Seams, SystemClock, inline
from p2pnode.storage.files import DiskStorage, MemoryStorage
from p2pnode.wire.errors import LocalProblem, PeerRefused, UsageError
from p2pnode.wire.ids import Identity, PeerId, sha256
from p2pnode.wire.messages import MAX_JOB_FILE_BYTES, GetJobFile, JobFileIs

ME = Identity(b"1" * 32)
ANN, EVE = PeerId("ann"), PeerId("eve")
CONTENT = b"from p2pnode import Task\n\nclass Mine(Task): ...\n"
SOURCE = TaskSource("mine.py", len(CONTENT), sha256(CONTENT).hex())
FOLDER = "runs/R/main"
COPY = f"{FOLDER}/mine.py"
PLAN = TrainPlan("mine", "1", {}, 10, "0" * 64, "0" * 64, "0" * 64, 1, source=SOURCE)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FETCH_PAUSE", 0.0)


class Joining:
    """A node about to join: what it is asked, which peers it asks, and what is left on its disk."""

    def __init__(
        self, files: Mapping[PeerId, bytes] | None = None, answer: bool | None = None, storage: Any = None
    ) -> None:
        self.storage = storage or MemoryStorage()
        seams = Seams(SystemClock(), random.Random(1), self.storage, inline)
        self.services = make_services(ME, seams, SimSwarm(seed=1).network(ME.peer_id))
        self.offers: list[FileOffer] = []
        self._files = {ANN: CONTENT} if files is None else files
        self._answer = answer

    async def ask(self, peer: PeerId, request: GetJobFile, expected: type[JobFileIs], timeout: float) -> JobFileIs:
        assert request == GetJobFile("main")
        if peer not in self._files:
            raise PeerRefused("no file")
        return JobFileIs(self._files[peer])

    async def members(self) -> list[PeerId]:
        return [EVE, ANN]

    async def consent(self, offer: FileOffer) -> bool | None:
        assert self.storage.read(COPY) == CONTENT, "there is something to read when the question comes"
        self.offers.append(offer)
        return self._answer

    def admit(self, options: TrainOptions | None = None, plan: TrainPlan = PLAN) -> None:
        calls: Any = self
        admission = Admission("run of ann", "main", FOLDER, calls, self.members, self.services, self.consent)
        settings = JobSettings("main", {}, Options(train=options or TrainOptions()), True)
        asyncio.run(admit(write_plan(plan), settings, admission))

    def used(self) -> str | None:
        """The task that a start from here would load."""
        task = load_task_options(self.storage, FOLDER, TrainOptions()).task
        return task and task[task.index("runs/") :]

    def events(self) -> str:
        return "\n".join(event.text for event in self.services.events.latest())


# ---- the founder ----


def test_a_file_is_described_and_given_to_those_who_join(tmp_path: Path) -> None:
    file = tmp_path / "my-task.py"
    file.write_bytes(CONTENT)
    source, note = task_source(f"{file}:Mine")
    assert source == TaskSource("my_task.py", len(CONTENT), SOURCE.sha256, ":Mine")
    assert f"shown my_task.py ({len(CONTENT)} bytes, sha256 {SOURCE.sha256}) and asked" in note
    storage, plan = MemoryStorage(), replace_plan(source=source)
    assert offered(write_plan(plan), storage, FOLDER) is None
    keep_copy(plan, TrainOptions(str(file)), storage, FOLDER)
    assert offered(write_plan(plan), storage, FOLDER) == CONTENT
    file.write_bytes(b"changed")
    keep_copy(plan, TrainOptions(str(file)), storage, FOLDER)
    assert offered(write_plan(plan), storage, FOLDER) == CONTENT, "what was founded stays"
    storage.write(f"{FOLDER}/my_task.py", b"damaged")
    assert offered(write_plan(plan), storage, FOLDER) is None, "nothing but the run's file is given"


def replace_plan(**values: Any) -> TrainPlan:
    return msgspec.structs.replace(PLAN, **values)


def test_the_founder_learns_what_cannot_be_offered(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(b"#" * (MAX_JOB_FILE_BYTES + 1))
    source, note = task_source(str(file))
    assert source is None
    assert "send it to them, for --task: it has 262,145 bytes, and at most 262,144 can be offered" in note
    (tmp_path / "helper.py").touch()
    file.write_text("import torch\ndef f():\n    from helper import g\n")
    source, note = task_source(str(file))
    assert source is None
    assert "it imports helper from its directory, and only a single file" in note
    assert task_source("package.module:Class")[1].startswith("those who join need the module of --task package.module")
    assert task_source("digits") == task_source(None) == (None, "")


class Package:
    """An installed package, as importlib.metadata shows it."""

    name, version = "spirals-task", "1.2"

    def __init__(self, origin: str | None) -> None:
        self._origin = origin

    def read_text(self, file: str) -> str | None:
        assert file == "direct_url.json"
        return self._origin


@pytest.mark.parametrize(
    ("origin", "install"),
    [
        (None, "spirals-task==1.2"),
        (
            '{"url": "https://example.org/s.git", "vcs_info": {"vcs": "git", "commit_id": "abc1"}}',
            "git+https://example.org/s.git@abc1",
        ),
        ('{"url": "https://example.org/s-1.2.tar.gz", "archive_info": {}}', "https://example.org/s-1.2.tar.gz"),
        ('{"url": "file:///home/ann/s", "dir_info": {"editable": true}}', ""),
        ('{"url": "https://example.org/s.git; rm -rf x"}', ""),
        ("not json", ""),
    ],
)
def test_a_package_is_named_with_its_pip_line(monkeypatch: pytest.MonkeyPatch, origin: str, install: str) -> None:
    class Entry:
        name, value, dist = "spirals", "spirals_task:Spirals", Package(origin)

    monkeypatch.setattr("p2pnode.tasks.names.metadata.entry_points", lambda group: [Entry])
    package = task_package("spirals")
    assert package == PlanPackage("spirals-task", "1.2", install)
    read_plan(write_plan(replace_plan(source=None, package=package)))
    assert task_package("digits") is None
    monkeypatch.undo()
    with pytest.raises(UsageError) as caught:
        Joining().admit(plan=replace_plan(task="spirals", source=None, package=package))
    line = f"pip install {install}" if install else "ask the founder for the package spirals-task 1.2"
    assert line in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": {"file": "../mine.py", "size": 1, "sha256": "0" * 64}},
        {"source": {"file": "task.json", "size": 1, "sha256": "0" * 64}},
        {"source": {"file": "mine.py\n", "size": 1, "sha256": "0" * 64}},
        {"source": {"file": "a b.py", "size": 1, "sha256": "0" * 64}},
        {"source": {"file": "mine.py", "size": MAX_JOB_FILE_BYTES + 1, "sha256": "0" * 64}},
        {"source": {"file": "mine.py", "size": 1, "sha256": "short"}},
        {"source": {"file": "mine.py", "size": 1, "sha256": "0" * 64, "name": ":Mine\x1b[31m"}},
        {"package": {"name": "x", "version": "1", "install": "x; rm -rf /"}},
        {"package": {"name": "x", "version": "1", "install": "--index-url=http://evil.example"}},
        {"package": {"name": "x\n", "version": "1"}},
    ],
)
def test_a_hostile_founder_gets_nothing_of_that_into_a_plan(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="cannot be followed"):
        read_plan({**write_plan(PLAN), **wrong})


# ---- those who join ----


def test_the_user_sees_the_file_and_decides(tmp_path: Path) -> None:
    joining = Joining(answer=True, storage=DiskStorage(tmp_path))
    joining.admit()
    assert joining.offers == [
        FileOffer("run of ann", "mine", "mine.py", len(CONTENT), SOURCE.sha256, str(tmp_path / COPY))
    ]
    assert joining.used() == COPY
    joining.admit()
    assert len(joining.offers) == 1, "it is remembered"


def test_no_is_no_and_leaves_a_copy_to_read() -> None:
    joining = Joining(answer=False)
    with pytest.raises(LocalProblem, match=r"not joined, because mine.py was not accepted; a copy to read is runs/R"):
        joining.admit()
    assert joining.used() is None
    assert joining.storage.read(COPY) == CONTENT
    with pytest.raises(LocalProblem):
        joining.admit()
    assert len(joining.offers) == 2, "and it is asked again"


def test_where_nobody_can_answer_the_flag_is_named() -> None:
    joining = Joining()
    with pytest.raises(UsageError, match=f"read {COPY}, then add --accept-task {SOURCE.sha256}$"):
        joining.admit()
    assert joining.used() is None
    with pytest.raises(UsageError, match="--accept-task names another file"):
        joining.admit(TrainOptions(accept_task=("0" * 64,)))
    assert joining.used() is None
    joining.admit(TrainOptions(accept_task=("0" * 64, SOURCE.sha256)))
    assert joining.used() == COPY
    assert len(joining.offers) == 1, "the flag is the answer"


def test_code_of_others_is_not_run_where_private_data_are() -> None:
    joining = Joining(answer=True)
    private = TrainOptions(data=Path("/mine"), accept_task=(SOURCE.sha256,))
    with pytest.raises(UsageError, match=f"private data are .*name it yourself: --task {COPY}"):
        joining.admit(private)
    assert joining.used() is None
    joining.admit(replace(private, share_data=True))
    assert joining.used() == COPY


def test_accepted_code_is_not_run_where_private_data_came_later(tmp_path: Path) -> None:
    joining = Joining(answer=True, storage=DiskStorage(tmp_path))
    joining.admit()
    with pytest.raises(UsageError, match="private data are"):
        task_options(PLAN, TrainOptions(data=Path("/mine")), joining.storage, FOLDER)
    assert task_options(PLAN, TrainOptions(data=Path("/mine"), share_data=True), joining.storage, FOLDER)[0].task


def test_an_accepted_file_that_was_changed_is_not_run_but_asked_for_again(tmp_path: Path) -> None:
    joining = Joining(answer=True, storage=DiskStorage(tmp_path))
    joining.admit()
    joining.storage.write(COPY, CONTENT.replace(b"Mine", b"Evil"))
    options, note = task_options(PLAN, TrainOptions(), joining.storage, FOLDER)
    assert options.task is None and "is damaged; members are asked for the run's file again" in note
    joining.admit()
    assert joining.storage.read(COPY) == CONTENT and len(joining.offers) == 2, "the user is asked again"


def test_another_file_than_the_runs_costs_reputation_and_the_next_member_is_asked() -> None:
    joining = Joining({EVE: CONTENT.replace(b"Mine", b"Evil"), ANN: CONTENT}, answer=True)
    joining.admit()
    assert joining.storage.read(COPY) == CONTENT
    assert joining.services.reputation.faults_of(EVE) == 1
    assert joining.services.reputation.faults_of(ANN) == 0


def test_a_file_that_no_member_gives_is_reported() -> None:
    joining = Joining({EVE: b"evil"})
    with pytest.raises(UsageError, match="no member gives it; try again later, or ask the founder for the file"):
        joining.admit()
    assert joining.storage.names(FOLDER) == []


def test_a_task_that_is_nowhere_is_reported_before_joining() -> None:
    with pytest.raises(UsageError, match="'mine', which is not installed here; ask the founder for its file"):
        Joining().admit(plan=replace_plan(source=None))
    Joining().admit(plan=replace_plan(task="digits", source=None))


def test_a_file_of_ones_own_counts_and_a_difference_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "theirs.py"
    file.write_bytes(CONTENT)
    joining = Joining()
    joining.admit(TrainOptions(str(file)))
    assert joining.events() == ""
    file.write_bytes(b"other")
    joining.admit(TrainOptions(str(file)))
    assert f"sha256 {sha256(b'other').hex()[:16]}…) is not the file that the run was founded with" in joining.events()
    assert SOURCE.sha256[:16] in joining.events()
    assert joining.offers == []


def test_a_remembered_file_that_changed_or_went_is_replaced_by_the_runs_copy(tmp_path: Path) -> None:
    file, storage = tmp_path / "mine.py", DiskStorage(tmp_path / "data")
    file.write_bytes(CONTENT)
    save_task(storage, FOLDER, TrainOptions(str(file)))
    keep_copy(PLAN, TrainOptions(str(file)), storage, FOLDER)
    assert task_options(PLAN, TrainOptions(), storage, FOLDER)[0].task == str(file)
    file.write_bytes(b"other")
    options, note = task_options(PLAN, TrainOptions(), storage, FOLDER)
    assert options.task == storage.path(COPY)
    assert "has changed since the run was founded; the run's own copy is used" in note
    assert task_options(PLAN, TrainOptions(str(file)), storage, FOLDER)[0].task == str(file), "what is named counts"
    file.unlink()
    assert "is gone" in task_options(PLAN, TrainOptions(), storage, FOLDER)[1]
    no_copy = replace_plan(source=None)
    with pytest.raises(
        UsageError, match=r"mine\.py, the task that this node used last, is gone; bring it back, or name"
    ):
        task_options(no_copy, TrainOptions(), storage, FOLDER)
    assert task_options(no_copy, TrainOptions("other.py"), storage, FOLDER)[0].task == "other.py"
