"""Tables of updates: who was rejected, at which angles they lie, how wrong their models are."""

from __future__ import annotations

import numpy as np

from sbtrpo.report.beside import number
from sbtrpo.report.histograms import by_method, relative_errors
from sbtrpo.report.render import Cell, Table
from sbtrpo.report.runs import Floats, Run, Runs

EPOCHS = 50
"""To a row of `stalls`."""
RIGHT = 90
"""Degrees: an update that is further from reward's gradient loses reward."""
MODELS = {
    "cost": ("surrogate_c_predicted", "surrogate_c_change"),
    "reward": ("surrogate_r_predicted", "surrogate_r_change"),
    "KL": ("kl_predicted", "kl"),
    "KL, damped": ("kl_predicted_damped", "kl"),
}
"""What a model predicts and what came of it."""


def stalls(runs: Runs) -> Table:
    """Reward, safety and the share of updates that were rejected, of every run by its epochs."""
    found = sorted(runs.usual, key=lambda run: (run.seed, not run.variant.plain))
    last = max(len(run.columns["epoch"]) for run in found)
    rows = []
    for first in range(0, last, EPOCHS):
        row = [Cell(f"{first + 1} to {min(first + EPOCHS, last)}")]
        for run in found:
            row += _stretch(run, slice(first, first + EPOCHS))
        rows.append(row)
    columns = ["epochs"]
    for run in found:
        title = "as published" if run.variant.plain else "corrected"
        columns += [f"{title}, seed {run.seed}: reward", "safety prob.", "rejected"]
    return Table("stalls", "Updates that were rejected", columns, rows)


def _stretch(run: Run, epochs: slice) -> list[Cell]:
    reward, safety, step = (run.column(name)[epochs] for name in ("reward", "safety_probability", "accepted_step"))
    if not len(reward):
        return [Cell()] * 3
    rejected = np.mean(step == 0)
    texts = (number(reward.mean()), f"{safety.mean():.2f}", f"{rejected:.0%}".replace("%", " %"))
    return [Cell(text, value=0) for text in texts]


def turns(runs: Runs) -> Table:
    """How updates lie to both gradients, by task and method: medians, and the share that reward can gain from."""
    rows = []
    for task in runs.tasks:
        to_cost = by_method(runs, task, "angle_c")
        for variant, to_reward in by_method(runs, task, "angle_r").items():
            texts = (
                f"{len(to_reward):,}",
                f"{np.median(to_reward):.0f}°",
                f"{np.mean(to_reward < RIGHT):.0%}".replace("%", " %"),
                f"{np.median(to_cost[variant]):.0f}°",
            )
            rows.append([Cell(task), Cell(variant.title), *(Cell(text, value=0) for text in texts)])
    heads = ["to reward's gradient", "below 90°", "to cost's descent"]
    return Table("turns", "Angles of updates", ["task", "method", "accepted updates", *heads], rows)


def errors(runs: Runs) -> Table:
    """(predicted - actual) / actual of each model at the accepted step: medians, and where the middle 80 % lie."""
    rows = []
    for task in runs.tasks:
        found = [run for run in runs.usual if run.task == task]
        texts = [_middle(relative_errors(found, *columns)) for columns in MODELS.values()]
        rows.append([Cell(task), *(Cell(text, value=0) for text in texts)])
    return Table("errors", "Errors of the models", ["task", *MODELS], rows)


def _middle(values: Floats) -> str:
    if not len(values):  # a task on which the cost never changed
        return ""
    low, median, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"{median:+z.2f} ({low:+z.2f} to {high:+z.2f})"
