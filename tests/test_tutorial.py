"""The recorder of the tutorial: what it takes for the same output, and what it reports. Its session runs in CI."""

from __future__ import annotations

import pytest

from examples.record_tutorial import BLOCK, TUTORIAL, Step, matched, peer_ids, shape, shortened, steps_of

ALICE, BOB = (
    "12D3KooWKkPo1S1rumacnE61tx6SSnqmxqaTPcbgodPn5noQFqGB",
    "12D3KooWRQwoNHqjqTFCZJWfCPkrc2d7Wf159UGZFEQ1JYpvi2fe",
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("07:34:04 alice (5noQFqGB) is here", "23:59:01 bob (JYpvi2fe) is here"),
        ("connected: 1 other node here", "connected: 2 other nodes here"),
        ("up: 58 s", "up: 1 min 02 s"),
        ("up: 58 s", "up: 3 h 20 min"),
        ("↑ 45.8 kB ↓ 213 B", "↑ 1.2 MB ↓ 21.3 kB"),
        ("round 1: training loss 4.731e-05, 1 entry of others", "round 186: training loss 2.3, 195 entries of others"),
        (" 0.000325   0.53%   carol, bob ", " –   12%  bob"),
        ("python -m p2pnode join 3rU8P2UDhsnL", "python -m p2pnode join 47SEJzBZtz"),
        (
            "founded run 'run of alice' (bzvuiwhm3fixiub7ebyz5ariju)",
            "founded run 'run of dave' (3gs6kca3juiqu77iqldqthtsju)",
        ),
        (f"alice is {ALICE}", f"bob is {BOB}"),
        (" ─────── ", " ── "),
        ("test accuracy 95.3% of 64 of 360 test samples, 1 entry", "test accuracy 97.2%, 3 entries"),
        (" ● bob  0.14%   of bob (yours)   1.000", " ● carol  1.13%   of bob      0.835"),
        ("accuracy 8% ▁▂▃█ 93%", "accuracy 10% ▁▁██ 9%"),
    ],
)
def test_times_figures_ids_and_names_do_not_count(one: str, other: str) -> None:
    assert shape(one) == shape(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("07:34:04 learning digits from its beginning", "07:34:04 learning spirals from its beginning"),
        ("ok       daemon        p2pd comes up in 1.9 s", "problem  daemon        p2pd comes up in 1.9 s"),
        ("up: 58 s", "uptime: 58 s"),
        ("training loss 0.3", "loss 0.3"),
    ],
)
def test_words_count(one: str, other: str) -> None:
    assert shape(one) != shape(other)


def test_short_ids_are_known_by_the_whole_ones() -> None:
    assert peer_ids(f"alice is {ALICE}, bob is {BOB}") == sorted((ALICE, BOB))
    assert shape("community 5noQFqGB", [ALICE]) == shape("community JYpvi2fe", [BOB]) == "community ID"


def test_expected_lines_are_found_among_others_and_missing_ones_reported() -> None:
    step = Step("python …", ("03:20:42 joined run 'a'", "…", "round 1: training loss 0.5", "left the swarm"))
    printed = "07:00:00 warning: late\n07:00:01 joined run 'a'\n07:00:02 round 3: training loss 0.1\n"
    found, missing = matched(step, printed, (), ())
    assert found == ["07:00:01 joined run 'a'", "…", "07:00:02 round 3: training loss 0.1"]
    assert missing == ["left the swarm"]


def test_rows_that_look_alike_may_be_fewer_but_not_none() -> None:
    step = Step("python …", ("a 1", "a 2", "a 3"))
    assert matched(step, "a 7\na 8\n", (), ()) == (["a 7", "a 8"], [])
    assert matched(step, "b 7\n", (), ())[1] == ["a 1", "a 2", "a 3"]


def test_a_long_line_is_cut_and_recognised_by_its_beginning() -> None:
    line = "learning: digits, round 147, " + "accuracy 97.5%, " * 10
    cut = shortened(line)
    assert len(cut) <= 116
    assert matched(Step("python …", (cut,)), line.replace("147", "9"), (), ())[1] == []
    assert matched(Step("python …", (cut,)), line.replace("digits", "text"), (), ())[1] == [cut]


def test_a_command_with_nothing_recorded_gets_everything() -> None:
    assert matched(Step("python …", ("…",)), "\n one  \n two\n\n", (), ()) == ([" one", " two"], [])


def test_the_session_of_the_tutorial_can_be_read() -> None:
    steps = [step for block in BLOCK.finditer(TUTORIAL.read_text()) for step in steps_of(block)]
    assert {step.node for step in steps} == {"", "alice", "bob", "carol", "dave"}
    assert [step.node for step in steps if step.killed] == ["carol"]
    assert all(step.command.startswith("python -m p2pnode ") and step.expected for step in steps)
    words = {step.command.split()[3] for step in steps}
    assert {"doctor", "join", "peers", "status", "shards", "export", "check", "leave", "sim"} <= words
