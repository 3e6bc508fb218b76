"""Runs a node: opens its data directory and network, shows it, answers its control socket, and closes everything."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ..config.options import Options
from ..config.resolve import unknown_variables
from ..network.libp2p.hivemind import HivemindNetwork
from ..node.event_loop import run_loop
from ..node.load import load
from ..node.node import Node
from ..node.place import NextPlace, check_against_saved, elsewhere, first_of_ours, open_place, sweep
from ..node.process import daemon_options, surroundings
from ..runtime.seams import real_world
from ..storage.datadir import DataDir
from ..watch.questions import Questions
from ..watch.show import page_shown, shown
from ..watch.tensorboard import check_installed, logged
from ..wire.errors import LocalProblem, UsageError
from ..wire.invite import read_place
from .ending import Ending, complain, end_at_signals, end_process


def run_and_exit(options: Options, next_place: NextPlace | None = None) -> NoReturn:
    """Run a node and end the process: with 0 when it left, else with one line on stderr."""
    for line in unknown_variables(os.environ):
        complain(line, 0)
    end_at_signals()
    try:
        code, reason = run_node(options, next_place), ""
    except SystemExit:
        code, reason = 0, ""  # it was asked to leave before it was there
    except (UsageError, LocalProblem) as error:
        code, reason = error.exit_code, str(error)
    end_process(code, reason)


def watch_and_exit(flags: Mapping[str, object], place: str) -> NoReturn:
    """Look at a swarm as an observer with a temporary data directory, and end the process."""
    with tempfile.TemporaryDirectory(prefix="p2pnode-watch-") as data_dir:
        where = {"bootstrap": [place]} if place.startswith("/") else {"invite": place}
        given = {**flags, **where, "data-dir": data_dir}
        try:
            read_place(place)
            code, reason = run_node(replace(load(given, os.environ).options, role="observer")), ""
        except (UsageError, LocalProblem) as error:
            code, reason = error.exit_code, str(error)
    end_process(code, reason)


def run_node(options: Options, next_place: NextPlace | None = None) -> int:
    """Run a node until it leaves; returns the exit code. UsageError or LocalProblem when it cannot run.

    Where another node uses the data directory, `next_place` makes the options for the next one.
    """
    if options.output.tensorboard is not None:
        check_installed()
    wanted = options.data_dir
    options, data_dir = open_place(options, next_place)
    try:
        if options.role != "bootstrap":
            check_against_saved(options, data_dir)
        return run_loop(_run(options, data_dir, wanted))
    except BaseExceptionGroup as group:
        raise first_of_ours(group) from None
    except SystemExit:
        data_dir.discard()
        raise
    finally:
        data_dir.close()


async def _run(options: Options, data_dir: DataDir, wanted: Path) -> int:
    identity = data_dir.identity()
    seams = real_world(data_dir.storage)
    network = HivemindNetwork(identity, daemon_options(options, data_dir))
    questions = Questions(sys.stdin, sys.stdout, options.output.log_format)
    node = Node(options, seams, network, identity, questions.consent)
    Ending(node.leave, lambda: sweep(data_dir.path), lambda: options.run.leave_timeout * bool(node.shards_only_here))
    try:
        async with (
            surroundings(node, options, data_dir),
            shown(node, options.output, sys.stdout, questions),
            page_shown(node, options.output.dashboard, data_dir.storage),
            logged(node, options.output.tensorboard),
        ):
            if data_dir.path != wanted:
                node.say("data directory", elsewhere(data_dir.path, wanted))
            await node.run()
    finally:
        seams.close()
    return 0
