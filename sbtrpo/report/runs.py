"""The tidy table as runs: which belong together, how far they got, and what they amount to.

The table is that of `sbtrpo.benchmark.collect`: one row a run and epoch. Its columns are `task`, `algo`, `seed`, the
run's identity (`run`), whether it ran to its end (`complete`), settings by their names in `TrainConfig`
(`config_<name>` where a metric has that name), `epoch`, `steps`, and the numbers of metrics.csv and timing.csv. All but
task, algo and epoch may be missing; what needs them is then left out of the report.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow
from numpy.typing import NDArray

from sbtrpo.benchmark import statistics
from sbtrpo.config import catalogue
from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import declared
from sbtrpo.report import paper
from sbtrpo.runs.curves import SMOOTHING

Floats = NDArray[np.float64]
Table: TypeAlias = "pyarrow.Table | Mapping[str, Any]"
"""What a report is made of: a pyarrow table, or columns by name."""
Group: TypeAlias = tuple[str, str]
"""A task and a method."""

LAST_EPOCHS = 20
"""Over these the final values are pooled; the paper's deviations fit such a pool and not five final values."""
LONG = 1.5
"""Runs longer than the usual ones by this factor are shown apart."""
IDENTITY = "run"
NOT_DEFAULT = "not the default: "
"""How notes on settings begin."""

_NAMED = ("advantage", "solver", "beta", "cost_limit", "fidelity")
"""Settings that make a variant even if all runs of a method share them."""
_NOT_SETTINGS = {"task", "algo", "seed", "total_steps"}
_ALSO_METRICS = {"cg_iterations", "line_search_tries", "learning_rate", "penalty"}
"""Names that metrics.csv has, too: a column of such a name is a metric."""
_CRITICS = {"mc": "sb-trpo", "gae-reward": "sb-trpo_rcritic", "gae": "sb-trpo_critic"}
"""SB-TRPO's variants are one method, told apart by their advantages."""


@dataclass(frozen=True)
class Variant:
    """A method, and the settings in which it is not the method as published."""

    algo: str
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def title(self) -> str:
        """As a reader knows it.

        >>> Variant("sb-trpo", (("beta", 0.6),)).title
        'SB-TRPO, β = 0.6'
        """
        return ", ".join([method_title(self.algo), *(_phrase(name, value) for name, value in self.settings)])

    def get(self, name: str) -> Any:
        """A setting: where it is not the method's own, the variant's; otherwise the method's."""
        return dict(self.settings).get(name, usual_settings("", self.algo).get(name))

    @property
    def plain(self) -> bool:
        """Whether it is the method as published, at cost limit 0."""
        return not self.settings

    def differs_in(self, *names: str) -> bool:
        """Whether it has a setting of its own, and none but these."""
        return bool(self.settings) and {name for name, _ in self.settings} <= set(names)

    def order(self) -> tuple[Any, ...]:
        """Sorts: the paper's methods in its order, then the catalogue's, then others; variants behind their method."""
        known = [*paper.METHODS, *(name for name in catalogue.names() if name not in paper.METHODS)]
        place = known.index(self.algo) if self.algo in known else len(known)
        return place, self.algo, [(name, isinstance(value, str), value) for name, value in self.settings]


@dataclass(frozen=True)
class Run:
    """One run: its columns by epoch."""

    identity: str
    task: str
    variant: Variant
    seed: int
    total_steps: float
    """How long it is to be; as long as it is, where the table does not say."""
    finished: bool
    """Whether it ran to its end."""
    columns: dict[str, Floats]

    def column(self, name: str) -> Floats:
        """A column; NaN where it is missing."""
        found = self.columns.get(name)
        return np.full(len(self.columns["epoch"]), np.nan) if found is None else found

    @property
    def steps(self) -> float:
        """How far it is."""
        return float(self.columns["steps"][-1])


@dataclass(frozen=True)
class Estimate:
    """A mean and a standard deviation."""

    mean: float
    std: float
    seeds: int


