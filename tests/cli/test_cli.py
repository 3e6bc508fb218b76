"""The command line: cheap help, one line and the right exit code for every slip, and short commands without a node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from p2pnode import __version__
from p2pnode.cli import app, run
from p2pnode.discovery.book import PeerBook
from p2pnode.storage.files import DiskStorage
from p2pnode.wire.addresses import EXAMPLE
from p2pnode.wire.ids import Identity

RUN = "abcdefghijklmnopqrstuvwxyz"
KEY = "abcdefghijklmnopqrstuvwxyz234567"
PEER = Identity(b"\1" * 32).peer_id
HEAVY = ("torch", "hivemind", "uvloop", "aiohttp", "numpy")


@pytest.fixture(autouse=True)
def _own_home(monkeypatch, tmp_path):
    """No variable or directory of the person who runs the tests has a say."""
    for name in [name for name in os.environ if name.startswith("P2PNODE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def command(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m p2pnode` for real."""
    return subprocess.run(
        [sys.executable, "-m", "p2pnode", *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def called(capsys, *arguments: str) -> tuple[int, str, str]:
    """The same in this process; for what does not start a node."""
    code = run(app, arguments, "p2pnode")
    out, err = capsys.readouterr()
    return code, out, err


def one_line(err: str) -> str:
    assert err.startswith("p2pnode: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["doctor", "--help"], ["peers", "-h"], ["config", "show"]]
)
def test_cheap_commands_import_nothing_heavy(arguments):
    probe = (
        "import sys; from p2pnode.cli import run, app; code = run(app, sys.argv[1:], 'p2pnode');"
        f"sys.exit(code or [name for name in {HEAVY!r} if name in sys.modules] or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_help_costs_well_under_a_second_of_cpu():
    def cpu() -> float:
        before = os.times()
        assert command("--help").returncode == 0
        after = os.times()
        return after.children_user - before.children_user + after.children_system - before.children_system

    assert min(cpu() for _ in range(3)) < 0.8


def test_version_and_help():
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"p2pnode {__version__}\n", "")
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    for flag in ["--bootstrap", "--initial-peers", "--name", "--run", "--found", "--private", "--data-dir", "--listen",
                 "--announce", "--no-listen", "--reachability", "--join-timeout", "--log-format", "--quiet", "--config",
                 "--version", "--install-completion", "peers", "status", "leave", "doctor", "config"]:  # fmt: skip
        assert flag in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bootstap", "x"], ["--bootstap", "did you mean --bootstrap?"]),
        (["--inital-peers", "x"], ["did you mean --initial-peers?"]),
        (["--zzz"], ["no such option --zzz", "--help"]),
        (["peers", "--jsn"], ["did you mean --json?"]),
        (["peer"], ["no such command 'peer'", "did you mean peers?"]),
        (["config", "shw"], ["did you mean show?"]),
        (["config"], ["missing command"]),
        (["/ip4/1.2.3.4/tcp/1"], ["--bootstrap ADDR"]),
        (["--name"], ["--name", "requires an argument"]),
        (["--bootstrap", "localhost:1"], ["--bootstrap", "not an address", EXAMPLE]),
        (["--initial-peers", "/ip4/1.2.3.4/tcp/1"], ["--bootstrap", "lacks the peer id", EXAMPLE]),
        (["--bootstrap", "/ip4/1.2.3.4/tcp/1/p2p/Qm"], ["--bootstrap", EXAMPLE]),
        (["--run", "abc"], ["--run", "not a run id"]),
        (["--run", RUN, "--found"], ["--found contradicts --run"]),
        (["--name", "x" * 50], ["too long"]),
        (["--name", "a\nb"], ["cannot be shown"]),
        (["--join-timeout", "0"], ["above zero"]),
        (["--log-format", "xml"], ["auto, rich, plain, json"]),
        (["--listen", "/ip4/1.2.3.4"], ["not an address to listen on"]),
        (["--config", "/nowhere/config.toml"], ["cannot read the configuration"]),
        (["doctor", "--bootstrap", "nonsense"], ["not an address"]),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(capsys, tmp_path, arguments, words):
    code, out, err = called(capsys, *arguments)
    assert code == 2
    assert out == ""
    for word in words:
        assert word in one_line(err)
    assert list(tmp_path.iterdir()) == []


def test_wrong_usage_as_a_process_says_the_same():
    done = command("--bootstrap", "nonsense")
    assert done.returncode == 2
    assert done.stdout == ""
    assert EXAMPLE in one_line(done.stderr)


def test_unknown_toml_key_is_suggested(capsys, tmp_path):
    (tmp_path / "config.toml").write_text("bootsrap = []\n")
    code, _, err = called(capsys, "--data-dir", str(tmp_path))
    assert code == 2
    assert "did you mean 'bootstrap'?" in one_line(err)
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


# ---- config show ----


def test_config_show_says_where_each_value_came_from(capsys, monkeypatch, tmp_path):
    (tmp_path / "config.toml").write_text("quiet = true\n")
    monkeypatch.setenv("P2PNODE_RUN", f"{RUN}.{KEY}")
    code, out, err = called(capsys, "--name", "otter", "config", "show", "--data-dir", str(tmp_path), "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["name"] == {"value": "otter", "from": "--name"}
    assert shown["quiet"] == {"value": True, "from": f"{tmp_path}/config.toml: quiet"}
    assert shown["run"] == {"value": f"{RUN}.***", "from": "P2PNODE_RUN"}
    assert shown["listen"] == {"value": [], "from": "default"}
    assert KEY not in out


def test_config_show_for_people(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("P2PNODE_RUN", f"{RUN}.{KEY}")
    monkeypatch.setenv("P2PNODE_NAM", "x")
    code, out, err = called(capsys, "config", "show", "--bootstrap", EXAMPLE, "--data-dir", str(tmp_path))
    assert code == 0
    assert EXAMPLE in out
    assert "P2PNODE_RUN" in out
    assert KEY not in out
    assert "did you mean 'P2PNODE_NAME'?" in err


def test_a_flag_after_the_command_wins(capsys, tmp_path):
    _, out, _ = called(capsys, "--name", "one", "config", "show", "--name", "two", "--json")
    assert json.loads(out)["name"]["value"] == "two"


# ---- peers, status, leave without a node ----


@pytest.mark.parametrize("arguments", [["status"], ["leave"], ["peers"], ["status", "--json"]])
def test_without_a_node_there_is_one_line(capsys, tmp_path, arguments):
    code, out, err = called(capsys, *arguments, "--data-dir", str(tmp_path / "none"))
    assert code == 1
    assert out == ""
    assert "python -m p2pnode" in one_line(err)
    assert not (tmp_path / "none").exists()


def met_before(data_dir: Path) -> None:
    storage = DiskStorage(data_dir)
    storage.write("identity.key", Identity(b"\2" * 32).to_key_file())
    book = PeerBook(storage, "book.json")
    book.met(PEER, (f"/ip4/203.0.113.7/tcp/31337/p2p/{PEER}",), time.time() - 90)
    book.save(0.0)


def test_peers_come_from_the_store_when_no_node_runs(capsys, tmp_path):
    met_before(tmp_path)
    code, out, _ = called(capsys, "peers", "--data-dir", str(tmp_path), "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["from"] == "store"
    (peer,) = answer["peers"]
    assert peer["id"] == PEER
    assert not peer["present"]
    assert 85 < peer["heard_seconds_ago"] < 600
    code, out, _ = called(capsys, "peers", "--data-dir", str(tmp_path))
    assert "no node is running" in out
    assert PEER[-8:] in out


def test_a_damaged_book_is_one_line(capsys, tmp_path):
    met_before(tmp_path)
    (tmp_path / "book.json").write_text("{{{")
    code, _, err = called(capsys, "peers", "--data-dir", str(tmp_path))
    assert code == 1
    assert "damaged" in one_line(err)


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    met_before(tmp_path)
    shell = f"{sys.executable} -m p2pnode peers --data-dir {tmp_path} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr == ""


# ---- completion ----


def test_shell_completion_knows_flags_and_commands():
    environ = {"_P2PNODE_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert "--bootstrap" in command(**environ, COMP_WORDS="p2pnode --boo").stdout
    assert "doctor" in command(**environ, COMP_WORDS="p2pnode d").stdout
    shown = command("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_P2PNODE_COMPLETE" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-upload", "fast"], "500k"),
        (["--max-download", "1k"], "32k"),
        (["--max-cpu", "200%"], "50%"),
        (["--schedule", "22-7"], "22:00-07:00"),
        (["limits", "--max-upload", "-5"], "not a rate"),
        (["limits", "--max-cpu", "half"], "50%"),
        (["limits", "--schedule", "night"], "22:00-07:00"),
        (["limits", "--idle-only", "perhaps"], "neither true nor false"),
        (["limits", "--max-uplaod", "1M"], "did you mean --max-upload?"),
        (["paus"], "did you mean pause?"),
    ],
)
def test_a_slip_in_a_limit_is_one_line_with_a_remedy(capsys, arguments, words):
    code, _, err = called(capsys, *arguments)
    assert code == 2
    assert words in one_line(err)


@pytest.mark.parametrize("arguments", [["pause"], ["resume"], ["limits"], ["limits", "--max-upload", "off"]])
def test_orders_need_a_running_node(capsys, tmp_path, arguments):
    code, _, err = called(capsys, *arguments, "--data-dir", str(tmp_path / "nobody"))
    assert code == 1
    assert "no node is running" in one_line(err)
    assert not (tmp_path / "nobody").exists()
