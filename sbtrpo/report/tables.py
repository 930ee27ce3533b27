"""The report's tables: the paper's, from whatever runs there are, and one for what the paper does not have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sbtrpo.benchmark import statistics
from sbtrpo.report import paper
from sbtrpo.report.marks import Pair, marks
from sbtrpo.report.render import LEGEND, Cell, Table, number_cell, number_texts
from sbtrpo.report.runs import THE_LAST, Estimate, Runs, rivals
from sbtrpo.report.variants import Variant, method_title, usual_settings

HALVES = {
    "safety": ("safe_reward", "safety_probability"),
    "reward": ("reward", "cost"),
}
"""Both halves of the main table: their pairs of metrics."""
HEADS = {
    "safe_reward": "safe reward ↑",
    "safety_probability": "safety prob. ↑",
    "reward": "reward ↑",
    "cost": "cost ↓",
}
Get = Callable[[str, Variant, str], Estimate | None]
"""(task, variant, metric) -> what the cell says."""


class Missing(Exception):  # noqa: N818  it is no error: the report says so and goes on
    """There are no runs for a part of the report; the message says which it would need."""


@dataclass(frozen=True)
class PairRow:
    """A row of a table of pairs: its labels, and whose numbers follow."""

    labels: Sequence[Cell]
    variant: Variant


# ---- tables of pairs -------------------------------------------------------------------------------------------------


def main(runs: Runs, half: str) -> Table:
    """All methods that compete, on all tasks: one half of the main table, pooled over the last epochs and all seeds."""
    return _main_table(runs, half, "main", "", f"Mean ± standard deviation over {THE_LAST} of all seeds together.")


def main_across_seeds(runs: Runs, half: str) -> Table:
    """The same of the last epoch alone, with the deviation between seeds."""
    values = "Mean ± standard deviation between seeds of the last epoch's value; one seed has no deviation."
    return _main_table(runs, half, "seeds", ", across seeds", values, runs.across_seeds)


def _main_table(runs: Runs, half: str, name: str, how: str, values: str, get: Get | None = None) -> Table:
    what = {"safety": "safe reward and safety probability", "reward": "reward and cost"}[half]
    rows = [PairRow([Cell(variant.title)], variant) for variant in rivals(runs)]
    if not rows:
        raise Missing("no runs at cost limit 0")
    return _pair_table(f"{name}_{half}", f"Final {what}{how}", rows, runs, half, caption=f"{values} {LEGEND}", get=get)


def cost_limit(runs: Runs) -> Table:
    """Methods with a relaxed cost limit beside themselves without one, and SB-TRPO."""
    relaxed = [v for v in runs.variants if v.differs_in("cost_limit") and v.get("cost_limit") > 0]
    if not relaxed:
        raise Missing("no runs with a cost limit above 0")
    rows, rules = [], set()
    ours = Variant("sb-trpo")
    if ours in runs.variants:
        rows.append(PairRow([Cell(ours.title), Cell("–")], ours))
    for algo in dict.fromkeys(variant.algo for variant in relaxed):
        rules.add(len(rows))
        both = [Variant(algo), *(variant for variant in relaxed if variant.algo == algo)]
        rows += [
            PairRow([Cell(method_title(algo)), Cell(f"{variant.get('cost_limit'):g}")], variant)
            for variant in both
            if variant in runs.variants
        ]
    limits = sorted({float(variant.get("cost_limit")) for variant in relaxed})
    tasks = [task for task in runs.tasks if any(runs.of(task, variant) for variant in relaxed)]
    return _pair_table(
        "cost_limit",
        "Cost limit " + ", ".join(f"{limit:g}" for limit in limits),
        rows,
        runs,
        "safety",
        caption=LEGEND,
        heads=("method", "cost limit"),
        tasks=tasks,
        rules=frozenset(rules - {0}),
    )


def advantage(runs: Runs) -> Table:
    """SB-TRPO by how it estimates advantages."""
    kinds = {"sb-trpo": "MC", "sb-trpo_rcritic": "reward critic", "sb-trpo_critic": "GAE"}
    rows = []
    for variant in runs.variants:
        name = kinds.get(variant.algo)
        linear = variant.get("advantage") == "mc-linear"
        if name and (variant.plain or linear or (name != "MC" and variant.differs_in("beta"))):
            label = "MC, linear baseline" if linear else name
            rows.append(PairRow([Cell(label), Cell(f"{variant.get('beta'):g}")], variant))
    others = [row.variant for row in rows if row.variant != Variant("sb-trpo")]
    if not others:
        raise Missing("no runs of SB-TRPO with another advantage estimate than Monte Carlo")
    tasks = [task for task in runs.tasks if any(runs.of(task, variant) for variant in others)]
    return _pair_table(
        "advantage",
        "Advantage estimation",
        rows,
        runs,
        "safety",
        caption=f"SB-TRPO. Mean ± standard deviation over {THE_LAST} of all seeds together.",
        heads=("advantage", "β"),
        tasks=tasks,
        marked=False,  # as in the paper
    )


def others(runs: Runs, half: str) -> Table:
    """What no other table has: settings that are not a method's own; beside SB-TRPO."""
    known = set(rivals(runs))
    known |= {v for v in runs.variants if v.differs_in("cost_limit")}
    known |= {v for v in runs.variants if v.algo in ("sb-trpo_critic", "sb-trpo_rcritic")}
    extra = [variant for variant in runs.variants if variant not in known]
    if not extra:
        raise Missing("no runs with settings beyond the other tables")
    tasks = [task for task in runs.tasks if any(runs.of(task, variant) for variant in extra)]
    rows = [variant for variant in (Variant("sb-trpo"),) if variant in runs.variants] + extra
    what = {"safety": "safe reward and safety probability", "reward": "reward and cost"}[half]
    return _pair_table(
        f"others_{half}",
        f"Other settings: {what}",
        [PairRow([Cell(variant.title)], variant) for variant in rows],
        runs,
        half,
        caption=LEGEND,
        tasks=tasks,
    )


