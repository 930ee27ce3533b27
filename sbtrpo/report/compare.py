"""Ours beside the paper's: every printed cell for which there are runs, how far apart they are, and a verdict.

The distance is (ours - theirs) / their standard deviation. A deviation that is printed as 0.0 is less than half of its
last digit, and that half takes its place. Within one deviation the cells agree, within two they are near; beyond, ours
is better or worse. Cells that cannot be as they are printed are marked unreliable and not counted.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sbtrpo.report import paper
from sbtrpo.report.render import Cell, Table, number_cell
from sbtrpo.report.runs import Estimate, Runs, Variant, method_title
from sbtrpo.report.tables import Missing, basis, update_estimate

VERDICTS = ("agrees", "near", "better", "worse")
UNRELIABLE = "unreliable"


@dataclass(frozen=True)
class Comparison:
    """One cell of the paper and ours."""

    table: str
    task: str
    variant: Variant
    metric: str
    ours: Estimate
    theirs: paper.Cell
    unreliable: str | None
    """Why the paper's cell cannot be as printed."""
    steps: float
    """Of the shortest of our runs."""
    basis: str
    """Seeds and steps of ours, in words."""

    @property
    def distance(self) -> float:
        """In their standard deviations; positive where ours is larger."""
        return distance(self.ours.mean, self.theirs)

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        return verdict(self.distance, self.metric in paper.LOWER_IS_BETTER)


def distance(ours: float, theirs: paper.Cell) -> float:
    """How many of their standard deviations ours lies above theirs.

    >>> distance(2.0, paper.Cell("1.6", "0.5")), distance(0.1, paper.Cell("0.0", "0.0"))
    (0.7999999999999998, 2.0)
    """
    decimals = len(theirs.std_text.partition(".")[2])
    return (ours - theirs.mean) / max(theirs.std, 0.5 * 10.0**-decimals)


def verdict(distance: float, lower_is_better: bool) -> str:
    """What a distance means.

    >>> [verdict(d, lower_is_better=True) for d in (-0.5, 1.5, -3.0, 3.0)]
    ['agrees', 'near', 'better', 'worse']
    """
    if abs(distance) <= 1:
        return "agrees"
    if abs(distance) <= 2:
        return "near"
    return "better" if (distance < 0) == lower_is_better else "worse"


def comparisons(runs: Runs) -> list[Comparison]:
    """Every cell that both have, table by table."""
    found = []
    for table, variant, results in _printed():
        for task, cells in results.items():
            for metric, theirs in cells.items():
                if metric == "update_seconds":
                    ours = update_estimate(runs, task, variant)
                else:
                    ours = runs.pooled(task, variant, metric)
                if ours is not None:
                    why = paper.unreliable(variant.algo, task, metric) if table == "main" else None
                    steps = min(run.steps for run in runs.counted(task, variant))
                    words = basis(runs, task, variant)
                    found.append(Comparison(table, task, variant, metric, ours, theirs, why, steps, words))
    return found


def _printed() -> Iterator[tuple[str, Variant, paper.Results]]:
    """The paper's cells by table and variant; rows that repeat the main table are left out."""
    for algo, results in paper.main().items():
        yield "main", Variant(algo), results
    for limit in paper.cost_limit_15():
        if limit.cost_limit:
            yield "cost limit 15", Variant(limit.algo, (("cost_limit", limit.cost_limit),)), limit.results
    for row in paper.advantage():
        if row.advantage == "gae":
            own = Variant("sb-trpo_critic")
            settings = () if row.beta == own.get("beta") else (("beta", row.beta),)
            yield "advantage", Variant("sb-trpo_critic", settings), row.results
    for algo, cell in paper.update_seconds().items():
        yield "update time", Variant(algo), {paper.UPDATE_TIME_TASK: {"update_seconds": cell}}


