"""The table of runs with several constraints: each constraint by itself."""

from __future__ import annotations

from sbtrpo.benchmark.columns import constraint_metrics
from sbtrpo.report.render import Cell, Table, number_cell
from sbtrpo.report.runs import LAST_EPOCHS, Runs
from sbtrpo.report.tables import HEADS, Missing, basis


def constraint_table(runs: Runs) -> Table:
    """Cost and safety probability by task, method and constraint, pooled over the last epochs and all seeds."""
    rows: list[list[Cell]] = []
    tags: list[list[str]] = []
    rules: set[int] = set()
    for task in runs.tasks:
        rules.add(len(rows))
        for variant in runs.variants:
            note = basis(runs, task, variant)
            for name in runs.constraints:
                estimates = [runs.pooled(task, variant, metric) for metric in constraint_metrics(name)]
                if any(estimates):
                    labels = [Cell(task), Cell(variant.title), Cell(name)]
                    rows.append([*labels, *(number_cell(estimate, note) for estimate in estimates)])
                    tags.append([f"task:{task}", f"method:{variant.title}"])
    if not rows:
        raise Missing("no runs with several constraints")
    return Table(
        "constraints",
        "Constraints",
        ["task", "method", "constraint", HEADS["cost"], HEADS["safety_probability"]],
        rows,
        caption=f"Mean ± standard deviation over the last {LAST_EPOCHS} epochs of all seeds together. An episode is"
        " safe here if this constraint costs nothing in it, whatever the others do.",
        rules=frozenset(rules - {0, len(rows)}),
        row_tags=tags,
    )
