"""Navigation worlds from above: where things stand when the episode begins, and the way that the robot takes.

One panel for each world, drawn from the task's `groups` alone, so that a newly registered task has its picture too.
Figures are made without pyplot: nothing global changes, and no display is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, Rectangle

from sbtrpo.envs.spec import Group, NavigationSpec
from sbtrpo.envs.streams import Floats
from sbtrpo.envs.tasks.navigation import GREMLIN_TRAVEL
from sbtrpo.files import naming

Properties: TypeAlias = dict[str, Any]
"""Keyword arguments of matplotlib's artists."""

MAX_PANELS = 30
"""More worlds than this are not drawn: their panels would be too small to read."""

# The palette of Okabe and Ito, which stays distinct under the common forms of colour blindness.
BLUE, GREEN, ORANGE = "#0072B2", "#009E73", "#E69F00"
VERMILLION, PURPLE, YELLOW = "#D55E00", "#CC79A7", "#F0E442"
INK, FAINT, UNSAFE = "#222222", "#C8C8C8", "#C1121F"
AWAY = BLUE


@dataclass(frozen=True)
class Style:
    """How objects of one kind are painted; an `opacity` of 0 leaves the outline only."""

    colour: str
    opacity: float = 1.0
    outline: float = 0.6
    """Line width in points."""


STYLES = {
    "goal": Style(GREEN, 0.45, 1.0),
    "hazards": Style(BLUE, 0.28, 0.5),
    "vases": Style(ORANGE),
    "pillars": Style("#7A7A7A"),
    "buttons": Style(ORANGE),
    "gremlins": Style(PURPLE),
    "push_box": Style(YELLOW),
    "circle": Style(GREEN, 0.0, 1.6),
    "sigwalls": Style(VERMILLION, 0.5, 0.0),
}
OTHER = Style("#999999", 0.6)
"""For kinds that third parties add."""

# Inches.
PANEL, GAP, TITLE, EDGE = 2.05, 0.12, 0.24, 0.2
HEADING, LEGEND_ROW, LEGEND_ENTRY, LEAST_WIDTH = 0.34, 0.26, 1.45, 6.4
DPI = 150
_START: Properties = {
    "marker": "o",
    "markersize": 4.5,
    "markerfacecolor": "white",
    "markeredgecolor": INK,
    "linestyle": "none",
}
_END: Properties = {"marker": "o", "markersize": 2.8, "color": INK, "linestyle": "none"}


def draw_worlds(
    spec: NavigationSpec,
    objects: Floats,
    trails: Floats,
    returns: Floats,
    costs: Floats,
    path: str | Path,
    title: str | None = None,
) -> None:
    """Draw worlds side by side and save the picture.

    Args:
        spec: the task.
        objects: (N, M, 3) centres of the objects at the start of the episodes, in placement order.
        trails: (T, N, 2) the robots' places, step by step; NaN once a world's episode is over.
        returns: (N,) of the episodes.
        costs: (N,) of the episodes; above 0 the panel is marked as unsafe.
        path: where to save it, as PNG.
        title: of the picture; the task's id if left out.
    """
    figure = worlds_figure(spec, objects, trails, returns, costs, title)
    FigureCanvasAgg(figure)
    with naming(Path(path)):
        figure.savefig(path, dpi=DPI, format="png")


def worlds_figure(
    spec: NavigationSpec, objects: Floats, trails: Floats, returns: Floats, costs: Floats, title: str | None = None
) -> Figure:
    """The picture that `draw_worlds` saves."""
    total = len(objects)
    _check_shapes(spec, objects, trails, returns, costs)
    shown = min(total, MAX_PANELS)
    reach = view_reach(spec, objects[:shown], trails[:, :shown])
    handles = legend_handles(spec, away=float(np.nanmax(np.abs(trails[:, :shown]))) > reach)
    rows, columns = grid_shape(shown)
    figure, panels = _canvas(rows, columns, handles)
    for i, axes in enumerate(panels):
        if i < shown:
            draw_panel(axes, spec, objects[i], reach, float(returns[i]), float(costs[i]))
            draw_trail(axes, trails[:, i])
        else:
            axes.set_axis_off()
    heading = title or spec.id
    if shown < total:
        heading += f" (the first {shown} of {total} worlds)"
    height = figure.get_size_inches()[1]
    figure.suptitle(heading, y=1 - EDGE / height, va="top", fontsize=12, color=INK)
    return figure


