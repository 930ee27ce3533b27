"""Figures of reward and safety: where methods stand, the frontier of β, performance profiles, the update's sketch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sbtrpo.benchmark.statistics import common_tasks, scaled
from sbtrpo.report import paper
from sbtrpo.report.canvas import ACROSS, FAINT, INK, grid, legend, line_style, line_styles, literal, sheet, tidy
from sbtrpo.report.runs import Floats, Runs, rivals
from sbtrpo.report.style import BLUE, GREEN, VERMILLION, look
from sbtrpo.report.tables import Missing
from sbtrpo.report.variants import Variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RESAMPLES = 200
"""Bootstrap resamples of a profile."""

# ---- where methods stand ---------------------------------------------------------------------------------------------


def safety_planes(runs: Runs, printed: bool = True) -> Figure:
    """For each task the plane of safety and safe reward: every method, and hollow where the paper has it, if `printed`.

    Beside the paper's points ours stand with what these are, reward times safety probability (see `paper.PRODUCT`), and
    a bar below each has its safe reward.
    """
    if not runs.tasks:
        raise Missing("no runs")
    columns = min(ACROSS, len(runs.tasks))
    rows = -(-len(runs.tasks) // columns)
    names, shown = paper.tasks(), rivals(runs)
    figure = sheet(max(4.5, 3.1 * columns), 0.9 + 2.9 * rows + 0.2 * -(-(1 + printed) * len(shown) // columns))
    cells = [axes for row in grid(figure, rows, columns) for axes in row]
    for axes, task in zip(cells, runs.tasks, strict=False):
        beside = printed and any(_printed(task, variant) for variant in shown)
        metric = paper.PRODUCT if beside else "safe_reward"
        for variant in shown:
            _standing(axes, runs, task, variant, metric)
        tidy(axes, names.get(task, task), x=paper.TITLES["safety_probability"], y=paper.TITLES[metric])
        axes.set_xlim(-0.03, 1.03)
        axes.axhline(0, color=FAINT, linewidth=0.8)
    for axes in cells[len(runs.tasks) :]:
        axes.set_axis_off()
    compared = printed and any(_printed(task, variant) for task in runs.tasks for variant in shown)
    words = ["Further right violates less, higher earns more", "bars: by definition, of safe episodes alone"]
    figure.suptitle(("; " if columns > 2 else "\n").join(words[: 1 + compared]), fontsize=12)
    legend(figure, *cells, columns=columns)
    return figure


def _printed(task: str, variant: Variant) -> dict[str, paper.PrintedCell] | None:
    """What the paper has of a method, which ran as it did there."""
    return paper.main().get(variant.algo, {}).get(task) if variant.plain else None


def _standing(axes: Axes, runs: Runs, task: str, variant: Variant, metric: str) -> None:
    style = look(variant)
    if runs.of(task, variant):
        (x, dx), (y, dy) = (_point(runs, task, variant, name) for name in ("safety_probability", metric))
        if metric == paper.PRODUCT:
            by_definition, _ = _point(runs, task, variant, "safe_reward")
            axes.plot([x, x], [y, by_definition], ":", color=style.colour, linewidth=1.0, zorder=2)
            axes.plot(x, by_definition, "_", color=style.colour, markersize=10, markeredgewidth=1.6, zorder=4)
        bars: dict[str, Any] = {"ecolor": style.colour, "elinewidth": 0.9, "color": style.colour, "markersize": 7}
        axes.errorbar(x, y, dy, dx, fmt=style.marker, label=literal(variant.title), zorder=4, **bars)
    if metric == paper.PRODUCT and (cells := _printed(task, variant)):
        _hollow(axes, variant, cells["safety_probability"], cells["safe_reward"])


def _hollow(axes: Axes, variant: Variant, x: paper.PrintedCell, y: paper.PrintedCell) -> None:
    """Where the paper has a method."""
    style, label = look(variant), literal(f"{variant.title}, the paper's")
    hollow: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": style.colour, "markersize": 7}
    axes.plot(x.mean, y.mean, style.marker, label=label, zorder=3, **hollow)


# ---- β ---------------------------------------------------------------------------------------------------------------


def frontiers(runs: Runs, task: str) -> dict[Variant, list[Variant]]:
    """What ran on a task with more than one β: variants but for β, and with each β, in its order."""
    found: dict[Variant, list[Variant]] = {}
    for variant in runs.variants:
        if isinstance(variant.get("beta"), float | int) and runs.of(task, variant):
            found.setdefault(variant.without("beta"), []).append(variant)
    lines = {line: sorted(own, key=lambda v: float(v.get("beta"))) for line, own in found.items() if len(own) > 1}
    return dict(sorted(lines.items(), key=lambda item: item[0].order()))


def beta_frontier(runs: Runs) -> Figure:
    """The results of each β and of the other methods, in the plane of safety and in that of cost.

    On the paper's tasks its SB-TRPO is there, hollow; safe rewards then are what its are, as in `safety_planes`. Where
    all runs of a task began with one trained policy, that is there, too.
    """
    tasks = [task for task in runs.tasks if frontiers(runs, task)]
    if not tasks:
        raise Missing("no task on which SB-TRPO ran with more than one β")
    figure = sheet(10.5, 0.9 + 3.9 * len(tasks))
    rows = grid(figure, len(tasks), 2)
    for (left, right), task in zip(rows, tasks, strict=True):
        printed = _printed(task, Variant("sb-trpo"))
        earned = paper.PRODUCT if printed else "safe_reward"
        for axes, x, y in ((left, "safety_probability", earned), (right, "cost", "reward")):
            _others(axes, runs, task, x, y)
            lines = frontiers(runs, task)
            for line, style in line_styles(list(lines)).items():
                _frontier(axes, runs, task, line, lines[line], style["color"], x, y)
            _start(axes, runs, task, lines, x, y)
            if printed:
                _hollow(axes, Variant("sb-trpo"), printed[x], printed["safe_reward" if y == earned else y])
            tidy(axes, task, x=paper.TITLES[x], y=paper.TITLES[y])
            axes.axhline(0, color=FAINT, linewidth=0.8)
            axes.margins(x=0.16, y=0.1)  # for what stands at the ends of a line
    figure.suptitle("SB-TRPO by its safety bias β", fontsize=12)
    legend(figure, *(axes for row in rows for axes in row), columns=2)
    return figure


def _point(runs: Runs, task: str, variant: Variant, metric: str) -> tuple[float, float]:
    """The pooled mean, and the standard deviation between seeds."""
    estimate = runs.pooled(task, variant, metric)
    values = runs.final_values(task, variant, metric)
    return (float("nan") if estimate is None else estimate.mean), float(values.std()) if len(values) else 0.0


def _others(axes: Axes, runs: Runs, task: str, x: str, y: str) -> None:
    on_a_line = {line.algo for line in frontiers(runs, task)}
    for variant in runs.variants:
        if not variant.plain or variant.algo in on_a_line or not runs.of(task, variant):
            continue
        style = look(variant)
        at_x, at_y = (_point(runs, task, variant, metric)[0] for metric in (x, y))
        axes.scatter(at_x, at_y, color=style.colour, marker=style.marker, s=34, label=literal(variant.title), zorder=3)


def _start(axes: Axes, runs: Runs, task: str, lines: Mapping[Variant, Sequence[Variant]], x: str, y: str) -> None:
    """The policy that all of them began with, if there is one: it played their first epoch."""
    began = {runs.shared.get((task, line.algo), {}).get("init_from", line.get("init_from")) for line in lines}
    if len(began) > 1 or None in began:
        return
    own = [run for variants in lines.values() for variant in variants for run in runs.of(task, variant)]
    own = [run for run in own if np.isfinite([run.column(metric)[0] for metric in (x, y)]).all()]
    if own:  # there may be no episode that ended in it
        episodes = np.nan_to_num([run.column("episodes")[0] for run in own], nan=1.0)  # tables need not have them
        at_x, at_y = (np.average([run.column(metric)[0] for run in own], weights=episodes) for metric in (x, y))
        label = "before: what all began with"
        axes.plot(at_x, at_y, "X", color=INK, markersize=8, linestyle="none", zorder=6, label=label)


def _frontier(
    axes: Axes, runs: Runs, task: str, line: Variant, variants: Sequence[Variant], colour: str, x: str, y: str
) -> None:
    at_x, dx = np.array([_point(runs, task, variant, x) for variant in variants]).T
    at_y, dy = np.array([_point(runs, task, variant, y) for variant in variants]).T
    axes.errorbar(at_x, at_y, dy, dx, fmt="none", ecolor=colour, alpha=0.35, linewidth=0.9, zorder=4)
    betas = [f"{float(variant.get('beta')):g}" for variant in variants]
    label, marker = literal(f"{line.title}, β = {', '.join(betas)}"), look(line).marker
    axes.plot(at_x, at_y, color=colour, linewidth=1.6, marker=marker, markersize=6, zorder=5, label=label)
    for end, inner in ((0, 1), (-1, -2)):  # only the ends: points between them may be too close for a text
        away = np.sign([at_x[end] - at_x[inner], at_y[end] - at_y[inner]])
        options: dict[str, Any] = {"ha": "left" if away[0] > 0 else "right", "va": "bottom" if away[1] > 0 else "top"}
        text, place = f"β = {betas[end]}", (at_x[end], at_y[end])
        axes.annotate(
            text, place, tuple(5 * away), textcoords="offset points", fontsize=8, color=INK, zorder=6, **options
        )


# ---- performance profiles --------------------------------------------------------------------------------------------


def performance_profiles(runs: Runs) -> Figure:
    """The share of runs that score at least τ, over all tasks. Bands are from a bootstrap over each task's seeds."""
    rewards, safety = runs.scores(rivals(runs), ("safe_reward", "safety_probability"))
    variants, tasks = common_tasks(rewards)
    if len(variants) < 2:
        raise Missing("no two methods that ran on the same tasks")
    figure = sheet(10.5, 4.6)
    [row] = grid(figure, 1, 2, sharey=True)
    compared = {variant: rewards[variant] for variant in variants}
    for axes, scores, title in (
        (row[0], scaled(compared), "safe reward, 0 to 1 between the worst and the best run of a task"),
        (row[1], safety, "safety probability"),
    ):
        thresholds = np.linspace(0, 1, 101)
        for variant in variants:
            share, low, high = profile([scores[variant][task] for task in tasks], thresholds)
            style = line_style(variant)
            axes.plot(thresholds, share, label=literal(variant.title), **style)
            axes.fill_between(thresholds, low, high, color=style["color"], alpha=0.08, linewidth=0)
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.02, 1.02)
        tidy(axes, title, x="τ", y="share of runs of at least τ" if axes is row[0] else "")
    count = f"{len(tasks)} task{'s' if len(tasks) > 1 else ''}"
    figure.suptitle(f"Performance profiles over {count}", fontsize=12)
    legend(figure, row[0])
    return figure