@dataclass(frozen=True)
class Curve:
    """A metric over a training, over all seeds."""

    steps: Floats
    mean: Floats
    std: Floats
    """Over seeds; 0 where there is one."""
    seeds: int

    def thinned(self, most: int) -> Curve:
        """At most so many points, evenly spaced, the last among them."""
        if len(self.steps) <= most:
            return self
        kept = np.linspace(0, len(self.steps) - 1, most).round().astype(int)
        return Curve(self.steps[kept], self.mean[kept], self.std[kept], self.seeds)


@dataclass
class Runs:
    """All runs of a report."""

    usual: list[Run] = field(default_factory=list)
    """Of the usual length: what all tables and most figures show."""
    long: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What a reader should know about the selection."""
    shared: dict[Group, dict[str, Any]] = field(default_factory=dict)
    """By task and method: settings that are not its defaults, but those of all its runs there."""

    @functools.cached_property
    def tasks(self) -> list[str]:
        """In the paper's order, then others by name."""
        known = list(paper.tasks())
        return sorted({run.task for run in self.usual}, key=lambda t: (known.index(t) if t in known else 99, t))

    @functools.cached_property
    def variants(self) -> list[Variant]:
        """In the paper's order, then the catalogue's."""
        return sorted({run.variant for run in self.usual}, key=Variant.order)

    @functools.cached_property
    def _groups(self) -> dict[tuple[str, Variant], list[Run]]:
        groups: dict[tuple[str, Variant], list[Run]] = {}
        for run in self.usual:
            groups.setdefault((run.task, run.variant), []).append(run)
        return groups

    def of(self, task: str, variant: Variant) -> list[Run]:
        """All seeds of a variant on a task."""
        return self._groups.get((task, variant), [])

    def counted(self, task: str, variant: Variant) -> list[Run]:
        """The runs whose end counts: finished ones, or, as long as there is none, all."""
        runs = self.of(task, variant)
        return [run for run in runs if run.finished] or runs

    def pooled(self, task: str, variant: Variant, metric: str) -> Estimate | None:
        """Over the last epochs of all seeds together: what is compared with the paper."""
        runs = self.counted(task, variant)
        values = np.concatenate([run.column(metric)[-LAST_EPOCHS:] for run in runs]) if runs else np.empty(0)
        values = values[np.isfinite(values)]
        return Estimate(float(values.mean()), float(values.std()), len(runs)) if len(values) else None

    def final_values(self, task: str, variant: Variant, metric: str) -> Floats:
        """Of every run, the mean over its last epochs."""
        return statistics.final_values([run.column(metric) for run in self.counted(task, variant)], LAST_EPOCHS)

    def scores(self, variants: Iterable[Variant], metrics: Sequence[str]) -> list[dict[Variant, dict[str, Floats]]]:
        """For each metric the final values by variant and task; only tasks with all of them."""
        found: list[dict[Variant, dict[str, Floats]]] = [{} for _ in metrics]
        for variant in variants:
            for task in self.tasks:
                values = [self.final_values(task, variant, metric) for metric in metrics]
                if all(map(len, values)):
                    for scores, own in zip(found, values, strict=True):
                        scores.setdefault(variant, {})[task] = own
        return found

    def across_seeds(self, task: str, variant: Variant, metric: str) -> Estimate | None:
        """Of the last epoch's value, over seeds; the deviation is that of a sample, NaN for one seed."""
        values = np.array([run.column(metric)[-1] for run in self.counted(task, variant)])
        values = values[np.isfinite(values)]
        if not len(values):
            return None
        return Estimate(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else math.nan, len(values))

    def curve(self, task: str, variant: Variant, metric: str, window: int = SMOOTHING) -> Curve | None:
        """The mean over seeds of the trailing means over `window` epochs."""
        return curve(self.of(task, variant), metric, window)


# ---- from the table ------------------------------------------------------------------------------------------------


