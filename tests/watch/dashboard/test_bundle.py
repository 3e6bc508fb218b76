"""The committed bundle: made from the sources as they are, small, and complete in itself."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import p2pnode.watch.dashboard as dashboard

STATIC = Path(dashboard.__file__).parent / "static"
SOURCES = Path(__file__).parents[3] / "page" / "src"
SERVED = ("index.html", "page.js", "figures.js", "page.css", "icon.svg")
MOST_BYTES = 150_000


def test_it_was_built_from_the_sources_as_they_are() -> None:
    whole = b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir(), key=lambda path: path.name))
    built = (STATIC / "sources.sha256").read_text().strip()
    assert hashlib.sha256(whole).hexdigest() == built, "the sources of the page changed: make page"


def test_it_is_small_and_asks_nobody_else() -> None:
    assert sum(len(gzip.compress((STATIC / name).read_bytes())) for name in SERVED) <= MOST_BYTES
    page = (STATIC / "index.html").read_text()
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in (STATIC / "page.css").read_text()
