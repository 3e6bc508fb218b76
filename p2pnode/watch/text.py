"""Words for people: peers' text made harmless, sizes and times made short."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

from ..runtime.limiter import limits_in_words
from ..wire.ids import short
from ..wire.status import Guest, Machine, NodeStatus, TrainStatus

MAX_COMMAND = 4000
BARS = "▁▂▃▄▅▆▇█"
MAX_MARKS = 2  # combining signs on one letter; more only serves to paint over other lines


def clean(text: str, most: int = 40) -> str:
    """Text a peer supplied, safe to print on one line: no control or direction signs, at most `most` long.

    Escape sequences lose their escape character, so what is left of them is visible and does nothing.
    """
    kept: list[str] = []
    marks = 0
    for char in text[: most * 4]:
        category = unicodedata.category(char)
        marks = marks + 1 if category[0] == "M" else 0
        if marks > MAX_MARKS:
            continue
        kept.append("·" if category[0] == "C" or category in ("Zl", "Zp") else char)
    shown = "".join(kept)
    return shown if len(shown) <= most and len(text) <= most * 4 else shown[: most - 1] + "…"


def one_line(text: str) -> str:
    """The same words without line breaks."""
    return " ".join(text.split())


def size(count: int) -> str:
    """A number of bytes, three digits or so."""
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


def learning_words(learning: TrainStatus) -> list[str]:
    """How the learning goes, in short phrases, the most telling first."""
    words = [f"{clean(learning.task)}, round {learning.rounds}"]
    if learning.accuracy is not None:
        words.append(f"accuracy {learning.accuracy:.1%}")
    elif learning.test_loss is not None:
        words.append(f"test loss {learning.test_loss:.4g}")
    if learning.loss is not None:
        words.append(f"loss {learning.loss:.4g}")
    words.append(f"{learning.steps} steps, {learning.steps_per_second:.0f}/s on {learning.samples} samples")
    words.append(f"updates {learning.update_norm:.2%}")
    if learning.community:
        words.append(f"community {clean(short(learning.community), 8)}")
    if learning.circle:
        words.append(f"circle {clean(learning.circle[:8])}")
    words.append(f"{learning.exchanges} exchanges, {learning.entries} entries of others")
    return words


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The latest values as bars between their least and their largest; "" for fewer than two."""
    known = [value for value in values if value is not None and math.isfinite(value)][-width:]
    if len(known) < 2:
        return ""
    low, span = min(known), max(known) - min(known)
    if not 0 < span < math.inf:
        return BARS[0] * len(known)
    return "".join(BARS[min(len(BARS) - 1, int((value - low) / span * len(BARS)))] for value in known)


def machine_words(machine: Machine, guest: Guest) -> list[str]:
    """The load of the machine and this node's part in it, and what it is held to."""
    words = [f"machine {machine.cpu:.0%} busy, this node {machine.own_cpu:.0%}"]
    words.append(f"{size(machine.memory_bytes)} of memory, {size(machine.memory_free_bytes)} free")
    if machine.battery is not None:
        words.append(f"battery {machine.battery:.0%}{'' if machine.on_battery else ', plugged in'}")
    limits = limits_in_words(guest)
    return words if limits == "none" else [*words, f"limits: {limits}"]


def shard_words(status: NodeStatus) -> str:
    """How many shards are here; "" when none is known."""
    here = [row for row in status.shards if row.here]
    if not status.shards:
        return ""
    received = sum(row.received for row in here)
    return f"{len(here)} of {len(status.shards)} known shards here" + (f", {received} received" if received else "")


def partner_words(status: NodeStatus) -> str:
    """With whom this node exchanged last, and why it chose that peer; "" before it did."""
    own = [row for row in status.exchanges if row.one == status.id]
    if not own:
        return ""
    last = max(own, key=lambda row: row.last)
    peer = next((row for row in status.peers if row.id == last.other), None)
    name = clean(peer.name) if peer is not None and peer.name else short(last.other)
    reason = clean(peer.chosen, 100) if peer is not None else ""
    sent = f"↑ {size(last.sent_bytes)} ↓ {size(last.received_bytes)} in {last.count}"
    return f"partner {name}{f' ({reason})' if reason else ''}, {sent}"


def ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{duration(seconds)} ago"


def invitation(status: NodeStatus) -> tuple[str, str]:
    """What to give a friend: ("invite", the command) or, from a meeting point, ("address", where it is)."""
    if status.role == "bootstrap":
        return "address", clean(status.addresses[0], 300) if status.addresses else ""
    return "invite", clean(status.invite, MAX_COMMAND)


def why(status: NodeStatus) -> str:
    """The condition's reason, without saying the condition itself again."""
    reason = clean(status.why, 200).removeprefix(f"{status.condition}: ")
    return "" if reason == status.condition else reason
