"""What the short commands print: settings, peers, status. Each also as one JSON object."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..config.resolve import Resolved, unknown_variables
from ..discovery.book import stored_entries
from ..discovery.registry import BOOK_FILE
from ..node.control import WORK_LIMIT, NotRunning, ask
from ..node.peer_states import roles_in_words
from ..storage.datadir import IDENTITY_FILE
from ..storage.files import DiskStorage
from ..watch.glossary import FIGURES, label
from ..watch.terminal.tables import NO_NAMES, peers_table
from ..watch.text import (
    clean,
    duration,
    figure_text,
    group_names,
    invitation,
    job_lines,
    job_phrases,
    machine_phrases,
    names_in,
    partner_phrase,
    reason,
    shard_phrase,
    size,
)
from ..wire.addresses import Address
from ..wire.control import ControlRequest
from ..wire.errors import LocalProblem
from ..wire.ids import short
from ..wire.invite import Invite
from ..wire.run import RunAccess
from ..wire.status import JobStatus, JobTable, MergeRow, NodeStatus, PeerState, ShardRow

LEAVE_LIMIT = 10.0
ANY_WIDTH = 10_000  # columns
_AIMS = {"shared": "one model for all", "own": "a model for each community"}


def print_json(value: object) -> None:
    """ASCII, so that nothing a peer wrote can steer the terminal."""
    print(json.dumps(msgspec.to_builtins(value)))


def show_config(resolved: Resolved, environ: Mapping[str, str], as_json: bool) -> None:
    rows = [(key, _plain(value), origin) for key, value, origin in resolved.values()]
    if as_json:
        print_json({key: {"value": value, "from": origin} for key, value, origin in rows})
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("setting", "value", "from"):
        table.add_column(heading, overflow="fold")
    for key, value, origin in rows:
        words = ", ".join(value) if isinstance(value, list) else "–" if value is None else str(value)
        table.add_row(Text(key), Text(clean(words, 2000)), Text(origin, style="dim" if origin == "default" else "cyan"))
    console().print(table)
    for line in unknown_variables(environ):
        print(f"note: {line}", file=sys.stderr)


def _plain(value: object) -> object:
    """A setting as JSON can hold it; a run's key is not shown."""
    if isinstance(value, RunAccess):
        return f"{value.run}.***" if value.private else str(value.run)
    if isinstance(value, Invite):
        return "given"
    if isinstance(value, dict):
        return [f"{key}={item}" for key, item in value.items()]
    if isinstance(value, tuple):
        return [item.text if isinstance(item, Address) else str(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def show_peers(data_dir: Path, as_json: bool) -> None:
    """Prints the peers the running node knows, or those saved on disk, and says which."""
    try:
        status = _ask_status(data_dir)
        peers, source = status.peers, f"the running node {status.name}"
    except NotRunning:
        status, peers = None, _stored_peers(data_dir)
        source = f"the peer book in {data_dir} (no node is running; these were met before)"
    if as_json:
        print_json({"from": "store" if status is None else "node", "peers": peers})
        return
    print(f"from {clean(source, 300)}:" if peers else f"nobody yet, says {clean(source, 300)}")
    if peers:
        _print_peers(peers, {} if status is None else group_names(status))


def _print_peers(peers: Sequence[PeerState], names: Mapping[str, str] = NO_NAMES) -> None:
    """Prints a table as wide as the terminal; in a pipe, one line for each peer, however long."""
    shown = console(in_pipe=ANY_WIDTH)
    shown.print(peers_table(peers, shown.width if sys.stdout.isatty() else None, names=names))


def _stored_peers(data_dir: Path) -> tuple[PeerState, ...]:
    storage = DiskStorage(data_dir)
    if storage.read(IDENTITY_FILE) is None:
        raise NotRunning(f"no node has run on {data_dir}; start one with `python -m p2pnode`, or give its --data-dir")
    now = time.time()
    return tuple(
        PeerState(entry.peer, "", "", present=False, heard_seconds_ago=max(0.0, now - entry.met))
        for entry in stored_entries(storage, BOOK_FILE)
    )


def show_status(data_dir: Path, as_json: bool) -> None:
    status = _ask_status(data_dir)
    if as_json:
        print_json(status)
    elif sys.stdout.isatty():
        from ..watch.terminal.lines import HEADINGS
        from ..watch.terminal.live import render

        shown = console()
        shown.print(render(status, shown.width, max(shown.height, 40)))
        kind, text = invitation(status)
        if text:
            print(f"{HEADINGS[kind]}\n{text}")  # not by rich, which would break the line
    else:
        print("\n".join(status_lines(status)))


def status_lines(status: NodeStatus) -> list[str]:
    """The status as `word: value` lines, for pipes; the invite on one line."""
    traffic, because = status.traffic, reason(status)
    jobs = [f"{name}: {', '.join(phrases)}" if name else ", ".join(phrases) for name, phrases in job_lines(status.jobs)]
    aims = [_AIMS.get(job.train.aim, "not known") for job in status.jobs.values() if job.train is not None]
    facts = {
        "name": clean(status.name),
        "id": status.id,
        "run": (status.run or "none") + (" (private)" if status.private else ""),
        "resting": clean(status.paused, 100) or "no",
        "trouble": clean("; ".join(status.unwell), 300) or "none",
        "state": f"{status.condition}{f' ({because})' if because else ''}",
        "up": duration(status.uptime_seconds),
        "peers": f"{roles_in_words(row.role for row in status.peers if row.present)} here, {len(status.peers)} known",
        "learning": "; ".join(jobs) or "nothing",
        "aim": ", ".join(aims) or "none",
        "machine": "not known" if status.machine is None else ", ".join(machine_phrases(status.machine, status.limits)),
        "partner": partner_phrase(status).removeprefix("partner ") or "none yet",
        "shards": shard_phrase(status) or "none",
        "traffic": f"{size(traffic.sent_bytes)} sent, {size(traffic.received_bytes)} received",
        "addresses": " ".join(clean(address, 300) for address in status.addresses) or "none",
        "invite": clean(status.invite, 4000) or "none yet",
    }
    return [f"{word}: {value}" for word, value in facts.items()]


def _ask_status(data_dir: Path) -> NodeStatus:
    status = ask(data_dir, ControlRequest("status")).status
    if status is None:
        raise LocalProblem(f"the node on {data_dir} sent no status; is it another version?")
    return status


def ask_to_leave(data_dir: Path) -> None:
    """Returns when the node no longer answers; LocalProblem when it goes on for too long."""
    ask(data_dir, ControlRequest("leave"))
    deadline = time.monotonic() + LEAVE_LIMIT
    while time.monotonic() < deadline:
        try:
            status = ask(data_dir, ControlRequest("status"), timeout=1.0).status
            if status is not None and any(event.kind == "handing over" for event in status.events):
                deadline = time.monotonic() + LEAVE_LIMIT  # it has a limit of its own
        except NotRunning:
            print("the node left")
            return
        except LocalProblem:
            pass
        time.sleep(0.1)
    raise LocalProblem(f"the node on {data_dir} was asked to leave and still runs; end its process")


def console(in_pipe: int = 160) -> Console:
    """Stdout; wide enough for whole lines when it is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=in_pipe)


SHOWN = 30  # merges, for people
MAX_TABLE_ROWS = 100  # of a table that a job reports


def show_jobs(data_dir: Path, as_json: bool) -> None:
    """The jobs of the run that the running node takes part in."""
    status = _ask_status(data_dir)
    if as_json:
        print_json({"jobs": status.jobs, "compute_idle": status.compute_idle})
    elif status.jobs:
        console().print(jobs_table(status.jobs))
        for name, job in status.jobs.items():
            for table in job.tables:
                print(f"{clean(name)}: {clean(table.title, 80)}")
                console().print(job_table(table, names_in(status)))
        if status.compute_idle is not None:
            print(f"{label('compute_idle')}: {status.compute_idle:.0%}")
    else:
        print("this node takes part in no job")


def jobs_table(jobs: Mapping[str, JobStatus]) -> Table:
    """A row for each job, in the order of the run's manifest."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in ("job", label("kind"), label("condition")):
        table.add_column(column)
    table.add_column(label("compute_share"), justify="right", no_wrap=True)
    table.add_column("how it goes")
    for name, job in jobs.items():
        because = [clean(job.reason, 200)] if job.reason and job.condition == "paused" else []
        table.add_row(
            Text(clean(name)),
            Text(clean(job.kind)),
            job.condition,
            "–" if job.compute_share is None else f"{job.compute_share:.0%}",
            Text(", ".join([*because, *job_phrases(job)])),
        )
    return table


def job_table(reported: JobTable, names: Mapping[str, str]) -> Table:
    """A table that a job reports about itself, with peers by name."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for heading, _ in reported.columns:
        table.add_column(Text(clean(heading)))
    units = [unit for _, unit in reported.columns]
    for row in reported.rows[:MAX_TABLE_ROWS]:
        cells = zip(row, units, strict=False)
        table.add_row(*(Text(name_of(str(v), names) if u == "peer" and v else figure_text(v, u)) for v, u in cells))
    return table


def show_log(data_dir: Path, as_json: bool, job: str = "") -> None:
    """The node's merges, the latest last."""
    merges = ask(data_dir, ControlRequest("log", job=job)).merges
    if as_json:
        print_json({"merges": log_rows(merges), "names": names_at(data_dir)})
    elif merges:
        console().print(log_table(merges, names_at(data_dir)))
    else:
        print("no round is done yet")


def log_rows(merges: Sequence[MergeRow]) -> list[dict[str, object]]:
    """A row for each merge. The loss before it is that of the round it ended, the loss after it that of the next."""
    rows = [msgspec.structs.asdict(row) for row in merges]
    befores = [row.pop("loss") for row in rows]
    afters = [*befores[1:], None][: len(rows)]
    return [
        {**row, "loss_before": before, "loss_after": after}
        for row, before, after in zip(rows, befores, afters, strict=True)
    ]


def log_table(merges: Sequence[MergeRow], names: Mapping[str, str]) -> Table:
    """The loss before a merge is that of the round it ended, the loss after it that of the next."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for path in ("round", "merge.time", "merge.sent_bytes", "merge.received_bytes", "merge.entries", "loss"):
        table.add_column(label(path), justify="right")
    table.add_column("after the merge", justify="right")
    table.add_column(label("merge.update_norm"), justify="right")
    table.add_column(label("merge.partners"))
    for row, after in list(zip(merges, [*merges[1:], None], strict=True))[-SHOWN:]:
        table.add_row(
            str(row.round),
            time.strftime("%H:%M:%S", time.localtime(row.time)),
            size(row.sent_bytes),
            size(row.received_bytes),
            str(row.entries),
            f"{row.loss:.4g}",
            "–" if after is None else f"{after.loss:.4g}",
            f"{row.update_norm:.2%}",
            Text(", ".join(name_of(peer, names) for peer in row.partners) or "–"),
        )
    return table


def show_blame(data_dir: Path, as_json: bool, job: str = "") -> None:
    """Each author's share of each layer."""
    shares = ask(data_dir, ControlRequest("blame", job=job), WORK_LIMIT).blame
    if as_json:
        print_json({"blame": shares, "names": names_at(data_dir)})
    elif shares:
        console().print(blame_table(shares, names_at(data_dir)))
    else:
        print("nobody has added anything yet")


def blame_table(shares: Mapping[str, Mapping[str, float]], names: Mapping[str, str]) -> Table:
    """A row for each layer, a column for each author, who added most first."""
    authors = sorted(shares, key=lambda author: (-sum(shares[author].values()), author))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("layer")
    for author in authors:
        table.add_column(Text(name_of(author, names)), justify="right", no_wrap=True)
    for layer in shares[authors[0]]:
        table.add_row(Text(clean(layer, 60)), *(f"{shares[author][layer]:.1%}" for author in authors))
    return table


def names_at(data_dir: Path) -> dict[str, str]:
    status = ask(data_dir, ControlRequest("status")).status
    return {} if status is None else names_in(status)


def name_of(peer: str, names: Mapping[str, str]) -> str:
    """What a peer calls itself, else its short id."""
    return clean(names.get(peer, ""), 24) or short(peer)


ID_CHARS = 8
MAX_SHARDS_SHOWN = 100  # shards, for people


def show_shards(data_dir: Path, shard: str, as_json: bool, job: str = "") -> None:
    """All shards of the running node, or the journey of the one whose id begins with `shard`."""
    rows = ask(data_dir, ControlRequest("shards", shard=shard, job=job)).shards
    if as_json:
        print_json({"shards": rows})
    elif not rows:
        print("no data is here yet")
    elif shard:
        _show_journey(rows[0], names_at(data_dir))
    else:
        console().print(shards_table(rows, names_at(data_dir)))
        if len(rows) > MAX_SHARDS_SHOWN:
            print(f"and {len(rows) - MAX_SHARDS_SHOWN} more; --json tells of all")
        if any(row.states.get("quarantined") for row in rows):
            print(f"quarantined: {FIGURES['quarantined'].meaning}")


def shards_table(rows: Sequence[ShardRow], names: Mapping[str, str]) -> Table:
    """A row for each shard, the least sure first: those are the ones that travel."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in ("shard", *map(label, ("shard.samples", "shard.size_bytes", "confidence", "visits"))):
        table.add_column(column, justify="right", no_wrap=True)
    for column in (label("holder"), "from", label("states"), label("shard.reason")):
        table.add_column(column)
    ranked = sorted(rows, key=lambda row: (2.0 if row.confidence is None else row.confidence, row.id))
    for row in ranked[:MAX_SHARDS_SHOWN]:
        table.add_row(
            Text(row.id[:ID_CHARS], style="cyan"),
            str(row.samples),
            size(row.size_bytes),
            "–" if row.confidence is None else f"{row.confidence:.2f}",
            str(row.visits),
            Text(name_of(row.holder, names)),
            "others" if row.received else "here",
            Text(_states(row)),
            Text(clean(row.reason, 80)),
        )
    return table


def journey_table(row: ShardRow, names: Mapping[str, str]) -> Table:
    """A line for each stay that is known, oldest first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in (label("visit.time"), "model", *map(label, ("round", "visit.before", "visit.after"))):
        table.add_column(column, justify="right", no_wrap=True)
    for visit in row.journey:
        table.add_row(
            time.strftime("%m-%d %H:%M:%S", time.localtime(visit.time)),
            Text(name_of(visit.model, names)),
            str(visit.round) if visit.round else "–",
            f"{visit.before:.2f}",
            f"{visit.after:.2f}",
        )
    return table


def _show_journey(row: ShardRow, names: Mapping[str, str]) -> None:
    keepers = ", ".join(name_of(peer, names) for peer in row.keepers) or "nobody else"
    sure = "not seen yet" if row.confidence is None else f"confidence {row.confidence:.2f} here"
    where = "here" if row.here else "elsewhere"
    lines = [
        f"shard {row.id}: {row.samples} samples, {size(row.size_bytes)}, {sure}",
        f"held by {name_of(row.holder, names) or 'nobody yet'}, kept by {keepers}; its samples are {where}",
        f"{_states(row)}{f'; {clean(row.reason, 120)}' if row.reason else ''}",
    ]
    print("\n".join(line for line in lines if line))
    if row.journey:
        console().print(journey_table(row, names))
    else:
        print("no visit is known yet")


def _states(row: ShardRow) -> str:
    return ", ".join(f"{count} {state}" for state, count in row.states.items())
