"""The committed bundle: made from the sources as they are, small, and complete in itself."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import p2pnode.watch.dashboard as dashboard

STATIC = Path(dashboard.__file__).parent / "static"
PAGE = Path(__file__).parents[3] / "page"
SERVED = ("index.html", "page.js", "figures.js", "page.css", "icon.svg")
MOST_BYTES = 150_000


def sha256(paths: list[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def test_it_was_built_from_the_sources_as_they_are_and_not_changed_since() -> None:
    sources = [
        PAGE / "build.mjs",
        PAGE / "package-lock.json",
        *sorted((PAGE / "src").iterdir(), key=lambda at: at.name),
    ]
    made = [STATIC / name for name in ("LICENCES.txt", "icon.svg", "index.html", "page.css", "page.js", "widget.js")]
    lines = (STATIC / "bundle.sha256").read_text().splitlines()
    assert lines == [f"{sha256(sources)} sources", f"{sha256(made)} bundle"], "the page changed: make page"


def test_it_is_small_and_asks_nobody_else() -> None:
    assert sum(len(gzip.compress((STATIC / name).read_bytes())) for name in SERVED) <= MOST_BYTES
    page = (STATIC / "index.html").read_text()
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in (STATIC / "page.css").read_text()