def _check_shapes(spec: NavigationSpec, objects: Floats, trails: Floats, returns: Floats, costs: Floats) -> None:
    n = len(objects)
    expected = {"objects": (n, spec.num_objects, 3), "trails": (len(trails), n, 2), "returns": (n,), "costs": (n,)}
    arrays = {"objects": objects, "trails": trails, "returns": returns, "costs": costs}
    for name, shape in expected.items():
        if np.shape(arrays[name]) != shape:
            raise ValueError(f"{name} must have shape {shape} for {spec.id}, got {np.shape(arrays[name])}")
    if n == 0 or len(trails) == 0:
        raise ValueError("there is nothing to draw: give at least one world and one step")


def grid_shape(panels: int) -> tuple[int, int]:
    """Rows and columns for so many panels.

    >>> grid_shape(20), grid_shape(1), grid_shape(7)
    ((4, 5), (1, 1), (3, 3))
    """
    columns = math.ceil(math.sqrt(panels))
    return math.ceil(panels / columns), columns


def view_reach(spec: NavigationSpec, objects: Floats, trails: Floats) -> float:
    """Half the width of every panel, in metres: one scale for all, so that panels can be compared."""
    reach = spec.extent
    for group, place in zip(spec.groups, spec.slices().values(), strict=True):
        reach = max(reach, float(np.abs(objects[:, place, :2]).max(initial=0.0)) + group.size[0])
    # A robot that runs far away would make all panels small; beyond this its trail leaves the panel, which is marked.
    far = min(float(np.nanmax(np.abs(trails))), 1.25 * reach)
    return 1.05 * max(reach, far)


