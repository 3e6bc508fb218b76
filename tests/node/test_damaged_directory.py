"""Every file of a data directory, damaged in every way: the node says which and goes on, or ends with one line.

It never begins anew without a word, never signs numbers of its log twice, and keeps the damaged file.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from p2pnode.config.split import parse_split
from p2pnode.node.control import POINTER, ControlServer, socket_path
from p2pnode.node.joining import last_run, load_manifest, repair_saved
from p2pnode.node.load import load
from p2pnode.runtime.limiter import PAUSED_FILE
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.simulate.scenario import identity_of
from p2pnode.storage.checked import SET_ASIDE
from p2pnode.storage.datadir import IDENTITY_FILE, NAME_FILE, PORT_FILE, open_data_dir
from p2pnode.storage.files import DiskStorage
from p2pnode.wire.errors import Damaged, LocalProblem, UsageError
from p2pnode.wire.run import RunAccess
from p2pnode.wire.status import NodeEvent
from tests.known import train_job

TRAINING = SimTraining(replace(SIMULATED, task="digits", split=parse_split("labels:2"), share_data=True), rounds=8)
PLAN = Scenario(
    peers=3,
    seed=5,
    seconds=200.0,
    sample_every=0.0,
    spread=3.0,
    training=TRAINING,
    adjust=lambda options, index, starts: (
        replace(options, train=replace(options.train, task=None)) if starts > 1 else options
    ),
)
NODE = 1  # the one whose files are damaged; node 0 founded the run
LIMIT = 120.0  # virtual seconds
FILES = {
    "run.json": "made again from its copy",
    "runs/RUN.json": "made again from run.json",
    "book.json": "the book of peers met before starts empty",
    "runs/RUN/main/task.json": "give the task again with --task",
    "runs/RUN/main/progress/state.NEW": "the state saved before it is used",
    "runs/RUN/main/progress/state.OLD": "the state saved before it is used",
    "runs/RUN/main/progress/journal.NEW": "so it begins a new log",
    "runs/RUN/main/progress/incarnation": "",  # it is read only when a log begins
    "runs/RUN/main/shards/SHARD.samples": "its samples are fetched again if somebody else has them",
    "runs/RUN/main/shards/SHARD.record": "who holds the shard is learned again from peers",
    "runs/RUN/main/shards/SHARD.visits": "the shard's visits are counted anew",
    "paused": "the node stays paused until `resume`",
}


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


def made_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [truncated, emptied, flipped, made_directory]
Damage = Callable[[Path], None]


@dataclass
class Start:
    """What a node said when it was started again, and how far it came."""

    events: list[NodeEvent] = field(default_factory=list)
    problem: str = ""
    run: str = ""
    begun: int = 0  # the rounds it knew at its start
    rounds: int = 0
    incarnations: set[int] = field(default_factory=set)

    @property
    def warnings(self) -> str:
        return "\n".join(event.text for event in self.events if event.warning)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a node that was killed, with every kind of file in it."""
    root = tmp_path_factory.mktemp("nodes")

    async def main() -> None:
        simulation = Simulation(PLAN)
        simulation.disks = [DiskStorage(root / str(index)) for index in range(PLAN.peers)]  # type: ignore[misc]
        await simulation.start()
        assert simulation.watch is not None
        await simulation.learn(simulation.watch, PLAN.seconds)
        while not all(place(root / str(NODE), name).exists() for name in FILES if name != PAUSED_FILE):
            await simulation.go_on(0.1)
        simulation.crash(NODE)
        await simulation.finish()

    with one_thread():
        run_sim(main())
    (root / str(NODE) / PAUSED_FILE).write_text("by the user\n")
    return root / str(NODE)


