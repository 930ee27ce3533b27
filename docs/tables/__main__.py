"""Fills the tables of results into the README and these pages, from the collected runs under `results/`.

`python docs/tables` writes them and some pictures of these runs, `python docs/tables --check` only says whether
the tables are as the runs have them. In a page a table stands between two lines, `<!-- table NAME -->` and
`<!-- end of table -->`.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from distances import crowd_distances, distances
from updates import errors, stalls, turns

from sbtrpo.benchmark import statistics
from sbtrpo.benchmark.collect import joined, read_table
from sbtrpo.report import paper
from sbtrpo.report.beside import beside, glance, number
from sbtrpo.report.canvas import files
from sbtrpo.report.figures import progress, what_holds
from sbtrpo.report.histograms import angles, model_errors
from sbtrpo.report.planes import beta_frontier, safety_planes
from sbtrpo.report.render import Cell, Table, markdown
from sbtrpo.report.runs import Run, Runs, read_runs, rivals
from sbtrpo.report.tables import HALVES, HEADS, overall, pair_cells
from sbtrpo.report.tables import main as papers
from sbtrpo.report.variants import Variant, phrase

T = TypeVar("T")
Card: TypeAlias = dict[str, Any]
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "sbtrpo" / "benchmark" / "results"
BEFORE = {0.75: slice(206, 214), 0.85: slice(212, 220)}
"""The last eight epochs of `control` before first hits begin, by the share of the run after which they do."""
AFTER = slice(223, 228)
"""The last five."""
SAFE = 0.9
"""Where runs are safer than that, `control` has nothing to say."""
UPDATED = slice(13, 15)
"""Epochs after thirteen and fourteen updates, with which the shortest runs of `equal_updates` end."""
MEASURES = ("reward", "safety_probability", "safe_reward", "cost")
MARKS = (2, 5, 10, 20, 50, 80, 100)
"""Millions of steps after which `by_steps` looks."""
RECENT = 400_000
"""Steps that it looks back over."""
STRETCHES = (0, 4, 12, 20)
"""Millions of steps between which `holding` takes its means."""


@dataclass(frozen=True)
class Block:
    """A table of a page, and the collected runs that it is made of."""

    page: str
    name: str
    make: Callable[..., Table]
    sources: tuple[str, ...] = ()
    """Without any, it is made of the policies' cards."""

    def text(self) -> str:
        """The rows as Markdown, without title and caption: the page says what it is."""
        table = self.make(runs_of(self.sources)) if self.sources else self.make()
        lines = markdown(table).splitlines()
        return "\n".join(line for line in lines if line.startswith("|"))


@functools.cache
def runs_of(sources: tuple[str, ...]) -> Runs:
    """The collected runs of these plans together."""
    return read_runs(joined([read_table(RESULTS / f"{source}.parquet") for source in sources]))


def by_name(make: Callable[[Runs], Table], runs: Runs) -> Table:
    """A table of tasks with the paper's names of them, each once."""
    table, rows, last = make(runs), [], ""
    for task, *cells in table.rows:
        rows.append([Cell("" if task.text == last else paper.tasks()[task.text]), *cells])
        last = task.text
    return replace(table, columns=["", *table.columns[1:]], rows=rows)


def holding(runs: Runs) -> Table:
    """How much of an update's promise from half of its worlds holds in the other half, by stretches of the runs."""
    marks = [f"{a} to {b} M" for a, b in itertools.pairwise(STRETCHES)]
    rows = []
    for task, variant in itertools.product(runs.tasks, runs.variants):
        found = runs.of(task, variant)
        if found:
            shares = [cell for metric in ("holds_r", "holds_c") for cell in _shares_of(found, metric)]
            if any(cell.text for cell in shares):
                rows.append([Cell(task), Cell(NAMES[variant.title]), *shares])
    columns = ["task", "method", *(f"{signal}: {mark}" for signal in ("reward", "cost") for mark in marks)]
    return Table("holding", "What holds in other worlds", columns, rows)


def _shares_of(found: Sequence[Run], metric: str) -> list[Cell]:
    steps = np.concatenate([run.column("steps") for run in found]) / 1e6
    values = np.concatenate([run.column(metric) for run in found])
    cells = []
    for first, last in itertools.pairwise(STRETCHES):
        own = values[(first < steps) & (steps <= last) & np.isfinite(values)]
        error = own.std(ddof=1) / np.sqrt(len(own)) if len(own) > 1 else np.nan
        cells.append(Cell(f"{own.mean():z.2f} ± {error:.2f}", value=0) if np.isfinite(error) else Cell())
    return cells


