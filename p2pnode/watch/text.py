"""Words for people: peers' text made harmless, sizes and times made short."""

from __future__ import annotations

import unicodedata

from ..node.status import LearningStatus, Status

MAX_COMMAND = 4000
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


def learning_words(learning: LearningStatus) -> list[str]:
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
    if learning.aim == "own":
        words.append("aim: each community's own model")
    words.append(f"{learning.exchanges} exchanges, {learning.entries} entries of others")
    return words


def ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{duration(seconds)} ago"


def invitation(status: Status) -> tuple[str, str]:
    """What to give a friend: ("invite", the command) or, from a meeting point, ("address", where it is)."""
    if status.role == "bootstrap":
        return "address", clean(status.addresses[0], 300) if status.addresses else ""
    return "invite", clean(status.invite, MAX_COMMAND)


def why(status: Status) -> str:
    """The condition's reason, without saying the condition itself again."""
    reason = clean(status.why, 200).removeprefix(f"{status.condition}: ")
    return "" if reason == status.condition else reason