def place(directory: Path, name: str) -> Path:
    """The file that a name of FILES stands for."""
    run = last_run(DiskStorage(directory))
    assert run is not None
    states = sorted(
        (directory / f"runs/{run.access.run}/main/progress").glob("state.?"), key=lambda p: p.stat().st_mtime_ns
    )
    samples = sorted(path.stem for path in (directory / f"runs/{run.access.run}/main/shards").glob("*.samples"))
    visited = sorted(path.stem for path in (directory / f"runs/{run.access.run}/main/shards").glob("*.visits"))
    shard = next((shard for shard in samples if shard in visited), "none")
    states = states if len(states) > 1 else [directory / "state.none", *states]
    words = {"RUN": run.access.run, "NEW": states[-1].name[6:], "OLD": states[0].name[6:], "SHARD": shard}
    for word, value in words.items():
        name = name.replace(word, value)
    return directory / name


def start(directory: Path) -> Start:
    """Start the node alone until it has done two rounds, is paused, or ends."""
    found = Start()

    async def main() -> None:
        simulation = Simulation(PLAN)
        disk = DiskStorage(directory)
        simulation.disks[NODE], simulation.starts[NODE] = disk, 1  # type: ignore[call-overload]
        try:
            repair_saved(disk, replaced=False)  # as node/place.py does
        except Damaged as problem:
            found.problem = str(problem)
            return
        simulation.restart(NODE)
        process = simulation.processes[NODE]
        process.disk.warnings += disk.warnings
        process.node.on_event(found.events.append)
        while asyncio.get_running_loop().time() < LIMIT and NODE in simulation.processes:
            await asyncio.sleep(0.5)
            found.run = process.node.status().run
            if "main" in process.node.jobs.jobs:
                job = train_job(process.node)
                found.rounds, found.begun = job.train_progress.rounds, found.begun or job.train_progress.rounds
                chains = job.policy.set.heads  # type: ignore[attr-defined]
                found.incarnations = {chain.incarnation for chain in chains if chain.peer == process.node.peer_id}
            if found.rounds >= found.begun + 2 or (found.run and process.node.status().paused):
                break
        found.problem = str(simulation.ended.get(NODE, ""))
        simulation.crash(NODE)

    with one_thread():
        run_sim(main())
    return found


