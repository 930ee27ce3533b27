"""The page in a real browser: it loads without complaint, filters, sorts, and shows something."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sbtrpo.benchmark.collect import write_table
from sbtrpo.cli import app as cli
from sbtrpo.report import Report, page, tables
from sbtrpo.report.runs import Runs, read_runs
from sbtrpo.runs.judgement import BELOW_ZERO, NONE_SAFE
from tests.report import browser, samples

HEADS = "[...document.querySelectorAll('table[data-name=main_safety] thead tr:last-child button')]"
ROWS = "[...document.querySelectorAll('table[data-name=main_safety] tbody tr')].map(r => r.cells[0].textContent)"


def test_json_in_the_page_cannot_end_its_script() -> None:
    text = page.safe_json({"a": "</script><!--", "b": [float("nan"), 1.5], "c": "\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--", "b": [None, 1.5], "c": "\u2028"}


def test_the_lead_says_who_is_best_where() -> None:
    both = ["A", "B"]
    assert page.lead({"t": (["A"], ["A"])}, both) == "A is best in 1 of 1 task."
    tied = page.lead({"t": (["A"], []), "u": (["B"], [])}, both)
    assert tied == "A and B are best, each in 1 of 2 tasks."
    assert page.lead({"t": (["A"], []), "u": (["A"], []), "v": (["B"], [])}, both).endswith("2 of 3 tasks, B in 1.")
    assert page.lead({"t": ([], [])}, both) == "On no task is any method safe in half of its episodes."
    assert page.lead({"t": (["A"], [])}, ["A"]).startswith("A is the only method")


def ending(task: str, algo: str, safe_reward: float, safety: float, **settings: Any) -> dict[str, Any]:
    """A run with these values."""
    one = samples.run(task, algo, epochs=2, **settings)
    one["safe_reward"], one["safety_probability"] = np.full(2, safe_reward), np.full(2, safety)
    one["reward"] = one["safe_reward"] / safety
    return one


def test_winners_are_the_bold_cells() -> None:
    task = "SafetyPointGoal2-v0"
    results = (("sb-trpo", 1.6, 0.68), ("trpo_lag", 0.09, 0.79), ("focops", 2.2, 0.34))
    runs = read_runs(samples.table([ending(task, *result) for result in results]))
    assert page.winners(runs, task) == (["SB-TRPO"], ["TRPO-Lag"])


def three_tasks() -> Runs:
    """A method of the user's leads two tasks, and CPO one; on the third all returns are below zero."""
    results = {
        "SafetyPointGoal2-v0": [("MyMethod", 9.0, 0.9), ("cpo", 5.0, 0.8), ("sb-trpo", 4.0, 0.7), ("crpo", 1.0, 0.6)],
        "SafetyCarGoal2-v0": [("MyMethod", 3.0, 0.9), ("cpo", 5.0, 0.8), ("sb-trpo", 4.0, 0.95), ("crpo", 9.0, 0.3)],
        "Mine-v0": [("MyMethod", -80.0, 0.88), ("cpo", -39.0, 0.53), ("sb-trpo", -7.0, 0.1), ("crpo", -99.0, 0.9)],
    }
    rows = [ending(task, *result) for task, found in results.items() for result in found]
    return read_runs(samples.table([*rows, ending("Mine-v0", "sb-trpo", -1.0, 0.99, beta=0.9)]))


def test_the_headline_and_the_open_table_have_one_ranking() -> None:
    runs = three_tasks()
    table = tables.main(runs, "safety")
    data = page.page_data(runs, [table], [], [], [], None)
    assert data["lead"] == "MyMethod is best in 2 of 3 tasks, CPO in 1."
    assert [(task["best"], task["safest"]) for task in data["tasks"]] == [
        (["MyMethod"], ["MyMethod"]),
        (["CPO"], ["SB-TRPO"]),
        (["MyMethod"], ["CRPO"]),
    ]
    for k, task in enumerate(data["tasks"]):
        for place, key in ((2 * k + 1, "best"), (2 * k + 2, "safest")):
            assert [row[0].text for row in table.rows if row[place].bold] == task[key]


