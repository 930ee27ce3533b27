"""One picture of many episodes of a policy: safe ones on the left, unsafe ones on the right.

Tasks with a floor plan are drawn from above. Each episode has a panel with its layout; if all layouts are the same, one
panel shows all episodes of a side. Velocity tasks show each episode's speed and the limit, others the reward so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from sbtrpo.config.run import Which
from sbtrpo.envs import Pool, make_pool
from sbtrpo.envs.arrays import to_numpy
from sbtrpo.envs.spec import NavigationSpec, VelocitySpec
from sbtrpo.envs.streams import Floats
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.envs.view.topdown import (
    BLUE,
    DPI,
    EDGE,
    FAINT,
    GAP,
    GREEN,
    HEADING,
    INK,
    LEGEND_ENTRY,
    LEGEND_ROW,
    PANEL,
    TITLE,
    UNSAFE,
    Properties,
    draw_objects,
    draw_panel,
    draw_trail,
    legend_handles,
    view_reach,
    within,
)
from sbtrpo.files import check_writable, naming
from sbtrpo.media.recording import first_episodes
from sbtrpo.nets.policy import Policy
from sbtrpo.runs.actors import Actor
from sbtrpo.runs.evaluation import subject

COLUMNS, ROWS, NARROWEST = 6, 4, 2
"""Panels on both sides together, and the fewest columns of a side: its heading needs that width."""
BLOCK_HEADING, BETWEEN_SIDES = 0.58, 0.45
"""Inches: room above the panels of a side, and between the two sides."""
LARGE_PANEL, COURSE_HEIGHT = 5.2, 3.4
"""Inches: width of a panel with many episodes, and height of one without a floor plan."""
LONG_ARENA = 6.0
"""Metres: an arena that reaches farther is not drawn to scale."""
SMOOTHED = 25
"""Steps over which a mean course is smoothed."""
_EVENT: Properties = {"marker": "o", "markersize": 3.2, "markeredgewidth": 0.0, "color": UNSAFE, "linestyle": "none"}
_REACHED: Properties = {
    "marker": "*",
    "markersize": 7.0,
    "markerfacecolor": GREEN,
    "markeredgecolor": "white",
    "markeredgewidth": 0.5,
    "linestyle": "none",
}


@dataclass
class FloorPlan:
    """Layouts and robots of N episodes, from above."""

    spec: NavigationSpec
    objects: Floats
    """(N, M, 3) positions of the objects at the start."""
    trails: Floats
    """(T + 1, N, 2) positions of the robots, from the start on; NaN once an episode is over."""


@dataclass
class PlayedEpisodes:
    """The first episodes of N worlds over T steps; entries are NaN or False once an episode is over."""

    task: str
    length: int
    """The most steps that an episode can have."""
    returns: Floats
    """(N,)"""
    costs: Floats
    """(N,)"""
    reward: Floats
    """(T, N)"""
    cost: Floats
    """(T, N)"""
    reached: NDArray[np.bool_]
    """(T, N) whether the goal was reached in a step."""
    plan: FloorPlan | None = None
    """None for tasks without one."""
    speed: Floats | None = None
    """(T, N) the speed that a velocity task limits."""
    threshold: float | None = None

    @property
    def safe(self) -> NDArray[np.bool_]:
        """(N,) whether the episode had no cost."""
        return np.asarray(self.costs == 0)


def draw_trajectories(
    run: str | Path,
    episodes: int = 40,
    seed: int = 7,
    out: str | Path | None = None,
    deterministic: bool = False,
    which: Which = "last",
    task: str | None = None,
) -> Path:
    """Play episodes of a policy and draw them; returns the picture's path.

    Args:
        run: the run's folder, or another policy that `evaluate` takes.
        episodes: how many; the headings count all of them, and at most 24 have a panel.
        seed: seeds the layouts and the policy's noise.
        out: the picture's file name, which ends in .png; by default `trajectories.png` in the run's folder, or
            beside the policy's file.
        deterministic: act by the policy's mean.
        which: the last checkpoint, the best one, or that of a given epoch.
        task: where to play; the run's, or the one that the file names, if left out.
    """
    beside = Path(run) / "trajectories.png" if Path(run).is_dir() else Path(run).with_suffix(".png")
    target = Path(out) if out is not None else beside
    check_picture(target, episodes)
    tried = subject(run, which, task)
    played = play_episodes(tried.load(None), tried.config.task, episodes, seed, deterministic)
    how = "mean action" if deterministic else "sampled actions"
    figure = trajectories_figure(played, f"{played.task}: {tried.name}, {how}")
    return save_picture(figure, target)


def check_picture(target: Path, episodes: int) -> None:
    """Refuse what cannot be drawn, before anything is played."""
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    if target.suffix.lower() != ".png":
        raise ValueError(f"the picture is a PNG; let its name end in .png, got {str(target)!r}")
    check_writable(target)


def save_picture(figure: Figure, target: Path) -> Path:
    """Write a figure as PNG; returns where it is."""
    FigureCanvasAgg(figure)
    target.parent.mkdir(parents=True, exist_ok=True)
    with naming(target):
        figure.savefig(target, dpi=DPI, format="png")
    return target


def play_episodes(policy: Policy | Actor, task: str, episodes: int, seed: int, deterministic: bool) -> PlayedEpisodes:
    """Play one episode in each of `episodes` worlds."""
    pool = make_pool(task, episodes, seed)
    pool.reset(seed)
    navigation = pool.task if isinstance(pool.task, Navigation) else None
    objects = np.array(to_numpy(navigation.worlds.objects)) if navigation else np.empty(0)
    positions: list[Floats] = [_positions(pool)]
    rows: dict[str, list[Any]] = {"reward": [], "cost": [], "reached": [], "speed": []}
    for step in first_episodes(pool, policy, seed, deterministic):
        blank = np.where(step.running, 0.0, np.nan)
        rows["reward"].append(step.reward + blank)
        rows["cost"].append(np.where(step.running, step.cost, 0.0))
        rows["reached"].append(to_numpy(step.info["goal_met"]).astype(bool) & step.running)
        if "x_velocity" in step.info:
            rows["speed"].append(_speed(step.info) + blank)
        position = _positions(pool)
        position[step.ended] = positions[-1][step.ended]  # these robots are already in their next episode
        position[~step.running] = np.nan
        positions.append(position)
    reward, cost = np.array(rows["reward"]), np.array(rows["cost"])
    return PlayedEpisodes(
        task=pool.spec.id,
        length=int(pool.spec.episode_length),
        returns=np.nansum(reward, axis=0),
        costs=cost.sum(axis=0),
        reward=reward,
        cost=cost,
        reached=np.array(rows["reached"]),
        plan=FloorPlan(navigation.spec, objects, np.array(positions)) if navigation else None,
        speed=np.array(rows["speed"]) if rows["speed"] else None,
        threshold=pool.spec.threshold if isinstance(pool.spec, VelocitySpec) else None,
    )


def _speed(info: dict[str, Any]) -> Floats:
    """(N,) the forward speed, or the speed in the plane for robots that may run in any direction."""
    forward = np.asarray(to_numpy(info["x_velocity"]))
    return np.hypot(forward, to_numpy(info["y_velocity"])) if "y_velocity" in info else forward


def _positions(pool: Pool) -> Floats:
    """(N, 2) where the robots are; zeros for tasks without a floor plan."""
    if not isinstance(pool.task, Navigation):
        return np.zeros((pool.num_worlds, 2))
    return np.array(to_numpy(pool.task.worlds.position))[:, :2]


# ---- the picture -----------------------------------------------------------------------------------------------------


def trajectories_figure(episodes: PlayedEpisodes, title: str) -> Figure:
    """The picture that `draw_trajectories` saves."""
    if episodes.plan is None:
        return _courses(episodes, title)
    same_layout = np.ptp(episodes.plan.objects, axis=0).max(initial=0.0) < 1e-6
    return (_overlays if same_layout else _multiples)(episodes, episodes.plan, title)


def side_heading(episodes: PlayedEpisodes, safe: bool) -> tuple[str, str]:
    """The number and share of the safe or the unsafe episodes, and their mean reward and cost.

    >>> import numpy as np
    >>> returns, costs, none = np.array([1.0, 3.0, 5.0]), np.array([0.0, 0.0, 7.0]), np.zeros((1, 3))
    >>> side_heading(PlayedEpisodes("task", 10, returns, costs, none, none, none > 0), safe=False)
    ('unsafe: 1 of 3 episodes (33 %)', 'mean reward 5.00, mean cost 7.0')
    """
    chosen = episodes.safe == safe
    count, total = int(chosen.sum()), len(chosen)
    text = f"{'safe' if safe else 'unsafe'}: {count} of {total} episodes ({100 * count / total:.0f} %)"
    if not count:
        return text, ""
    means = f"mean reward {episodes.returns[chosen].mean():z.2f}".replace("-", "\N{MINUS SIGN}")
    return text, means if safe else f"{means}, mean cost {episodes.costs[chosen].mean():.1f}"


def split_columns(safe: int, unsafe: int) -> tuple[int, int]:
    """Columns of each side, so that as many episodes as possible have a panel; an empty side gets none.

    >>> split_columns(20, 20), split_columns(35, 5), split_columns(0, 40)
    ((3, 3), (4, 2), (0, 6))
    """
    if not safe or not unsafe:
        return COLUMNS * bool(safe), COLUMNS * bool(unsafe)

    def shown(left: int) -> tuple[int, int]:
        panels = min(safe, ROWS * left) + min(unsafe, ROWS * (COLUMNS - left))
        return panels, -abs(2 * left - COLUMNS)

    best = max(range(NARROWEST, COLUMNS - NARROWEST + 1), key=shown)
    return best, COLUMNS - best


def _multiples(episodes: PlayedEpisodes, plan: FloorPlan, title: str) -> Figure:
    """A panel for each episode."""
    sides = [np.flatnonzero(episodes.safe), np.flatnonzero(~episodes.safe)]
    columns = split_columns(len(sides[0]), len(sides[1]))
    shown = [side[: ROWS * n] for side, n in zip(sides, columns, strict=True)]
    rows = max(math.ceil(len(side) / n) for side, n in zip(shown, columns, strict=True) if n)
    drawn = np.concatenate(shown)
    reach = view_reach(plan.spec, plan.objects[drawn], plan.trails[:, drawn])
    sheet = _Sheet(
        [n * PANEL + (n - 1) * GAP for n, side in zip(columns, shown, strict=True) if len(side)],
        rows * (PANEL + TITLE) + (rows - 1) * GAP,
        floor_handles(plan, episodes, [(-reach, reach)] * 2),
        title,
    )
    for block, (safe, side, n) in enumerate(
        (safe, side, n) for safe, side, n in zip((True, False), shown, columns, strict=True) if len(side)
    ):
        heading, means = side_heading(episodes, safe)
        if len(side) < (episodes.safe == safe).sum():
            means += f", first {len(side)} shown"
        sheet.heading(block, heading, means, safe)
        for k, episode in enumerate(side):
            corner = k % n * (PANEL + GAP), k // n * (PANEL + TITLE + GAP) + TITLE
            axes = sheet.axes(block, *corner, PANEL, PANEL)
            objects, total, cost = plan.objects[episode], episodes.returns[episode], episodes.costs[episode]
            draw_panel(axes, plan.spec, objects, reach, total, cost)
            draw_trail(axes, plan.trails[:, episode])
            draw_events(axes, episodes, plan, [episode])
    return sheet.figure


def _overlays(episodes: PlayedEpisodes, plan: FloorPlan, title: str) -> Figure:
    """All episodes of a side in one panel."""
    limits = floor_limits(plan)
    sheet = _Sheet([LARGE_PANEL] * 2, LARGE_PANEL, floor_handles(plan, episodes, limits), title)
    for block, safe in enumerate((True, False)):
        side = np.flatnonzero(episodes.safe == safe)
        sheet.heading(block, *side_heading(episodes, safe), safe)
        axes = sheet.axes(block, 0, 0, LARGE_PANEL, LARGE_PANEL)
        axes.set(xlim=limits[0], ylim=limits[1], xticks=[], yticks=[])
        axes.spines[:].set_color(FAINT if safe else UNSAFE)
        draw_objects(axes, plan.spec, plan.objects[0])
        for episode in side:
            draw_trail(axes, plan.trails[:, episode], opacity=max(0.35, 1 / math.sqrt(len(side))))
        draw_events(axes, episodes, plan, side)
    return sheet.figure


def floor_limits(plan: FloorPlan) -> list[tuple[float, float]]:
    """The limits of a panel in x and y: the whole square arena, or where a long one has objects and trails."""
    reach = view_reach(plan.spec, plan.objects, plan.trails)
    if reach <= LONG_ARENA:
        return [(-reach, reach)] * 2
    points = np.concatenate([plan.trails.reshape(-1, 2), plan.objects[0, :, :2]])
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    margin = np.maximum(0.1 * (high - low), 0.3)
    return [(float(a), float(b)) for a, b in zip(low - margin, high + margin, strict=True)]


def _courses(episodes: PlayedEpisodes, title: str) -> Figure:
    """The speed, or the reward so far, of each episode over its steps."""
    series, label = courses(episodes)
    mean = Line2D([], [], color=INK, linewidth=1.6, label="their mean")
    handles = [mean, *course_handles(episodes, series)]
    sheet = _Sheet([LARGE_PANEL] * 2, COURSE_HEIGHT + 0.4, handles, title, side=0.85)
    low, high = float(np.nanmin(series)), float(np.nanmax(series))
    if episodes.threshold is not None:
        high = max(high, episodes.threshold)
    margin = 0.06 * (high - low or 1.0)
    for block, safe in enumerate((True, False)):
        side = np.flatnonzero(episodes.safe == safe)
        sheet.heading(block, *side_heading(episodes, safe), safe)
        axes = sheet.axes(block, 0, 0, LARGE_PANEL, COURSE_HEIGHT)
        axes.set(xlim=(0, episodes.length), ylim=(low - margin, high + margin), xlabel="step")
        axes.grid(color=FAINT, linewidth=0.4)
        axes.spines[["top", "right"]].set_visible(False)
        if block == 0:
            axes.set_ylabel(label)
        if episodes.threshold is not None:
            axes.axhline(episodes.threshold, color=UNSAFE, linewidth=1.2, linestyle="--", zorder=3)
        for episode in side.tolist():
            draw_course(axes, episodes, series[:, episode], episode, len(side))
        if len(side) > 1:
            _draw_mean(axes, series[:, side], SMOOTHED if episodes.speed is not None else 1)
    return sheet.figure


def courses(episodes: PlayedEpisodes) -> tuple[Floats, str]:
    """(T, N) what is drawn of episodes without a floor plan, and what it is."""
    if episodes.speed is not None:
        return episodes.speed, "velocity, m/s"
    return np.cumsum(episodes.reward, axis=0), "reward so far"


def course_handles(episodes: PlayedEpisodes, series: Floats) -> list[Line2D]:
    """The legend of panels with courses."""
    handles = [
        Line2D([], [], color=BLUE, linewidth=1.2, label="an episode"),
        Line2D([], [], label="a step that cost", **_EVENT | {"markersize": 5.0}),
    ]
    if np.isfinite(series).sum() < episodes.length * len(episodes.costs):
        end: Properties = {"marker": "x", "color": INK, "linestyle": "none", "markersize": 5}
        handles.append(Line2D([], [], label="end before its time", **end))
    if episodes.threshold is not None:
        handles.append(Line2D([], [], color=UNSAFE, linewidth=1.2, linestyle="--", label="limit"))
    return handles


def _draw_mean(axes: Axes, series: Floats, smoothed: int) -> None:
    """Draw the mean over the episodes still running, averaged over `smoothed` steps and over fewer at both ends."""
    running = np.isfinite(series).any(axis=1)
    mean = np.nanmean(series[running], axis=1)
    window = np.ones(min(smoothed, len(mean)))
    smooth = np.convolve(mean, window, "same") / np.convolve(np.ones(len(mean)), window, "same")
    axes.plot(np.arange(1, len(smooth) + 1), smooth, color=INK, linewidth=1.6, zorder=4)


def draw_course(axes: Axes, episodes: PlayedEpisodes, values: Floats, episode: int, beside: int = 1) -> None:
    """Draw one of so many episodes over its steps, and mark where it had a cost and whether it ended early."""
    steps = np.arange(1, len(values) + 1)
    opacity = max(0.15, 1 / math.sqrt(beside))
    axes.plot(steps, values, color=BLUE, linewidth=0.8, alpha=opacity, zorder=2)
    events = episodes.cost[:, episode] > 0
    axes.plot(steps[events], values[events], **_EVENT, zorder=3)
    last = int(np.isfinite(values).sum())
    if last < episodes.length:
        axes.plot(last, values[last - 1], marker="x", color=INK, markersize=4, zorder=5)


def draw_events(axes: Axes, episodes: PlayedEpisodes, plan: FloorPlan, chosen: Sequence[int] | NDArray[Any]) -> None:
    """Mark where the chosen episodes had a cost or reached the goal."""
    after = plan.trails[1:, chosen]
    costly = after[episodes.cost[:, chosen] > 0]
    reached = after[episodes.reached[:, chosen]]
    for places, mark, order in ((costly, _EVENT, 5), (reached, _REACHED, 6)):
        axes.plot(*within(axes, places).T, **mark, zorder=order)


def floor_handles(plan: FloorPlan, episodes: PlayedEpisodes, limits: Sequence[tuple[float, float]]) -> list[Line2D]:
    """The legend of panels from above."""
    low, high = np.transpose(limits)
    away = bool(((plan.trails < low) | (plan.trails > high)).any())
    handles = [handle for handle in legend_handles(plan.spec, away) if handle.get_label() != "cost above 0"]
    if episodes.reached.any():
        handles.append(Line2D([], [], label="goal reached", **_REACHED))
    handles.append(Line2D([], [], label="a step that cost", **_EVENT | {"markersize": 5.0}))
    return handles


class _Sheet:
    """A figure with blocks side by side, a heading above each and a legend below; all measures are in inches."""

    def __init__(
        self, widths: Sequence[float], height: float, handles: list[Line2D], title: str, side: float = EDGE
    ) -> None:
        self._lefts = [side + sum(widths[:k]) + k * max(BETWEEN_SIDES, side) for k in range(len(widths))]
        width = self._lefts[-1] + widths[-1] + max(EDGE, side / 3)
        self._top = EDGE + HEADING + BLOCK_HEADING
        per_row = max(1, int((width - 2 * EDGE) / LEGEND_ENTRY))
        legend = LEGEND_ROW * math.ceil(len(handles) / per_row)
        self._size = width, self._top + height + GAP + legend + EDGE
        self.figure = Figure(figsize=self._size, facecolor="white")
        self.figure.suptitle(title, y=1 - EDGE / self._size[1], va="top", fontsize=13, color=INK)
        self.figure.legend(
            handles=handles, loc="lower center", bbox_to_anchor=(0.5, EDGE / 2 / self._size[1]),
            ncols=min(per_row, len(handles)), frameon=False, fontsize=9, labelcolor=INK, handletextpad=0.5,
            columnspacing=1.6, borderaxespad=0.0,
        )  # fmt: skip

    def heading(self, block: int, text: str, means: str, safe: bool) -> None:
        """Write two lines above a block, in red if it is unsafe."""
        x, colour = self._lefts[block] / self._size[0], INK if safe else UNSAFE
        for line, weight, up in ((text, "bold", 0.32), (means, "normal", 0.1)):
            y = 1 - (self._top - up) / self._size[1]
            self.figure.text(x, y, line, fontsize=11, color=colour, weight=weight, va="bottom")

    def axes(self, block: int, left: float, top: float, width: float, height: float) -> Axes:
        """New axes in a block; `left` and `top` are measured from its upper left corner."""
        x, y = self._lefts[block] + left, self._size[1] - self._top - top - height
        total_width, total_height = self._size
        return self.figure.add_axes((x / total_width, y / total_height, width / total_width, height / total_height))
