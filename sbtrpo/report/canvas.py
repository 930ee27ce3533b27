"""What all figures share: their sheet, their axes, and how they become files that are the same every time."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sbtrpo.report.runs import Variant
from sbtrpo.report.style import SOLID, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#1c1e22", "#6b7078", "#e6e8eb"
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "sbtrpo",  # otherwise the names within an SVG are others every time
    "svg.fonttype": "path",  # no font is needed to look at it
    "font.family": "DejaVu Sans",  # matplotlib brings it
    "font.size": 9,
}
PNG_DPI = 150


def sheet(width: float, height: float) -> Figure:
    """An empty figure, sizes in inches."""
    from matplotlib.figure import Figure  # here: it takes half a second, which nobody else need wait for

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def grid(figure: Figure, rows: int, columns: int, **options: Any) -> list[list[Axes]]:
    """Axes by row and column."""
    found: list[list[Axes]] = figure.subplots(rows, columns, squeeze=False, **options).tolist()
    return found


def tidy(axes: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Faint lines, no box, and words in which nothing is taken for mathematics."""
    axes.set_title(literal(title), fontsize=10, loc="left", color=INK)
    axes.set_xlabel(literal(x), color=FAINT)
    axes.set_ylabel(literal(y), color=FAINT)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(color=GRID, labelcolor=FAINT, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#c5c9ce")


def literal(text: str) -> str:
    """Text that matplotlib shows as it is."""
    return text.replace("$", r"\$")


def steps_axis(axes: Axes, longest: float) -> tuple[float, str]:
    """Unit and label of an axis of environment steps."""
    unit, word = next(((u, w) for u, w in ((1e6, "million "), (1e3, "thousand ")) if longest >= u), (1.0, ""))
    axes.set_xlim(0, longest / unit)
    return unit, f"{word}environment steps"


def legend(figure: Figure, axes: Axes, columns: int = 6) -> None:
    """One legend for all axes, below them."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def line_style(variant: Variant) -> dict[str, Any]:
    """For `plot`."""
    own = look(variant)
    ours = variant.algo == "sb-trpo" and variant.plain
    dashes = {"dashed": (0, (5, 2)), "dotted": (0, (1.5, 1.5))}
    return {
        "color": own.colour,
        "linestyle": "solid" if own.line == SOLID else dashes[own.line],
        "linewidth": 2.4 if ours else 1.3,
        "zorder": 4 if ours else 3,
    }


def files(draw: Callable[[], Figure]) -> dict[str, bytes]:
    """A figure as PNG and as SVG, by ending; the same numbers give the same bytes, whatever the user's settings are."""
    import matplotlib as mpl

    found = {}
    # The metadata that would hold the date and matplotlib's version is left out.
    metadata: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    defaults = {key: value for key, value in mpl.rcParamsDefault.items() if not key.startswith("backend")}
    with warnings.catch_warnings(), mpl.rc_context({**defaults, **_SETTINGS}):
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a task may be named in any script
        figure = draw()
        for ending, facts in metadata.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, dpi=PNG_DPI, metadata=facts)
            found[ending] = buffer.getvalue()
            figure.set_layout_engine("none")  # it is laid out now
    return found


def slug(text: str) -> str:
    """A name for a file.

    >>> slug("Point Button"), slug("</>")
    ('point_button', 'unnamed')
    """
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:60] or "unnamed"
