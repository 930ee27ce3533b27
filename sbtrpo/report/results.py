"""Results that are kept: the tables of runs that this package brings, or others, cell by cell."""

from __future__ import annotations

import difflib
import math
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sbtrpo import benchmark
from sbtrpo.benchmark.collect import read_table
from sbtrpo.benchmark.plan import SEED_STRIDE
from sbtrpo.config import catalogue
from sbtrpo.envs import task_ids
from sbtrpo.errors import UserError
from sbtrpo.report import paper
from sbtrpo.report.render import Cell
from sbtrpo.report.runs import Runs, read_runs
from sbtrpo.report.tables import HALVES, pair_cells
from sbtrpo.report.variants import Variant, catalogue_name

RESULTS = Path(benchmark.__file__).with_name("results")
"""The tables that this package brings: one for each plan that was run, as `sbtrpo collect` writes them."""
FIRST = ("published", "main_2m", "variants_2m", "cpo_hopper")
"""What most readers ask for: the paper's tables, before what else was tried."""


@dataclass(frozen=True)
class Result:
    """What a method reached on a task, and how to repeat it."""

    table: str
    task: str
    variant: Variant
    settings: Mapping[str, Any]
    """In which the runs differ from the method's defaults."""
    seeds: tuple[int, ...]
    steps: int
    """Of the run that is least far."""
    total_steps: int
    """How long the runs are to be."""
    cells: Mapping[str, Cell]
    """By metric, with the main table's marks; all methods and settings of a table compete."""
    deviations: Mapping[str, float | None]
    """By metric; None where one epoch alone counts."""

    @property
    def command(self) -> str | None:
        """What trains these runs again; None for a task or a method that is not this package's."""
        if self.task not in task_ids() or catalogue.labelled(self.variant.algo) is None:
            return None
        words = ["sbtrpo", "train", self.task, "--algo", self.variant.algo]
        for name, value in {**self.settings, "total_steps": self.total_steps}.items():
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{name.replace('_', '-')}", *(str(number).removesuffix(".0") for number in values)]
        first = self.seeds[0]
        if self.seeds == tuple(range(first, first + SEED_STRIDE * len(self.seeds), SEED_STRIDE)):
            several = ["--num-seeds", str(len(self.seeds))] if len(self.seeds) > 1 else []
            return shlex.join([*words, "--seed", str(first), *several])
        return " && ".join(shlex.join([*words, "--seed", str(seed)]) for seed in self.seeds)

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        facts = {
            "table": self.table,
            "task": self.task,
            "method": self.variant.title,
            "algo": self.variant.algo,
            "settings": dict(self.settings),
            "seeds": self.seeds,
            "steps": self.steps,
            "total_steps": self.total_steps,
        }
        for metric, cell in self.cells.items():
            known = {"mean": cell.value, "std": self.deviations[metric], "best": cell.bold}
            facts[metric] = known if cell.numeric else None
        return {**facts, "command": self.command}


def read_results(source: Path = RESULTS) -> dict[str, Runs]:
    """The runs of a table, or of all tables in a folder, by the tables' names; the paper's come first."""
    files = sorted(source.glob("*.parquet")) if source.is_dir() else [source]
    files.sort(key=lambda file: FIRST.index(file.stem) if file.stem in FIRST else len(FIRST))
    if not source.exists() or not files:
        lacking = "table of results in" if source.is_dir() else "file or folder"
        raise UserError(f"there is no {lacking} {source}; `sbtrpo collect RUNS --out FILE.parquet` makes a table")
    tables = {file.stem: _read(file) for file in files}
    if not any(runs.tasks for runs in tables.values()):
        raise UserError(f"{source} holds no runs; `sbtrpo collect RUNS --out FILE.parquet` makes a table of some")
    return tables


def _read(file: Path) -> Runs:
    table = read_table(file)
    try:
        return read_runs(table)
    except ValueError as error:
        raise UserError(f"{file}: {error}") from error


def chosen(tables: Mapping[str, Runs], task: str | None = None, algo: str | None = None) -> list[Result]:
    """The results of all tables, of one task and one method where these are named."""
    found = [result for name, runs in tables.items() for result in _results(name, runs)]
    if task is not None:
        _check("task", task, {result.task for result in found}, task_ids())
        found = [result for result in found if result.task == task]
    if algo is not None:
        wanted = catalogue_name(algo)
        _check("method", wanted, {result.variant.algo for result in found}, catalogue.names())
        found = [result for result in found if result.variant.algo == wanted]
    return found


def _check(what: str, name: str, present: Collection[str], known: Iterable[str]) -> None:
    if name in present:
        return
    near = [] if name in known else difflib.get_close_matches(name, sorted(present), n=1)
    advice = f"did you mean {near[0]}?" if near else f"there are some of {', '.join(sorted(present)) or 'nothing'}"
    raise UserError(f"there are no results of the {what} {name!r} here; {advice}")


def _results(name: str, runs: Runs) -> Iterator[Result]:
    """Those of one table, task by task."""
    for task in runs.tasks:
        here = [variant for variant in runs.variants if runs.of(task, variant)]
        cells = _cells(runs, task, here)
        for variant in here:
            counted = runs.counted(task, variant)
            estimates = {metric: runs.pooled(task, variant, metric) for metric in paper.METRICS}
            yield Result(
                table=name,
                task=task,
                variant=variant,
                settings={**runs.shared[task, variant.algo], **dict(variant.settings)},
                seeds=tuple(run.seed for run in counted),
                steps=int(min(run.steps for run in counted)),
                total_steps=int(counted[0].total_steps),
                cells=cells[variant],
                deviations={m: e.std if math.isfinite(e.std) else None for m, e in estimates.items() if e is not None},
            )


def _cells(runs: Runs, task: str, variants: list[Variant]) -> dict[Variant, dict[str, Cell]]:
    """All of a table's variants compete; one alone is not the best of anything."""
    halves = [(names, pair_cells(runs, task, variants, half, runs.pooled)) for half, names in HALVES.items()]
    several = len(variants) > 1
    return {
        variant: {
            name: replace(cell, bold=cell.bold and several)
            for names, cells in halves
            for name, cell in zip(names, cells[variant], strict=True)
        }
        for variant in variants
    }