def _pair_table(
    name: str,
    title: str,
    rows: Sequence[PairRow],
    runs: Runs,
    half: str,
    caption: str,
    heads: Sequence[str] = ("method",),
    tasks: Sequence[str] | None = None,
    rules: frozenset[int] = frozenset(),
    get: Get | None = None,
    marked: bool = True,
) -> Table:
    """Rows of (reward, second) pairs, a pair for each task, with the paper's marks."""
    variants = [row.variant for row in rows]
    shown = [task for task in tasks or runs.tasks if any(runs.of(task, variant) for variant in variants)]
    columns: dict[str, dict[Variant, list[Cell]]] = {
        task: pair_cells(runs, task, variants, half, get or runs.pooled, marked) for task in shown
    }
    return Table(
        name,
        title,
        columns=[*heads, *(HEADS[metric] for _ in shown for metric in HALVES[half])],
        rows=[[*row.labels, *(cell for task in shown for cell in columns[task][row.variant])] for row in rows],
        caption=caption,
        groups=[("", len(heads)), *((task, 2) for task in shown)],
        rules=rules,
        row_tags=[[f"method:{row.variant.title}"] for row in rows],
        column_tags=[*("" for _ in heads), *(f"task:{task}" for task in shown for _ in range(2))],
    )


def pair_cells(
    runs: Runs, task: str, variants: Sequence[Variant], half: str, get: Get, marked: bool = True
) -> dict[Variant, list[Cell]]:
    """Both cells of each variant, marked; the variants compete with each other."""
    first, second = HALVES[half]
    cells: dict[Variant, list[Cell]] = {}
    pairs: dict[Variant, Pair] = {}
    for variant in variants:
        note = basis(runs, task, variant)
        estimates = [get(task, variant, metric) for metric in (first, second, "safety_probability")]
        cells[variant] = [number_cell(estimate, note) for estimate in estimates[:2]]
        if marked and all(estimates):
            # Marks are on what is printed: equals on the page are equals.
            printed = [float(number_texts(e.mean, e.std)[0]) for e in estimates if e is not None]
            pairs[variant] = Pair(*printed)
    for variant, mark in marks(pairs, second in paper.LOWER_IS_BETTER).items():
        reward, other = cells[variant]
        common: dict[str, Any] = {"italic": mark.italic, "colour": mark.colour}
        cells[variant] = [
            replace(reward, bold=mark.bold_reward, **common),
            replace(other, bold=mark.bold_second, **common),
        ]
    return cells


