"""The table of runs that were evaluated on fresh worlds as they went on: what their last evaluations gave."""

from __future__ import annotations

from sbtrpo.benchmark.columns import FRESH
from sbtrpo.report.render import Table
from sbtrpo.report.runs import Runs
from sbtrpo.report.tables import HALVES, HEADS, Missing, by_task

METRICS = (*HALVES["safety"], *HALVES["reward"])


def evaluation_table(runs: Runs) -> Table:
    """The metrics by task and method, over all seeds."""
    empty = Table(
        "fresh_worlds",
        "Fresh worlds",
        ["task", "method", *(HEADS[metric] for metric in METRICS)],
        [],
        caption="The last evaluation on fresh worlds while a run went on: mean ± standard deviation between seeds; one"
        " seed has no deviation. Its worlds are others than those of training, and the same each time.",
    )
    table = by_task(
        runs, empty, lambda task, v: [((), [runs.across_seeds(task, v, f"{FRESH}{metric}") for metric in METRICS])]
    )
    if not table.rows:
        raise Missing("no evaluations on fresh worlds")
    return table
