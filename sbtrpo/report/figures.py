"""Figures of trainings over time: curves of every task, Car Circle's relapses and recoveries, runs that went on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sbtrpo.report import paper
from sbtrpo.report.canvas import FAINT, grid, legend, line_style, literal, sheet, steps_axis, tidy
from sbtrpo.report.runs import Floats, Run, Runs, Variant, curve, trailing_mean
from sbtrpo.report.style import BLUE, GREY, VERMILLION
from sbtrpo.report.tables import Missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CIRCLE = "SafetyCarCircle2-v0"
BUTTON = "SafetyPointButton2-v0"
PANELS = ("reward", "cost", "safe_reward", "safety_probability")
POINTS = 300
"""At most so many make a curve: more cannot be seen and make large files."""
RECOVERED, RELAPSED = 1.0, 5.0
"""Costs of an episode: below the first a policy has recovered, above the second it has relapsed."""


# ---- training curves -------------------------------------------------------------------------------------------------


def training_curves(runs: Runs, task: str) -> Figure:
    """All methods on a task: trailing means over 20 epochs, the mean over seeds with one deviation on each side."""
    variants = [variant for variant in runs.variants if variant.plain and runs.of(task, variant)]
    if not variants:
        raise Missing("no runs of methods with their own settings")
    figure = sheet(10, 6.6)
    axes = [axis for row in grid(figure, 2, 2, sharex=True) for axis in row]
    longest = max(run.steps for variant in variants for run in runs.of(task, variant))
    for axis, metric in zip(axes, PANELS, strict=True):
        for variant in variants:
            _curve(axis, runs.of(task, variant), metric, longest, line_style(variant), variant.title)
        _finish(axis, metric, longest, axis in axes[2:])
    figure.suptitle(literal(paper.task_title(task)), fontsize=12)
    legend(figure, axes[0])
    return figure


def _curve(axes: Axes, runs: Sequence[Run], metric: str, longest: float, style: dict[str, object], title: str) -> None:
    found = curve(runs, metric)
    if found is None:
        return
    found = found.thinned(POINTS)
    unit, _ = steps_axis(axes, longest)
    x = found.steps / unit
    axes.plot(x, found.mean, label=literal(title), marker="o" if len(x) == 1 else None, **style)  # type: ignore[arg-type]
    if found.seeds > 1:
        low, high = found.mean - found.std, found.mean + found.std
        axes.fill_between(x, low, high, color=str(style["color"]), alpha=0.12, linewidth=0)


def _finish(axes: Axes, metric: str, longest: float, lowest: bool) -> None:
    _, label = steps_axis(axes, longest)
    tidy(axes, paper.TITLES[metric], x=label if lowest else "")
    if metric == "safety_probability":
        axes.set_ylim(-0.02, 1.02)
    elif metric == "cost":
        axes.set_ylim(bottom=0)


# ---- Car Circle ------------------------------------------------------------------------------------------------------


def relapses(cost: Floats) -> list[tuple[int, int]]:
    """Spells in which a policy that had become safe is unsafe again: first epoch, and the one in which it recovered.

    A spell begins where cost rises above 5 after it has been below 1, and ends where it is below 1 again; one that has
    not ended is taken to end with the run.

    >>> relapses(np.array([90.0, 0.5, 8.0, 3.0, 0.2, 6.0]))
    [(2, 4), (5, 6)]
    """
    found: list[tuple[int, int]] = []
    safe, begun = False, None
    for epoch, value in enumerate(cost):
        if begun is not None and value <= RECOVERED:
            found.append((begun, epoch))
            begun = None
        elif begun is None and safe and value > RELAPSED:
            begun = epoch
        safe = safe or bool(value <= RECOVERED)
    return found if begun is None else [*found, (begun, len(cost))]


def car_circle(runs: Runs, most: int = 5) -> Figure:
    """SB-TRPO on Car Circle, seed by seed: cost and reward together, with every relapse shaded."""
    found = runs.of(CIRCLE, Variant("sb-trpo"))[:most]
    if not found:
        raise Missing("no runs of SB-TRPO on Car Circle")
    figure = sheet(10, 1.1 + 1.75 * len(found))
    longest = max(run.steps for run in found)
    for [axes], run in zip(grid(figure, len(found), 1, sharex=True), found, strict=True):
        unit, label = steps_axis(axes, longest)
        x, cost = run.columns["steps"] / unit, run.column("cost")
        spells = relapses(cost)
        for first, end in spells:
            axes.axvspan(x[first], x[min(end, len(x) - 1)], color=GREY, alpha=0.22, linewidth=0)
        axes.fill_between(x, 0, cost, color=VERMILLION, alpha=0.35, linewidth=0)
        axes.plot(x, cost, color=VERMILLION, linewidth=0.8, label="cost (left)")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=0)
        other = axes.twinx()
        other.plot(x, run.column("reward"), color=BLUE, linewidth=0.5, alpha=0.4)
        other.plot(x, trailing_mean(run.column("reward")), color=BLUE, linewidth=1.8, label="reward (right)")
        tidy(axes, f"seed {run.seed}: {_spells(spells)}", x=label if run is found[-1] else "", y="cost")
        tidy(other, y="reward")
        other.grid(visible=False)
        other.spines["right"].set_visible(True)
        other.spines["right"].set_color("#c5c9ce")
    title = f"shaded: cost above {RELAPSED:g} after it had been below {RECOVERED:g}, until it is so again"
    figure.suptitle(f"Car Circle: relapses and recoveries of SB-TRPO ({title})", fontsize=11)
    handles = [*axes.get_legend_handles_labels()[0], *other.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def _spells(spells: Sequence[tuple[int, int]]) -> str:
    if not spells:
        return "no relapse"
    lengths = [end - first for first, end in spells]
    count = "one relapse" if len(spells) == 1 else f"{len(spells)} relapses"
    return f"{count}, half of them over within {np.median(lengths):.0f} epochs, the longest {max(lengths)}"


# ---- long runs -------------------------------------------------------------------------------------------------------


def long_run(runs: Runs, task: str) -> Figure:
    """Runs that went on much longer than the usual ones, and the usual ones of other methods behind them."""
    found = [run for run in runs.long if run.task == task]
    if not found:
        raise Missing(f"no runs on {paper.task_title(task)} that are much longer than the others")
    longest = max(run.steps for run in found)
    figure = sheet(10, 6.6)
    axes = [axis for row in grid(figure, 2, 2, sharex=True) for axis in row]
    variants = sorted({run.variant for run in found}, key=Variant.order)
    behind = [v for v in runs.variants if v.plain and v not in variants and runs.of(task, v)]
    usual = max((run.steps for variant in behind for run in runs.of(task, variant)), default=0.0)
    for axis, metric in zip(axes, PANELS, strict=True):
        for variant in behind:
            style = {**line_style(variant), "alpha": 0.6, "linewidth": 1.0}
            _curve(axis, runs.of(task, variant), metric, longest, style, variant.title)
        for variant in variants:
            group = [run for run in found if run.variant == variant]
            _curve(axis, group, metric, longest, line_style(variant), f"{variant.title}, long")
        unit, _ = steps_axis(axis, longest)
        if usual:
            axis.axvline(usual / unit, color=FAINT, linewidth=0.8, linestyle=(0, (2, 3)))
        _finish(axis, metric, longest, axis in axes[2:])
    figure.suptitle(literal(f"{paper.task_title(task)}: training on"), fontsize=12)
    legend(figure, axes[0])
    return figure