@pytest.mark.usefixtures("no_figures")
def test_where_returns_are_below_zero_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = three_tasks()
    assert runs.below_zero == {"Mine-v0"}
    (warning,) = runs.warnings()
    assert warning.startswith("Mine-v0: safe episodes return less than 0")
    data = page.page_data(runs, [], [], [], [], None)
    assert [task["belowZero"] for task in data["tasks"]] == [False, False, True]
    table = samples.table([ending("Mine-v0", algo, -39.0, safety) for algo, safety in (("cpo", 0.53), ("ppo", 0.88))])
    path = write_table(table, tmp_path / "table.parquet")
    assert cli.main(["report", str(path), "--out", str(tmp_path / "report")]) == 0
    assert "every violation raises it" in capsys.readouterr().out
    text = (tmp_path / "report" / "index.html").read_text()
    assert "every violation raises it" in text
    assert "PPO is best in 1 of 1 task." in text


def test_where_no_episode_was_safe_nothing_is_said_of_safe_ones() -> None:
    one = samples.run("Mine-v0", "cpo", epochs=2)
    one |= {"reward": np.full(2, -9.0), "safety_probability": np.zeros(2), "safe_reward": np.zeros(2)}
    other = ending("Other-v0", "cpo", -39.0, 0.5)
    assert read_runs(samples.table([one])).warnings() == [f"Mine-v0: {NONE_SAFE}"]
    assert read_runs(samples.table([one, other])).warnings() == [f"Mine-v0: {NONE_SAFE}", f"Other-v0: {BELOW_ZERO}"]


def test_a_method_that_never_ran_as_published_competes_with_what_it_has() -> None:
    task = "SafetyPointGoal2-v0"
    rows = [("sb-trpo", {"beta": 0.6}), ("cpo", {}), ("cpo", {"cost_limit": 15.0}), ("rcpo", {"cost_limit": 15.0})]
    runs = read_runs(samples.table([samples.run(task, algo, epochs=2, **settings) for algo, settings in rows]))
    assert [variant.title for variant in page.rivals(runs)] == ["SB-TRPO, β = 0.6", "CPO"]


def test_it_loads_without_complaint_and_is_no_wider_than_the_screen(
    tab: browser.Page, report: Report, tmp_path: Path
) -> None:
    for width, phone, dark in ((1280, False, False), (375, True, True)):
        tab.size(width, 812, dark, phone)
        tab.open(report.index)
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        picture = tab.screenshot(tmp_path / f"{width}.png")
        pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"))
        assert pixels.shape[:2] == (812, width)
        colours = np.unique(pixels.astype(np.int64) @ [65536, 256, 1])
        assert len(colours) > 100  # it is not blank
        background = pixels[2, 2].mean()
        assert background < 60 if dark else background > 200
    assert tab.complaints == []


def test_the_first_thing_on_it_is_which_method_is_best_where(tab: browser.Page, report: Report) -> None:
    tab.size(375, 812, phone=True)
    tab.open(report.index)
    lead = tab.evaluate("document.querySelector('#lead').textContent")
    assert "are best, each in 1 of 3 tasks." in lead
    assert tab.evaluate("document.querySelector('#lead').getBoundingClientRect().bottom") < 812
    assert tab.evaluate("document.querySelectorAll('#cards article').length") == 3
    keys = tab.evaluate("[...document.querySelectorAll('#plane-key .key')].map(k => k.textContent)")
    assert keys == ["SB-TRPO", "PPO-Lag", "CPO", "C-TRPO", "CRPO"]  # whose mark is which


def test_who_is_best_is_bold_in_the_open_table(tab: browser.Page, report: Report) -> None:
    tab.open(report.index)
    best = "data.tasks.map(t => t.best)"
    bold = (
        "data.tasks.map((t, k) => [...document.querySelectorAll('details[open] table[data-name=main_safety] tbody tr')]"
        ".filter(r => r.cells[2 * k + 1].classList.contains('bold')).map(r => r.cells[0].textContent))"
    )
    assert tab.evaluate(bold) == tab.evaluate(best)
    assert any(tab.evaluate(best))


def test_text_of_runs_is_shown_as_it_is(tab: browser.Page, report: Report) -> None:
    tab.open(report.index)
    titles = tab.evaluate("[...document.querySelectorAll('#cards h3')].map(h => h.textContent)")
    assert samples.NASTY in titles
    assert tab.evaluate("document.querySelectorAll('script').length") == 2
    assert tab.complaints == []