@pytest.fixture(scope="module")
def undamaged(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Start:
    copy = tmp_path_factory.mktemp("copy") / "node"
    shutil.copytree(directory, copy)
    (copy / PAUSED_FILE).unlink()
    return start(copy)


def test_without_damage_nothing_is_said(undamaged: Start) -> None:
    assert not undamaged.problem and not undamaged.warnings
    assert undamaged.rounds > undamaged.begun >= TRAINING.rounds and undamaged.incarnations == {0}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_and_nothing_begins_anew(
    name: str, damage: Damage, directory: Path, undamaged: Start, tmp_path: Path
) -> None:
    copy = tmp_path / "node"
    shutil.copytree(directory, copy)
    if name != PAUSED_FILE:
        (copy / PAUSED_FILE).unlink()
    path = place(copy, name)
    damage(path)
    kept = path.read_bytes() if path.is_file() else None
    found = start(copy)
    said = f"{found.problem}\n{found.warnings}"
    if name == PAUSED_FILE:  # only its existence counts
        assert [event.text for event in found.events if event.kind == "paused"]
        assert damage is not made_directory or FILES[name] in said
        return
    if name.endswith("incarnation"):
        assert not said.strip() and found.incarnations == {0}
        return
    assert str(path) in said and FILES[name] in said, said
    assert not [event for event in found.events if event.kind in ("founded", "joined", "learning")]
    if name.endswith("task.json"):
        assert path.exists() and found.problem
        return
    assert not found.problem and found.run == undamaged.run
    assert found.begun >= (1 if "progress" in name else undamaged.begun) and found.rounds > found.begun
    assert max(found.incarnations) == ("journal" in name)  # what was signed after the damage is not signed again
    aside = path.with_name(path.name + SET_ASIDE)
    assert aside.is_dir() if kept is None else aside.read_bytes() == kept


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_a_copy_a_damaged_run_ends_with_what_to_do(damage: Damage, directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "node"
    shutil.copytree(directory, copy)
    place(copy, "runs/RUN.json").unlink()
    damage(copy / "run.json")
    found = start(copy)
    assert found.problem.startswith(f"{copy}/run.json is ") and "--found a new run" in found.problem
    assert "join its run again by an invite" in found.problem and (copy / "run.json").exists()
    storage = DiskStorage(copy)
    repair_saved(storage, replaced=True)  # the user names a run or founds one
    assert not (copy / "run.json").exists() and (copy / f"run.json{SET_ASIDE}").exists()
    assert "it is not needed" in storage.warnings[0]


def test_of_several_runs_only_the_user_knows_which_was_the_last(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "node"
    shutil.copytree(directory, copy)
    (copy / "run.json").write_bytes(b"")
    run = place(directory, "runs/RUN.json")
    shutil.copy(run, copy / "runs" / "another.json")
    with pytest.raises(Damaged, match=f"choose its run by --run {run.stem} or {run.stem}"):
        repair_saved(DiskStorage(copy), replaced=False)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_named_by_the_user_asks_members_for_a_damaged_manifest(
    damage: Damage, directory: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "node"
    shutil.copytree(directory, copy)
    path = place(copy, "runs/RUN.json")
    damage(path)
    storage = DiskStorage(copy)
    assert load_manifest(storage, RunAccess.parse(path.stem)) is None
    assert str(path) in storage.warnings[0] and "members of the run are asked" in storage.warnings[0]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_identity_ends_the_start(damage: Damage, tmp_path: Path) -> None:
    (tmp_path / IDENTITY_FILE).write_bytes(identity_of(1, 1).to_key_file())
    damage(tmp_path / IDENTITY_FILE)
    data_dir = open_data_dir(tmp_path)
    with pytest.raises(LocalProblem, match=r"identity\.key is damaged .* restore it from a copy, or move it away"):
        data_dir.identity()
    data_dir.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_port_is_said_and_another_is_taken(damage: Damage, tmp_path: Path) -> None:
    data_dir = open_data_dir(tmp_path)
    data_dir.remember_port(40123)
    assert data_dir.port() == 40123
    damage(tmp_path / PORT_FILE)
    assert data_dir.port() is None and "invites with its old address may not work" in data_dir.storage.warnings[0]
    data_dir.remember_port(40124)
    assert data_dir.port() == 40124
    data_dir.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_name_is_said_and_given_again(damage: Damage, tmp_path: Path) -> None:
    data_dir = open_data_dir(tmp_path)
    assert data_dir.name() is None
    data_dir.remember_name("ann")
    assert data_dir.name() == "ann"
    damage(tmp_path / NAME_FILE)
    assert data_dir.name() is None and "goes by the name of its identity" in data_dir.storage.warnings[0]
    data_dir.remember_name("bob")
    assert data_dir.name() == "bob"
    data_dir.close()


def test_a_lock_that_is_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(LocalProblem, match=r"lock: Is a directory\)"):
        open_data_dir(tmp_path)


@pytest.mark.parametrize("damage", [truncated, emptied, made_directory])
def test_a_damaged_configuration_is_named(damage: Damage, tmp_path: Path) -> None:
    """A changed value cannot be noticed: people write this file by hand."""
    (tmp_path / "config.toml").write_text('name = "ann"\nlog-format = "plain"\n')
    assert load({"data-dir": str(tmp_path)}, {}).options.name == "ann"
    damage(tmp_path / "config.toml")
    if damage is emptied:
        assert load({"data-dir": str(tmp_path)}, {}).options.name is None
        return
    with pytest.raises(UsageError, match=r"config\.toml"):
        load({"data-dir": str(tmp_path)}, {})


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_pointer_to_the_control_socket_is_said_and_replaced(
    damage: Damage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()

    def server() -> ControlServer:
        return ControlServer(long, lambda: None, lambda: None, lambda request: None)  # type: ignore[arg-type,return-value]

    async def main() -> None:
        first = server()
        await first.start()
        expected = socket_path(long)
        assert (long / POINTER).is_file() and expected.exists()
        damage(long / POINTER)
        assert socket_path(long) == expected
        second = server()
        await second.start()
        assert "control.path" in caplog.text and (long / POINTER).is_file() and socket_path(long) == expected
        await second.close()
        await first.close()

    asyncio.run(main())
