"""Runs with several constraints in the report: variants, a table, and curves of each constraint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbtrpo.report import build, figures, page, planes, tables
from sbtrpo.report.constraints import constraint_table
from sbtrpo.report.runs import Runs, read_runs
from sbtrpo.report.style import LOOKS, look
from sbtrpo.report.tables import Missing
from sbtrpo.report.variants import Variant
from tests.report import browser, samples

GOAL, CIRCLE = "SafetyPointGoal2-v0", "SafetyCarCircle2-v0"
PAIR = "vases_contact+vases_velocity"


def constrained(
    task: str, algo: str, seed: int = 0, names: Sequence[str] = ("hazards", PAIR), **settings: Any
) -> dict[str, Any]:
    """A run in which constraint k costs k + 1, more with every seed, and is kept in one of k + 2 episodes."""
    one = samples.run(task, algo, seed, **{"epochs": 3, "constraints": ("each",), **settings})
    count = len(one["epoch"])
    for k, name in enumerate(names):
        one[f"cost_{name}"] = np.full(count, k + 1.0 + seed)
        one[f"safety_{name}"] = np.full(count, 1 / (k + 2))
    return one


def mixed() -> Runs:
    """On one task a method with both selections, and another one that knows the total cost alone."""
    runs = [constrained(GOAL, "sb-trpo", seed) for seed in (0, 2)]
    runs += [samples.run(GOAL, "sb-trpo", epochs=3), samples.run(CIRCLE, "cpo", epochs=3)]
    return read_runs(samples.table(runs))


def run_with(algo: str, **settings: Any) -> dict[str, Any]:
    """A run on Point Goal whose settings the table has as they are here."""
    one = samples.run(GOAL, algo, epochs=3)
    return {**one, "run": [f"{algo} {settings}"] * 3, **{name: [value] * 3 for name, value in settings.items()}}


def titles(*runs: dict[str, Any]) -> list[str]:
    return [variant.title for variant in read_runs(samples.table(runs)).variants]


# ---- variants ------------------------------------------------------------------------------------------------------


def test_runs_with_other_constraints_are_variants_that_say_so_in_words() -> None:
    assert titles(
        run_with("cpo", constraints=("sum",)),
        run_with("cpo", constraints=("each",)),
        run_with("cpo", constraints=("hazards", "vases")),
        run_with("cpo", constraints=("hazards",)),
    ) == ["CPO", "CPO, each constraint", "CPO, constraint hazards", "CPO, constraints hazards, vases"]
    assert titles(run_with("cpo", constraints=("each",))) == ["CPO, each constraint"]  # shared by all or not


def test_values_for_each_constraint_are_listed() -> None:
    assert titles(
        run_with("sb-trpo", beta="0.75", constraints=("sum",)),
        run_with("sb-trpo", beta="0.6 0.9", constraints=("each",)),
        run_with("sb-trpo", beta="0.75 0.75", constraints=("each",)),
        run_with("sb-trpo", beta="0.9", constraints=("sum",)),
    ) == ["SB-TRPO", "SB-TRPO, β = 0.9", "SB-TRPO, β = 0.6, 0.9, each constraint", "SB-TRPO, each constraint"]
    assert titles(run_with("sb-trpo", beta_end="0.6 0.9", beta_from=0.5)) == ["SB-TRPO, β moves to 0.6, 0.9"]
    assert titles(run_with("cpo", cost_limit="5 10", constraints="a b")) == ["CPO, limit 5, 10, constraints a, b"]


def test_limits_for_each_constraint_compete_only_at_zero() -> None:
    limits = {"0 0": "CPO, each constraint", "0 5": "CPO, limit 0, 5, each constraint"}
    runs = [run_with("cpo", cost_limit=limit, constraints=("each",)) for limit in limits]
    assert titles(*runs) == list(limits.values())
    assert [variant.title for variant in page.rivals(read_runs(samples.table(runs)))] == ["CPO, each constraint"]


def test_a_benchmark_that_has_each_constraint_throughout_is_drawn_and_compared() -> None:
    runs = read_runs(samples.table([constrained(task, a) for task in (GOAL, CIRCLE) for a in ("sb-trpo", "cpo")]))
    names = ["SB-TRPO, each constraint", "CPO, each constraint"]
    drawings = [figures.training_curves(runs, GOAL), planes.performance_profiles(runs)]
    assert [drawing.axes[0].get_legend_handles_labels()[1] for drawing in drawings] == [names, names]
    assert [row[0].text for row in tables.main(runs, "safety").rows] == names
    times = tables.update_time(runs)
    assert [(row[0].text, row[-1].text) for row in times.rows] == [(name, "–") for name in names]  # not the paper's


def test_methods_with_other_constraints_look_like_none_of_the_others() -> None:
    each = [look(Variant(algo, (("constraints", ("each",)),))) for algo in LOOKS]
    assert len({*each, *LOOKS.values()}) == 2 * len(LOOKS)
    limited = Variant("cpo", (("cost_limit", 15.0), ("constraints", ("each",))))
    assert look(limited).line == "dotted"


# ---- the table -----------------------------------------------------------------------------------------------------


def test_the_table_has_each_constraint_pooled_over_seeds() -> None:
    table = constraint_table(mixed())
    assert [[cell.plain for cell in row] for row in table.rows] == [
        ["SafetyPointGoal2-v0", "SB-TRPO, each constraint", "hazards", "2.0 ± 1.0", "0.5 ± 0.0"],
        ["SafetyPointGoal2-v0", "SB-TRPO, each constraint", PAIR, "3.0 ± 1.0", "0.33 ± 0.0"],
    ]
    assert list(table.row_tags) == [[f"task:{GOAL}", "method:SB-TRPO, each constraint"]] * 2
    assert table.rows[0][3].note == "2 seeds, 60,000 steps"


def test_tasks_are_ruled_off_and_have_their_own_constraints() -> None:
    runs = read_runs(samples.table([constrained(GOAL, "cpo"), constrained(CIRCLE, "cpo", names=("sigwalls",))]))
    table = constraint_table(runs)
    assert [row[2].text for row in table.rows] == ["hazards", PAIR, "sigwalls"]
    assert table.rules == {2}


@pytest.mark.usefixtures("no_figures")
def test_it_is_written_with_the_others_or_not_missed(tmp_path: Path) -> None:
    runs = [constrained("Mine-v0", "cpo", names=("hazards", samples.NASTY))]
    report = build(samples.table(runs), tmp_path / "each")
    for ending in ("md", "tex", "html"):
        text = (tmp_path / "each" / "tables" / f"constraints.{ending}").read_text(encoding="utf-8")
        assert "hazards" in text
        assert samples.NASTY not in text
    assert '"name":"constraints","title":"Constraints"' in report.index.read_text(encoding="utf-8")
    without = build(samples.table([samples.run("Mine-v0", "cpo", epochs=3)]), tmp_path / "sum")
    assert not (tmp_path / "sum" / "tables" / "constraints.md").exists()
    assert not any("constraint" in gap.part for gap in without.skipped)
    with pytest.raises(Missing, match="several constraints"):
        constraint_table(read_runs(samples.table([samples.run(GOAL, "cpo", epochs=3)])))


# ---- the page ------------------------------------------------------------------------------------------------------


def test_the_page_has_curves_of_each_constraint() -> None:
    data = page.page_data(mixed(), [], [], [], [], None)
    assert [(metric["name"], metric["title"]) for metric in data["metrics"][4:]] == [
        ("cost_hazards", "cost: hazards"),
        ("safety_hazards", "safety: hazards"),
        (f"cost_{PAIR}", f"cost: {PAIR}"),
        (f"safety_{PAIR}", f"safety: {PAIR}"),
    ]
    each = data["curves"][GOAL]["SB-TRPO, each constraint"]
    assert each["cost_hazards"] == {"mean": [2, 2, 2], "std": [1, 1, 1]}
    assert each["safety_hazards"]["mean"] == [0.5, 0.5, 0.5]
    assert {"steps", "cost", "safety_probability"} <= set(each)
    assert not any("hazards" in name for name in data["curves"][GOAL]["SB-TRPO"])
    assert not any("hazards" in name for name in data["curves"][CIRCLE]["CPO"])


def test_curves_of_constraints_are_as_short_as_the_others() -> None:
    runs = read_runs(samples.table([constrained(GOAL, "cpo", seed, epochs=1000) for seed in (0, 1)]))
    (lines,) = page.page_data(runs, [], [], [], [], None)["curves"][GOAL].values()
    assert {len(line["mean"]) for name, line in lines.items() if name not in ("steps", "seeds")} == {page.POINTS}
    assert {f"cost_{PAIR}", "safety_hazards"} < set(lines)


def test_without_several_constraints_the_page_has_the_four_metrics() -> None:
    runs = read_runs(samples.table([samples.run(GOAL, "cpo", epochs=3)]))
    assert list(page.metric_titles(runs)) == ["safe_reward", "safety_probability", "reward", "cost"]


def test_a_reader_switches_to_a_constraint(tab: browser.Page, tmp_path: Path) -> None:
    runs = mixed()
    path = tmp_path / "page.html"
    path.write_text(page.page_html(runs, [constraint_table(runs)]), encoding="utf-8")
    tab.size(375, 812, phone=True)
    tab.open(path)
    tab.click("#method-chips [data-key='SB-TRPO, each constraint']")  # at first the method as published is shown
    tab.click(f"#metric [data-metric='safety_{PAIR}']")
    drawn = "[...document.querySelectorAll('#curve-grid [data-method]')].map(p => p.dataset.method)"
    heads = "[...document.querySelectorAll('#curve-grid h3')].map(h => h.textContent)"
    assert tab.evaluate(drawn) == ["SB-TRPO, each constraint"]
    assert tab.evaluate(heads) == ["SafetyPointGoal2-v0"]  # the other task has no such constraint
    words = tab.evaluate("[...document.querySelectorAll('.plot.curve text')].map(t => t.textContent)")
    assert f"safety: {PAIR} ↑" in words
    assert "1" in words  # the axis of a probability ends there
    rows = tab.evaluate("[...document.querySelectorAll('table[data-name=constraints] tbody tr')].length")
    assert rows == 2
    assert tab.evaluate("document.documentElement.scrollWidth") == 375
    tab.click("#metric [data-metric=cost]")
    assert tab.evaluate(heads) == ["SafetyPointGoal2-v0", "SafetyCarCircle2-v0"]
    assert tab.complaints == []


def test_a_page_that_loads_anew_forgets_a_constraint_that_is_gone(tab: browser.Page, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    for runs in (mixed(), read_runs(samples.table([samples.run(GOAL, "sb-trpo", epochs=3)]))):
        path.write_text(page.page_html(runs, [], refresh=3600.0), encoding="utf-8")
        if not runs.constraints:
            tab.reload()
        else:
            tab.open(path)
            tab.click("#metric [data-metric=cost_hazards]")
    pressed = "document.querySelector('#metric [aria-pressed=true]').dataset.metric"
    assert tab.evaluate(pressed) == "safe_reward"
    assert tab.complaints == []
