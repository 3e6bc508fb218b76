"""The page of a real swarm in a real browser: who joins and who is killed shows, time goes back, the token steers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.browser import chromium, opened, picture, until
from tests.live.door_nodes import Door, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.timeout(300), pytest.mark.xdist_group("learning")]
NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture
def founder(tmp_path: Path) -> Iterator[Door]:
    chromium()
    door = Door(tmp_path, "founder", "--round-seconds", "0.5", "--dashboard", "0", learns=True)
    yield door
    door.stop()


def link(door: Door) -> str:
    return door.says(r"http://127\.0\.0\.1:\d+/#token=\S+")


def names(page) -> list[str]:
    return page.eval_on_selector_all("#peers tbody tr", "rows => rows.map(row => row.cells[0].textContent)")


def drawn(page) -> int:
    """How many peers the graph has."""
    return int(page.evaluate("p2pnode.views.swarm.graph.nodes.size"))


def test_who_joins_and_who_is_killed_shows(founder: Door, tmp_path: Path) -> None:
    with opened(link(founder)) as page:
        until(page, "document.querySelectorAll('#peers tbody tr').length === 1")
        friend = Door(tmp_path, "friend", *pasted(founder.invite())[3:], "--name", NASTY, learns=True)
        try:
            until(page, "document.querySelectorAll('#peers tbody tr').length === 2")
            assert NASTY in names(page), "shown as text"
            assert page.query_selector("#peers img") is None
            assert drawn(page) == 2
            until(page, "p2pnode.views.swarm.graph.links.length === 1")
            page.click("#peers tbody tr:nth-child(2)")
            until(page, "document.getElementById('card').textContent.includes('exchanges')")
            picture(page, "swarm")
            friend.process.kill()
            until(page, "document.querySelectorAll('#peers tr.gone').length === 1")
            picture(page, "killed")
        finally:
            friend.stop()
        page.focus("#scrub")
        page.keyboard.press("Home")
        until(page, "document.querySelectorAll('#peers tbody tr').length === 1")
        assert page.get_attribute("#live", "aria-pressed") == "false"
        page.click("#live")
        until(page, "document.getElementById('moment').textContent === 'now'")


@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 390)])
def test_every_view_can_be_reached_by_keyboard_in_light_and_dark(founder: Door, dark: bool, width: int) -> None:
    with opened(link(founder), dark, width) as page:
        until(page, "document.getElementById('condition').textContent === 'alone'")
        page.focus("#tab-swarm")
        page.keyboard.press("ArrowRight")
        until(page, "document.querySelector('#chart-accuracy canvas') !== null")
        until(page, "document.getElementById('figures').textContent.includes('digits')")
        picture(page, f"learning-{width}")
        page.keyboard.press("ArrowRight")
        assert page.is_visible("#invite")
        assert "python -m p2pnode --bootstrap" in page.text_content("#invite")
        assert page.query_selector("#qr svg") is not None
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the screen"
        picture(page, f"node-{width}")


def test_the_token_steers_and_a_node_that_left_is_said(founder: Door) -> None:
    address = link(founder)
    with opened(address.partition("#")[0]) as page:
        page.click("#tab-node")
        assert not page.is_visible("#leave")
    with opened(address, node_leaves=True) as page:
        assert "token" not in page.url
        page.click("#tab-node")
        page.on("dialog", lambda dialog: dialog.accept())
        page.click("#leave")
        wait_for("the node to leave", lambda: founder.process.poll() is not None, 30.0)
        assert founder.process.returncode == 0
        page.wait_for_selector("#lost:not([hidden])")
        assert "does not answer" in page.text_content("#lost")
