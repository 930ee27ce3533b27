"""Compares our results with the paper's: every printed cell that has runs, the distance of the two, and a verdict.

The distance is (ours - theirs) / their standard deviation. A deviation that is printed as 0.0 counts as half of its
last digit, because it is smaller than that. Within one deviation the cells agree, within two they are near; beyond
that, ours is better or worse. Cells that cannot be right as printed are marked unreliable and not counted. The paper's
safe rewards stand beside our reward times safety probability, which is what they are (see `paper.PRODUCT`).
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sbtrpo.report import paper
from sbtrpo.report.render import Cell, Table, number_cell
from sbtrpo.report.runs import Estimate, Runs
from sbtrpo.report.tables import Missing, basis, update_estimate
from sbtrpo.report.variants import Variant, method_title

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
    theirs: paper.PrintedCell
    unreliable: str | None
    """Why the paper's cell cannot be right as printed; None for all but a few."""
    steps: float
    """The length of our shortest run."""
    basis: str
    """How many seeds and steps our value has, in words."""

    @property
    def distance(self) -> float:
        """Ours minus theirs, in their standard deviations."""
        return distance(self.ours.mean, self.theirs)

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        return verdict(self.distance, self.metric in paper.LOWER_IS_BETTER)

    @property
    def outcome(self) -> str:
        """The verdict if the paper's cell can be right, otherwise `UNRELIABLE`."""
        return UNRELIABLE if self.unreliable else self.verdict


def distance(ours: float, theirs: paper.PrintedCell) -> float:
    """Ours minus theirs, in their standard deviations.

    >>> distance(2.0, paper.PrintedCell("1.6", "0.5")), distance(0.1, paper.PrintedCell("0.0", "0.0"))
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
    """Every cell for which the paper and we have a value, table by table."""
    compared = []
    for table, variant, results in _printed():
        for task, cells in results.items():
            for metric, theirs in cells.items():
                alike = paper.PRODUCT if metric == "safe_reward" else metric
                if metric == "update_seconds":
                    ours = update_estimate(runs, task, variant)
                else:
                    ours = runs.pooled(task, variant, alike)
                if ours is not None:
                    why = paper.unreliable(variant.algo, task, metric) if table == "main" else None
                    steps = min(run.steps for run in runs.counted(task, variant))
                    words = basis(runs, task, variant)
                    compared.append(Comparison(table, task, variant, alike, ours, theirs, why, steps, words))
    return compared


def _printed() -> Iterator[tuple[str, Variant, paper.Results]]:
    """The paper's cells by table and variant; rows that repeat the main table are left out."""
    for algo, results in paper.main().items():
        yield "main", Variant(algo), results
    for limit in paper.cost_limit_15():
        if limit.cost_limit:
            yield "cost limit 15", Variant(limit.algo, (("cost_limit", limit.cost_limit),)), limit.results
    for row in paper.advantage():
        if row.advantage == "gae":
            default = Variant("sb-trpo_critic")
            changed = Variant(default.algo, (("beta", row.beta),))
            yield "advantage", default if row.beta == default.get("beta") else changed, row.results
    for algo, cell in paper.update_seconds().items():
        yield "update time", Variant(algo), {paper.UPDATE_TIME_TASK: {"update_seconds": cell}}


def comparison_table(runs: Runs) -> Table:
    """A row for each compared cell."""
    compared = _comparisons_or_missing(runs)
    rows = []
    for comparison in compared:
        theirs = Cell(comparison.theirs.mean_text, comparison.theirs.std_text, value=comparison.theirs.mean)
        rows.append(
            [
                Cell(comparison.task),
                Cell(comparison.variant.title),
                Cell(paper.TITLES[comparison.metric]),
                number_cell(comparison.ours),
                theirs,
                Cell(_signed(comparison.distance), value=comparison.distance),
                Cell(comparison.verdict, bold=comparison.verdict in ("better", "worse")),
                Cell(UNRELIABLE if comparison.unreliable else "", italic=True, note=comparison.unreliable or ""),
                Cell(comparison.table),
                Cell(comparison.basis),
            ]
        )
    return Table(
        "comparison",
        "Comparison with the paper",
        ["task", "method", "metric", "ours", "paper", "distance", "verdict", "paper's cell", "table", "ours from"],
        rows,
        caption=f"{summary(compared)} The distance is in the paper's standard deviations. {_reasons(compared)}".strip(),
        row_tags=[[f"task:{c.task}", f"method:{c.variant.title}", f"verdict:{c.outcome}"] for c in compared],
    )


def _comparisons_or_missing(runs: Runs) -> list[Comparison]:
    compared = comparisons(runs)
    if not compared:
        raise Missing("no runs for any cell of the paper's tables")
    return compared


def _signed(number: float) -> str:
    """A number with one decimal and a sign; zero has no sign."""
    text = f"{number:+.1f}"
    return "0.0" if float(text) == 0 else text


def _reasons(compared: Sequence[Comparison]) -> str:
    reasons = dict.fromkeys(
        f"{comparison.variant.title} on {comparison.task}: {comparison.unreliable}"
        for comparison in compared
        if comparison.unreliable
    )
    return f"Unreliable cells of the paper: {'; '.join(reasons)}." if reasons else ""


def summary(compared: Sequence[Comparison]) -> str:
    """How many cells agree, in a few sentences."""
    counts = Counter(comparison.outcome for comparison in compared)
    text = (
        f"Of {len(compared)} cells that both have, {counts['agrees']} agree within one standard deviation of the"
        f" paper's and {counts['near']} within two; ours is better in {counts['better']}"
        f" and worse in {counts['worse']}."
    )
    if counts[UNRELIABLE]:
        text += f" {counts[UNRELIABLE]} cells of the paper are unreliable and not counted."
    if (shortest := min(comparison.steps for comparison in compared)) < paper.MAIN_STEPS:
        text += f" Our shortest runs have {shortest:,.0f} steps, the paper's {paper.MAIN_STEPS:,}."
    return text


def summary_table(runs: Runs) -> Table:
    """How often each method has each verdict."""
    compared = _comparisons_or_missing(runs)
    kinds = (*VERDICTS, UNRELIABLE)
    rows, tags = [], []
    for algo in dict.fromkeys(comparison.variant.algo for comparison in compared):
        counts = Counter(comparison.outcome for comparison in compared if comparison.variant.algo == algo)
        numbers = [counts.total(), *(counts[kind] for kind in kinds)]
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


def as_csv(compared: Sequence[Comparison]) -> str:
    """The comparison as a CSV file, a row for each cell."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        ["table", "task", "method", "metric", "ours_mean", "ours_std", "seeds", "paper_mean", "paper_std", "distance",
         "verdict", "unreliable"]
    )  # fmt: skip
    for comparison in compared:
        ours, theirs = comparison.ours, comparison.theirs
        deviation = "" if math.isnan(ours.std) else repr(ours.std)
        writer.writerow(
            [comparison.table, comparison.task, comparison.variant.title, comparison.metric, repr(ours.mean),
             deviation, ours.seeds, theirs.mean_text, theirs.std_text, f"{comparison.distance:.4f}",
             comparison.verdict, comparison.unreliable or ""]
        )  # fmt: skip
    return buffer.getvalue()