def read_runs(table: Table) -> Runs:
    """The runs of a tidy table."""
    columns = as_columns(table)
    if not any(len(values) for values in columns.values()):
        return Runs(notes=["there are no runs"])
    for name in ("task", "algo", "epoch"):
        if name not in columns:
            raise ValueError(f"the table of runs has no column {name}; it has {', '.join(columns) or 'none'}")
    found = [_run(rows, columns) for rows in _rows_by_run(columns)]
    notes: list[str] = []
    shared = _shared_settings(found, notes)
    runs = _select(_without_repetitions([_with_variant(one, shared) for one in found], notes), notes)
    return dataclasses.replace(runs, shared=shared)


def as_columns(table: Table) -> dict[str, NDArray[Any]]:
    """The table's columns by name."""
    if isinstance(table, pyarrow.Table):
        return {name: table[name].to_numpy() for name in table.column_names}
    return {name: np.asarray(values) for name, values in table.items()}


def _rows_by_run(columns: Mapping[str, NDArray[Any]]) -> list[NDArray[np.intp]]:
    """The rows of each run, in the order of their epochs."""
    keys = (IDENTITY,) if IDENTITY in columns else ("task", "algo", "seed", "total_steps", *_setting_columns(columns))
    numbers = np.zeros(len(columns["epoch"]), dtype=np.int64)
    for key in keys:
        if key in columns:
            _, inverse = np.unique(columns[key].astype(str), return_inverse=True)
            _, numbers = np.unique(numbers * (inverse.max(initial=0) + 1) + inverse, return_inverse=True)
    order = np.lexsort((columns["epoch"].astype(np.float64), numbers))
    return [rows for rows in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(rows)]


def _setting_columns(columns: Iterable[str]) -> dict[str, str]:
    """The columns that hold settings, and the settings that they hold."""
    names = list(columns)
    known = _setting_names()
    if "epochs" in names and "epoch" in names:  # as `collect` lays them out, settings of the user's methods included
        between = names[names.index("epochs") + 1 : names.index("epoch")]
        known = [*known, *(name.removeprefix("config_") for name in between if name not in _NOT_SETTINGS)]
    meant = {name: name for name in known if name not in _ALSO_METRICS} | {f"config_{name}": name for name in known}
    return {column: meant[column] for column in names if column in meant}


@functools.cache
def _setting_names() -> list[str]:
    """The settings that shape what runs compute, of all methods that have a name."""
    return list(
        dict.fromkeys(
            name
            for kind in (RunSettings, *(entry.settings for entry in catalogue.entries()))
            for name, item in declared(kind).items()
            if name not in _NOT_SETTINGS and not item.rule.operational
        )
    )


@dataclass(frozen=True)
class _Raw:
    run: Run
    settings: dict[str, Any]


def _run(rows: NDArray[np.intp], columns: Mapping[str, NDArray[Any]]) -> _Raw:
    first = {name: _plain(values[rows[0]]) for name, values in columns.items()}
    others = {*_setting_columns(columns), IDENTITY, "task", "algo", "seed"}
    numbers = {
        name: values[rows].astype(np.float64)
        for name, values in columns.items()
        if name not in others and values.dtype.kind in "biuf"
    }
    numbers.setdefault("steps", numbers["epoch"])
    given = {name: value for column, name in _setting_columns(columns).items() if (value := first[column]) is not None}
    algo, settings = _own_choices(str(first["task"]), str(first["algo"]), given)
    steps, length, seed = float(numbers["steps"][-1]), first.get("total_steps"), first.get("seed")
    complete = first.get("complete")
    run = Run(
        identity=str(first.get(IDENTITY, f"{first['task']} {first['algo']} seed {seed}")),
        task=str(first["task"]),
        variant=Variant(algo),
        seed=0 if seed is None else int(seed),
        total_steps=steps if length is None else float(length),
        finished=bool(complete) if complete is not None else length is None or steps >= length,
        columns=numbers,
    )
    return _Raw(run, settings)