def control(runs: Runs, share: float) -> Table:
    """Before first hits begin and at the end, with them and, on the same seeds where there are such runs, without."""
    rows, parts = [], (BEFORE[share], AFTER)
    for task in runs.tasks:
        found = {variant.algo: runs.of(task, variant) for variant in runs.variants}
        hits, without = found.get("sb-trpo_late_hits", []), found.get("sb-trpo_growing", [])
        if hits and without:
            seeds = {run.seed for run in hits} & {run.seed for run in without}
            hits, without = ([run for run in own if run.seed in seeds] for own in (hits, without))
        if any(run.column("safety_probability")[parts[0]].mean() < SAFE for run in hits):
            metrics = ("safety_probability", "safe_reward", "reward")
            cells = (_from_to(own, metric, parts) for metric in metrics for own in (hits, without))
            rows.append([Cell(task), Cell(str(len(hits)), value=len(hits)), *cells])
    heads = (head for title in ("safety prob.", "safe reward", "reward") for head in (title, "growing"))
    return Table("control", "What first hits do", ["task", "seeds", *heads], rows)


def _from_to(found: Sequence[Run], metric: str, parts: Sequence[slice]) -> Cell:
    means = [np.mean([run.column(metric)[part].mean() for run in found]) for part in parts if found]
    return Cell(" to ".join(f"{mean:.3f}" for mean in means), value=0)


def crowd(runs: Runs) -> Table:
    """A row a method and a column a task: safe reward @ safety probability, marked as the main table's safe rewards."""
    methods = rivals(runs)
    pairs = {task: pair_cells(runs, task, methods, "safety", runs.pooled) for task in runs.tasks}
    rows = []
    for variant in methods:
        row = [Cell(variant.title)]
        for task, cells in pairs.items():
            earned, safe = cells[variant]
            counted = runs.counted(task, variant)
            alone = "1 seed" if len(counted) == 1 else ""
            text = f"{earned.text} @ {safe.text}{_so_far(counted, alone)}" if earned.numeric else ""
            row.append(replace(earned, text=text, std=""))
        rows.append(row)
    return Table("crowd", "All methods on all tasks", ["method", *(paper.tasks()[task] for task in runs.tasks)], rows)


def _so_far(counted: Sequence[Run], alone: str = "") -> str:
    """How many steps runs have that are not finished, and what to say of one alone."""
    steps = "" if counted[0].finished else f"{min(run.steps for run in counted) / 1e6:.1f} M"
    told = ", ".join(filter(None, (steps, alone)))
    return f" ({told})" if told else ""


def asides(runs: Runs, tasks: Sequence[str]) -> Table:
    """Methods with other settings, each behind its published one; what ran with one alone on a task is left out."""
    rows = []
    for task in tasks:
        methods: dict[str, list[Variant]] = {}
        for variant in runs.variants:
            if runs.of(task, variant):
                methods.setdefault(variant.title.partition(",")[0], []).append(variant)
        for variant in itertools.chain(*(variants for variants in methods.values() if len(variants) > 1)):
            counted = runs.counted(task, variant)
            texts = (f"{len(counted)}{_so_far(counted)}", *_ends(runs, task, variant))
            rows.append([Cell(task), Cell(variant.title), *(Cell(text, value=0) for text in texts)])
    return Table("asides", "Other settings", ["task", "method", "seeds", *(HEADS[name] for name in MEASURES)], rows)


def with_nothing(runs: Runs) -> Table:
    """`overall`, and what a policy has by its measure that earns 0 and never violates."""
    rewards, safety = runs.scores(runs.variants, HALVES["safety"])
    ran = statistics.overall(safety, rewards)
    counted: dict[Any, Any] = {method: {task: rewards[method][task] for task in ran.tasks} for method in ran.methods}
    counted["nothing"] = {task: np.zeros_like(scores) for task, scores in counted[next(iter(ran.methods))].items()}
    worth = statistics.interquartile_mean(np.concatenate([*statistics.scaled(counted)["nothing"].values()]))
    table = overall(runs)
    cells = [Cell(text, value=0) for text in (f"{worth:.2f}", "1.00", str(len(ran.tasks)), "")]
    return replace(table, rows=[*table.rows, [Cell("doing nothing"), *cells]])