def test_it_filters_tasks_and_methods(tab: browser.Page, report: Report) -> None:
    tab.open(report.index)
    groups = "[...document.querySelectorAll('table[data-name=main_safety] .groups th')].map(h => h.textContent)"
    assert tab.evaluate(groups) == ["", "SafetyPointButton2-v0", "SafetyCarCircle2-v0", samples.NASTY]
    assert tab.evaluate(ROWS) == ["SB-TRPO", "PPO-Lag", "CPO", "C-TRPO", "CRPO"]
    tab.click("#task-chips [data-key=SafetyPointButton2-v0]")
    tab.click("#method-chips [data-key=CPO]")
    assert tab.evaluate(groups) == ["", "SafetyCarCircle2-v0", samples.NASTY]
    assert tab.evaluate(ROWS) == ["SB-TRPO", "PPO-Lag", "C-TRPO", "CRPO"]
    assert tab.evaluate("document.querySelectorAll('#curve-grid article').length") == 2
    drawn = "[...document.querySelectorAll('#curve-grid article:first-child [data-method]')].map(p => p.dataset.method)"
    assert sorted(tab.evaluate(drawn)) == ["C-TRPO", "CRPO", "PPO-Lag", "SB-TRPO"]
    compared = "new Set([...document.querySelectorAll('#paper-table tbody tr')].map(r => r.cells[1].textContent))"
    assert "CPO" not in tab.evaluate(f"[...{compared}]")
    assert "2 of 3 tasks" in tab.evaluate("document.querySelector('#filter-words').textContent")
    tab.click("#verdict-chips [data-key=agrees]")
    verdicts = tab.evaluate("[...document.querySelectorAll('#paper-table tbody tr')].map(r => r.cells[6].textContent)")
    assert "agrees" not in verdicts


def test_it_has_the_table_over_tasks(tab: browser.Page, report: Report) -> None:
    tab.open(report.index)
    cells = "[...document.querySelectorAll('table[data-name=overall] tbody tr')].map(r => r.cells[{}].textContent)"
    tab.evaluate(
        "document.querySelector('table[data-name=overall] thead tr:last-child th:nth-child(2) button').click()"
    )
    values = [float(text.split(" (")[0]) for text in tab.evaluate(cells.format(1))]
    assert len(values) > 1
    assert values == sorted(values, reverse=True)
    tab.click("#method-chips [data-key=CPO]")
    assert "CPO" not in tab.evaluate(cells.format(0))


def test_it_sorts_numbers_as_numbers_and_dashes_last(tab: browser.Page, report: Report) -> None:
    tab.open(report.index)
    column = "[...document.querySelectorAll('table[data-name=main_safety] tbody tr')].map(r => r.cells[{}].textContent)"
    value = lambda text: float(text.split("±")[0].replace("−", "-"))  # noqa: E731
    tab.evaluate(f"{HEADS}[3].click()")
    down = [value(text) for text in tab.evaluate(column.format(3))]
    assert down == sorted(down, reverse=True)
    assert tab.evaluate(f"{HEADS}[3].parentElement.ariaSort") == "descending"
    tab.evaluate(f"{HEADS}[3].click()")
    up = [value(text) for text in tab.evaluate(column.format(3))]
    assert up == sorted(up)
    tab.evaluate(f"{HEADS}[5].click()")  # three methods did not run on the third task
    assert tab.evaluate(column.format(5))[2:] == ["–", "–", "–"]
    cell = "document.querySelector('table[data-name=main_safety] tbody tr:last-child').cells[5]"
    assert tab.evaluate(f"getComputedStyle({cell}).textAlign") == "right"
    tab.evaluate(f"{HEADS}[0].click()")
    assert tab.evaluate(ROWS) == ["C-TRPO", "CPO", "CRPO", "PPO-Lag", "SB-TRPO"]


def test_curves_are_read_by_pointing_at_them(tab: browser.Page, report: Report) -> None:
    tab.size(1280, 900)
    tab.open(report.index)
    tab.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    tab.click("#metric [data-metric=cost]")
    tab.evaluate("document.querySelector('.plot.curve').scrollIntoView({block: 'center'})")
    x, y = tab.evaluate(
        "(() => { const r = document.querySelector('.plot.curve').getBoundingClientRect();"
        " return [r.left + r.width / 2, r.top + r.height / 2] })()"
    )
    tab.move(x, y)
    tab.wait("!document.querySelector('#tip').hidden")
    assert "SB-TRPO" in tab.evaluate("document.querySelector('#tip').textContent")
    tab.move(2, 2)
    tab.wait("document.querySelector('#tip').hidden")
    assert tab.complaints == []


