"""The tables: the published ones come out of runs that end where the paper's did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sbtrpo.report import paper, tables
from sbtrpo.report.render import Cell, Table
from sbtrpo.report.runs import Variant, read_runs
from sbtrpo.report.tables import HALVES, Missing
from tests.report import samples

GOAL, CIRCLE = "SafetyPointGoal2-v0", "SafetyCarCircle2-v0"


def exactly(algo: str, results: paper.Results, **settings: Any) -> list[dict[str, Any]]:
    """Runs of one epoch with the paper's means."""
    runs = []
    for task, cells in results.items():
        one = samples.run(task, algo, epochs=1, **settings)
        for metric in paper.METRICS:
            one[metric] = np.array([cells[metric].mean if metric in cells else np.nan])
        runs.append(one)
    return runs


def rows_by_label(table: Table, labels: int = 1) -> dict[tuple[str, ...], list[Cell]]:
    return {tuple(cell.text for cell in row[:labels]): list(row[labels:]) for row in table.rows}


def flags(cell: Cell | paper.PrintedCell) -> tuple[bool, bool, str | None]:
    return cell.bold, cell.italic, cell.colour


@pytest.mark.parametrize("half", HALVES)
def test_the_main_table_has_the_papers_rows_numbers_and_marks(half: str) -> None:
    runs = read_runs(samples.table([run for algo, results in paper.main().items() for run in exactly(algo, results)]))
    table = tables.main(runs, half)
    assert [group for group, _ in table.groups][1:] == list(paper.tasks())
    found = rows_by_label(table)
    assert [label for (label,) in found] == ["SB-TRPO", *list(paper.METHODS.values())[1:]]
    differing = {}
    for algo, (_, cells) in zip(paper.METHODS, found.items(), strict=True):
        printed = [paper.main()[algo][task][metric] for task in paper.tasks() for metric in HALVES[half]]
        for ours, theirs in zip(cells, printed, strict=True):
            assert float(ours.text) == theirs.mean
            if flags(ours) != flags(theirs):
                differing[algo] = ours.bold, theirs.bold
    # On Point Button nobody who is safe in half of the episodes earns anything, and the safest of these is C3PO.
    assert differing == ({"p3o": (False, True), "c3po": (True, False)} if half == "safety" else {})


def test_the_table_of_cost_limits_has_the_papers_marks() -> None:
    runs = []
    for row in paper.cost_limit_15():
        settings = {"cost_limit": row.cost_limit} if row.cost_limit else {}
        runs += exactly(row.algo, row.results, **settings)
    table = tables.cost_limit(read_runs(samples.table(runs)))
    assert table.title == "Cost limit 15"
    found = rows_by_label(table, labels=2)
    printed = {
        (
            "SB-TRPO" if row.cost_limit is None else paper.METHODS[row.algo],
            "–" if row.cost_limit is None else f"{row.cost_limit:g}",
        ): row
        for row in paper.cost_limit_15()
    }
    assert list(found) == list(printed)
    for label, cells in found.items():
        theirs = [cell for results in printed[label].results.values() for cell in results.values()]
        assert [flags(cell) for cell in cells] == [flags(cell) for cell in theirs]
    assert len(table.rules) == 5


def test_the_table_of_advantages_has_the_papers_rows() -> None:
    runs = exactly("sb-trpo", {task: paper.main()["sb-trpo"][task] for task in (GOAL, CIRCLE)})
    for row in paper.advantage()[1:]:
        runs += exactly("sb-trpo_critic", row.results, advantage="gae", beta=row.beta)
    table = tables.advantage(read_runs(samples.table(runs)))
    assert list(rows_by_label(table, labels=2)) == [("MC", "0.75"), ("GAE", "0.75"), ("GAE", "0.8")]
    assert [group for group, _ in table.groups][1:] == [
        GOAL, CIRCLE, "SafetyCarGoal2-v0", "SafetySwimmerVelocity-v1",
    ]  # fmt: skip
    assert all(not cell.bold for row in table.rows for cell in row)


def test_all_that_compete_are_in_the_main_table_and_other_settings_stand_beside_sb_trpo() -> None:
    runs = read_runs(samples.benchmark([CIRCLE], ["sb-trpo", "cpo"], seeds=1, epochs=3))
    main, others = (
        [label for (label,) in rows_by_label(make(runs, "reward"))] for make in (tables.main, tables.others)
    )
    assert main == ["SB-TRPO", "CPO", "CRPO"]
    assert others == ["SB-TRPO", "SB-TRPO, β = 0.6", "SB-TRPO, β = 0.7", "SB-TRPO, β = 0.8", "SB-TRPO, β = 0.9"]


def ending(task: str, algo: str, seed: int, reward: float, safety: float, **settings: Any) -> dict[str, Any]:
    """A run whose last epochs have these values."""
    one = samples.run(task, algo, seed, epochs=30, **settings)
    one["safe_reward"], one["safety_probability"] = (np.array([99.0] * 10 + [x] * 20) for x in (reward, safety))
    return one


def test_the_table_over_tasks_has_values_by_hand() -> None:
    found = [
        ending(GOAL, "sb-trpo", 0, 10, 1),
        ending(GOAL, "sb-trpo", 1, 6, 1),
        ending(CIRCLE, "sb-trpo", 0, 300, 1),
        ending(CIRCLE, "sb-trpo", 1, 100, 1),
        *(ending(task, "cpo", seed, 0, 0.5) for task in (GOAL, CIRCLE) for seed in (0, 1)),
        ending(GOAL, "sb-trpo", 0, 1000, 1, beta=0.9),  # not on both: neither a row nor the best run
    ]
    table = tables.overall(read_runs(samples.table(found)))
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["SB-TRPO", "0.80 (0.47 to 1.00)", "1.00 (1.00 to 1.00)", "2", "4"],
        ["CPO", "0.00 (0.00 to 0.00)", "0.50 (0.50 to 0.50)", "2", "4"],
    ]
    assert [[cell.bold for cell in row[1:3]] for row in table.rows] == [[True, True], [False, False]]
    assert "all runs on SafetyPointGoal2-v0, SafetyCarCircle2-v0, and" in table.caption
    assert "not run on all of these tasks: SB-TRPO, β = 0.9." in table.caption


