"""Our runs beside the paper's SB-TRPO: task by task with their spread between seeds, or at a glance."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sbtrpo.report import paper
from sbtrpo.report.render import Cell, Table
from sbtrpo.report.runs import THE_LAST, Floats, Runs, rivals
from sbtrpo.report.tables import HEADS, Missing, basis
from sbtrpo.report.variants import Variant

MEASURES = (paper.PRODUCT, "safe_reward", "safety_probability", "reward", "cost")
DOMINATES = (
    "Bold: to the paper's digits it earns more than the paper's SB-TRPO, as the paper counts that, and is at least as"
    " safe; of finished runs with two seeds or more, and never the published setting itself."
)
SIGNIFICANT = 3
MOST_DECIMALS = 3
NEARLY_ALWAYS = 0.985
"""From this safety probability on the third decimal counts."""


def beside(runs: Runs, names: Mapping[str, str] | None = None) -> Table:
    """The paper's SB-TRPO and all that competes, task by task; `names` are other titles than the methods' own."""
    tasks, shown = _shown(runs)
    rows: list[list[Cell]] = []
    tags: list[list[str]] = []
    rules: set[int] = set()
    for task, printed in tasks.items():
        rules.add(len(rows))
        theirs = [_printed(printed["safe_reward"]), Cell(), *(_printed(printed[name]) for name in MEASURES[2:])]
        rows.append([Cell(task), Cell("paper, SB-TRPO"), Cell(str(paper.SEEDS), value=paper.SEEDS), *theirs])
        tags.append([f"task:{task}"])
        for variant in shown:
            values, note = _final(runs, task, variant), basis(runs, task, variant)
            if len(values):
                name = _name(variant, names) + _so_far(runs, task, variant)
                seeds = Cell(str(len(values)), value=len(values))
                cells = [_spread(column, note) for column in values.T]
                rows.append([Cell(task), Cell(name, bold=dominates(runs, task, variant)), seeds, *cells])
                tags.append([f"task:{task}", f"method:{variant.title}"])
    return Table(
        "beside",
        "Beside the paper's SB-TRPO",
        columns=["task", "method", "seeds", "reward × safety ↑", *(HEADS[name] for name in MEASURES[1:])],
        rows=rows,
        caption=f"Means over {THE_LAST}, ± the standard deviation between seeds; the paper's as printed, whose safe"
        f" rewards are reward times safety probability. {DOMINATES}{_shortest(runs, tasks, shown)}",
        rules=frozenset(rules - {0}),
        row_tags=tags,
    )


def glance(runs: Runs, names: Mapping[str, str] | None = None) -> Table:
    """A row a task and a column a method: reward times safety (safe reward) @ safety probability."""
    tasks, shown = _shown(runs)
    seeds = {variant: max(len(_final(runs, task, variant)) for task in tasks) for variant in shown}
    rows = []
    for task, printed in tasks.items():
        theirs = f"{printed['safe_reward'].mean_text} @ {printed['safety_probability'].mean:.2f}"
        row = [Cell(task), Cell(theirs, value=printed["safe_reward"].mean)]
        for variant in shown:
            values = _final(runs, task, variant)
            if not len(values):
                row.append(Cell())
                continue
            product, safe_reward, safety = values.mean(axis=0)[:3]
            text = f"{number(product)} ({number(safe_reward)}) @ {safety:.{3 if safety >= NEARLY_ALWAYS else 2}f}"
            text += "" if len(values) == seeds[variant] else f", {_count(len(values))}"
            text += _so_far(runs, task, variant)
            bold = dominates(runs, task, variant)
            row.append(Cell(text, bold=bold, value=float(product), note=basis(runs, task, variant)))
        rows.append(row)
    return Table(
        "glance",
        "At a glance",
        columns=[
            "task",
            f"paper, SB-TRPO ({_count(paper.SEEDS)})",
            *(f"{_name(variant, names)} ({_count(seeds[variant])})" for variant in shown),
        ],
        rows=rows,
        caption="Reward times safety probability, in brackets safe reward, @ safety probability; means over"
        f" {THE_LAST}. {DOMINATES}{_shortest(runs, tasks, shown)}",
        row_tags=[[f"task:{task}"] for task in tasks],
        column_tags=["", "", *(f"method:{variant.title}" for variant in shown)],
    )


def dominates(runs: Runs, task: str, variant: Variant) -> bool:
    """Whether it earns more than the paper's SB-TRPO and is as safe; see `DOMINATES`."""
    printed, values = paper.main()["sb-trpo"].get(task), _final(runs, task, variant)
    if printed is None or len(values) < 2 or variant == Variant("sb-trpo") or _so_far(runs, task, variant):
        return False
    product, _, safety = values.mean(axis=0)[:3]
    earned, safe = printed["safe_reward"], printed["safety_probability"]
    return _as_printed(product, earned) > earned.mean and _as_printed(safety, safe, least=2) >= safe.mean


