"""Text for people: makes peers' text harmless, and sums up sizes, times and states in short phrases."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from ..runtime.limiter import limits_in_words
from ..wire.ids import short
from ..wire.status import NO_LIMITS, FigureValue, JobStatus, LimitOptions, Machine, NodeStatus, PeerState
from .glossary import label

MAX_COMMAND = 4000
BARS = "▁▂▃▄▅▆▇█"
HASH = re.compile(r"[0-9a-f]{16,}")  # the name of a circle that formed by itself
MAX_MARKS = 2  # combining characters on one letter; more would only paint over other lines


def clean(text: str, limit: int = 40) -> str:
    """Text of a peer, safe to print on one line: no control or direction characters, at most `limit` characters.

    Escape sequences lose their escape character; what is left of them is visible and does nothing.
    """
    kept: list[str] = []
    marks = 0
    for char in text[: limit * 4]:
        category = unicodedata.category(char)
        marks = marks + 1 if category[0] == "M" else 0
        if marks > MAX_MARKS:
            continue
        kept.append("·" if category[0] == "C" or category in ("Zl", "Zp") else char)
    shown = "".join(kept)
    return shown if len(shown) <= limit and len(text) <= limit * 4 else shown[: limit - 1] + "…"


def one_line(text: str) -> str:
    """The same text with single spaces instead of line breaks."""
    return " ".join(text.split())


def size(count: int) -> str:
    """A number of bytes with two or three digits."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def duration(seconds: float) -> str:
    """A time span in its two largest units."""
    left = max(0, int(seconds))
    if left < 60:
        return f"{left} s"
    if left < 3600:
        return f"{left // 60} min {left % 60:02d} s"
    if left < 86400:
        return f"{left // 3600} h {left % 3600 // 60:02d} min"
    return f"{left // 86400} d {left % 86400 // 3600:02d} h"


def figure_text(value: FigureValue, unit: str = "") -> str:
    """A figure for people, in the units of wire.status.Figure."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return clean(short(value), 8) if unit == "peer" else clean(value, 100)
    if not math.isfinite(value):
        return "–"
    if unit == "share":
        return f"{value:.1%}"
    if unit == "bytes":
        return size(int(value))
    if unit == "s":
        return f"{value:.3g} s" if value < 60 else duration(value)
    return f"{value if isinstance(value, int) else format(value, '.4g')}{f' {clean(unit, 20)}' if unit else ''}"


def names_in(status: NodeStatus) -> dict[str, str]:
    """What the node and its peers call themselves, by id."""
    return {status.id: status.name, **{row.id: row.name for row in status.peers}}


def group_names(status: NodeStatus) -> dict[str, str]:
    """What each community and circle is called: after its first member, and that it is this node's own."""
    names, me = names_in(status), status.own_state()
    communities = {row.community for row in (me, *status.peers)} - {""}
    of_communities = {id: _called_after(names.get(id, ""), id, id == me.community) for id in communities}
    return of_communities | circle_names((me, *status.peers), me.id)


def circle_names(peers: Iterable[PeerState], me: str = "") -> dict[str, str]:
    """What each circle is called. One that formed by itself has a hash for a name: after its member of smallest id."""
    members: dict[str, list[PeerState]] = {}
    for peer in sorted(peers, key=lambda peer: peer.id):
        members.setdefault(peer.job().circle, []).append(peer)
    return {
        circle: _called_after(inside[0].name, inside[0].id, any(peer.me or peer.id == me for peer in inside))
        if HASH.fullmatch(circle)
        else clean(circle, 24)
        for circle, inside in members.items()
        if circle
    }


def _called_after(name: str, id: str, own: bool) -> str:
    return f"of {clean(name, 24) or short(id)}{' (yours)' * own}"


def job_phrases(status: JobStatus) -> list[str]:
    """How a job goes, in short phrases, the most important first."""
    done = status.state.training.round
    if status.condition in ("waiting", "ended"):
        because = f": {clean(status.reason, 200)}" if status.reason else ""
        return [f"{status.condition}{because}", *([f"round {done}"] if done else []), *_figure_phrases(status)]
    return _train_phrases(status) if status.train is not None else [clean(status.kind), *_figure_phrases(status)]


def _figure_phrases(status: JobStatus) -> list[str]:
    return [
        f"{clean(figure.label or figure.name)} {figure_text(figure.value, figure.unit)}"
        for figure in status.state.figures
    ]


