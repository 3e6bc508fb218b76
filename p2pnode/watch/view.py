"""A swarm to look at from Python: rows for data frames, graphs, matrices and figures, of now or of any moment seen."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import UsageError
from ..ids import short
from .graph import PeerGraph
from .text import clean

if TYPE_CHECKING:
    import networkx
    from matplotlib.figure import Figure

Row = dict[str, Any]


class SwarmView:
    """Pictures of a swarm, oldest first. Methods show the newest one, or the newest not after `at` (a time)."""

    def __init__(self, pictures: Callable[[], Sequence[PeerGraph]]) -> None:
        self._pictures = pictures

    @property
    def pictures(self) -> Sequence[PeerGraph]:
        """All there are."""
        return self._pictures()

    def picture(self, at: float | None = None) -> PeerGraph:
        """One of them; UsageError while there is none."""
        pictures = self.pictures
        if not pictures:
            raise UsageError("nothing has been seen of this swarm yet")
        earlier = [one for one in pictures if at is None or one.time <= at]
        return earlier[-1] if earlier else pictures[0]

    # ---- rows, for pandas, polars or nothing ----

    def peers(self, at: float | None = None) -> list[Row]:
        """A row for each peer."""
        return [msgspec.structs.asdict(peer) for peer in self.picture(at).peers]

    def exchanges(self, at: float | None = None) -> list[Row]:
        """A row for each pair that exchanged."""
        return [msgspec.structs.asdict(edge) for edge in self.picture(at).exchanges]

    def history(self) -> list[Row]:
        """A row for each peer at each moment."""
        return [{"time": one.time, **msgspec.structs.asdict(peer)} for one in self.pictures for peer in one.peers]

    # ---- structure ----

    def graph(self, at: float | None = None) -> networkx.Graph:
        """Peers as nodes, exchanges as edges, everything known of them as attributes."""
        import networkx

        picture = self.picture(at)
        graph = networkx.Graph(time=picture.time, run=picture.run)
        for peer in picture.peers:
            graph.add_node(
                peer.id, **{name: value for name, value in msgspec.structs.asdict(peer).items() if name != "id"}
            )
        for edge in picture.exchanges:
            if edge.one in graph and edge.other in graph:
                graph.add_edge(edge.one, edge.other, **_attributes(msgspec.structs.asdict(edge)))
        return graph

    # ---- pictures ----

    def plot(self, at: float | None = None) -> Figure:
        """The peer graph."""
        from .plots import plot_graph

        return plot_graph(self.picture(at))

    def plot_history(self) -> Figure:
        """Loss and accuracy of all peers over time, and how many are there."""
        from .plots import plot_history

        return plot_history(self.pictures)

    def _repr_html_(self) -> str:
        """A table for notebooks. What peers can set is escaped."""
        picture = self.picture()
        present = sum(peer.present for peer in picture.peers)
        head = "".join(f"<th>{name}</th>" for name in ("peer", "group", "round", "loss", "accuracy", "there"))
        rows = "".join(_html_row(peer) for peer in picture.peers[:50])
        more = len(picture.peers) - 50
        rest = f"<tr><td colspan=6>… and {more} more</td></tr>" if more > 0 else ""
        title = f"<b>{present} peers</b>, {len(picture.exchanges)} pairs exchanging, {len(self.pictures)} moments seen"
        return f"<div>{title}<table><tr>{head}</tr>{rows}{rest}</table></div>"


def _attributes(edge: Row) -> Row:
    return {name: value for name, value in edge.items() if name not in ("one", "other")}


def _html_row(peer: Any) -> str:
    group = short(peer.community) or peer.circle
    cells = (
        clean(peer.name),
        clean(str(group)),
        "" if peer.round is None else str(peer.round),
        "" if peer.loss is None else f"{peer.loss:.4g}",
        "" if peer.accuracy is None else f"{peer.accuracy:.1%}",
        "yes" if peer.present else "no",
    )
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
