"""Our runs beside the paper's SB-TRPO, and the tables of the README and the docs, which are made of these."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbtrpo.report import paper
from sbtrpo.report.beside import beside, dominates, glance, number
from sbtrpo.report.runs import Runs, Variant, read_runs
from sbtrpo.report.tables import Missing
from tests.report import samples

GOAL, HOPPER, CIRCLE = "SafetyPointGoal2-v0", "SafetyHopperVelocity-v1", "SafetyCarCircle2-v0"
ROOT = Path(__file__).parents[2]
GROWING = Variant("sb-trpo_growing")


def ends_at(task: str, algo: str, seed: int, reward: float, safety: float, safe_reward: float) -> dict[str, Any]:
    one = samples.run(task, algo, seed, epochs=3)
    one |= {"reward": np.full(3, reward), "safety_probability": np.full(3, safety)}
    return one | {"safe_reward": np.full(3, safe_reward), "cost": np.full(3, 10.0)}


def of(*runs: dict[str, Any]) -> Runs:
    return read_runs(samples.table(runs))


def texts(row: Any) -> list[str]:
    return [cell.plain for cell in row]


def test_a_row_has_the_mean_over_seeds_and_the_deviation_between_them() -> None:
    runs = of(ends_at(GOAL, "sb-trpo_growing", 0, 3.0, 0.8, 1.9), ends_at(GOAL, "sb-trpo_growing", 1000, 4.0, 0.7, 2.1))
    theirs, ours = beside(runs).rows
    assert texts(theirs) == [GOAL, "paper, SB-TRPO", "5", "1.6 ± 0.5", "", "0.68 ± 0.07", "2.4 ± 0.6", "18 ± 6"]
    expected = ["2.60 ± 0.28", "2.00 ± 0.14", "0.750 ± 0.071", "3.50 ± 0.71", "10.0 ± 0.0"]
    assert texts(ours) == [GOAL, "SB-TRPO, growing", "2", *expected]
    assert ours[1].bold


def test_one_seed_has_no_deviation_and_other_names_are_taken() -> None:
    runs = of(ends_at(GOAL, "sb-trpo_growing", 0, 3.0, 0.8, 1.9))
    _, ours = beside(runs, {"SB-TRPO, growing": "more and more"}).rows
    assert texts(ours)[1:5] == ["more and more", "1", "2.40", "1.90"]


@pytest.mark.parametrize(
    ("reward", "safety", "better"),
    [(3.0, 0.68, True), (3.0, 0.676, True), (3.0, 0.67, False), (1.9, 0.8, False), (2.0, 0.81, False)],
)
def test_bold_earns_more_and_is_as_safe_to_the_papers_digits(reward: float, safety: float, better: bool) -> None:
    one, other = (ends_at(GOAL, "sb-trpo_growing", seed, reward, safety, 1.0) for seed in (0, 1000))
    assert dominates(of(one, other), GOAL, GROWING) is better
    assert not dominates(of(one), GOAL, GROWING)


def test_the_published_method_is_never_bold() -> None:
    runs = of(*(ends_at(GOAL, "sb-trpo", seed, 9.0, 1.0, 9.0) for seed in (0, 1000)))
    assert not dominates(runs, GOAL, Variant("sb-trpo"))


def test_a_seed_without_all_measures_is_left_out_of_all() -> None:
    whole, broken = (ends_at(GOAL, "sb-trpo_growing", seed, 3.0, 0.8, 1.9) for seed in (0, 1000))
    broken["reward"] = np.full(3, np.nan)
    runs = of(whole, broken)
    assert texts(beside(runs).rows[1])[2:5] == ["1", "2.40", "1.90"]
    assert glance(runs).columns[2] == "SB-TRPO, growing (1 seed)"


def test_a_task_on_which_nothing_competes_has_no_row() -> None:
    runs = of(samples.run(GOAL, "sb-trpo"), samples.run(HOPPER, "cpo"), samples.run(CIRCLE, "cpo", cost_limit=15.0))
    assert [row[0].text for row in glance(runs).rows] == [GOAL, HOPPER]


def test_seeds_that_grew_by_steps_and_by_worlds_stand_together() -> None:
    one, other = (
        samples.run(GOAL, "sb-trpo_growing", seed, grow_by=how) for seed, how in ((0, "steps"), (1000, "worlds"))
    )
    runs = of(one, other)
    assert texts(beside(runs).rows[1])[2] == "2"
    assert any("grow_by = worlds" in note for note in runs.notes)


def test_runs_that_are_shorter_than_the_papers_are_mentioned() -> None:
    assert (
        "Our shortest runs have 600,000 steps, the paper's 20,000,000." in beside(of(samples.run(GOAL, "cpo"))).caption
    )


def test_at_a_glance_cells_with_fewer_seeds_say_so() -> None:
    runs = of(
        ends_at(GOAL, "sb-trpo_growing", 0, 3.0, 0.8, 1.9),
        ends_at(GOAL, "sb-trpo_growing", 1000, 3.0, 0.8, 1.9),
        ends_at(HOPPER, "sb-trpo_growing", 0, 1148.0, 0.997, 1145.0),
    )
    table = glance(runs)
    assert list(table.columns) == ["task", "paper, SB-TRPO (5 seeds)", "SB-TRPO, growing (2 seeds)"]
    goal, hopper = table.rows
    assert texts(goal) == [GOAL, "1.6 @ 0.68", "2.40 (1.90) @ 0.80"]
    assert texts(hopper) == [HOPPER, "860 @ 1.00", "1,145 (1,145) @ 0.997, 1 seed"]


def test_runs_that_are_not_finished_say_how_far_they_are() -> None:
    runs = of(samples.run(GOAL, "sb-trpo_growing", epochs=30, total_epochs=100))
    assert beside(runs).rows[1][1].text == "SB-TRPO, growing, 0.6 M steps so far"
    assert glance(runs).rows[0][2].text.endswith(", 0.6 M steps so far")


def test_without_runs_on_the_papers_tasks_there_is_no_such_table() -> None:
    with pytest.raises(Missing, match="no runs on the paper's tasks"):
        beside(of(samples.run("MyTask-v0", "sb-trpo")))
    assert "MyTask-v0" not in paper.tasks()


def test_numbers_have_three_digits() -> None:
    assert [number(value) for value in (0.0, -0.0123, 99.96, 20_000.0)] == ["0.00", "-0.012", "100", "20,000"]


def test_the_tables_of_the_readme_and_the_docs_are_as_the_collected_runs_have_them() -> None:
    """Otherwise: python docs/tables."""
    done = subprocess.run([sys.executable, "docs/tables", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_pages_table_has_the_papers_names_of_tasks_each_once() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "tables"))
    runs = of(*(ends_at(task, "sb-trpo_growing", 0, 3.0, 0.8, 1.9) for task in (GOAL, HOPPER)))
    table = script["by_name"](beside, runs)
    assert [row[0].text for row in table.rows] == ["Point Goal", "", "Hopper Velocity", ""]


def test_the_table_of_stalls_counts_rejected_updates() -> None:
    one = samples.run(HOPPER, "cpo", epochs=60)
    one |= {"reward": np.full(60, 12.0), "safety_probability": np.full(60, 1.0)}
    one["accepted_step"] = np.where(np.arange(60) < 30, 0.0, 1.0)
    table = runpy.run_path(str(ROOT / "docs" / "tables"))["stalls"](of(one))
    assert [texts(row) for row in table.rows] == [
        ["1 to 50", "12.0", "1.00", "60 %"],
        ["51 to 60", "12.0", "1.00", "0 %"],
    ]


def test_the_table_of_all_methods_says_which_runs_are_not_finished_or_alone() -> None:
    both = [samples.run(GOAL, "sb-trpo", seed) for seed in (0, 1000)]
    others = [samples.run(GOAL, "cpo"), samples.run(HOPPER, "cpo", epochs=10, total_epochs=30)]
    table = runpy.run_path(str(ROOT / "docs" / "tables"))["crowd"](of(*both, *others))
    assert table.columns == ["method", "Point Goal", "Hopper Velocity"]
    (sb_trpo, *first), (cpo, *second) = (texts(row) for row in table.rows)
    assert (sb_trpo, cpo) == ("SB-TRPO", "CPO")
    number = r"-?[\d.]+"
    patterns = [
        f"{number} @ {number}",
        "",
        rf"{number} @ {number} \(1 seed\)",
        rf"{number} @ {number} \(0.2 M, 1 seed\)",
    ]
    assert all(re.fullmatch(pattern, text) for pattern, text in zip(patterns, first + second, strict=True))
    assert [cell.bold for cell in table.rows[0][1:]] == [True, False]


def test_the_table_of_distances_tells_which_far_cells_were_further_away_half_way() -> None:
    def moves(algo: str, first: float, last: float) -> dict[str, Any]:
        one = samples.run(GOAL, algo, epochs=60)
        one["reward"] = np.repeat([first, last], 30)
        return one | {"safety_probability": np.full(60, 0.68), "cost": np.full(60, 18.0)}

    script = runpy.run_path(str(ROOT / "docs" / "tables"))
    theirs = paper.main()["sb-trpo"][GOAL]["reward"]
    for first, told in ((9.0, "1, 1"), (2.0, "1, 0")):
        last = theirs.mean + 3 * theirs.std
        row = next(row for row in script["crowd_distances"](of(moves("sb-trpo", first, last))).rows if row[-1].text)
        assert texts(row)[1:] == ["reward", "+3.0", told]
        assert row[2].bold


def test_the_table_of_errors_has_the_middle_of_what_models_missed() -> None:
    one = samples.run(GOAL, "sb-trpo", epochs=11)
    one |= {"kl": np.full(11, 0.01), "kl_predicted": 0.01 * np.linspace(0.5, 1.5, 11)}
    one |= {"kl_predicted_damped": np.full(11, 0.02), "accepted_step": np.ones(11)}
    (row,) = runpy.run_path(str(ROOT / "docs" / "tables"))["errors"](of(one)).rows
    assert texts(row)[3:] == ["+0.00 (-0.40 to +0.40)", "+1.00 (+1.00 to +1.00)"]


def test_a_page_without_a_place_for_its_table_is_an_error() -> None:
    filled = runpy.run_path(str(ROOT / "docs" / "tables"))["filled"]
    page = "a\n<!-- table x -->\nold\n<!-- end of table -->\nb\n"
    assert filled(page, "x", "| new |") == page.replace("old", "| new |")
    with pytest.raises(ValueError, match="0 places for the table y"):
        filled(page, "y", "| new |")