def number(value: float) -> str:
    """Three significant digits, at most three decimals.

    >>> number(1119.4), number(11.31), number(9.996), number(0.6312), number(-0.0004)
    ('1,119', '11.3', '10.0', '0.631', '0.000')
    """
    text = f"{value:,.{_decimals(value)}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def _decimals(value: float) -> int:
    rounded = float(f"{value:.{SIGNIFICANT - 1}e}")
    size = math.floor(math.log10(abs(rounded))) if rounded else 0
    return min(MOST_DECIMALS, max(0, SIGNIFICANT - 1 - size))


def _as_printed(ours: float, theirs: paper.PrintedCell, least: int = 0) -> float:
    """Ours with as many decimals as theirs, and with so many at least: the paper prints 1.0 for 1.00."""
    return round(float(ours), max(least, len(theirs.mean_text.partition(".")[2])))


def _shown(runs: Runs) -> tuple[dict[str, dict[str, paper.PrintedCell]], list[Variant]]:
    """The paper's cells of the tasks on which something competes, and the variants that do."""
    printed, able = paper.main()["sb-trpo"], rivals(runs)
    tasks = {
        task: printed[task]
        for task in runs.tasks
        if task in printed and any(len(_final(runs, task, variant)) for variant in able)
    }
    if not tasks:
        raise Missing("no runs on the paper's tasks at cost limit 0")
    return tasks, [variant for variant in able if any(len(_final(runs, task, variant)) for task in tasks)]


def _final(runs: Runs, task: str, variant: Variant) -> Floats:
    """(seeds, measures) each run's means over its last epochs; runs without all of them are left out."""
    rows = []
    for run in runs.counted(task, variant):
        ends = [run.closing(measure) for measure in MEASURES]
        if all(np.isfinite(end).any() for end in ends):
            rows.append([float(end[np.isfinite(end)].mean()) for end in ends])
    return np.array(rows).reshape(len(rows), len(MEASURES))


def _spread(values: Floats, note: str) -> Cell:
    """The mean over seeds, with as many decimals of their deviation; one seed has none."""
    mean = float(values.mean())
    std = f"{values.std(ddof=1):,.{_decimals(mean)}f}" if len(values) > 1 else ""
    return Cell(number(mean), std, value=mean, note=note)


def _printed(cell: paper.PrintedCell) -> Cell:
    return Cell(cell.mean_text, cell.std_text, value=cell.mean)


def _name(variant: Variant, names: Mapping[str, str] | None) -> str:
    return (names or {}).get(variant.title, variant.title)


def _so_far(runs: Runs, task: str, variant: Variant) -> str:
    """How far runs are that are not finished."""
    counted = runs.counted(task, variant)
    return "" if counted[0].finished else f", {min(run.steps for run in counted) / 1e6:.1f} M steps so far"


def _shortest(runs: Runs, tasks: Mapping[str, object], shown: list[Variant]) -> str:
    """A warning where runs are shorter than the paper's."""
    steps = min(run.steps for task in tasks for variant in shown for run in runs.counted(task, variant))
    short = steps < 0.99 * paper.MAIN_STEPS  # growing epochs need not add up to the last step
    return f" Our shortest runs have {steps:,.0f} steps, the paper's {paper.MAIN_STEPS:,}." if short else ""


def _count(seeds: int) -> str:
    return f"{seeds} seed{'s' if seeds > 1 else ''}"
