"""Tables of how far collected runs are from the paper's cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sbtrpo.report import paper
from sbtrpo.report.compare import UNRELIABLE, Comparison, comparisons
from sbtrpo.report.render import Cell, Table
from sbtrpo.report.runs import Run, Runs

FAR = ("better", "worse")
"""Verdicts beyond two of the paper's deviations."""
MEASURES = ("reward", "safety_probability", "cost")
"""The paper's fourth measure is the product of two of these."""


def distances(runs: Runs) -> Table:
    """How far our means are from the paper's, in its deviations, by task and measure; bold beyond two of them."""
    measures = (paper.PRODUCT, *MEASURES)
    found: dict[str, dict[str, Cell]] = {}
    for cell in _cells(runs):
        found.setdefault(cell.task, {})[cell.metric] = _distance(cell)
    rows = [[Cell(task), *(cells.get(name, Cell()) for name in measures)] for task, cells in found.items()]
    return Table("distances", "Distances to the paper", ["task", *(paper.TITLES[name] for name in measures)], rows)


def crowd_distances(runs: Runs) -> Table:
    """The same of several methods, a row for each measure of a method.

    The last column tells how many of a row's cells are beyond two deviations, and how many of these were further away
    in the middle of the runs.
    """
    half = {(cell.variant, cell.metric, cell.task): cell for cell in _cells(_first_halves(runs))}
    rows: dict[tuple[str, str], dict[str, Comparison]] = {}
    for cell in _cells(runs):
        if cell.metric in MEASURES:
            rows.setdefault((cell.variant.title, cell.metric), {})[cell.task] = cell
    table, last = [], ""
    for (method, metric), cells in rows.items():
        far = [cell for cell in cells.values() if cell.outcome in FAR]
        nearing = sum(abs(half[cell.variant, metric, cell.task].distance) > abs(cell.distance) for cell in far)
        told = Cell(f"{len(far)}, {nearing}" if far else "", value=0)
        row = [_distance(cells[task]) if task in cells else Cell() for task in runs.tasks]
        table.append([Cell("" if method == last else method), Cell(paper.TITLES[metric]), *row, told])
        last = method
    heads = ["method", "", *(paper.tasks()[task] for task in runs.tasks), "far, nearing"]
    return Table("crowd_distances", "Distances of all methods to the paper", heads, table)


def _cells(runs: Runs) -> Iterator[Comparison]:
    return (cell for cell in comparisons(runs) if cell.table == "main")


def _distance(cell: Comparison) -> Cell:
    """In bold where it is far, in italics where the paper's cell cannot be right."""
    return Cell(f"{cell.distance:+z.1f}", value=0, bold=cell.outcome in FAR, italic=cell.outcome == UNRELIABLE)


def _first_halves(runs: Runs) -> Runs:
    return replace(runs, usual=[_first_half(run) for run in runs.usual])


def _first_half(run: Run) -> Run:
    epochs = len(run.columns["epoch"]) // 2
    return replace(run, columns={name: values[:epochs] for name, values in run.columns.items()})
