"""The tables of `estimators.py`: rows that are added to a CSV file, and pictures of such a file."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from sbtrpo.report import paper


def keep(row: dict[str, Any], table: Path) -> None:
    """Add a row to a CSV file, or what of it the file has columns for."""
    begins = not table.exists()
    columns = list(row) if begins else table.read_text(encoding="utf-8").partition("\n")[0].split(",")
    if not set(columns) <= set(row):
        raise SystemExit(f"{table} has other columns than these rows; name a new file")
    with table.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        if begins:
            writer.writeheader()
        writer.writerow(row)


def read(table: Path) -> tuple[list[dict[str, str]], list[str], list[str]]:
    """The rows of a CSV file, and the tasks and estimators in it."""
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    tasks, names = (list(dict.fromkeys(row[key] for row in rows)) for key in ("task", "estimator"))
    return rows, tasks, names


def draw(table: Path, picture: Path) -> None:
    """Every task's estimators side by side: what a step of each does to the discounted cost of other episodes."""
    from matplotlib.figure import Figure

    rows, tasks, names = read(table)
    sizes = sorted({int(row["worlds"]) for row in rows})
    figure = Figure(figsize=(3.1 * len(tasks) + 1.5, 0.26 * len(names) + 1.4), layout="constrained")
    panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    for task, axes in zip(tasks, panels, strict=True):
        for size, marker in zip(sizes, "os^D", strict=False):
            own = [row for row in rows if row["task"] == task and int(row["worlds"]) == size]
            cost, error = ([float(row[key]) for row in own] for key in ("cost", "error"))
            at = [names.index(row["estimator"]) for row in own]
            axes.errorbar(cost, at, xerr=error, fmt=marker, markersize=4, label=f"{size} worlds")
        axes.axvline(0, color="0.7", linewidth=0.8)
        axes.set_title(task, fontsize=9)
        axes.set_xlabel("change of discounted cost; left is better", fontsize=8)
        axes.locator_params(axis="x", nbins=4)
        axes.tick_params(labelsize=8)
        axes.grid(axis="x", color="0.92")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    panels[0].legend(fontsize=8, title="a step made from", title_fontsize=8, loc="upper left")
    figure.savefig(picture, dpi=110)


def draw_sizes(table: Path, picture: Path) -> None:
    """Every task's estimators by the worlds that make a step: what it does to the chance of a hit in other episodes.

    The dotted line grows with the root of the worlds, to where the best step of the task is.
    """
    from matplotlib.figure import Figure

    rows, tasks, names = read(table)
    columns = min(5, len(tasks))
    lines = -(-len(tasks) // columns)
    figure = Figure(figsize=(2.3 * columns + 0.8, 2.3 * lines + 0.6), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for panel in panels[len(tasks) :]:
        panel.set_visible(False)
    for task, axes in zip(tasks, panels, strict=False):
        found = sorted((row for row in rows if row["task"] == task), key=lambda row: int(row["worlds"]))
        for name, marker in zip(names, itertools.cycle("os^D")):
            own = [
                [float(row[key]) for key in ("worlds", "hit", "hit_error")] for row in found if row["estimator"] == name
            ]
            if own:
                worlds, hit, error = np.array(own).T
                axes.errorbar(worlds, -1e6 * hit, yerr=1e6 * error, fmt=f"{marker}-", markersize=4, label=name)
        sizes = np.array(sorted({float(row["worlds"]) for row in found}))
        best = max(-1e6 * float(row["hit"]) for row in found if float(row["worlds"]) == sizes[-1])
        axes.plot(sizes, best * np.sqrt(sizes / sizes[-1]), color="0.6", linestyle=":", label="root of worlds")
        axes.set_xscale("log")
        axes.set_yscale("log", nonpositive="clip")
        axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes], rotation=45)
        axes.minorticks_off()
        axes.set_title(paper.tasks().get(task, task), fontsize=9)
        axes.tick_params(labelsize=8)
        axes.grid(color="0.92")
    figure.supxlabel("worlds that make a step", fontsize=9)
    figure.supylabel("fall of the chance of a hit\nin other worlds, times 1,000,000", fontsize=9)
    panels[0].legend(fontsize=8)
    figure.savefig(picture, dpi=110)


PICTURES = {"estimator": draw, "worlds": draw_sizes}