def profile(scores: Sequence[Floats], thresholds: Floats) -> tuple[Floats, Floats, Floats]:
    """The share of scores that reach each threshold, with equal weight for each task, and its 95 % interval.

    >>> share, _, _ = profile([np.array([0.2, 0.8])], np.array([0.0, 0.5, 1.0]))
    >>> share.tolist()
    [1.0, 0.5, 0.0]
    """

    def share(samples: Sequence[NDArray[np.float64]]) -> Floats:
        # samples: (..., seeds) each -> (..., thresholds)
        by_task = [(task[..., None] >= thresholds).mean(axis=-2) for task in samples]
        return np.asarray(np.mean(by_task, axis=0))

    rng = np.random.default_rng(0)  # the same figure every time
    resampled = [task[rng.integers(0, len(task), (RESAMPLES, len(task)))] for task in scores]
    low, high = np.quantile(share(resampled), [0.025, 0.975], axis=0)
    return share(scores), low, high


# ---- the sketch ------------------------------------------------------------------------------------------------------

SKETCH_BETA = 0.7
SKETCHES = (((1.5, 0.7), (-1.0, 1.0)), ((1.5, 0.4), (1.0, 1.0)), ((1.0, 0.3), (1.0, 1.0)), ((1.5, 0.5), (-1.0, -1.0)))
"""Δ_r and Δ_c in the paper's four pictures."""