def _own_choices(task: str, name: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The method, and the settings in which a run differs from its defaults."""
    algo = _known(name)
    if algo in _CRITICS.values():
        algo = _CRITICS.get(given.get("advantage", usual_settings(task, algo)["advantage"]), "sb-trpo")
    usual = usual_settings(task, algo, given.get("fidelity", "paper"))
    chosen = {key: _each(value) for key, value in given.items() if not usual or key in usual}
    differing = {key: value for key, value in chosen.items() if value != usual.get(key)}
    if given.get("fidelity", "paper") != "paper":
        differing["fidelity"] = given["fidelity"]
    return algo, differing


def _each(value: Any) -> Any:
    """A number, or numbers for each constraint, that the table has as text."""
    if not isinstance(value, str):
        return value
    try:
        numbers = tuple(map(float, value.split()))
    except ValueError:
        return value
    return numbers[0] if len(numbers) == 1 else numbers


def _shared_settings(raw: Sequence[_Raw], notes: list[str]) -> dict[Group, dict[str, Any]]:
    """By task and method, what all runs have and is not the default: it does not make a variant, but is noted."""
    groups: dict[Group, list[dict[str, Any]]] = {}
    for one in raw:
        groups.setdefault((one.run.task, one.run.variant.algo), []).append(one.settings)
    shared = {
        group: {
            name: value
            for name, value in settings[0].items()
            if (name not in _NAMED or not usual_settings(*group))
            and all(name in other and other[name] == value for other in settings)
        }
        for group, settings in groups.items()
    }
    if {one.settings.get("fidelity") for one in raw} == {"corrected"}:
        for same in shared.values():
            same["fidelity"] = "corrected"
    found: dict[str, list[Group]] = {}
    for group, same in shared.items():
        if not usual_settings(*group):  # a method of the user's, whose defaults the table does not tell
            continue
        for name, value in same.items():
            found.setdefault(_phrase(name, value), []).append(group)
    notes += [f"{NOT_DEFAULT}{phrase} ({_whom(some, list(shared))})" for phrase, some in found.items()]
    return shared


def _whom(some: Sequence[Group], everyone: Sequence[Group]) -> str:
    """Some of the pairs of task and method in words; tasks are named where they are not all of the methods'."""
    on: dict[tuple[str, ...], list[str]] = {}
    for algo in dict.fromkeys(algo for _, algo in some):
        on.setdefault(tuple(task for task, other in some if other == algo), []).append(algo)
    if len(some) == len(everyone) and len({algo for _, algo in some}) > 1:
        return "all methods"
    parts = []
    for tasks, algos in on.items():
        all_there = 1 < len(algos) == len({algo for task, algo in everyone if task in tasks})
        partly = any(task not in tasks for task, algo in everyone if algo in algos)
        names = "all methods" if all_there else ", ".join(map(method_title, algos))
        where = f" on {', '.join(map(paper.task_title, tasks))}" if partly or all_there else ""
        parts.append(names + where)
    return "; ".join(parts)


def _with_variant(one: _Raw, shared: Mapping[Group, Mapping[str, Any]]) -> Run:
    algo, ranked = one.run.variant.algo, [*_NAMED, *_setting_names()]
    apart = [name for name in one.settings if name not in shared[one.run.task, algo]]
    apart.sort(key=lambda name: (ranked.index(name) if name in ranked else len(ranked), name))
    return dataclasses.replace(one.run, variant=Variant(algo, tuple((name, one.settings[name]) for name in apart)))


def _without_repetitions(runs: Iterable[Run], notes: list[str]) -> list[Run]:
    """One run for each task, variant, length and seed: the one that got furthest."""
    best: dict[tuple[Any, ...], Run] = {}
    repeated = 0
    for run in sorted(runs, key=lambda r: (r.task, r.variant.order(), r.seed, r.identity)):
        key = run.task, run.variant, run.total_steps, run.seed
        repeated += key in best
        if key not in best or run.steps > best[key].steps:
            best[key] = run
    if repeated:
        notes.append(f"repeated runs (same task, settings and seed) that are left out: {repeated}")
    return list(best.values())


def _select(runs: list[Run], notes: list[str]) -> Runs:
    """The runs of the usual length, and those that are much longer."""
    lengths = Counter(run.total_steps for run in runs)
    usual = min(lengths, key=lambda length: (-lengths[length], length))
    groups: dict[tuple[str, Variant], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.task, run.variant), []).append(run)
    found = Runs(notes=notes)
    odd = 0
    for group in groups.values():
        found.long += [run for run in group if run.total_steps >= LONG * usual]
        rest = [run for run in group if run.total_steps < LONG * usual]
        if rest:
            length = usual if any(run.total_steps == usual for run in rest) else max(r.total_steps for r in rest)
            chosen = [run for run in rest if run.total_steps == length]
            found.usual += chosen
            odd += len(rest) - len(chosen)
    if odd:
        notes.append(f"runs left out since they are not of the usual {usual:,.0f} steps: {odd}")
    if unfinished := sum(not run.finished for run in found.usual):
        notes.append(f"runs that are not finished: {unfinished} of {len(found.usual)}")
    return found