def trained_on(runs: Runs, told: Sequence[str]) -> Table:
    """Runs that began with a policy: the paper's SB-TRPO, the policy before, and what settings made of it.

    Of the settings that are told, the last stands in every row, others on tasks where runs differ in them.
    """
    rows = []
    for task in runs.tasks:
        variants = [variant for variant in runs.variants if runs.of(task, variant)]
        start = _setting(runs, task, variants[0], "init_from")
        printed, before = paper.main()["sb-trpo"][task], _card(str(start))
        theirs = [printed[name].mean_text if name != "safe_reward" else "" for name in MEASURES]
        rows.append([task, "paper, SB-TRPO", str(paper.SEEDS), "", *theirs])
        rows.append([task, "before", "", "", *(number(before["evaluation"][name]) for name in MEASURES)])
        values = {variant: [_setting(runs, task, variant, name) for name in told] for variant in variants}
        *others, _ = zip(*values.values(), strict=True)
        shown = [*(len(set(column)) > 1 for column in others), True]
        for variant in sorted(values, key=values.__getitem__):
            counted = runs.counted(task, variant)
            steps = f"{min(run.steps for run in counted) / 1e6:.1f} M".replace(".0", "")
            name = ", ".join(itertools.compress(map(phrase, told, values[variant]), shown))
            rows.append([task, name, str(len(counted)), steps, *_ends(runs, task, variant)])
    cells = [[Cell(text, value=0 if i > 1 else None) for i, text in enumerate(row)] for row in rows]
    return Table("on", "Trained on", ["task", "", "seeds", "steps", *(HEADS[name] for name in MEASURES)], cells)


frontiers = partial(trained_on, told=("num_envs", "beta"))


def estimates(runs: Runs) -> Table:
    """The same of runs that differ in their advantages, from 200 worlds an update."""
    usual = [run for run in runs.usual if _setting(runs, run.task, run.variant, "num_envs") == 200]
    return trained_on(replace(runs, usual=usual), told=("advantage", "beta"))


def _ends(runs: Runs, task: str, variant: Variant) -> list[str]:
    """Means over the last epochs of all seeds."""
    found = (runs.pooled(task, variant, name) for name in MEASURES)
    return ["" if one is None else number(one.mean) for one in found]


def equal_updates(runs: Runs) -> Table:
    """Policies trained on with their own β: where as many updates from more and more worlds have led."""
    names, beta = ("safety_probability", "reward", "safe_reward"), Variant("sb-trpo").get("beta")
    rows = []
    for task in runs.tasks:
        found: dict[int, list[Run]] = {}
        for source in (runs_of(("betas",)), runs):  # apart: those of one table would have to be equally long
            for variant in source.variants:
                own = [run for run in source.of(task, variant) if len(run.column("epoch")) >= UPDATED.stop]
                hits = own and _setting(source, task, variant, "cost_to_go") == "first-hit"
                if hits and variant.get("beta") == beta:
                    found.setdefault(int(_setting(source, task, variant, "num_envs")), []).extend(own)
        for worlds, own in sorted(found.items()) if len(found) > 1 else ():
            ends = [np.mean([run.column(name)[UPDATED].mean() for run in own]) for name in names]
            episodes = int(sum(run.column("episodes")[UPDATED].sum() for run in own))
            texts = (f"{worlds:,}", str(len(own)), f"{episodes:,}", *map(number, ends))
            rows.append([Cell(task), *(Cell(text, value=0) for text in texts)])
    heads = ["task", "worlds an update", "seeds", "episodes", *(HEADS[name] for name in names)]
    return Table("updates", "As many updates", heads, rows)


def by_steps(runs: Runs) -> Table:
    """What runs with more and more worlds an update had after as many steps: over 400,000 of them, or an epoch."""
    rows = []
    for task in runs.tasks:
        found: dict[int, list[Run]] = {}
        for run in runs.usual:
            if run.task == task:
                found.setdefault(int(_setting(runs, task, run.variant, "num_envs")), []).append(run)
        for worlds, own in sorted(found.items()):
            cells = [Cell(_after(own, mark * 1_000_000), value=0) for mark in MARKS]
            rows.append([Cell(task), Cell(f"{worlds:,}", value=0), *cells])
    return Table("steps", "By steps", ["task", "worlds an update", *(f"{mark} M" for mark in MARKS)], rows)