def test_the_table_over_tasks_has_variants_in_the_order_of_the_others() -> None:
    methods: list[tuple[str, dict[str, Any]]] = [
        ("cpo", {"cost_limit": 15.0}), ("crpo", {}), ("cpo", {}), ("sb-trpo", {"beta": 0.6}), ("sb-trpo", {}),
    ]  # fmt: skip
    runs = read_runs(samples.table([samples.run(GOAL, algo, epochs=2, **settings) for algo, settings in methods]))
    table = tables.overall(runs)
    assert [row[0].text for row in table.rows] == ["SB-TRPO", "SB-TRPO, β = 0.6", "CPO", "CPO, limit 15", "CRPO"]
    assert list(table.row_tags) == [[f"method:{row[0].text}"] for row in table.rows]


def test_the_table_over_tasks_needs_both_metrics() -> None:
    whole = [samples.run(GOAL, algo, epochs=2) for algo in ("sb-trpo", "cpo")]
    whole[0]["safety_probability"] = np.full(2, np.nan)
    with pytest.raises(Missing, match="no two methods that ran on the same tasks"):
        tables.overall(read_runs(samples.table(whole)))


def test_the_least_update_time_is_bold_and_the_papers_stand_beside() -> None:
    fast, slow = samples.run(GOAL, "sb-trpo", epochs=2), samples.run(GOAL, "cpo", epochs=2)
    fast["update_seconds"], slow["update_seconds"] = np.array([0.1, 0.3]), np.array([2.0, 2.0])
    table = tables.update_time(read_runs(samples.table([fast, slow])))
    assert [cell.plain for cell in table.rows[0]] == ["SB-TRPO", "0.20 ± 0.10", "0.26 ± 0.08"]
    assert [cell.plain for cell in table.rows[1]] == ["CPO", "2.00 ± 0.00", "6.59 ± 1.96"]
    assert [row[1].bold for row in table.rows] == [True, False]


def test_hyperparameters_differ_from_the_papers_table_exactly_where_its_code_does() -> None:
    runs = read_runs(samples.table([samples.run(GOAL, algo, epochs=1) for algo in [*paper.METHODS, "sb-trpo_critic"]]))
    table = tables.hyperparameters(runs)
    found = {
        (row[0].text, method): cell.text
        for row in table.rows
        for method, cell in zip(table.columns[1:], row[1:], strict=True)
        if cell.note
    }
    assert found == {
        ("Policy Batch Size", "CUP"): "64 (20000)",
        ("Conjugate Gradient (C.G.) Iterations", "SB-TRPO"): "at most 50 (50)",
        ("Conjugate Gradient (C.G.) Iterations", "SB-TRPO, both critics"): "at most 50 (50)",
        ("P3O, C3PO κ", "C3PO"): "5 to 50 (50.0)",
        ("Critic Hidden Layers", "SB-TRPO"): "– (64, 64)",
        ("Clip Coefficient", "CPPO-PID"): "0.2 (–)",
        ("Lagrangian Initial Value", "RCPO"): "0.001 (–)",
        ("Lagrangian Learning Rate", "FOCOPS"): "0.035 (–)",
        ("Lagrangian Learning Rate", "RCPO"): "0.035 (–)",
        ("Lagrangian Optimizer", "FOCOPS"): "Adam (–)",
        ("Lagrangian Optimizer", "RCPO"): "Adam (–)",
        ("CUP, FOCOPS ν", "CUP"): "0.2 (2.00)",
        ("CPPO-PID K_d", "CPPO-PID"): "0.01 (0.1)",
    }


def test_hyperparameters_are_those_that_ran() -> None:
    runs = read_runs(samples.table([samples.run(GOAL, "cpo", epochs=1, target_kl=0.05)]))
    target = next(row for row in tables.hyperparameters(runs).rows if row[0].text == "Target KL")
    assert target[1].text == "0.05 (0.01)"


def test_parts_without_runs_say_what_they_need() -> None:
    runs = read_runs(samples.table([samples.run(GOAL, "sb-trpo", epochs=2)]))
    for make, sentence in (
        (lambda: tables.overall(runs), "no two methods that ran on the same tasks"),
        (lambda: tables.cost_limit(runs), "cost limit above 0"),
        (lambda: tables.advantage(runs), "advantage estimate"),
        (lambda: tables.others(runs, "safety"), "beyond the other tables"),
        (lambda: tables.main(read_runs({}), "safety"), "no runs at cost limit 0"),
        (lambda: tables.update_time(read_runs({})), "update times"),
    ):
        with pytest.raises(Missing, match=sentence):
            make()


def test_missing_cells_are_dashes_and_do_not_compete() -> None:
    runs = read_runs(samples.table([samples.run(GOAL, "sb-trpo", epochs=2), samples.run(CIRCLE, "cpo", epochs=2)]))
    found = rows_by_label(tables.main(runs, "reward"))
    assert [cell.text for cell in found[("SB-TRPO",)][2:]] == ["–", "–"]
    assert [cell.text for cell in found[("CPO",)][:2]] == ["–", "–"]
    assert found[("CPO",)][2].bold
    assert tables.basis(runs, GOAL, Variant("sb-trpo")) == "1 seed, 40,000 steps"