def _canvas(rows: int, columns: int, handles: list[Line2D]) -> tuple[Figure, list[Axes]]:
    """An empty figure with its legend, and its panels row by row."""
    grid_width = columns * PANEL + (columns - 1) * GAP
    width = max(grid_width + 2 * EDGE, LEAST_WIDTH)
    per_row = max(1, int((width - 2 * EDGE) / LEGEND_ENTRY))
    legend = LEGEND_ROW * math.ceil(len(handles) / per_row)
    grid_height = rows * (PANEL + TITLE) + (rows - 1) * GAP
    height = EDGE + HEADING + grid_height + GAP + legend + EDGE
    figure = Figure(figsize=(width, height), facecolor="white")
    side = (width - grid_width) / 2
    grid = figure.add_gridspec(
        rows,
        columns,
        left=side / width,
        right=1 - side / width,
        bottom=(EDGE + legend + GAP) / height,
        top=1 - (EDGE + HEADING + TITLE) / height,
        wspace=GAP / PANEL,
        hspace=(GAP + TITLE) / PANEL,
    )
    figure.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, EDGE / 2 / height),
        ncols=min(per_row, len(handles)),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handletextpad=0.5,
        columnspacing=1.6,
        borderaxespad=0.0,
    )
    return figure, [figure.add_subplot(grid[k // columns, k % columns]) for k in range(rows * columns)]


def draw_panel(
    axes: Axes, spec: NavigationSpec, centres: Floats, reach: float, episode_return: float, cost: float
) -> None:
    """A world from above: its objects (M, 3), and how its episode went."""
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[])
    axes.set_aspect("equal")
    frame(axes, episode_return, cost)
    draw_objects(axes, spec, centres)


def frame(axes: Axes, episode_return: float, cost: float) -> None:
    """Title and border of a panel, by how its episode went."""
    unsafe = cost > 0
    colour = UNSAFE if unsafe else INK
    weight = "bold" if unsafe else "normal"  # seen without colour too
    title = f"return {episode_return:z.2f}   cost {cost:g}".replace("-", "\N{MINUS SIGN}")
    axes.set_title(title, fontsize=9, color=colour, weight=weight, pad=4)
    for spine in axes.spines.values():
        spine.set(edgecolor=UNSAFE if unsafe else FAINT, linewidth=1.2 if unsafe else 0.8)


def draw_objects(axes: Axes, spec: NavigationSpec, centres: Floats) -> None:
    """The layout of one world: centres (M, 3)."""
    for group, place in zip(spec.groups, spec.slices().values(), strict=True):
        properties = _patch_properties(group)
        for x, y in centres[place, :2].tolist():
            axes.add_patch(_outline(group, x, y, properties))
            for patch in _extras(group, x, y, properties):
                axes.add_patch(patch)


def _patch_properties(group: Group) -> Properties:
    """Patch properties of a kind."""
    style = STYLES.get(group.kind, OTHER)
    filled = (*to_rgb(style.colour), style.opacity)
    edge = tuple(0.65 * channel for channel in to_rgb(style.colour)) if style.opacity else style.colour
    return {
        "facecolor": filled,
        "edgecolor": edge,
        "linewidth": style.outline,
        "zorder": 1.0 if group.body == "mark" else 2.0,  # solid things stand on what is painted on the floor
    }


def _outline(group: Group, x: float, y: float, properties: Properties) -> Patch:
    """The object as seen from above, not turned: layouts do not say how it is turned, and no cost depends on that."""
    if group.shape != "box":
        return Circle((x, y), group.radius, **properties)
    across, along = group.size[:2]
    if group.body == "mark" and abs(y) > abs(x):
        across, along = along, across  # a wall faces the origin
    return Rectangle((x - across, y - along), 2 * across, 2 * along, **properties)


def _extras(group: Group, x: float, y: float, properties: Properties) -> list[Patch]:
    """What belongs to an object beside its outline."""
    if group.body == "gremlin":  # its weld drags it around the place at which it starts
        path: Properties = {"edgecolor": properties["edgecolor"], "linewidth": 0.5, "linestyle": (0, (2, 2))}
        return [Circle((x, y), GREMLIN_TRAVEL, fill=False, zorder=1.5, **path)]
    if group.kind == "push_box":  # the smaller boxes on its edges, by which it is pulled out of corners
        half = group.size[0]
        corners = [(x + sx * half, y + sy * half) for sx in (-1, 1) for sy in (-1, 1)]
        return [Rectangle((cx - half / 2, cy - half / 2), half, half, **properties) for cx, cy in corners]
    return []


def draw_trail(axes: Axes, trail: Floats, opacity: float = 1.0) -> None:
    """The robot's way (T, 2), from faint to dark, and its start."""
    trail = trail[np.isfinite(trail).all(axis=1)]
    if not len(trail):
        return
    segments = np.stack([trail[:-1], trail[1:]], axis=1)
    colours = np.zeros((len(segments), 4))
    colours[:, :3] = to_rgb(INK)
    colours[:, 3] = opacity * np.linspace(0.25, 1.0, len(segments))
    axes.add_collection(LineCollection(list(segments), colors=colours, linewidths=1.0, zorder=3), autolim=False)
    axes.plot(*trail[0], **_START, zorder=4)
    axes.plot(*trail[-1], **_END, zorder=4)
    _mark_away(axes, trail, opacity)


def _mark_away(axes: Axes, trail: Floats, opacity: float) -> None:
    """Where a trail leaves the panel: an arrow at its edge towards the farthest point, and how far that is."""
    low, high = np.transpose([axes.get_xlim(), axes.get_ylim()])
    beyond = np.maximum(low - trail, trail - high).max(axis=1)
    if beyond.max() <= 0:
        return
    farthest, centre = trail[beyond.argmax()], (low + high) / 2
    towards = farthest - centre
    edge = centre + towards * ((high - low) / 2 / np.maximum(np.abs(towards), 1e-9)).min()
    inwards = -20 * towards / np.linalg.norm(towards)
    words = f"{np.linalg.norm(farthest):.1f} m" if opacity == 1.0 else ""  # many trails would write over each other
    arrow: Properties = {"arrowstyle": "-|>", "color": AWAY, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
    axes.annotate(
        words, tuple(edge), tuple(inwards), textcoords="offset points", arrowprops=arrow, fontsize=7, color=AWAY,
        ha="center", va="center", zorder=6,
    )  # fmt: skip


def within(axes: Axes, points: Floats) -> Floats:
    """Points (..., 2) of which those beyond a panel are brought to its edge."""
    low, high = np.transpose([axes.get_xlim(), axes.get_ylim()])
    return np.clip(points, low, high)


def legend_handles(spec: NavigationSpec, away: bool = False) -> list[Line2D]:
    """One entry for each kind of object, then the robot's way and the mark of an unsafe episode.

    With `away` also the mark of a robot that leaves the panel.
    """

    def entry(label: str, **properties: Any) -> Line2D:
        basis: Properties = {"linestyle": "none", "markersize": 9}
        return Line2D([], [], label=label, **(basis | properties))

    handles = []
    for group in spec.groups:
        patch = _patch_properties(group)
        handles.append(
            entry(
                group.kind.replace("_", " ") + (" (cost)" if group.cost else ""),
                marker="s" if group.shape == "box" else "o",
                markerfacecolor=patch["facecolor"],
                markeredgecolor=patch["edgecolor"],
                markeredgewidth=patch["linewidth"],
            )
        )
    handles.append(entry("robot's start", **_START))
    handles.append(entry("trail and end", **_END | {"linestyle": "-", "linewidth": 1.0}))
    if away:
        handles.append(entry("beyond the view", marker=">", color=AWAY, markersize=6.0))
    handles.append(entry("cost above 0", marker="s", markerfacecolor="none", markeredgecolor=UNSAFE))
    return handles
