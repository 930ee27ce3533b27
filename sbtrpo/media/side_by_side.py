"""One picture of several policies: of each a safe episode, and below it an unsafe one.

Of its safe episodes, and of its unsafe ones, each policy shows that of median return: neither the best nor the worst.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sbtrpo.config.run import Which
from sbtrpo.envs.view.topdown import (
    DPI,
    EDGE,
    FAINT,
    GAP,
    INK,
    LEGEND_ENTRY,
    LEGEND_ROW,
    TITLE,
    UNSAFE,
    draw_panel,
    draw_trail,
    frame,
    view_reach,
)
from sbtrpo.files import check_writable, naming
from sbtrpo.media.trajectories import (
    PlayedEpisodes,
    course_handles,
    courses,
    draw_course,
    draw_events,
    floor_handles,
    play_episodes,
)
from sbtrpo.runs.evaluation import subject

COLUMNS, PANEL, HEADING = 4, 2.6, 0.5
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
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    if target.suffix.lower() != ".png":
        raise ValueError(f"the picture is a PNG; let its name end in .png, got {str(target)!r}")
    check_writable(target)
    tried = [subject(run, which, task) for run in runs]
    played = [play_episodes(one.load(None), one.config.task, episodes, seed, deterministic) for one in tried]
    figure = side_by_side_figure(played)
    FigureCanvasAgg(figure)
    target.parent.mkdir(parents=True, exist_ok=True)
    with naming(target):
        figure.savefig(target, dpi=DPI, format="png")
    return target


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


def side_by_side_figure(policies: Sequence[PlayedEpisodes]) -> Figure:
    """The picture that `draw_side_by_side` saves."""
    columns = min(COLUMNS, len(policies))
    bands = math.ceil(len(policies) / columns)
    handles = {handle.get_label(): handle for played in policies for handle in _handles(played)}
    width = 2 * EDGE + columns * PANEL + (columns - 1) * 2 * GAP
    per_row = max(1, int((width - 2 * EDGE) / LEGEND_ENTRY))
    legend = LEGEND_ROW * math.ceil(len(handles) / per_row)
    band = HEADING + 2 * (TITLE + PANEL) + GAP
    height = 2 * EDGE + bands * band + (bands - 1) * GAP + legend + GAP
    figure = Figure(figsize=(width, height), facecolor="white")
    for k, played in enumerate(policies):
        left, top = EDGE + k % columns * (PANEL + 2 * GAP), EDGE + k // columns * (band + GAP)
        safe, count = int(played.safe.sum()), len(played.costs)
        words = ((played.task, "bold", 0.26), (f"safe in {safe} of {count} episodes", "normal", 0.06))
        for text, weight, up in words:
            place = (left + PANEL / 2) / width, 1 - (top + HEADING - up) / height
            figure.text(*place, text, ha="center", va="bottom", fontsize=10, color=INK, weight=weight)
        for row, is_safe in enumerate((True, False)):
            bottom = height - top - HEADING - (row + 1) * (TITLE + PANEL) - row * GAP
            axes = figure.add_axes((left / width, bottom / height, PANEL / width, PANEL / height))
            _draw(axes, played, is_safe)
    figure.legend(
        handles=list(handles.values()), loc="lower center", bbox_to_anchor=(0.5, EDGE / 2 / height),
        ncols=min(per_row, len(handles)), frameon=False, fontsize=9, labelcolor=INK, handletextpad=0.5,
        columnspacing=1.6, borderaxespad=0.0,
    )  # fmt: skip
    return figure


def _handles(played: PlayedEpisodes) -> list[Line2D]:
    if played.plan is None:
        return course_handles(played, courses(played)[0])
    reach = view_reach(played.plan.spec, played.plan.objects, played.plan.trails)
    return floor_handles(played.plan, played, [(-reach, reach)] * 2)


def _draw(axes: Axes, played: PlayedEpisodes, safe: bool) -> None:
    """One episode, or that there is none."""
    episode = median_episode(played, safe)
    if episode is None:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color(FAINT)
        axes.text(0.5, 0.5, f"no {'safe' if safe else 'unsafe'} one", ha="center", va="center", color=INK, fontsize=10)
        return
    total, cost = float(played.returns[episode]), float(played.costs[episode])
    if played.plan is not None:
        plan, trail = played.plan, played.plan.trails[:, [episode]]
        draw_panel(axes, plan.spec, plan.objects[episode], view_reach(plan.spec, plan.objects, trail), total, cost)
        draw_trail(axes, trail[:, 0])
        draw_events(axes, played, plan, [episode])
        return
    series, _ = courses(played)
    low, high = float(np.nanmin(series)), max(float(np.nanmax(series)), played.threshold or -math.inf)
    margin = 0.06 * (high - low or 1.0)
    axes.set(xlim=(0, played.length), ylim=(low - margin, high + margin))
    axes.set_xticks([played.length // 4 * k for k in (1, 2, 3)])
    axes.yaxis.set_major_locator(MaxNLocator(4, prune="both"))
    axes.tick_params(direction="in", pad=-12, labelsize=7, colors=INK)
    axes.tick_params(axis="y", pad=-5)
    for label in axes.get_yticklabels():
        label.set_horizontalalignment("left")
    frame(axes, total, cost)
    if played.threshold is not None:
        axes.axhline(played.threshold, color=UNSAFE, linewidth=1.2, linestyle="--", zorder=3)
    draw_course(axes, played, series[:, episode], episode)
