"""Real Chromium for the tests of the page."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.cli_nodes import wait_for

LIMIT = 60.0
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
ARTEFACTS = Path(os.environ.get("P2PNODE_TEST_ARTEFACTS", "/tmp/p2pnode-artefacts"))


def chromium() -> str:
    """The path of Chromium, which `make test` installs; skips the test where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    return found


@contextlib.contextmanager
def launched() -> Iterator[Browser]:  # type: ignore[name-defined]  # noqa: F821
    """A browser for several pages."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(  # type: ignore[no-untyped-def]
    browser, url: str, dark: bool = False, width: int = 1280, node_leaves: bool = False
) -> Iterator[Page]:  # type: ignore[name-defined]  # noqa: F821
    """A page with a session of its own; its console must stay silent but for connections to a node that leaves."""
    said: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(url)
    try:
        yield page
    finally:
        page.close()
    assert [words for words in said if not (node_leaves and "net::ERR_" in words)] == []


def until(page: Page, expression: str) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Wait until a JavaScript expression holds. The page forbids `eval`, by which playwright itself would wait."""
    wait_for(expression, lambda: page.evaluate(expression), LIMIT)


def qr_content(page: Page, selector: str) -> str:  # type: ignore[name-defined]  # noqa: F821
    """What a camera reads from the QR code in an element of the page."""
    import io

    import zxingcpp
    from PIL import Image

    found = zxingcpp.read_barcodes(Image.open(io.BytesIO(page.locator(selector).screenshot())))
    assert len(found) == 1, "one code is there and can be read"
    return str(found[0].text)


def picture(page: Page, name: str, whole: bool = False) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Keep a screenshot, to be looked at."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=whole)