def convex_combination() -> Figure:
    """The update between the best reward step and the best cost step, which are the gradients themselves here."""
    from sbtrpo.algorithms.sb_trpo import safety_share  # here, because it imports torch

    figure = sheet(10.5, 3.3)
    [row] = grid(figure, 1, len(SKETCHES))
    for axes, (reward_step, cost_step) in zip(row, SKETCHES, strict=True):
        delta_r, delta_c = np.array(reward_step), np.array(cost_step)
        g_c = -delta_c
        mu = safety_share(float(g_c @ delta_r), float(g_c @ delta_c), SKETCH_BETA)
        _enough(axes, delta_c)
        for vector, colour, style, label in (
            (delta_r, BLUE, (0, (1.5, 1.5)), "$\\Delta_r$, best for reward"),
            (delta_c, GREEN, (0, (5, 2)), "$\\Delta_c$, best for cost"),
            ((1 - mu) * delta_r + mu * delta_c, VERMILLION, "solid", "$\\Delta = (1-\\mu)\\Delta_r + \\mu\\Delta_c$"),
        ):
            _arrow(axes, vector, colour, style, label)
        tidy(axes, f"μ = {mu:.2f}")
        axes.set_aspect("equal")
        axes.set_xlim(-1.3, 1.8)
        axes.set_ylim(-1.3, 1.4)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
    figure.suptitle(f"The update keeps β = {SKETCH_BETA:g} of the best cost decrease (shaded: enough)", fontsize=12)
    legend(figure, row[0], columns=3)
    return figure


def _enough(axes: Axes, delta_c: Floats) -> None:
    """Shade the half-plane of steps that cut cost by at least β of the best step."""
    size = float(delta_c @ delta_c)
    foot = SKETCH_BETA * delta_c
    along, out = np.array([-delta_c[1], delta_c[0]]) / np.sqrt(size) * 5, delta_c / np.sqrt(size) * 5
    corners = np.array([foot + along, foot - along, foot - along + out, foot + along + out])
    axes.fill(corners[:, 0], corners[:, 1], color=GREEN, alpha=0.1, linewidth=0)


def _arrow(axes: Axes, vector: Floats, colour: str, style: object, label: str) -> None:
    width = 2.6 if style == "solid" else 1.6
    axes.plot([0, vector[0]], [0, vector[1]], color=colour, linestyle=style, linewidth=width, label=label)
    arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 14}
    axes.annotate("", (vector[0], vector[1]), (0.9 * vector[0], 0.9 * vector[1]), arrowprops=arrow)
