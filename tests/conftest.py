"""For all tests: one thread for torch, random order or more examples on request, a summary of what did not run."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from itertools import groupby

import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two threads on a busy machine of two cores are up to 50 times slower

# A shell starts background jobs with SIGINT ignored. Processes inherit that, and Python then never raises
# KeyboardInterrupt: not here, and not in the scripts that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis judges examples by what they do, never by how long they take on a busy machine.
hypothesis.settings.register_profile("p2pnode", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("p2pnode")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order drawn from SEED")
    parser.addoption("--examples", type=int, metavar="TIMES", help="try so many times more examples of each law")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --examples: only laws, with more examples. With --shuffle: the tests in random order."""
    times, seed = config.getoption("--examples"), config.getoption("--shuffle")
    if times is not None:
        items[:] = [item for item in items if hypothesis.is_hypothesis_test(getattr(item, "obj", None))]
        for function in {getattr(item.obj, "__func__", item.obj) for item in items}:  # type: ignore[attr-defined]
            usual: hypothesis.settings = vars(function)["_hypothesis_internal_use_settings"]
            more = hypothesis.settings(usual, max_examples=times * usual.max_examples)
            vars(function)["_hypothesis_internal_use_settings"] = more
    if seed is not None:
        shuffle(items, random.Random(seed))


def shuffle(items: list[pytest.Item], rng: random.Random) -> None:
    """Files in random order, and in each file its tests, so that fixtures of files are made once."""
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    rng.shuffle(files)
    for tests in files:
        rng.shuffle(tests)
    items[:] = [item for tests in files for item in tests]


def skipped(terminal: pytest.TerminalReporter) -> Counter[tuple[str, str]]:
    """How many tests of which file were skipped for which reason."""
    reports = terminal.stats.get("skipped", [])
    return Counter((report.nodeid.partition("::")[0], report.longrepr[2]) for report in reports)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = skipped(terminalreporter)
    if found:
        terminalreporter.write_sep("!", f"{found.total()} TESTS DID NOT RUN", red=True, bold=True)
    for (file, reason), count in sorted(found.items()):
        terminalreporter.write_line(f"{file}: {count} tests: {reason.removeprefix('Skipped: ')}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With P2PNODE_TEST_REQUIRE_ALL a skipped test fails the run."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and os.environ.get("P2PNODE_TEST_REQUIRE_ALL") and skipped(terminal):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
