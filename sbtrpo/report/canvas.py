"""What all figures share: sheets, axes, and files that are the same to the last byte every time."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sbtrpo.report.style import SOLID, look, paler
from sbtrpo.report.variants import Variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#1c1e22", "#6b7078", "#e6e8eb"
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "sbtrpo",  # otherwise the names inside an SVG change every time
    "svg.fonttype": "path",  # a viewer needs no font
    "font.family": "DejaVu Sans",  # it is part of matplotlib
    "font.size": 9,
}
PNG_DPI = 150
ACROSS = 4
"""Tasks side by side on a sheet that has them all."""


def sheet(width: float, height: float) -> Figure:
    """An empty figure; sizes are in inches."""
    from matplotlib.figure import Figure  # here, because this import takes half a second

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def grid(figure: Figure, rows: int, columns: int, **options: Any) -> list[list[Axes]]:
    """New axes by row and column; `options` are those of `Figure.subplots`."""
    axes: list[list[Axes]] = figure.subplots(rows, columns, squeeze=False, **options).tolist()
    return axes


def tidy(axes: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Give axes faint lines, no box, and titles that are not read as mathematics."""
    axes.set_title(literal(title), fontsize=10, loc="left", color=INK)
    axes.set_xlabel(literal(x), color=FAINT)
    axes.set_ylabel(literal(y), color=FAINT)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(color=GRID, labelcolor=FAINT, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#c5c9ce")


def literal(text: str) -> str:
    """Text in which matplotlib sees no mathematics."""
    return text.replace("$", r"\$")


def steps_axis(axes: Axes, longest: float) -> tuple[float, str]:
    """Set the limits of an axis of environment steps; returns its unit and label."""
    unit, word = next(((u, w) for u, w in ((1e6, "million "), (1e3, "thousand ")) if longest >= u), (1.0, ""))
    axes.set_xlim(0, longest / unit)
    return unit, f"{word}environment steps"


def legend(figure: Figure, *axes: Axes, columns: int = 6) -> None:
    """Draw one legend below all axes, of what any of these has."""
    found: dict[str, Any] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        figure.legend(found.values(), found, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def line_style(variant: Variant) -> dict[str, Any]:
    """Options of `Axes.plot`; SB-TRPO with its default settings has a thicker line, on top of the others."""
    style = look(variant)
    ours = variant.algo == "sb-trpo" and variant.plain
    dashes = {"dashed": (0, (5, 2)), "dotted": (0, (1.5, 1.5))}
    return {
        "color": style.colour,
        "linestyle": "solid" if style.line == SOLID else dashes[style.line],
        "linewidth": 2.4 if ours else 1.3,
        "zorder": 4 if ours else 3,
    }


def line_styles(variants: Sequence[Variant]) -> dict[Variant, dict[str, Any]]:
    """How lines of variants look beside each other: several of one method go from pale to the method's colour."""
    methods = [variant.algo for variant in variants]
    styles: dict[Variant, dict[str, Any]] = {}
    for k, variant in enumerate(variants):
        behind, of_it = methods[k + 1 :].count(variant.algo), methods.count(variant.algo)
        drawn = line_style(variant if of_it == 1 else Variant(variant.algo))
        styles[variant] = {**drawn, "color": paler(look(variant).colour, 1 - 0.7 * behind / of_it)}
    return styles


def files(draw: Callable[[], Figure]) -> dict[str, bytes]:
    """A figure as PNG and SVG, by ending; the same numbers give the same bytes, with any matplotlib settings."""
    import matplotlib as mpl

    contents = {}
    # Without metadata that holds the date and matplotlib's version.
    metadata: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    defaults = {key: value for key, value in mpl.rcParamsDefault.items() if not key.startswith("backend")}
    with warnings.catch_warnings(), mpl.rc_context({**defaults, **_SETTINGS}):
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a task's name may use any alphabet
        figure = draw()
        for ending, facts in metadata.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, dpi=PNG_DPI, metadata=facts)
            contents[ending] = _of_256_colours(buffer) if ending == "png" else buffer.getvalue()
            figure.set_layout_engine("none")  # the first saving has laid it out
    return contents


def _of_256_colours(picture: io.BytesIO) -> bytes:
    """The same picture in a third of the bytes: the page holds some twenty, and a figure has few colours."""
    from PIL import Image

    small = io.BytesIO()
    with Image.open(picture) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
            small, "png", optimize=True, dpi=(PNG_DPI, PNG_DPI)
        )
    return small.getvalue()


def slug(text: str) -> str:
    """A text as a file name.

    >>> slug("SafetyPointButton2-v0"), slug("</>")
    ('safetypointbutton2_v0', 'unnamed')
    """
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:60] or "unnamed"