def basis(runs: Runs, task: str, variant: Variant) -> str:
    """On what a cell stands."""
    counted = runs.counted(task, variant)
    if not counted:
        return ""
    steps = min(run.steps for run in counted)
    state = "" if counted[0].finished else ", not finished"
    return f"{len(counted)} seed{'s' if len(counted) > 1 else ''}, {steps:,.0f} steps{state}"


def by_task(
    runs: Runs,
    table: Table,
    lines: Callable[[str, Variant], Iterable[tuple[Sequence[str], Sequence[Estimate | None]]]],
) -> Table:
    """The table with rows of every task and method, a line between tasks; `lines` gives further labels and numbers."""
    rows: list[list[Cell]] = []
    tags: list[list[str]] = []
    rules: set[int] = set()
    for task in runs.tasks:
        rules.add(len(rows))
        for variant in runs.variants:
            note = basis(runs, task, variant)
            for labels, estimates in lines(task, variant):
                if any(estimates):
                    names = [Cell(text) for text in (task, variant.title, *labels)]
                    rows.append([*names, *(number_cell(estimate, note) for estimate in estimates)])
                    tags.append([f"task:{task}", f"method:{variant.title}"])
    return replace(table, rows=rows, row_tags=tags, rules=frozenset(rules - {0, len(rows)}))


# ---- over all tasks --------------------------------------------------------------------------------------------------


def overall(runs: Runs) -> Table:
    """Interquartile means over all tasks that the methods share, with intervals that are stratified by task."""
    rewards, safety = runs.scores(runs.variants, HALVES["safety"])
    result = statistics.overall(safety, rewards)
    if len(result.methods) < 2:
        raise Missing("no two methods that ran on the same tasks")
    columns = [
        [method.safe_reward for method in result.methods.values()],
        [method.safety_probability for method in result.methods.values()],
    ]
    rows = [
        [Cell(variant.title), *cells, *(Cell(str(n), value=n) for n in (len(result.tasks), method.runs))]
        for (variant, method), *cells in zip(result.methods.items(), *map(_aggregate_cells, columns), strict=True)
    ]
    tasks = [task for task in runs.tasks if task in result.tasks]
    caption = (
        f"Interquartile mean of all runs on {', '.join(tasks)}, and in brackets its 95 %"
        " bootstrap interval, for which seeds are resampled within tasks. A run counts with its mean over"
        f" {THE_LAST}; safe reward is 0 for the worst and 1 for the best run of a task. The best of a column"
        " is bold."
    )
    if misled := [task for task in tasks if task in runs.below_zero]:
        caption += f" On {', '.join(misled)} returns are below 0, and some safe rewards mislead."
    if left_out := [variant.title for variant in runs.variants if variant not in result.methods]:
        caption += f" Left out, since not run on all of these tasks: {'; '.join(left_out)}."
    return Table(
        "overall",
        "Interquartile means over tasks",
        columns=["method", "normalised safe reward ↑", HEADS["safety_probability"], "tasks", "runs"],
        rows=rows,
        caption=caption,
        row_tags=[[f"method:{variant.title}"] for variant in result.methods],
        column_tags=[""] * 5,
    )