def _train_phrases(status: JobStatus) -> list[str]:
    state, train, details = status.state, status.state.training, status.training
    phrases = [f"{clean(details.task)}, {label('round')} {train.round or 0}"]
    few = details.test_samples < details.test_available
    of_few = f" (of {details.test_samples} of {details.test_available} test samples)" if few else ""
    if train.accuracy is not None:
        phrases.append(f"{label('accuracy')} {train.accuracy:.1%}{of_few}")
    elif details.test_loss is not None:
        phrases.append(f"{label('test_loss')} {details.test_loss:.4g}{of_few}")
    phrases += _figure_phrases(status)
    if train.loss is not None:
        phrases.append(f"{label('loss')} {train.loss:.4g}")
    phrases.append(f"{status.steps} {label('steps')}, {state.steps_per_second or 0:.0f}/s on {details.samples} samples")
    phrases.append(f"{label('update_norm')} {train.update_norm or 0:.2%}")
    if details.slowed:
        phrases.append(clean(details.slowed, 200))
    if state.circle:
        phrases.append(f"{label('circle')} {clean(state.circle[:8])}")
    phrases.append(f"{details.exchanges} {label('exchanges')}, {details.entries} {label('entries')}")
    return phrases


def job_lines(jobs: Mapping[str, JobStatus]) -> list[tuple[str, list[str]]]:
    """Returns each job's name and phrases about it. The name is left out where there is only one job."""
    names = [clean(name) if len(jobs) > 1 else "" for name in jobs]
    return list(zip(names, map(job_phrases, jobs.values()), strict=True))


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The latest values as bars between the smallest and the largest of them; "" for fewer than two."""
    known = [value for value in values if value is not None and math.isfinite(value)][-width:]
    if len(known) < 2:
        return ""
    low, span = min(known), max(known) - min(known)
    if not 0 < span < math.inf:
        return BARS[0] * len(known)
    return "".join(BARS[min(len(BARS) - 1, int((value - low) / span * len(BARS)))] for value in known)


def machine_phrases(machine: Machine, limits: LimitOptions) -> list[str]:
    """The load of the machine, this node's part in it, and the node's limits."""
    phrases = [f"machine {machine.cpu:.0%} busy, this node {machine.own_cpu:.0%}"]
    phrases.append(f"{size(machine.memory_bytes)} of memory, {size(machine.memory_free_bytes)} free")
    if machine.battery is not None:
        phrases.append(f"battery {machine.battery:.0%}{'' if machine.on_battery else ', plugged in'}")
    return phrases if limits == NO_LIMITS else [*phrases, f"limits: {limits_in_words(limits)}"]


def shard_phrase(status: NodeStatus) -> str:
    """How many shards are here, and of how many where that is known; "" when there are none."""
    here = [row for row in status.shards if row.here]
    if not status.shards:
        return ""
    whole = sum(job.training.shards_in_all for job in status.jobs.values())
    words = f"{len(here)} of all {whole} shards here" if whole else f"{len(here)} shard{'s' * (len(here) != 1)} here"
    received = sum(row.received for row in here)
    return words + (f", {received} received" if received else "")


def partner_phrase(status: NodeStatus) -> str:
    """The latest partner of this node and why it was chosen; "" before the first exchange."""
    own = [row for row in status.exchanges if row.one == status.id]
    if not own:
        return ""
    last = max(own, key=lambda row: row.last)
    peer = next((row for row in status.peers if row.id == last.other), None)
    name = clean(peer.name) if peer is not None and peer.name else short(last.other)
    reason = clean(peer.reason, 100) if peer is not None else ""
    sent = f"↑ {size(last.sent_bytes)} ↓ {size(last.received_bytes)} in {last.count}"
    return f"partner {name}{f' ({reason})' if reason else ''}, {sent}"


def ago(seconds: float | None) -> str:
    """How long ago something was."""
    return "never" if seconds is None else f"{duration(seconds)} ago"


def invitation(status: NodeStatus) -> tuple[str, str]:
    """What to send to a friend: ("invite", the command), or ("address", the address) of a meeting point."""
    if status.role == "bootstrap":
        return "address", clean(status.addresses[0], 300) if status.addresses else ""
    return "invite", clean(status.invite, MAX_COMMAND)


def reason(status: NodeStatus) -> str:
    """The reason for the condition, without repeating the condition itself."""
    found = clean(status.reason, 200).removeprefix(f"{status.condition}: ")
    return "" if found == status.condition else found