def comparison_table(runs: Runs) -> Table:
    """All of them, a row each."""
    found = comparisons(runs)
    if not found:
        raise Missing("no runs for any cell of the paper's tables")
    rows = []
    for one in found:
        theirs = Cell(one.theirs.mean_text, one.theirs.std_text, value=one.theirs.mean)
        rows.append(
            [
                Cell(paper.task_title(one.task)),
                Cell(one.variant.title),
                Cell(paper.TITLES[one.metric]),
                number_cell(one.ours),
                theirs,
                Cell(_signed(one.distance), value=one.distance),
                Cell(one.verdict, bold=one.verdict in ("better", "worse")),
                Cell(UNRELIABLE if one.unreliable else "", italic=True, note=one.unreliable or ""),
                Cell(one.table),
                Cell(one.basis),
            ]
        )
    return Table(
        "comparison",
        "Comparison with the paper",
        ["task", "method", "metric", "ours", "paper", "distance", "verdict", "paper's cell", "table", "ours from"],
        rows,
        caption=f"{summary(found)} The distance is in the paper's standard deviations. {_reasons(found)}".strip(),
        row_tags=[_tags(one) for one in found],
    )


def _signed(number: float) -> str:
    """With one decimal and a sign, which nought does not have."""
    text = f"{number:+.1f}"
    return "0.0" if float(text) == 0 else text


def _tags(one: Comparison) -> list[str]:
    verdict_tag = UNRELIABLE if one.unreliable else one.verdict
    return [f"task:{one.task}", f"method:{one.variant.title}", f"verdict:{verdict_tag}"]


def _reasons(found: Sequence[Comparison]) -> str:
    reasons = dict.fromkeys(
        f"{one.variant.title} on {paper.task_title(one.task)}: {one.unreliable}" for one in found if one.unreliable
    )
    return f"Unreliable cells of the paper: {'; '.join(reasons)}." if reasons else ""


def summary(found: Sequence[Comparison]) -> str:
    """The whole in two sentences."""
    counts = Counter(one.verdict for one in found if not one.unreliable)
    doubtful = sum(one.unreliable is not None for one in found)
    text = (
        f"Of {len(found)} cells that both have, {counts['agrees']} agree within one standard deviation of the paper's"
        f" and {counts['near']} within two; ours is better in {counts['better']} and worse in {counts['worse']}."
    )
    if doubtful:
        text += f" {doubtful} cells of the paper are unreliable and not counted."
    if (shortest := min(one.steps for one in found)) < paper.MAIN_STEPS:
        text += f" Our shortest runs have {shortest:,.0f} steps, the paper's {paper.MAIN_STEPS:,}."
    return text


def summary_table(runs: Runs) -> Table:
    """Verdicts by method."""
    found = comparisons(runs)
    if not found:
        raise Missing("no runs for any cell of the paper's tables")
    kinds = (*VERDICTS, UNRELIABLE)
    rows, tags = [], []
    for algo in dict.fromkeys(one.variant.algo for one in found):
        mine = [UNRELIABLE if one.unreliable else one.verdict for one in found if one.variant.algo == algo]
        counts = Counter(mine)
        numbers = [len(mine), *(counts[kind] for kind in kinds)]
        rows.append([Cell(method_title(algo)), *(Cell(str(number), value=number) for number in numbers)])
        tags.append([f"method:{method_title(algo)}"])
    return Table(
        "comparison_summary",
        "Comparison with the paper, by method",
        ["method", "cells", *kinds],
        rows,
        caption="Within one of the paper's standard deviations a cell agrees, within two it is near.",
        row_tags=tags,
    )


def as_csv(found: Sequence[Comparison]) -> str:
    """The comparison for other programs."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        ["table", "task", "method", "metric", "ours_mean", "ours_std", "seeds", "paper_mean", "paper_std", "distance",
         "verdict", "unreliable"]
    )  # fmt: skip
    for one in found:
        writer.writerow(
            [one.table, one.task, one.variant.title, one.metric, repr(one.ours.mean), repr(one.ours.std),
             one.ours.seeds, one.theirs.mean_text, one.theirs.std_text, f"{one.distance:.4f}", one.verdict,
             one.unreliable or ""]
        )  # fmt: skip
    return buffer.getvalue()
