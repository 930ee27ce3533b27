"""What a run shows while it trains: a bar and a table in a terminal, a line an epoch elsewhere."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from sbtrpo.config.run import RunSettings
from sbtrpo.errors import Alarm

Numbers = Mapping[str, float]

RESULTS = (("reward", ".2f"), ("cost", ".2f"), ("safety_probability", ".2f"), ("safe_reward", ".2f"))
OWN = (("mu", ".3f"), ("multiplier", ".3f"), ("penalty", ".2f"), ("case", ".0f"), ("recovering", ".0f"))
"""A method's own number, the first of these that it has."""
UPDATE = (("accepted_step", ".3f"), ("skipped_updates", ".0f"), ("faults", ".0f"))


class LiveView:
    """A live picture in a terminal and lines elsewhere, or nothing; use it as a context manager."""

    def __init__(self, quiet: bool = False, console: Console | None = None) -> None:
        self.quiet, self.console = quiet, console or Console()
        self._live: Live | None = None

    def begin(self) -> Live:
        """What is shown at the start."""
        return Live(console=self.console, refresh_per_second=2)

    def __enter__(self) -> Self:
        if not self.quiet and self.console.is_terminal:
            self._live = self.begin()
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def warn(self, message: str) -> None:
        """Print a line that stands out; where all else is quiet, it is a warning of Python's."""
        if self.quiet:
            warnings.warn(message, Alarm, stacklevel=2)
        else:
            self.console.print(message, style="bold red", soft_wrap=True, highlight=False, markup=False)

    def say(self, message: str) -> None:
        """Print a line, above the picture if there is one."""
        if not self.quiet:
            self.console.print(message, soft_wrap=True, highlight=False, markup=False)


class Display(LiveView):
    """Shows the epochs of a run; use it as a context manager.

    Args:
        settings: of the run.
        title: stands at the head.
        quiet: show nothing.
        console: where to; standard output if left out.
    """

    def __init__(self, settings: RunSettings, title: str, quiet: bool = False, console: Console | None = None) -> None:
        super().__init__(quiet, console)
        self.settings, self.total_epochs, self.title = settings, settings.epochs, title
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[epochs]}"),
            TextColumn("{task.fields[steps]} steps"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=self.console,
            # An epoch takes seconds: with rich's thirty the time left would vanish between two.
            speed_estimate_period=600,
        )
        steps = settings.steps_after(self.total_epochs)
        self._bar = self._progress.add_task("training", total=steps, epochs=f"epoch 0/{self.total_epochs}", steps="0")

    def begin(self) -> Live:
        """The bar."""
        return Live(self._progress, console=self.console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self.say(self.title)
        return super().__enter__()

    def update(self, row: Numbers, timing: Numbers) -> None:
        """Show an epoch that is done.

        Args:
            row: `epoch` and `steps` so far, and what there is of `reward`, `cost`, `safety_probability`, `safe_reward`,
                the method's own number, `accepted_step`, `skipped_updates`, `faults`.
            timing: what there is of `rollout_seconds`, `update_seconds` and `epoch_seconds`, the whole epoch.
        """
        if self.quiet:
            return
        epoch, steps = int(row["epoch"]), int(row["steps"])
        rates = speeds(self.settings.steps_in(epoch - 1), timing)
        if self._live is None:
            self.say(plain_line(row, rates, self.total_epochs))
            return
        if epoch > 1 and not self._progress.tasks[0].completed:
            # A resumed run: the epochs of earlier sessions say nothing of this one's speed.
            self._progress.reset(self._bar, completed=self.settings.steps_after(epoch - 1))
        epochs = f"epoch {epoch}/{self.total_epochs}"
        self._progress.update(self._bar, completed=steps, epochs=epochs, steps=f"{steps:,}")
        self._live.update(Group(self._progress, table(row, rates)))


def speeds(steps: float, timing: Numbers) -> dict[str, float]:
    """Steps a second in the rollout and overall, and the share of time that updates take; NaN if not known."""
    rollout, update = timing.get("rollout_seconds", math.nan), timing.get("update_seconds", math.nan)
    whole = timing.get("epoch_seconds", rollout + update)
    return {
        "rollout": steps / rollout if rollout else math.nan,
        "overall": steps / whole if whole else math.nan,
        "updating": update / whole if whole else math.nan,
    }


def table(row: Numbers, rates: Numbers) -> Table:
    """An epoch's numbers in three groups."""
    grid = Table(box=None, padding=(0, 2), show_header=True, header_style="bold")
    groups = {
        "last 50 episodes": [(name.replace("_", " "), _text(row, name, form)) for name, form in RESULTS],
        "updates": [(name.replace("_", " "), _text(row, name, form)) for name, form in _of_update(row)],
        "speed": [
            ("steps/s rollout", _text(rates, "rollout", ",.0f")),
            ("steps/s overall", _text(rates, "overall", ",.0f")),
            ("time updating", _text(rates, "updating", ".0%")),
            ("", ""),
        ],
    }
    for name in groups:
        grid.add_column(name)
        grid.add_column(justify="right")
    for entries in zip(*groups.values(), strict=True):
        grid.add_row(*(cell for entry in entries for cell in entry))
    return grid


def plain_line(row: Numbers, rates: Numbers, total_epochs: int) -> str:
    """An epoch's numbers in one line."""
    parts = [f"epoch {int(row['epoch'])}/{total_epochs}", f"steps {int(row['steps'])}"]
    parts += [f"{name.replace('_', ' ')} {_text(row, name, form)}" for name, form in (*RESULTS, *_of_update(row))]
    parts.append(f"{_text(rates, 'rollout', '.0f')} steps/s rollout, {_text(rates, 'overall', '.0f')} overall")
    parts.append(f"{_text(rates, 'updating', '.0%')} updating")
    return "  ".join(parts)


def _of_update(row: Numbers) -> list[tuple[str, str]]:
    """What is shown of an update: the method's own number, if it has one, and those that all have."""
    own = next(((name, form) for name, form in OWN if name in row), ("kl", ".4f"))
    return [own, *UPDATE]


def _text(numbers: Numbers, name: str, form: str) -> str:
    value = numbers.get(name, math.nan)
    return "-" if math.isnan(value) else format(value, f"z{form}")