def _aggregate_cells(column: Sequence[statistics.Aggregate]) -> list[Cell]:
    """Means with their intervals; the best that is printed is bold."""
    best = max(round(mean.iqm, 2) for mean in column)
    return [
        Cell(f"{mean.iqm:.2f} ({mean.low:.2f} to {mean.high:.2f})", bold=round(mean.iqm, 2) == best, value=mean.iqm)
        for mean in column
    ]


# ---- update time -----------------------------------------------------------------------------------------------------


def update_estimate(runs: Runs, task: str, variant: Variant) -> Estimate | None:
    """Seconds of an update, over all epochs and seeds."""
    seeds = [run.column("update_seconds") for run in runs.of(task, variant)]
    values = np.concatenate(seeds) if seeds else np.empty(0)
    values = values[np.isfinite(values)]
    return Estimate(float(values.mean()), float(values.std()), len(seeds)) if len(values) else None


def update_time(runs: Runs) -> Table:
    """Seconds of an update by method and task, beside the paper's."""
    variants = rivals(runs)
    seconds = {
        task: {variant: e for variant in variants if (e := update_estimate(runs, task, variant)) is not None}
        for task in runs.tasks
    }
    tasks = [task for task in runs.tasks if seconds[task]]
    if not tasks:
        raise Missing("no update times")
    shown = [variant for variant in variants if any(variant in seconds[task] for task in tasks)]
    printed = paper.update_seconds()
    rows = []
    for variant in shown:
        row = [Cell(variant.title)]
        row += [_seconds(seconds[task].get(variant), seconds[task].values()) for task in tasks]
        theirs = printed.get(variant.algo) if variant.plain else None
        row.append(Cell(theirs.mean_text, theirs.std_text, theirs.bold, value=theirs.mean) if theirs else Cell("–"))
        rows.append(row)
    return Table(
        "update_time",
        "Update time in seconds per epoch",
        columns=["method", *tasks, f"paper, {paper.UPDATE_TIME_TASK}"],
        rows=rows,
        caption="Mean ± standard deviation over epochs and seeds; the least of a column is bold. Times depend on the"
        " machine and on what ran beside; the paper's are of a single run on a server with an H200.",
        row_tags=[[f"method:{variant.title}"] for variant in shown],
        column_tags=["", *(f"task:{task}" for task in tasks), ""],
    )


def _seconds(estimate: Estimate | None, column: Iterable[Estimate]) -> Cell:
    if estimate is None:
        return Cell("–")
    text, least = f"{estimate.mean:.2f}", f"{min(other.mean for other in column):.2f}"
    return Cell(text, f"{estimate.std:.2f}", bold=text == least, value=estimate.mean)


# ---- hyperparameters -------------------------------------------------------------------------------------------------


def hyperparameters(runs: Runs) -> Table:
    """The settings of the methods that ran, and the paper's where they differ."""
    algos = [variant.algo for variant in runs.variants if variant.plain]
    if not algos:
        raise Missing("no runs of methods with their own settings")
    printed = paper.hyperparameters()
    in_paper = set().union(*(row.keys() for row in printed.values()))
    by_task = {
        algo: [_described(algo, same) for (_, name), same in runs.shared.items() if name == algo] for algo in algos
    }
    rows = [
        [
            Cell(name),
            *(
                _setting([settings[name] for settings in by_task[algo]], row.get(algo, ""), algo in in_paper)
                for algo in algos
            ),
        ]
        for name, row in printed.items()
    ]
    return Table(
        "hyperparameters",
        "Hyperparameters",
        columns=["setting", *map(method_title, algos)],
        rows=rows,
        caption="What ran, and in brackets what the paper's table prints where that is something else. Where tasks"
        " differ, a setting has several values; the notes say which is whose.",
        column_tags=["", *(f"method:{method_title(algo)}" for algo in algos)],
    )


