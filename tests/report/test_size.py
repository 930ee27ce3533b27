"""The page of 480 runs, the paper's benchmark: it stays small, and fits a phone."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from sbtrpo.report import build, page
from tests.report import browser, size


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page, with its curves at their full number of points; figures that are only beside it are left out."""
    module = importlib.import_module("sbtrpo.report.build")
    drawings = module._drawings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_drawings", lambda runs: (one for one in drawings(runs) if one.on_page))
        return build(size.copies(seeds=5, epochs=page.POINTS), tmp_path_factory.mktemp("large")).index


def test_the_page_of_480_runs_is_small(large: Path) -> None:
    text = large.read_text("utf-8")
    assert "480 runs (all finished) of 12 methods and settings on 8 tasks, 5 seeds each" in text
    assert text.count("data:image/png") >= 5
    assert 1_000_000 < large.stat().st_size < 5_000_000


@pytest.mark.parametrize("screen", size.SCREENS)
def test_it_opens_on_any_screen_with_its_headline_first(tab: browser.Page, large: Path, screen: str) -> None:
    seen = size.measure(tab, large, screen)
    assert seen["page"] == seen["screen"]
    assert seen["headline"] < seen["drawn"]
    assert seen["elements"] < 20_000
    assert tab.complaints == []


def test_a_long_table_keeps_its_heads_and_room_for_numbers_on_a_phone(tab: browser.Page, large: Path) -> None:
    tab.size(375, 812, phone=True)
    tab.open(large)
    tab.evaluate("box = document.querySelector('#paper-table .scroll'); box.scrollTop = 2000; box.scrollLeft = 100")
    room, heads, first = tab.evaluate(
        "(() => { const top = (node) => node.getBoundingClientRect().top; return [box.clientWidth,"
        " top(box.querySelector('thead')) - top(box), box.querySelector('td').offsetWidth] })()"
    )
    assert abs(heads) <= 1
    assert first < 0.6 * room
    lines = tab.evaluate(
        "[...document.querySelectorAll('figcaption a')].map(a => { const text = document.createRange();"
        " text.selectNodeContents(a); return text.getClientRects().length })"
    )
    assert set(lines) == {1}