def _after(found: Sequence[Run], steps: int) -> str:
    """Safe reward and safety probability of the runs that went so far, and how many did where some did not."""
    ends = []
    for run in found:
        taken, epoch = run.column("steps"), run.column("steps")[0]
        if taken[-1] > steps - epoch and epoch <= steps:
            last = (steps - max(RECENT, epoch) < taken) & (taken <= steps)
            ends.append([run.column(name)[last].mean() for name in ("safe_reward", "safety_probability")])
    if not ends:
        return ""
    earned, safe = np.mean(ends, axis=0)
    return f"{number(earned)} @ {safe:.2f}" + (f" ({len(ends)})" if len(ends) < len(found) else "")


def _setting(runs: Runs, task: str, variant: Variant, name: str) -> Any:
    """A setting of a variant's runs on a task: what all of them share, what tells them apart, or the default."""
    return runs.shared[task, variant.algo].get(name, variant.get(name))


def _card(start: str) -> Card:
    """Of the repository's policy that runs began with, which they know by the first digits of its hash."""
    return next(card for card in cards().values() if card["sha256"].startswith(start.partition("@")[2]))


@functools.cache
def cards() -> dict[str, Card]:
    """Of the repository's policies, by name."""
    paths = sorted((ROOT / "policies").glob("*.toml"))
    return {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in paths}


def policies() -> Table:
    """The repository's policies, each with its steps, which come on top of those of the policy that it began with."""
    heads = ["reward", "cost", "safety probability", "violations, at most", "safe reward"]
    names = ("reward", "cost", "safety_probability", "violation_probability_upper", "safe_reward")
    rows = []
    for name, card in cards().items():
        found = (number(card["evaluation"][measure]) for measure in names)
        rows.append([name, card["algo"], f"{card['steps'] / 1e6:.0f} M", *found])
    cells = [[Cell(text, value=0 if i > 1 else None) for i, text in enumerate(row)] for row in rows]
    return Table("policies", "Policies", ["file", "method", "steps", *heads], cells)


def best() -> Table:
    """The policy of each task that was trained longest, on fresh episodes, beside the paper's SB-TRPO."""
    rows = []
    for task, title in paper.tasks().items():
        chain = [(name, card) for name, card in cards().items() if card["task"] == task]  # the first, then polished
        steps, (name, card) = sum(card["steps"] for _, card in chain), chain[-1]
        theirs, found = paper.main()["sb-trpo"][task], card["evaluation"]
        low, high = found["safety_probability_interval"]
        rows.append([
            title,
            f"{theirs['reward'].mean_text} @ {theirs['safety_probability'].mean:.2f}",
            f"{number(found['reward'])} @ {number(found['safety_probability'])}",
            f"{low:.3f} to {high:.3f}",
            f"{theirs['safe_reward'].mean_text} and {number(found['reward'] * found['safety_probability'])}",
            number(found["safe_reward"]),
            f"{steps / 1e6:.0f} M",
            name,
        ])  # fmt: skip
    heads = ["paper, SB-TRPO", "ours", "95 % interval", "products", "safe reward", "steps", "file"]
    cells = [[Cell(text, value=0 if 0 < i < len(heads) else None) for i, text in enumerate(row)] for row in rows]
    return Table("best", "Policies beside the paper's", ["", *heads], cells)


def finished(make: Callable[[Runs], T], runs: Runs) -> T:
    """A table or a figure of those runs alone that are finished."""
    return make(replace(runs, usual=[run for run in runs.usual if run.finished]))


def on_tasks(make: Callable[[Runs], T], runs: Runs, tasks: Sequence[str]) -> T:
    """A table or a figure of some tasks alone."""
    return make(replace(runs, usual=[run for run in runs.usual if run.task in tasks]))


def of_any_length(make: Callable[[Runs], T], runs: Runs, tasks: Sequence[str]) -> T:
    """The same of all runs of these tasks, however long."""
    return on_tasks(make, replace(runs, usual=[*runs.usual, *runs.long], long=[]), tasks)