def _described(algo: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    """A method's settings by the names of the paper's table; None for what it does not have."""
    c: dict[str, Any] = defaultdict(lambda: None, {**usual_settings("", algo), **shared})
    first_order = c["learning_rate"] is not None
    critics = c["advantage"] in ("gae", "gae-reward")
    iterations = c["cg_iterations"]
    search = c["line_search_tries"] is not None and c["line_search_tries"] > 1
    radius = _falling(c["target_kl"], c["step_decay"])
    steps = f"at least {c['steps_per_epoch']}" if c["epoch_growth"] else c["steps_per_epoch"]
    return {
        "Discount Factor γ": c["gamma"],
        "Target KL": f"at most {radius}" if c["pace"] else radius,
        "GAE λ": c["gae_lambda"] if critics else None,
        "Timesteps per Epoch": steps,
        "Policy Hidden Layers": c["hidden"],
        "Policy Batch Size": c["policy_batch"] or steps,
        "Actor Learning Rate": c["learning_rate"],
        "Actor Optimizer": "Adam" if first_order else None,
        "Actor Update Iterations": c["policy_passes"],
        "Critic Hidden Layers": c["hidden"] if critics else None,
        "Critic Batch Size": (c["critic_batch"] or c["policy_batch"]) if critics else None,
        "Critic Learning Rate": c["critic_learning_rate"] if critics else None,
        "Critic Optimizer": "Adam" if critics else None,
        "Critic Update Iterations": (c["critic_passes"] or c["policy_passes"]) if critics else None,
        "Cost Limit": c["cost_limit"],
        "Clip Coefficient": c["clip"],
        "Conjugate Gradient (C.G.) Iterations": f"at most {iterations}" if c["cg_tolerance"] else iterations,
        "C.G. Tikhonov Regularisation Coefficient": c["cg_damping"],
        "Update Scaling Steps": c["line_search_tries"] if search else None,
        "Step Fraction": c["line_search_fraction"] if search else None,
        "Lagrangian Initial Value": c["multiplier_init"],
        "Lagrangian Learning Rate": c["multiplier_rate"],
        "Lagrangian Optimizer": "Adam" if c["multiplier_rate"] is not None else None,
        "CUP, FOCOPS λ": c["cup_lambda"] if c["temperature"] is None else c["temperature"],
        "CUP, FOCOPS ν": c["multiplier_max"],
        "CPPO-PID K_p": c["pid_kp"],
        "CPPO-PID K_i": c["pid_ki"],
        "CPPO-PID K_d": c["pid_kd"],
        "P3O, C3PO κ": _growing(c["penalty"], c["penalty_start"]),
        "C-TRPO β": c["barrier"],
        "C3PO ω": c["omega"],
        "SB-TRPO β": c["beta"],
    }


def _growing(last: float | None, start: float | None) -> float | str | None:
    """What is a number throughout, or grows from a share of its last value."""
    return last if last is None or start is None else f"{start * last:g} to {last:g}"


def _falling(first: float | None, decay: float | None) -> float | str | None:
    """What is a number throughout, or falls with the square of a length of which this share is gone at the end."""
    return first if first is None or not decay else f"{first:g} to {first * (1 - decay) ** 2:g}"


def _setting(ours: Sequence[Any], printed: str, in_paper: bool) -> Cell:
    """A setting's values, one a task, each once."""
    text = " or ".join(dict.fromkeys(map(_text, ours)))
    if not in_paper or all(_same(value, printed) for value in ours):
        return Cell(text)
    return Cell(f"{text} ({printed or '–'})", note=f"the paper's table: {printed or '–'}")


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _same(ours: Any, printed: str) -> bool:
    if ours is None or not printed:
        return ours is None and not printed
    if isinstance(ours, int | float):
        return float(printed) == float(ours)
    return _text(ours).lower() == printed.lower()
