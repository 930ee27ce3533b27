"""One picture of several policies: of each a safe episode, and below it an unsafe one.

Of its safe episodes, and of its unsafe ones, each policy shows that of median return: neither the best nor the worst.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sbtrpo.config.run import Which
from sbtrpo.envs.view.topdown import (
    EDGE,
    FAINT,
    GAP,
    INK,
    LEGEND_ENTRY,
    LEGEND_ROW,
    TITLE,
    UNSAFE,
    draw_objects,
    draw_trail,
    frame,
)
from sbtrpo.media.trajectories import (
    FloorPlan,
    PlayedEpisodes,
    check_picture,
    course_handles,
    courses,
    draw_course,
    draw_events,
    floor_handles,
    floor_limits,
    play_episodes,
    save_picture,
)
from sbtrpo.runs.evaluation import subject

COLUMNS, PANEL, HEADING = 4, 2.6, 0.68
"""Policies beside each other; inches of a panel, and above a policy."""


def draw_side_by_side(
    runs: Sequence[str | Path],
    episodes: int = 40,
    seed: int = 7,
    out: str | Path = "trajectories.png",
    deterministic: bool = False,
    which: Which = "last",
    task: str | None = None,
) -> Path:
    """Play episodes of several policies and draw two of each; returns the picture's path.

    Args:
        runs: their folders, or other policies that `evaluate` takes.
        episodes: how many each plays.
        seed: seeds the layouts and the policies' noise.
        out: the picture's file name, which ends in .png.
        deterministic: act by the policies' means.
        which: the last checkpoint, the best one, or that of a given epoch.
        task: where to play; each run's, or the one that its file names, if left out.
    """
    target = Path(out)
    check_picture(target, episodes)
    tried = [subject(run, which, task) for run in runs]
    played = [play_episodes(one.load(None), one.config.task, episodes, seed, deterministic) for one in tried]
    how = "mean action" if deterministic else "sampled actions"
    return save_picture(side_by_side_figure(played, [f"{one.name}, {how}" for one in tried]), target)


def median_episode(played: PlayedEpisodes, safe: bool) -> int | None:
    """The episode of median return among the safe or the unsafe ones, the lower of two; None where there is none.

    >>> import numpy as np
    >>> returns, costs, none = np.array([5.0, 1.0, 3.0, 9.0]), np.array([0.0, 0.0, 0.0, 7.0]), np.zeros((1, 4))
    >>> played = PlayedEpisodes("task", 10, returns, costs, none, none, none > 0)
    >>> median_episode(played, safe=True), median_episode(played, safe=False)
    (2, 3)
    """
    side = np.flatnonzero(played.safe == safe)
    order = side[np.argsort(played.returns[side], kind="stable")]
    return int(order[(len(order) - 1) // 2]) if len(order) else None


def side_by_side_figure(policies: Sequence[PlayedEpisodes], names: Sequence[str]) -> Figure:
    """The picture that `draw_side_by_side` saves."""
    shown = [_shown(played) for played in policies]
    columns = min(COLUMNS, len(policies))
    bands = math.ceil(len(policies) / columns)
    handles = {handle.get_label(): handle for pair in shown for handle in _handles(pair)}
    width = 2 * EDGE + columns * PANEL + (columns - 1) * 2 * GAP
    per_row = max(1, int((width - 2 * EDGE) / LEGEND_ENTRY))
    legend = LEGEND_ROW * math.ceil(len(handles) / per_row)
    band = HEADING + 2 * (TITLE + PANEL) + GAP
    height = 2 * EDGE + bands * band + (bands - 1) * GAP + legend + GAP
    figure = Figure(figsize=(width, height), facecolor="white")
    for k, (played, pair, name) in enumerate(zip(policies, shown, names, strict=True)):
        left, top = EDGE + k % columns * (PANEL + 2 * GAP), EDGE + k // columns * (band + GAP)
        counted = f"safe in {int(played.safe.sum())} of {len(played.costs)} episodes"
        for text, weight, size, up in (
            (played.task, "bold", 10, 0.44),
            (name, "normal", 8, 0.26),
            (counted, "normal", 9, 0.06),
        ):
            place = (left + PANEL / 2) / width, 1 - (top + HEADING - up) / height
            figure.text(*place, text, ha="center", va="bottom", fontsize=size, color=INK, weight=weight)
        for row, safe in enumerate((True, False)):
            bottom = height - top - HEADING - (row + 1) * (TITLE + PANEL) - row * GAP
            axes = figure.add_axes((left / width, bottom / height, PANEL / width, PANEL / height))
            (_draw if safe in pair.safe else _draw_none)(axes, pair, safe)
    figure.legend(
        handles=list(handles.values()), loc="lower center", bbox_to_anchor=(0.5, EDGE / 2 / height),
        ncols=min(per_row, len(handles)), frameon=False, fontsize=9, labelcolor=INK, handletextpad=0.5,
        columnspacing=1.6, borderaxespad=0.0,
    )  # fmt: skip
    return figure


def _shown(played: PlayedEpisodes) -> PlayedEpisodes:
    """The episodes that are drawn, one or two, and no others."""
    chosen = [one for one in (median_episode(played, safe) for safe in (True, False)) if one is not None]
    plan = played.plan
    return replace(
        played,
        returns=played.returns[chosen],
        costs=played.costs[chosen],
        reward=played.reward[:, chosen],
        cost=played.cost[:, chosen],
        reached=played.reached[:, chosen],
        plan=None if plan is None else FloorPlan(plan.spec, plan.objects[chosen], plan.trails[:, chosen]),
        speed=None if played.speed is None else played.speed[:, chosen],
    )


def _handles(pair: PlayedEpisodes) -> list[Line2D]:
    if pair.plan is None:
        return course_handles(pair, courses(pair)[0])
    return floor_handles(pair.plan, pair, floor_limits(pair.plan))


def _draw_none(axes: Axes, _: PlayedEpisodes, safe: bool) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color(FAINT)
    axes.text(0.5, 0.5, f"no {'safe' if safe else 'unsafe'} one", ha="center", va="center", color=INK, fontsize=10)


def _draw(axes: Axes, pair: PlayedEpisodes, safe: bool) -> None:
    """The safe or the unsafe one; both on one scale."""
    (episode,) = np.flatnonzero(pair.safe == safe).tolist()
    frame(axes, float(pair.returns[episode]), float(pair.costs[episode]))
    if pair.plan is not None:
        plan = pair.plan
        across, along = floor_limits(plan)
        axes.set(xlim=across, ylim=along, xticks=[], yticks=[])
        draw_objects(axes, plan.spec, plan.objects[episode])
        draw_trail(axes, plan.trails[:, episode])
        draw_events(axes, pair, plan, [episode])
        return
    series, _ = courses(pair)
    low, high = float(np.nanmin(series)), max(float(np.nanmax(series)), pair.threshold or -math.inf)
    margin = 0.06 * (high - low or 1.0)
    axes.set(xlim=(0, pair.length), ylim=(low - margin, high + margin))
    axes.set_xticks([pair.length // 4 * k for k in (1, 2, 3)])
    axes.yaxis.set_major_locator(MaxNLocator(4, prune="both"))
    axes.tick_params(direction="in", pad=-12, labelsize=7, colors=INK)
    axes.tick_params(axis="y", pad=-5)
    for label in axes.get_yticklabels():
        label.set_horizontalalignment("left")
    if pair.threshold is not None:
        axes.axhline(pair.threshold, color=UNSAFE, linewidth=1.2, linestyle="--", zorder=3)
    draw_course(axes, pair, series[:, episode], episode)
