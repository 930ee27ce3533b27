"""The table of runs with several constraints: each constraint by itself."""

from __future__ import annotations

from sbtrpo.benchmark.columns import constraint_metrics
from sbtrpo.report.render import Table
from sbtrpo.report.runs import THE_LAST, Runs
from sbtrpo.report.tables import HEADS, Missing, by_task


def constraint_table(runs: Runs) -> Table:
    """Cost and safety probability by task, method and constraint, pooled over the last epochs and all seeds."""
    empty = Table(
        "constraints",
        "Constraints",
        ["task", "method", "constraint", HEADS["cost"], HEADS["safety_probability"]],
        [],
        caption=f"Mean ± standard deviation over {THE_LAST} of all seeds together. An episode is"
        " safe here if this constraint costs nothing in it, whatever the others do.",
    )
    table = by_task(
        runs,
        empty,
        lambda task, variant: [
            ((name,), [runs.pooled(task, variant, metric) for metric in constraint_metrics(name)])
            for name in runs.constraints
        ],
    )
    if not table.rows:
        raise Missing("no runs with several constraints")
    return table
