"""Figures over the course of training: curves of every task, what holds, relapses on Car Circle, and long runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sbtrpo.report import paper
from sbtrpo.report.canvas import ACROSS, FAINT, grid, legend, line_style, line_styles, literal, sheet, steps_axis, tidy
from sbtrpo.report.runs import Floats, Run, Runs, curve, rivals
from sbtrpo.report.style import BLUE, GREY, VERMILLION, look
from sbtrpo.report.tables import Missing
from sbtrpo.report.variants import Variant
from sbtrpo.runs.curves import trailing_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CIRCLE = "SafetyCarCircle2-v0"
BUTTON = "SafetyPointButton2-v0"
PANELS = ("reward", "cost", "safe_reward", "safety_probability")
POINTS = 300
"""The most points of a curve: more cannot be seen and make files large."""
PAPERS = "the paper's SB-TRPO at its end"
RECOVERED, RELAPSED = 1.0, 5.0
"""Costs of an episode: a policy has recovered below the first, and relapsed above the second."""


# ---- training curves -------------------------------------------------------------------------------------------------


def training_curves(runs: Runs, task: str, prefix: str = "") -> Figure:
    """All methods on a task: trailing means (see `curve`), as mean over seeds with a band of one deviation.

    With the prefix of evaluations, those on fresh worlds: the last one at every moment.
    """
    variants = [v for v in rivals(runs) if any(run.has(f"{prefix}reward") for run in runs.of(task, v))]
    if not variants:
        raise Missing("no evaluations on fresh worlds" if prefix else "no runs at cost limit 0 with ended episodes")
    figure = sheet(10, 6.6)
    axes = [axis for row in grid(figure, 2, 2, sharex=True) for axis in row]
    longest = max(run.steps for variant in variants for run in runs.of(task, variant))
    styles = line_styles(rivals(runs))
    for axis, metric in zip(axes, PANELS, strict=True):
        for variant in variants:
            _curve(axis, runs.of(task, variant), f"{prefix}{metric}", longest, styles[variant], variant.title)
        _finish(axis, metric, longest, axis in axes[2:])
    figure.suptitle(literal(task + (": episodes in fresh worlds" if prefix else "")), fontsize=12)
    legend(figure, axes[0])
    return figure


def progress(
    runs: Runs, title: str = "What safe episodes earn, and how many are safe", names: Mapping[str, str] | None = None
) -> Figure:
    """Safe reward, and below it the safety probability, of all methods on all tasks over the course of training.

    Safety probabilities have one scale, which begins at the last quarter that no curve goes below. Beside SB-TRPO's of
    whatever variant a dotted line has that of the paper's; its safe rewards are another thing (see `paper.PRODUCT`).
    `names` are other titles than the methods' own.
    """
    variants, names = rivals(runs), names or {}
    tasks = [task for task in runs.tasks if any(r.has("safe_reward") for v in variants for r in runs.of(task, v))]
    if not tasks:
        raise Missing("no runs at cost limit 0 with ended episodes")
    across, styles = min(ACROSS, len(tasks)), line_styles(variants)
    down = -(-len(tasks) // across)
    figure = sheet(max(4.5, 3.1 * across), 0.7 + 3.9 * down + 0.2 * -(-len(variants) // across))
    rows = grid(figure, 2 * down, across)
    for k, task in enumerate(tasks):
        row, column = divmod(k, across)
        longest = max(run.steps for variant in variants for run in runs.of(task, variant))
        above, below = rows[2 * row][column], rows[2 * row + 1][column]
        for axis, metric in ((above, "safe_reward"), (below, "safety_probability")):
            for variant in variants:
                name = names.get(variant.title, variant.title)
                _curve(axis, runs.of(task, variant), metric, longest, styles[variant], name)
            _, label = steps_axis(axis, longest)
            name = paper.tasks().get(task, task) if axis is above else ""
            y = paper.TITLES[metric] if column == 0 else ""
            tidy(axis, name, x="" if axis is above else label, y=y)
        printed = paper.main()["sb-trpo"].get(task)
        if printed and any(variant.algo.startswith("sb-trpo") and runs.of(task, variant) for variant in variants):
            line, theirs = look(Variant("sb-trpo")), printed["safety_probability"].mean
            below.axhline(theirs, color=line.colour, linestyle=(0, (1, 1.5)), linewidth=1.4, label=PAPERS, zorder=2)
    lower = [axis for row_of_axes in rows[1::2] for axis in row_of_axes]
    lowest = min(float(axis.dataLim.y0) for axis in lower)
    start = np.clip(np.floor(4 * lowest) / 4, 0, 0.75)
    for axis in lower:
        axis.set_ylim(start - 0.02 * (1 - start), 1 + 0.02 * (1 - start))
    for row_of_axes in rows[-2:]:
        for axis in row_of_axes[len(tasks) - across * (down - 1) :]:
            axis.set_axis_off()
    figure.suptitle(title, fontsize=12)
    legend(figure, *(axis for row_of_axes in rows for axis in row_of_axes), columns=across)
    return figure


def _curve(axes: Axes, runs: Sequence[Run], metric: str, longest: float, style: dict[str, object], title: str) -> None:
    every_epoch = curve(runs, metric)
    if every_epoch is None:
        return
    thin = every_epoch.thinned(POINTS)
    unit, _ = steps_axis(axes, longest)
    x = thin.steps / unit
    axes.plot(x, thin.mean, label=literal(title), marker="o" if len(x) == 1 else None, **style)  # type: ignore[arg-type]
    if thin.seeds > 1:
        axes.fill_between(
            x, thin.mean - thin.std, thin.mean + thin.std, color=str(style["color"]), alpha=0.12, linewidth=0
        )


def _finish(axes: Axes, metric: str, longest: float, lowest: bool) -> None:
    _, label = steps_axis(axes, longest)
    tidy(axes, paper.TITLES[metric], x=label if lowest else "")
    if metric == "safety_probability":
        axes.set_ylim(-0.02, 1.02)
    elif metric == "cost":
        axes.set_ylim(bottom=0)


# ---- what holds ------------------------------------------------------------------------------------------------------


def what_holds(runs: Runs, task: str) -> Figure:
    """How much of what updates promise from half of the worlds holds in the others, for reward and for each cost.

    Trailing means over a tenth of a run's measurements, as mean over seeds with a band of one deviation. Variants of a
    method go from pale to the method's colour.
    """
    metrics = {m: title for m, title in runs.holding.items() if any(r.has(m) for r in runs.usual if r.task == task)}
    variants = [v for v in runs.variants if any(run.has(m) for run in runs.of(task, v) for m in metrics)]
    if not variants:
        raise Missing("no run has measured it")
    rows = (len(metrics) + 1) // 2
    figure = sheet(10, 1 + 3.2 * rows)
    axes = [axis for row in grid(figure, rows, 2, sharex=True, sharey=True) for axis in row]
    longest, styles = max(run.steps for v in variants for run in runs.of(task, v)), line_styles(runs.variants)
    for axis, (metric, title) in zip(axes, metrics.items(), strict=False):
        for variant in variants:
            _curve(axis, runs.of(task, variant), metric, longest, styles[variant], variant.title)
        for promise in (0, 1):
            axis.axhline(promise, color=FAINT, linewidth=0.8, linestyle=(0, (2, 3)), zorder=2)
        _, label = steps_axis(axis, longest)
        tidy(axis, title, x=label)
    low, high = axes[0].get_ylim()
    axes[0].set_ylim(max(low, -1), min(high, 1.5))  # the first measurements may be anywhere
    for axis in axes[len(metrics) :]:
        axis.remove()
    words = "share of the change that half of the worlds promise which holds in the other half; 0: noise, 1: all of it"
    figure.suptitle(literal(f"{task}\n{words}"), fontsize=11)
    legend(figure, axes[0], columns=4)
    return figure


# ---- Car Circle ------------------------------------------------------------------------------------------------------


def relapses(cost: Floats) -> list[tuple[int, int]]:
    """Spells in which a policy that was safe is unsafe again: the first epoch, and the epoch in which it recovers.

    A spell begins when cost rises above 5 after it has been below 1. It ends when cost is below 1 again, or with the
    run.

    >>> relapses(np.array([90.0, 0.5, 8.0, 3.0, 0.2, 6.0]))
    [(2, 4), (5, 6)]
    """
    spells: list[tuple[int, int]] = []
    safe, begun = False, None
    for epoch, value in enumerate(cost):
        if begun is not None and value <= RECOVERED:
            spells.append((begun, epoch))
            begun = None
        elif begun is None and safe and value > RELAPSED:
            begun = epoch
        safe = safe or bool(value <= RECOVERED)
    return spells if begun is None else [*spells, (begun, len(cost))]


def car_circle(runs: Runs, most: int = 5) -> Figure:
    """Cost and reward of SB-TRPO on Car Circle, a panel for each of at most `most` seeds; relapses are shaded."""
    circle_runs = runs.of(CIRCLE, Variant("sb-trpo"))[:most]
    if not circle_runs:
        raise Missing(f"no runs of SB-TRPO on {CIRCLE}")
    figure = sheet(10, 1.1 + 1.75 * len(circle_runs))
    longest = max(run.steps for run in circle_runs)
    for [axes], run in zip(grid(figure, len(circle_runs), 1, sharex=True), circle_runs, strict=True):
        unit, label = steps_axis(axes, longest)
        x, cost = run.columns["steps"] / unit, run.column("cost")
        spells = relapses(cost)
        for first, end in spells:
            axes.axvspan(x[first], x[min(end, len(x) - 1)], color=GREY, alpha=0.22, linewidth=0)
        axes.fill_between(x, 0, cost, color=VERMILLION, alpha=0.35, linewidth=0)
        axes.plot(x, cost, color=VERMILLION, linewidth=0.8, label="cost (left)")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=0)
        reward_axes = axes.twinx()
        reward_axes.plot(x, run.column("reward"), color=BLUE, linewidth=0.5, alpha=0.4)
        smooth = trailing_mean(run.column("reward"), run.columns["steps"])
        reward_axes.plot(x, smooth, color=BLUE, linewidth=1.8, label="reward (right)")
        tidy(axes, f"seed {run.seed}: {_spells(spells)}", x=label if run is circle_runs[-1] else "", y="cost")
        tidy(reward_axes, y="reward")
        reward_axes.grid(visible=False)
        reward_axes.spines["right"].set_visible(True)
        reward_axes.spines["right"].set_color("#c5c9ce")
    title = f"shaded: cost above {RELAPSED:g} after it had been below {RECOVERED:g}, until it is so again"
    figure.suptitle(f"{CIRCLE}: relapses and recoveries of SB-TRPO ({title})", fontsize=11)
    handles = [*axes.get_legend_handles_labels()[0], *reward_axes.get_legend_handles_labels()[0]]
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
    """Runs that are much longer than the usual ones, in front of the usual runs of other methods."""
    long_runs = [run for run in runs.long if run.task == task]
    if not long_runs:
        raise Missing(f"no runs on {task} that are much longer than the others")
    longest = max(run.steps for run in long_runs)
    figure = sheet(10, 6.6)
    axes = [axis for row in grid(figure, 2, 2, sharex=True) for axis in row]
    variants = sorted({run.variant for run in long_runs}, key=Variant.order)
    behind = [v for v in rivals(runs) if v not in variants and runs.of(task, v)]
    usual = max((run.steps for variant in behind for run in runs.of(task, variant)), default=0.0)
    for axis, metric in zip(axes, PANELS, strict=True):
        for variant in behind:
            style = {**line_style(variant), "alpha": 0.6, "linewidth": 1.0}
            _curve(axis, runs.of(task, variant), metric, longest, style, variant.title)
        for variant in variants:
            group = [run for run in long_runs if run.variant == variant]
            _curve(axis, group, metric, longest, line_style(variant), f"{variant.title}, long")
        unit, _ = steps_axis(axis, longest)
        if usual:
            axis.axvline(usual / unit, color=FAINT, linewidth=0.8, linestyle=(0, (2, 3)))
        _finish(axis, metric, longest, axis in axes[2:])
    figure.suptitle(literal(f"{task}: training on"), fontsize=12)
    legend(figure, axes[0])
    return figure