def headed(make: Callable[[Runs], Table], runs: Runs) -> Table:
    """A table of pairs with the paper's names of tasks above them."""
    table = make(runs)
    return replace(table, groups=[(paper.tasks().get(task, task), span) for task, span in table.groups])


def renamed(make: Callable[[Runs], Table], runs: Runs) -> Table:
    """A table of methods with other names of them."""
    table = make(runs)
    return replace(table, rows=[[replace(name, text=NAMES[name.text]), *cells] for name, *cells in table.rows])


TASKS = list(paper.tasks())
NAMES = {
    "SB-TRPO": "as published, here", "SB-TRPO, annealed": "400 worlds", "SB-TRPO, growing": "growing",
    "SB-TRPO, first hits": "first hits", "SB-TRPO, late hits": "late hits",
}  # fmt: skip
LAST_15 = {**NAMES, "SB-TRPO, late hits": "first hits in the last 15 %"}
FIVE_TIMES = {**NAMES, "SB-TRPO, late hits": "late hits, 100 M steps"}
LONG = ("published", "large_batches", "growing", "late_hits")
LONGER = ("late_hits_100m",)
BUDGET = ("published", "budget", "large_batches")
TWO = ("SafetyPointGoal2-v0", "SafetyHopperVelocity-v1")
"""Tasks of unlike kind, on which `budget` ran."""
BUTTON = ("SafetyPointButton2-v0",)
OTHERS = tuple(task for task in TASKS if task not in BUTTON)
RARE = ("SafetyCarCircle2-v0", "SafetyHopperVelocity-v1", "SafetySwimmerVelocity-v1")
"""Tasks whose trained policies hardly violate."""
OFTEN = tuple(task for task in TASKS if task not in RARE)
OFF = ("betas", "off_policy")
PUSH_AND_GOAL = ("SafetyPointPush2-v0", "SafetyPointGoal2-v0")
ASIDE = ("SafetyPointGoal2-v0", "SafetyCarCircle2-v0")
"""Tasks of `variants_2m`."""
FAR = ("SafetyPointGoal2-v0", "SafetyCarCircle2-v0", "SafetyHopperVelocity-v1")
"""Tasks of `far_cells`."""
WORLDS = {
    "SB-TRPO": "20 worlds, as published", **{
        f"SB-TRPO, annealed, {worlds:,} worlds, target_kl = {radius}": f"{worlds:,} worlds"
        for worlds, radius in ((100, 0.02), (400, 0.04), (1600, 0.08), (6400, 0.16))
    },
}  # fmt: skip
BLOCKS = (
    Block("README.md", "glance", partial(by_name, partial(glance, names=NAMES)), LONG),
    Block("README.md", "best", best),
    Block("README.md", "methods", crowd, ("main_2m",)),
    Block("docs/batches.md", "beside", partial(by_name, partial(beside, names=NAMES)), (*LONG, "first_hits")),
    Block("docs/batches.md", "late", partial(by_name, partial(glance, names=LAST_15)), ("growing", "late_hits_85")),
    Block("docs/batches.md", "control", partial(by_name, partial(control, share=0.85)), ("growing", "late_hits_85")),
    Block("docs/batches.md", "quarter", partial(by_name, partial(control, share=0.75)), ("growing", "late_hits")),
    Block("docs/batches.md", "overall", partial(renamed, overall), ("large_batches", "late_hits")),
    Block("docs/batches.md", "shared", partial(renamed, overall), ("large_batches", "growing", "late_hits")),
    Block("docs/batches.md", "reproduced", partial(finished, partial(renamed, overall)), ("published", "late_hits")),
    Block("docs/batches.md", "longer", partial(by_name, partial(beside, names=FIVE_TIMES)), LONGER),
    Block("docs/batches.md", "steps", partial(by_name, partial(of_any_length, by_steps, tasks=TWO)), BUDGET),
    Block("docs/batches.md", "betas", partial(by_name, partial(on_tasks, frontiers, tasks=OFTEN)), ("betas",)),
    Block("docs/batches.md", "rare", partial(by_name, partial(on_tasks, frontiers, tasks=RARE)), ("betas",)),
    Block("docs/batches.md", "off_policy", partial(by_name, partial(on_tasks, estimates, tasks=PUSH_AND_GOAL)), OFF),
    Block("docs/batches.md", "updates", partial(by_name, equal_updates), ("polished",)),
    Block("docs/batches.md", "many", partial(by_name, partial(trained_on, told=("num_envs",))), ("polished",)),
    Block("docs/batches.md", "holding", partial(by_name, holding), LONG),
    Block("docs/policies.md", "policies", policies),
    Block("docs/results.md", "published", partial(by_name, partial(beside, names=NAMES)), ("published",)),
    Block("docs/results.md", "distances", partial(by_name, distances), ("published",)),
    *(
        Block(
            "docs/results.md",
            f"main_{half}_{k}",
            partial(headed, partial(on_tasks, partial(papers, half=half), tasks=tasks)),
            ("main_2m",),
        )
        for half, (k, tasks) in itertools.product(HALVES, enumerate((TASKS[:4], TASKS[4:])))
    ),
    Block("docs/results.md", "overall", with_nothing, ("main_2m",)),
    Block("docs/results.md", "cells", crowd_distances, ("main_2m",)),
    Block("docs/results.md", "far", partial(by_name, partial(asides, tasks=FAR)), ("main_2m", "far_cells")),
    Block("docs/results.md", "angles", partial(by_name, turns), ("main_2m",)),
    Block("docs/results.md", "errors", partial(by_name, errors), ("published",)),
    Block("docs/results.md", "asides", partial(by_name, partial(asides, tasks=ASIDE)), ("main_2m", "variants_2m")),
    Block("docs/results.md", "cpo", stalls, ("cpo_hopper",)),
    *(
        Block("docs/results.md", f"four_{half}", partial(headed, partial(papers, half=half)), ("circle_hopper",))
        for half in HALVES
    ),
)
GREW = "By worlds an update: what safe episodes earn, and how many are safe"
POLISHED = "From policies of 20 million steps, trained on"
PICTURES = {
    "safety_planes": (partial(finished, safety_planes), LONG),
    "methods": (partial(safety_planes, printed=False), ("main_2m",)),
    "progress": (progress, LONG),
    "progress_100m": (progress, LONGER),
    "budget": (partial(of_any_length, partial(progress, title=GREW, names=WORLDS), tasks=TWO), BUDGET),
    "betas": (partial(on_tasks, beta_frontier, tasks=OFTEN), ("betas",)),
    "betas_rare": (partial(on_tasks, beta_frontier, tasks=RARE), ("betas",)),
    "betas_off_policy": (partial(on_tasks, beta_frontier, tasks=PUSH_AND_GOAL), OFF),
    "many_worlds": (
        partial(on_tasks, partial(progress, title=f"{POLISHED}, 1,600 worlds an update"), tasks=OTHERS),
        ("polished",),
    ),
    "button_worlds": (partial(on_tasks, partial(progress, title=POLISHED), tasks=BUTTON), ("polished",)),
    "holds": (partial(what_holds, task="SafetyPointGoal2-v0"), LONG),
    "angles_reward": (partial(angles, gradient="reward"), ("main_2m",)),
    "angles_cost": (partial(angles, gradient="cost"), ("main_2m",)),
    "model_errors": (model_errors, ("published",)),
}
"""In `docs/images`: what draws each, and of which runs."""


def filled(page: str, name: str, rows: str) -> str:
    """The page with these rows between the two lines."""
    pattern = re.compile(rf"(<!-- table {re.escape(name)} -->\n)(?:.*?\n)??(<!-- end of table -->)", re.DOTALL)
    changed, count = pattern.subn(lambda match: f"{match[1]}{rows}\n{match[2]}", page)
    if count != 1:
        raise ValueError(f"the page has {count} places for the table {name}; it needs one")
    return changed


def main() -> int:
    """Write, or look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is not up to date")
    check = parser.parse_args().check
    stale = []
    for block in BLOCKS:
        path = ROOT / block.page
        before = path.read_text(encoding="utf-8")
        after = filled(before, block.name, block.text())
        if after != before:
            stale.append(f"{block.page}: {block.name}")
            if not check:
                path.write_text(after, encoding="utf-8", newline="\n")
    if not check:
        for name, (draw, sources) in PICTURES.items():
            (ROOT / "docs" / "images" / f"{name}.png").write_bytes(files(partial(draw, runs_of(sources)))["png"])
    what = "not as the runs have it, `make tables` mends that" if check else "filled"
    print("\n".join(f"{one}: {what}" for one in stale) or "all tables are as the runs have them")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
