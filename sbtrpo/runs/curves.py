"""curves.png, the learning curves of one run."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = (  # Okabe and Ito's colours: colour-blind readers can tell them apart
    ("reward", "reward", "#0072B2"),
    ("cost", "cost", "#D55E00"),
    ("safety_probability", "safety probability", "#009E73"),
    ("safe_reward", "safe reward", "#CC79A7"),
)
SMOOTHING = 20
"""Epochs in the trailing mean, as in the paper's figures."""
CLOSING_STEPS = 400_000
"""What these have in the paper's runs. Of longer epochs the mean is over fewer: 20 of them would be much of a run."""


Columns = Mapping[str, NDArray[np.float64]]


def curves_png(metrics: Columns, title: str, evaluations: Columns | None = None) -> bytes:
    """Reward, cost, safety probability and safe reward against steps, as a PNG; evaluations are points in them."""
    from matplotlib.figure import Figure  # here, because this import would delay a run's start by half a second

    steps = metrics.get("steps", metrics.get("epoch", np.empty(0)))
    figure = Figure(figsize=(10, 6), dpi=130, layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    for axis, (key, label, colour) in zip(axes.flat, PANELS, strict=True):
        _panel(axis, steps, metrics.get(key, np.full(len(steps), np.nan)), label, colour)
        if evaluations:
            _points(axis, evaluations, key)
    for axis in axes[1]:
        axis.set_xlabel("environment steps" if "steps" in metrics else "epoch")
    figure.suptitle(title, fontsize=11)
    span = f"{SMOOTHING} epochs, at most {CLOSING_STEPS:,} steps"
    note = f"means over the last 50 episodes; bold: trailing mean of {span}"
    if evaluations:
        note += f"; points: {evaluations['episodes'][-1]:,.0f} episodes in fresh worlds, safety with its 95 % interval"
    figure.text(0.995, 0.005, note, ha="right", va="bottom", fontsize=7, color="0.4")
    figure.get_layout_engine().set(rect=(0, 0.02, 1, 0.98))  # type: ignore[union-attr, call-arg]
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _panel(axes: Axes, steps: NDArray[np.float64], values: NDArray[np.float64], label: str, colour: str) -> None:
    axes.plot(steps, values, color=colour, linewidth=0.8, alpha=0.35)
    marker = "o" if len(steps) == 1 else None  # a single point has no line
    axes.plot(steps, trailing_mean(values, steps), color=colour, linewidth=1.8, marker=marker)
    axes.set_title(label, fontsize=10, loc="left")
    axes.grid(color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4), useMathText=True)
    if label == "safety probability":
        axes.set_ylim(-0.03, 1.03)
    elif label == "cost":
        axes.set_ylim(bottom=0)


def _points(axes: Axes, evaluations: Columns, key: str) -> None:
    """What episodes in fresh worlds gave."""
    values, low, high = evaluations[key], evaluations["safety_low"], evaluations["safety_high"]
    spread = np.abs([values - low, high - values]) if key == "safety_probability" else None
    axes.errorbar(evaluations["steps"], values, spread, fmt="o", color="0.15", markersize=3.5, linewidth=0.9)


def trailing_mean(
    values: NDArray[np.float64], steps: NDArray[np.float64] | None = None, window: int = SMOOTHING
) -> NDArray[np.float64]:
    """The mean of each value and those before it in the window, NaNs left out.

    Args:
        values: of all epochs.
        steps: after each of them, ascending; where given, the window has at most 400,000 of them, or one epoch.
        window: how many epochs.

    >>> trailing_mean(np.array([1.0, 3.0, np.nan, 5.0]), window=2).tolist()
    [1.0, 2.0, 3.0, 5.0]
    >>> trailing_mean(np.array([1.0, 3.0, 5.0]), np.array([2e5, 4e5, 8e5])).tolist()
    [1.0, 2.0, 5.0]
    """
    finite = np.isfinite(values)
    sums, counts = (np.concatenate([[0], np.cumsum(of)]) for of in (np.where(finite, values, 0.0), finite))
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - window, 0)
    if steps is not None:
        start = np.maximum(start, np.searchsorted(steps, steps - CLOSING_STEPS, side="right"))
    count = counts[end] - counts[start]
    return np.where(count > 0, (sums[end] - sums[start]) / np.maximum(count, 1), np.nan)
