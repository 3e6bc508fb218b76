"""The peer graph as a widget for notebooks: the page's own graph, to be dragged, zoomed and scrubbed; works offline."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import msgspec
import traitlets
from anywidget import AnyWidget

from ..graph import PeerGraph

NEWEST = -1
MOST_EDGES = 2000


class SwarmWidget(AnyWidget):
    """Shows one of the pictures: `at` is its number, NEWEST the newest there is. The browser sets `at`."""

    _esm = resources.files("p2pnode.watch.dashboard").joinpath("static", "widget.js").read_text("utf-8")
    picture = traitlets.Dict().tag(sync=True)
    moments: traitlets.List[float] = traitlets.List().tag(sync=True)  # the times of the pictures
    at = traitlets.Int(NEWEST).tag(sync=True)

    def __init__(self, pictures: Callable[[], Sequence[PeerGraph]]) -> None:
        super().__init__()
        self._pictures = pictures
        self.observe(lambda _: self._show(), "at")
        self.refresh()

    def refresh(self) -> None:
        """There may be new pictures. An earlier one that is looked at stays, whatever its number has become."""
        moments = [picture.time for picture in self._pictures()]
        if self.at != NEWEST and moments:
            shown = self.picture["time"]
            self.at = max(0, bisect_right(moments, shown) - 1)
        self.moments = moments
        self._show()

    def _show(self) -> None:
        pictures = self._pictures()
        if pictures:
            newest = len(pictures) - 1
            shown = pictures[newest if self.at == NEWEST else max(0, min(self.at, newest))]
            if self.picture.get("time") != shown.time:
                self.picture = sent(shown)


def sent(picture: PeerGraph) -> dict[str, Any]:
    """What the browser needs of a picture; of very many edges those with most bytes."""
    edges = sorted(picture.exchanges, key=lambda edge: -(edge.sent_bytes + edge.received_bytes))[:MOST_EDGES]
    return {
        "time": picture.time,
        "condition": picture.condition,
        "why": picture.why,
        "peers": msgspec.to_builtins(picture.peers),
        "exchanges": msgspec.to_builtins(edges),
    }


def on_this_loop(act: Callable[[], None]) -> Callable[[], None]:
    """The same, to be called from any thread: a notebook's widgets belong to the notebook's own loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return act

    def later() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(act)

    return later
