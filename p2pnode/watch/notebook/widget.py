"""The peer graph as a widget for notebooks: the graph of the page, to drag, zoom and scrub. It works offline."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import msgspec
import traitlets
from anywidget import AnyWidget

from ..glossary import TRAINING
from ..graph import PeerGraph

LATEST = -1
MAX_EDGES = 2000


class SwarmWidget(AnyWidget):
    """Shows one of the pictures: `at` is its index, or LATEST. The browser sets `at`."""

    _esm = resources.files("p2pnode.watch.dashboard").joinpath("static", "widget.js").read_text("utf-8")
    picture = traitlets.Dict().tag(sync=True)
    moments: traitlets.List[float] = traitlets.List().tag(sync=True)  # the times of the pictures
    at = traitlets.Int(LATEST).tag(sync=True)
    labels = traitlets.Dict({key: found.label for key, found in TRAINING.items()}).tag(sync=True)  # of figures

    def __init__(self, pictures: Callable[[], Sequence[PeerGraph]]) -> None:
        super().__init__()
        self._pictures = pictures
        self.observe(lambda _: self._show(), "at")
        self.refresh()

    def refresh(self) -> None:
        """Look for new pictures. An earlier picture that is shown stays, even where its index has changed."""
        moments = [picture.time for picture in self._pictures()]
        if self.at != LATEST and moments:
            shown = self.picture["time"]
            self.at = max(0, bisect_right(moments, shown) - 1)
        self.moments = moments
        self._show()

    def _show(self) -> None:
        pictures = self._pictures()
        if pictures:
            latest = len(pictures) - 1
            shown = pictures[latest if self.at == LATEST else max(0, min(self.at, latest))]
            if self.picture.get("time") != shown.time:
                self.picture = sent(shown)


def sent(picture: PeerGraph) -> dict[str, Any]:
    """What the browser needs of a picture; where there are very many edges, those with the most bytes."""
    edges = sorted(picture.exchanges, key=lambda edge: -(edge.sent_bytes + edge.received_bytes))[:MAX_EDGES]
    return {
        "time": picture.time,
        "condition": picture.condition,
        "reason": picture.reason,
        "peers": msgspec.to_builtins(picture.peers),
        "exchanges": msgspec.to_builtins(edges),
    }


def on_this_loop(act: Callable[[], None]) -> Callable[[], None]:
    """A function that any thread may call and that runs `act` on this event loop, where widgets must be changed."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return act

    def later() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(act)

    return later
