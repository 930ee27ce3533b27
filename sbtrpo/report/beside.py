"""Our runs beside the paper's SB-TRPO: task by task with their spread between seeds, or at a glance."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sbtrpo.report import paper
from sbtrpo.report.render import Cell, Table
from sbtrpo.report.runs import THE_LAST, Runs, rivals
from sbtrpo.report.tables import HEADS, Missing, basis
from sbtrpo.report.variants import Variant

MEASURES = (paper.PRODUCT, "safe_reward", "safety_probability", "reward", "cost")
DOMINATES = "Bold: earns more than the paper's SB-TRPO, as the paper counts it, and is at least as safe."
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
        title = Cell(paper.tasks()[task])
        theirs = [_printed(printed["safe_reward"]), Cell(), *(_printed(printed[name]) for name in MEASURES[2:])]
        rows.append([title, Cell("paper, SB-TRPO"), Cell(str(paper.SEEDS), value=paper.SEEDS), *theirs])
        tags.append([f"task:{task}"])
        for variant in shown:
            if runs.of(task, variant):
                name = Cell(_name(variant, names) + _so_far(runs, task, variant), bold=dominates(runs, task, variant))
                seeds = len(runs.counted(task, variant))
                cells = [_ours(runs, task, variant, measure) for measure in MEASURES]
                rows.append([Cell(), name, Cell(str(seeds), value=seeds), *cells])
                tags.append([f"task:{task}", f"method:{variant.title}"])
    return Table(
        "beside",
        "Beside the paper's SB-TRPO",
        columns=["task", "method", "seeds", "reward × safety ↑", *(HEADS[name] for name in MEASURES[1:])],
        rows=rows,
        caption=f"Means over {THE_LAST}, ± the standard deviation between seeds; the paper's as printed, whose safe"
        f" rewards are reward times safety probability. {DOMINATES}",
        rules=frozenset(rules - {0}),
        row_tags=tags,
    )


def glance(runs: Runs, names: Mapping[str, str] | None = None) -> Table:
    """A row a task and a column a method: reward times safety (safe reward) @ safety probability."""
    tasks, shown = _shown(runs)
    seeds = {v: max(len(runs.counted(task, v)) for task in tasks) for v in shown}
    heads = [f"{_name(variant, names)} ({_count(seeds[variant])})" for variant in shown]
    rows = []
    for task, printed in tasks.items():
        row = [Cell(paper.tasks()[task]), Cell(f"{printed['safe_reward'].mean_text} @ {_safety(printed)}", value=0)]
        for variant in shown:
            text, bold = _at_a_glance(runs, task, variant, seeds[variant]), dominates(runs, task, variant)
            row.append(Cell(text, bold=bold, value=0, note=basis(runs, task, variant)))
        rows.append(row)
    return Table(
        "glance",
        "At a glance",
        columns=["", f"paper, SB-TRPO ({paper.SEEDS} seeds)", *heads],
        rows=rows,
        caption=f"Reward times safety probability, in brackets safe reward, @ safety probability; means over"
        f" {THE_LAST}. {DOMINATES}",
        row_tags=[[f"task:{task}"] for task in tasks],
        column_tags=["", "", *(f"method:{variant.title}" for variant in shown)],
    )


def dominates(runs: Runs, task: str, variant: Variant) -> bool:
    """Whether it is another method, earns more than the paper's SB-TRPO and is as safe, to the paper's digits."""
    printed = None if variant == Variant("sb-trpo") else paper.main()["sb-trpo"].get(task)
    product, safety = (runs.final_values(task, variant, name) for name in (paper.PRODUCT, "safety_probability"))
    if printed is None or not (len(product) and len(safety)):
        return False
    digits = len(printed["safety_probability"].mean_text.partition(".")[2])
    as_safe = round(float(safety.mean()), max(2, digits)) >= printed["safety_probability"].mean
    return bool(product.mean() > printed["safe_reward"].mean and as_safe)


def number(value: float) -> str:
    """Three significant digits, at most three decimals.

    >>> number(1119.4), number(11.31), number(2.314), number(0.6312), number(0.0004)
    ('1,119', '11.3', '2.31', '0.631', '0.000')
    """
    return f"{value:,.{_decimals(value)}f}"


def _decimals(value: float) -> int:
    size = math.floor(math.log10(abs(value))) if value else 0
    return min(MOST_DECIMALS, max(0, SIGNIFICANT - 1 - size))


def _shown(runs: Runs) -> tuple[dict[str, dict[str, paper.PrintedCell]], list[Variant]]:
    """The paper's cells of the tasks that both have, and the variants that compete on them."""
    printed = paper.main()["sb-trpo"]
    tasks = {task: printed[task] for task in runs.tasks if task in printed}
    shown = [variant for variant in rivals(runs) if any(runs.of(task, variant) for task in tasks)]
    if not shown:
        raise Missing("no runs on the paper's tasks at cost limit 0")
    return tasks, shown


def _name(variant: Variant, names: Mapping[str, str] | None) -> str:
    return (names or {}).get(variant.title, variant.title)


def _printed(cell: paper.PrintedCell) -> Cell:
    return Cell(cell.mean_text, cell.std_text, value=cell.mean)


def _safety(printed: Mapping[str, paper.PrintedCell]) -> str:
    return f"{printed['safety_probability'].mean:.2f}"


def _ours(runs: Runs, task: str, variant: Variant, measure: str) -> Cell:
    """The mean over seeds, with as many decimals of their deviation; one seed has none."""
    values = runs.final_values(task, variant, measure)
    values = values[np.isfinite(values)]
    if not len(values):
        return Cell("–")
    mean, decimals = float(values.mean()), _decimals(float(values.mean()))
    std = f"{values.std(ddof=1):,.{decimals}f}" if len(values) > 1 else ""
    return Cell(number(mean), std, value=mean, note=basis(runs, task, variant))


def _so_far(runs: Runs, task: str, variant: Variant) -> str:
    """How far runs are that are not finished."""
    counted = runs.counted(task, variant)
    return "" if counted[0].finished else f", {min(run.steps for run in counted) / 1e6:.1f} M steps so far"


def _count(seeds: int) -> str:
    return f"{seeds} seed{'s' if seeds > 1 else ''}"


def _at_a_glance(runs: Runs, task: str, variant: Variant, usually: int) -> str:
    means = [runs.final_values(task, variant, name) for name in MEASURES[:3]]
    if not all(map(len, means)):
        return ""
    product, safe_reward, safety = (float(values.mean()) for values in means)
    fewer = "" if len(means[0]) == usually else f", {_count(len(means[0]))}"
    digits = 3 if safety >= NEARLY_ALWAYS else 2
    so_far = _so_far(runs, task, variant)
    return f"{number(product)} ({number(safe_reward)}) @ {safety:.{digits}f}{fewer}{so_far}"
