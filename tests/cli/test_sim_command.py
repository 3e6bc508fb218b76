"""`p2pnode sim`: figures for people and machines, a recording, a picture, and one line for every slip."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import mean, stdev

import pytest

from p2pnode.cli import app, run
from p2pnode.simulate.report import shortened
from p2pnode.simulate.result import course
from p2pnode.watch.text import sparkline

SHORT = ("sim", "--peers", "3", "--rounds", "2", "--alone", "1")


def test_json_recording_and_picture(capsys, tmp_path: Path) -> None:
    files = ("--record", str(tmp_path / "r"), "--plot", str(tmp_path / "p.png"), "--csv", str(tmp_path / "rounds.csv"))
    code = run(app, [*SHORT, "--json", "--set", "density=0.02", *files], "p2pnode")
    printed = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in (tmp_path / "r").read_text().splitlines()]
    assert code == 0
    assert printed["finished"] is True
    assert [node["node"] for node in printed["nodes"]] == ["n0", "n1", "n2"]
    assert all(node["status"]["state"]["train"]["round"] >= 2 for node in printed["nodes"])
    assert lines[0]["is"] == "plan"
    assert lines[0]["settings"] == {"density": 0.02}
    assert sum(line["is"] == "round" for line in lines) >= 6
    assert lines[-1]["digest"] == printed["digest"]
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    rounds = list(csv.DictReader((tmp_path / "rounds.csv").open()))
    assert {row["node"] for row in rounds} == {"n0", "n1", "n2"}
    assert sum(row["node"] == "n0" for row in rounds) >= 2
    assert float(rounds[-1]["mb_received"]) > 0


def test_policies_and_seeds_are_compared(capsys, tmp_path: Path) -> None:
    files = ("--csv", str(tmp_path / "table.csv"), "--plot", str(tmp_path / "bands.svg"))
    several = ("--policy", "deltaset,gossip", "--seed", "1, 2", "--alone", "0")
    assert run(app, [*SHORT, *several, "--json", *files], "p2pnode") == 0
    out, err = capsys.readouterr()
    printed = json.loads(out)
    ran = [(row["policy"], row["seed"]) for row in printed["simulations"]]
    assert ran == [("deltaset", 1), ("deltaset", 2), ("gossip", 1), ("gossip", 2)]
    assert err.splitlines() == [f"{policy}, seed {seed} ({at} of 4)" for at, (policy, seed) in enumerate(ran, 1)]
    gossip = [row["accuracy"] for row in printed["simulations"] if row["policy"] == "gossip"]
    assert [row["policy"] for row in printed["policies"]] == ["deltaset", "gossip"]
    assert printed["policies"][1]["accuracy_mean"] == pytest.approx(mean(gossip))
    assert printed["policies"][1]["accuracy_std"] == pytest.approx(stdev(gossip))
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    assert [(row["policy"], row["seeds"]) for row in rows] == [("deltaset", "2"), ("gossip", "2")]
    assert float(rows[1]["accuracy_mean"]) == pytest.approx(mean(gossip))
    drawn = (tmp_path / "bands.svg").read_text()
    assert "deltaset" in drawn
    assert "standard deviation of 2 seeds" in drawn


def test_a_comparison_is_one_table(capsys) -> None:
    assert run(app, [*SHORT, "--policy", "average", "--seed", "3,4", "--alone", "0"], "p2pnode") == 0
    out = capsys.readouterr().out
    assert out.count("average") == 1
    assert out.count(" ± ") >= 3
    assert "3 nodes, digits, iid, 2 rounds;\nmean ± standard deviation over the seeds 3, 4" in out


def test_a_table_and_a_line_of_bars(capsys) -> None:
    assert run(app, SHORT, "p2pnode") == 0
    out = capsys.readouterr().out
    assert "accuracy together" in out
    assert "MB received" in out
    assert "█" in out


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("--split", "foo"), "dirichlet:0.3"),
        (("--peers", "0"), "--peers"),
        (("--peers", "2000"), "1437 samples"),
        (("--rounds", "0"), "--rounds"),
        (("--circle", "17"), "--circle"),
        (("--aim", "both"), "--aim"),
        (("--task", "nope"), "nope"),
        (("--task-option", "hiden=3"), "hidden"),
        (("--policy", "nope"), "deltaset"),
        (("--set", "density"), "--set: 'density' is not KEY=VALUE"),
        (("--set", "density=much"), "must be a number"),
        (tuple(word for key in range(33) for word in ("--set", f"k{key}=1")), "--set: 33 settings are too many"),
        (tuple(word for key in range(32) for word in ("--set", f"k{key}=1")), "no setting 'k0'"),
        (("--set", "explore=3"), "--set explore 3.0 is not between 0.0 and 1.0"),
        (("--policy", "gossip", "--set", "patience=0"), "--set patience 0.0 is not between 1.0"),
        (("--set", "dens=0.1"), "density"),
        (("--policy", "average", "--set", "alpha=7"), "alpha"),
        (("--rate", "fast"), "20mbit"),
        (("--speeds", "4-1"), "1-4"),
        (("--latency", "soon"), "not a time"),
        (("--churn", "2"), "--churn"),
        (("--loss", "1"), "--loss"),
        (("--policy", "deltaset,gosip"), "--policy gosip: no merge policy 'gosip'; did you mean 'gossip'?"),
        (("--policy", "deltaset,,gossip"), "--policy: a name is missing"),
        (("--policy", "gossip,gossip"), "--policy: gossip is named twice"),
        (("--seed", "1,two"), "--seed: 'two'"),
        (("--seed", "1,2", "--record", "r"), "--record is for one simulation"),
        (("--plot", "/nowhere/p.png"), "--plot /nowhere/p.png: there is no directory /nowhere"),
        (("--plot", "curves.gif"), "must end in .svg, .png or .pdf"),
        (("--csv", "/nowhere/t.csv"), "--csv /nowhere/t.csv: there is no directory"),
        (("--csv", "/tmp"), "--csv /tmp is a directory"),
        (("--pears", "3"), "--peers"),
    ],
)
def test_a_slip_is_one_line(capsys, wrong: tuple[str, ...], says: str) -> None:
    assert run(app, [*SHORT, *wrong], "p2pnode") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert says in err


def test_a_recording_that_cannot_be_written_is_the_machines_fault(capsys) -> None:
    assert run(app, [*SHORT, "--record", "/nowhere/r"], "p2pnode") == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_bars() -> None:
    assert shortened([], 60) == []
    assert shortened([1.0, 2.0], 60) == [1.0, 2.0]
    assert shortened([1.0, 2.0, 3.0, 4.0], 2) == [1.5, 3.5]
    assert len(shortened([float(n) for n in range(1000)], 60)) == 60
    assert sparkline([1.0, 1.0], 60) == "▁▁"
    assert sparkline([0.0, 0.5, 1.0], 60) == "▁▅█"
    assert course([]) == []


def test_the_package_itself_can_be_called() -> None:
    import p2pnode

    rows = p2pnode.simulate(2, seconds=20.0).rows()
    assert {row["node"] for row in rows} == {"n0", "n1"}