def test_curves_name_their_axes_and_have_room_for_their_bands(tab: browser.Page, report: Report) -> None:
    tab.open(report.index)
    for metric, title in (("safe_reward", "safe reward ↑"), ("cost", "cost ↑")):
        tab.click(f"#metric [data-metric={metric}]")
        words = tab.evaluate("[...document.querySelectorAll('.plot.curve:first-of-type text')].map(t => t.textContent)")
        assert {title, "environment steps →"} <= set(words)
    tab.click("#metric [data-metric=reward]")
    outside = tab.evaluate(
        "[...document.querySelectorAll('.plot.curve')].flatMap(p => {"
        " const room = p.querySelector('clipPath rect').getBBox();"
        " return [...p.querySelectorAll('.band')].map(b => b.getBBox())"
        ".filter(b => b.y < room.y - 1 || b.y + b.height > room.y + room.height + 1) }).length"
    )
    assert outside == 0


def test_no_label_of_a_plot_covers_another(tab: browser.Page, report: Report) -> None:
    tab.size(375, 812, phone=True)
    tab.open(report.index)
    covered = tab.evaluate(
        "[...document.querySelectorAll('.plot')].flatMap(p => { const boxes = [...p.querySelectorAll('text')]"
        ".map(t => [t.textContent, t.getBoundingClientRect()]); return boxes.flatMap(([a, r], i) => boxes.slice(i + 1)"
        ".filter(([, s]) => r.left < s.right && s.left < r.right && r.top + 2 < s.bottom && s.top + 2 < r.bottom)"
        ".map(([b]) => a + ' | ' + b)) })"
    )
    assert covered == []


def test_no_card_of_a_figure_is_stretched_beside_a_taller_one(tab: browser.Page, report: Report) -> None:
    tab.size(1280, 900)
    tab.open(report.index)
    ready = (
        "Promise.all([...document.querySelectorAll('#figure-list img')].map(i => (i.loading = 'eager', i.decode())))"
    )
    assert tab.evaluate(f"{ready}.then(() => true)")
    figures = "[...document.querySelectorAll('#figure-list figure')]"
    empty = f"{figures}.map(f => f.clientHeight - [...f.children].reduce((sum, part) => sum + part.offsetHeight, 0))"
    assert max(tab.evaluate(empty)) <= 2
    heights, lefts = tab.evaluate(f"[{figures}.map(f => f.clientHeight), {figures}.map(f => f.offsetLeft)]")
    assert max(heights) > 1.5 * min(heights)  # the frontier of β is a tall one
    assert len(set(lefts)) == 2


def test_figures_enlarge_and_videos_stand_ready(tab: browser.Page, report: Report) -> None:
    tab.open(report.index)
    assert tab.evaluate("document.querySelectorAll('#figure-list figure').length") == 10
    tab.click("#figure-list button")
    assert tab.evaluate("document.querySelector('#zoom').open")
    assert tab.evaluate("document.querySelector('#zoom img').decode().then(() => true)")
    film = tab.evaluate("document.querySelector('#video-list video').src")
    assert film.endswith("/videos/SafetyCarCircle2-v0/a%20%3Cb%3E%20%26%20c.mp4#t=0.1")  # from where a frame shows


def test_a_watched_page_keeps_its_filters_when_it_loads_anew(tab: browser.Page, tmp_path: Path) -> None:
    runs = read_runs(samples.benchmark(["SafetyPointGoal2-v0"], ["sb-trpo", "cpo"], seeds=1, epochs=3, studies=False))
    pressed = "document.querySelector('#method-chips [data-key=CPO]').ariaPressed"
    for refresh, kept in ((3600.0, "false"), (None, "true")):
        path = tmp_path / f"{refresh}.html"
        path.write_text(page.page_html(runs, [], refresh=refresh), encoding="utf-8")
        tab.open(path)
        tab.click("#method-chips [data-key=CPO]")
        tab.reload()
        assert tab.evaluate(pressed) == kept
    assert tab.complaints == []
