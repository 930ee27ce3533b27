"""What a benchmark shows while it runs: a live table in a terminal, lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from sbtrpo.learning.display import LiveView

ROWS = 25
"""The most runs that the live table shows."""
PLAIN_SECONDS = 60.0
"""Time between two summary lines where there is no terminal."""
ORDER = ("running", "done", "failed", "waiting", "elsewhere", "interrupted")


@dataclass(frozen=True)
class Row:
    """A run under way."""

    name: str
    epoch: int
    epochs: int
    reward: float
    cost: float


class BenchmarkView(LiveView):
    """Shows how a benchmark proceeds; used as a context manager.

    Args:
        quiet: show nothing.
        console: where the text goes; standard output if left out.
    """

    def __init__(self, quiet: bool = False, console: Console | None = None) -> None:
        super().__init__(quiet, console)
        self._told = time.monotonic()

    def update(self, rows: Sequence[Row], counts: Mapping[str, int], seconds_left: float | None) -> None:
        """Show the runs under way, how many runs are in which state, and the time left."""
        line = summary(counts, seconds_left)
        if self._live is not None:
            self._live.update(Group(table(rows), Text(line)))
        elif time.monotonic() - self._told >= PLAIN_SECONDS:
            self._told = time.monotonic()
            self.say(line)


def table(rows: Sequence[Row]) -> Table:
    """The runs under way."""
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    grid.add_column("running")
    for name in ("epoch", "reward", "cost"):
        grid.add_column(name, justify="right")
    for row in rows[:ROWS]:
        numbers = ("-" if math.isnan(value) else f"{value:z.2f}" for value in (row.reward, row.cost))
        grid.add_row(Text(row.name, overflow="fold"), f"{row.epoch}/{row.epochs}", *numbers)
    if len(rows) > ROWS:
        grid.add_row(f"and {len(rows) - ROWS} more", "", "", "")
    return grid


def summary(counts: Mapping[str, int], seconds_left: float | None) -> str:
    """How many runs are in which state, and the time left.

    >>> summary({"running": 2, "done": 1, "waiting": 7}, 7500)
    '2 running, 1 done, 0 failed, 7 waiting; about 2 h 5 min left'
    """
    always = ("running", "done", "failed")
    phrases = [f"{counts.get(name, 0)} {name}" for name in ORDER if counts.get(name, 0) or name in always]
    return ", ".join(phrases) + ("" if seconds_left is None else f"; about {duration(seconds_left)} left")


def duration(seconds: float) -> str:
    """A time in its two largest units, or in one.

    >>> duration(59), duration(3599), duration(90_000)
    ('59 s', '60 min', '1 d 1 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes <= 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"