# ---- names ---------------------------------------------------------------------------------------------------------


def method_title(algo: str) -> str:
    """A method's title; its name, where the catalogue does not know it."""
    entry = catalogue.labelled(algo)
    return algo if entry is None else entry.title


def _known(name: str) -> str:
    try:
        return catalogue.method(name).name
    except ValueError:
        return name


@functools.cache
def usual_settings(task: str, algo: str, fidelity: Any = "paper") -> dict[str, Any]:
    """The defaults of a run with a method; none for a method that the catalogue does not know."""
    entry = catalogue.labelled(algo)
    if entry is None:
        return {}
    run = {name: item.default for name, item in declared(RunSettings).items()}
    return {**run, **entry.settings.defaults(task, fidelity)}


def _phrase(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        return {"advantage": f"{text} advantage", "solver": f"{text} solver", "fidelity": text}.get(
            name, f"{name} = {text}"
        )
    return {"beta": f"β = {value:g}", "cost_limit": f"limit {value:g}"}.get(name, f"{name} = {value:g}")


def _plain(value: Any) -> Any:
    """A cell of the table as Python has it; None where there is nothing."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray | list):
        return tuple(_plain(item) for item in value)
    return None if isinstance(value, float) and math.isnan(value) else value


# ---- curves --------------------------------------------------------------------------------------------------------


def curve(runs: Sequence[Run], metric: str, window: int = SMOOTHING) -> Curve | None:
    """The mean over runs of their trailing means; a run that is not as far as others counts as far as it goes."""
    known = [run for run in runs if np.isfinite(run.column(metric)).any()]
    if not known:
        return None
    steps = np.unique(np.concatenate([run.columns["steps"] for run in known]))
    values = np.full((len(known), len(steps)), np.nan)
    for row, run in zip(values, known, strict=True):
        row[np.searchsorted(steps, run.columns["steps"])] = trailing_mean(run.column(metric), window)
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    mean = _ratio(np.where(finite, values, 0.0).sum(axis=0), count)
    variance = _ratio((np.where(finite, values - mean, 0.0) ** 2).sum(axis=0), count)
    return Curve(steps, mean, np.sqrt(variance), len(known))


def trailing_mean(values: Floats, window: int = SMOOTHING) -> Floats:
    """The mean of each value and those before it in the window, NaNs left out.

    >>> trailing_mean(np.array([1.0, 3.0, np.nan, 5.0]), window=2).tolist()
    [1.0, 2.0, 3.0, 5.0]
    """
    finite = np.isfinite(values)
    sums = np.cumsum(np.where(finite, values, 0.0))
    counts = np.cumsum(finite)
    sums[window:], counts[window:] = sums[window:] - sums[:-window], counts[window:] - counts[:-window]
    return _ratio(sums, counts)


def _ratio(sums: Floats, counts: NDArray[np.int_]) -> Floats:
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
