"""Figures of updates: their angles to both gradients, and the errors of the linear and quadratic models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from sbtrpo.report.canvas import FAINT, INK, grid, legend, literal, sheet, tidy
from sbtrpo.report.figures import BUTTON, CIRCLE
from sbtrpo.report.runs import Floats, Run, Runs
from sbtrpo.report.style import BLUE, GREEN, VERMILLION, look
from sbtrpo.report.tables import Missing
from sbtrpo.report.variants import Variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMPARED = ("sb-trpo", "cpo", "c_trpo")
TINY = 1e-8
"""Changes smaller than this have no meaningful relative error."""
ERROR_RANGE = (-2.0, 2.5)


# ---- angles ----------------------------------------------------------------------------------------------------------


def angles(runs: Runs, gradient: Literal["reward", "cost"]) -> Figure:
    """Angles between applied updates and the reward gradient or the descent of cost, one for each epoch and seed."""
    column = {"reward": "angle_r", "cost": "angle_c"}[gradient]
    candidates = dict.fromkeys([CIRCLE, BUTTON, *runs.tasks])  # the paper's two tasks first
    tasks = [task for task in candidates if by_method(runs, task, column)][:2]
    if not tasks:
        raise Missing(f"no {column} of SB-TRPO, CPO or C-TRPO")
    figure = sheet(max(6.5, 5 * len(tasks)), 3.9)
    [row] = grid(figure, 1, len(tasks), sharex=True)
    for axes, task in zip(row, tasks, strict=True):
        for variant, values in by_method(runs, task, column).items():
            colour = look(variant).colour
            options = {"bins": np.arange(0, 181, 3), "density": True, "color": colour}
            axes.hist(values, histtype="stepfilled", alpha=0.3, **options)  # type: ignore[arg-type]
            axes.hist(values, histtype="step", linewidth=1.3, label=literal(variant.title), **options)  # type: ignore[arg-type]
            axes.axvline(float(np.median(values)), color=colour, linewidth=1, linestyle=(0, (3, 2)))
        axes.axvline(90, color=INK, linewidth=0.8)
        axes.set_xlim(0, 180)
        axes.set_xticks(range(0, 181, 30))
        tidy(axes, task, x="degrees", y="density")
    what = "the reward gradient" if gradient == "reward" else "the descent of cost"
    figure.suptitle(f"Angles between updates and {what} (dashed: medians)", fontsize=12)
    legend(figure, row[0])
    return figure


def by_method(runs: Runs, task: str, column: str) -> dict[Variant, Floats]:
    """The column's values of all applied updates, of the compared methods that have any."""
    by_variant = {}
    for variant in map(Variant, COMPARED):
        values = np.concatenate([np.empty(0), *(_applied(run, column) for run in runs.of(task, variant))])
        if len(values):
            by_variant[variant] = values
    return by_variant


def _applied(run: Run, column: str) -> Floats:
    """The finite values of updates whose accepted step is not 0."""
    values = run.column(column)
    applied: Floats = values[np.isfinite(values) & ~(run.column("accepted_step") == 0.0)]
    return applied


# ---- errors of the models --------------------------------------------------------------------------------------------


def model_errors(runs: Runs) -> Figure:
    """Relative errors (predicted - actual) / actual of SB-TRPO's models at the accepted step."""
    sb_trpo_runs = [run for run in runs.usual if run.variant == Variant("sb-trpo")]
    panels: Sequence[tuple[str, str, str, str]] = (
        ("change of cost", "surrogate_c_predicted", "surrogate_c_change", VERMILLION),
        ("change of reward", "surrogate_r_predicted", "surrogate_r_change", BLUE),
        ("KL divergence", "kl_predicted_damped", "kl", GREEN),
    )
    errors = [relative_errors(sb_trpo_runs, predicted, actual) for _, predicted, actual, _ in panels]
    if not any(len(values) for values in errors):
        raise Missing("no predicted and actual changes of SB-TRPO's updates")
    figure = sheet(10.5, 3.6)
    [row] = grid(figure, 1, 3)
    for axes, values, (title, _, actual, colour) in zip(row, errors, panels, strict=True):
        _error_histogram(axes, values, colour, "damped" if actual == "kl" else "")
        tidy(axes, title, x="relative error", y="updates" if axes is row[0] else "")
    undamped = relative_errors(sb_trpo_runs, "kl_predicted", "kl")
    if len(undamped):
        row[2].hist(undamped, bins=_bins(), histtype="step", color=INK, linewidth=1, label="undamped")
        row[2].set_ylim(top=1.25 * row[2].get_ylim()[1])  # room for the text
        row[2].legend(frameon=False, fontsize=7, loc="upper right")
    figure.suptitle("Errors of SB-TRPO's linear and quadratic models", fontsize=12)
    return figure


def relative_errors(runs: Sequence[Run], predicted: str, actual: str) -> Floats:
    """(x̂ - x) / x of all updates, without those whose x is almost 0."""
    errors = [np.empty(0)]
    for run in runs:
        x = run.column(actual)
        known = np.isfinite(x) & np.isfinite(run.column(predicted)) & ~(run.column("accepted_step") == 0.0)
        known &= np.abs(np.where(known, x, 0.0)) >= TINY
        errors.append((run.column(predicted)[known] - x[known]) / x[known])
    return np.concatenate(errors)


def _bins() -> list[float]:
    return [float(edge) for edge in np.linspace(*ERROR_RANGE, 91)]


def _error_histogram(axes: Axes, values: Floats, colour: str, label: str) -> None:
    axes.hist(values, bins=_bins(), histtype="stepfilled", color=colour, alpha=0.55, label=label or None)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlim(*ERROR_RANGE)
    if not len(values):
        return
    median = float(np.median(values))
    axes.axvline(median, color=colour, linewidth=1.2, linestyle=(0, (3, 2)))
    outside = float(np.mean((values < ERROR_RANGE[0]) | (values > ERROR_RANGE[1])))
    text = f"median {median:+.2f}" + (f"\n{outside:.1%} outside" if outside >= 0.0005 else "")
    axes.text(0.02, 0.98, text, transform=axes.transAxes, va="top", fontsize=8, color=FAINT)
