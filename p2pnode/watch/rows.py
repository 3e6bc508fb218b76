"""Rows of a table as a plain list of dicts, which notebooks show as a table and pandas takes as they are."""

from __future__ import annotations

import html
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..wire.errors import LocalProblem
from .text import clean

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]
SHOWN = 10  # rows in a notebook
WIDTH = 24  # characters of a cell


def need(package: str) -> None:
    """LocalProblem in one line when a package for notebooks is not installed."""
    if find_spec(package) is None:
        raise LocalProblem(f"{package} is not installed; pip install 'p2pnode[notebook]' brings it")


class TableRows(list[Row]):
    """A list of dicts with the same keys. Its `repr` says what it has, because a thousand rows fill many screens."""

    def frame(self) -> pandas.DataFrame:
        """The rows as a data frame. LocalProblem where pandas is not installed."""
        need("pandas")
        import pandas

        return pandas.DataFrame(self)

    def columns(self) -> list[str]:
        """The names of the columns, as the first row has them."""
        return list(self[0]) if self else []

    def __repr__(self) -> str:
        count = f"{len(self):,} row{'' if len(self) == 1 else 's'}"
        return f"<{count}: {', '.join(self.columns())}>" if self else f"<{count}>"

    def _repr_html_(self) -> str:
        """The first rows as a table. Text that peers can set is escaped."""
        head = "".join(f"<th>{_text(name)}</th>" for name in self.columns())
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(row.get(name))}</td>" for name in self.columns()) + "</tr>"
            for row in self[:SHOWN]
        )
        more = len(self) - SHOWN
        rest = f"<tr><td colspan={len(self.columns())}>… and {more:,} more</td></tr>" if more > 0 else ""
        return f"<table><tr>{head}</tr>{body}{rest}</table>" if self else "<i>no rows</i>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return _text(f"{value:.4g}" if isinstance(value, float) else str(value))


def _text(text: str) -> str:
    return html.escape(clean(text, WIDTH))
