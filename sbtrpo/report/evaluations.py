"""The table of runs that were evaluated on fresh worlds as they went on: what their last evaluations gave."""

from __future__ import annotations

from sbtrpo.benchmark.columns import FRESH
from sbtrpo.report.render import Cell, Table, number_cell
from sbtrpo.report.runs import Runs
from sbtrpo.report.tables import HALVES, HEADS, Missing, basis

METRICS = (*HALVES["safety"], *HALVES["reward"])


def evaluation_table(runs: Runs) -> Table:
    """The metrics by task and method, over all seeds."""
    rows: list[list[Cell]] = []
    tags: list[list[str]] = []
    rules: set[int] = set()
    for task in runs.tasks:
        rules.add(len(rows))
        for variant in runs.variants:
            estimates = [runs.across_seeds(task, variant, f"{FRESH}{metric}") for metric in METRICS]
            if any(estimates):
                note = basis(runs, task, variant)
                labels = [Cell(task), Cell(variant.title)]
                rows.append([*labels, *(number_cell(estimate, note) for estimate in estimates)])
                tags.append([f"task:{task}", f"method:{variant.title}"])
    if not rows:
        raise Missing("no evaluations on fresh worlds")
    return Table(
        "fresh_worlds",
        "Fresh worlds",
        ["task", "method", *(HEADS[metric] for metric in METRICS)],
        rows,
        caption="The last evaluation on fresh worlds while a run went on: mean ± standard deviation between seeds; one"
        " seed has no deviation. Its worlds are others than those of training, and the same each time.",
        rules=frozenset(rules - {0, len(rows)}),
        row_tags=tags,
    )
