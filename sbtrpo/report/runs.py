"""The tidy table as runs: which belong together, how far they got, and what they amount to.

The table is that of `sbtrpo.benchmark.collect`: one row a run and epoch. Its columns are `task`, `algo`, `seed`, the
run's identity (`run`), whether it ran to its end (`complete`), settings by their names in `TrainConfig`
(`config_<name>` where a metric has that name), `epoch`, `steps`, and the numbers of metrics.csv and timing.csv. All but
task, algo and epoch may be missing; what needs them is then left out of the report.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow
from numpy.typing import NDArray

from sbtrpo.benchmark import statistics
from sbtrpo.benchmark.columns import FRESH, HOLDS, constraint_metrics, constraint_names
from sbtrpo.config.run import Faulted
from sbtrpo.envs.faults import alarm
from sbtrpo.errors import sentence
from sbtrpo.report import paper
from sbtrpo.report.variants import (
    NAMED,
    NEVER_APART,
    NOT_DEFAULT,
    Group,
    Variant,
    not_default,
    notes_on,
    setting_columns,
    setting_names,
    stands_out,
)
from sbtrpo.runs.curves import CLOSING_STEPS, SMOOTHING, trailing_mean
from sbtrpo.runs.judgement import CUT_SHORT, misleading

Floats = NDArray[np.float64]
Table: TypeAlias = "pyarrow.Table | Mapping[str, Any]"
"""What a report is made of: a pyarrow table, or columns by name."""

LAST_EPOCHS = 20
"""Over these the final values are pooled; the paper's deviations fit such a pool and not five final values."""
THE_LAST = f"the last {LAST_EPOCHS} epochs ({CLOSING_STEPS:,} steps of longer ones)"
"""That in words; see `sbtrpo.benchmark.statistics.closing`."""
LONG = 1.5
"""Runs longer than the usual ones by this factor are shown apart."""
IDENTITY = "run"
MEASUREMENTS = 10
"""Over one in so many of a run's measurements the trailing mean of what is not measured in every epoch is taken."""
UNFINISHED = "runs that are not finished: "


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
        """A column; NaN where it is missing. `paper.PRODUCT` is that of two."""
        if name == paper.PRODUCT:
            return self.column("reward") * self.column("safety_probability")
        values = self.columns.get(name)
        return np.full(len(self.columns["epoch"]), np.nan) if values is None else values

    def has(self, *names: str) -> bool:
        """Whether these columns hold numbers."""
        return all(np.isfinite(self.column(name)).any() for name in names)

    def closing(self, name: str) -> Floats:
        """What a column has at the end of the run, over which final values are means."""
        return statistics.closing(self.column(name), self.columns["steps"], LAST_EPOCHS)

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

    def on(self, task: str) -> Runs:
        """What there is of one task, with the notes that are not about others."""
        usual, long = ([run for run in runs if run.task == task] for runs in (self.usual, self.long))
        shared = {group: same for group, same in self.shared.items() if group[0] == task}
        general = [note for note in self.notes if not note.startswith((NOT_DEFAULT, UNFINISHED))]
        return Runs(usual, long, [*notes_on(shared), *general, *_unfinished(usual)], shared)

    @functools.cached_property
    def tasks(self) -> list[str]:
        """In the paper's order, then others by name."""
        known = list(paper.tasks())
        return sorted({run.task for run in self.usual}, key=lambda t: (known.index(t) if t in known else 99, t))

    @functools.cached_property
    def variants(self) -> list[Variant]:
        """In the paper's order, then the catalogue's."""
        return sorted({run.variant for run in self.usual}, key=Variant.order)

    def setting(self, task: str, variant: Variant, name: str) -> Any:
        """A setting of a variant's runs that is not the default; None where it is."""
        return {**self.shared.get((task, variant.algo), {}), **dict(variant.settings)}.get(name)

    @functools.cached_property
    def alarms(self) -> list[str]:
        """What to say, loudly, of methods many of whose episodes a fault has cut."""
        sentences = []
        for task, variant in itertools.product(self.tasks, self.variants):
            runs = [run for run in self.of(task, variant) if run.has("faulted_episodes", "episodes")]
            faulted, episodes = (
                sum(np.nansum(run.column(name)) for run in runs) for name in ("faulted_episodes", "episodes")
            )
            counted: Faulted = "apart" if self.setting(task, variant, "faulted") == "apart" else "unsafe"
            if sentence := alarm(faulted, episodes, counted):
                sentences.append(f"{variant.title} on {task}: {sentence}")
        return sentences

    @functools.cached_property
    def evaluated(self) -> bool:
        """Whether some of the runs were evaluated on fresh worlds."""
        return any(run.has(f"{FRESH}reward") for run in self.usual)

    @functools.cached_property
    def constraints(self) -> list[str]:
        """The constraints that some of the runs have numbers of, each by itself."""
        names = constraint_names(self.usual[0].columns) if self.usual else []
        return [name for name in names if any(run.has(*constraint_metrics(name)) for run in self.usual)]

    @functools.cached_property
    def holding(self) -> dict[str, str]:
        """The columns that tell how much of what updates promise holds in other worlds, and what they are called."""
        signals = {"r": "reward", "c": "cost", **{name: name for name in self.constraints}}
        known = {f"{HOLDS}{signal}": f"share that holds: {title}" for signal, title in signals.items()}
        return {name: title for name, title in known.items() if any(run.has(name) for run in self.usual)}

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
        """Over the last epochs of all seeds together: what is compared with the paper. One epoch has no deviation."""
        runs = self.counted(task, variant)
        values = np.concatenate([run.closing(metric) for run in runs]) if runs else np.empty(0)
        values = values[np.isfinite(values)]
        return Estimate(float(values.mean()), _deviation(values, ddof=0), len(runs)) if len(values) else None

    def final_values(self, task: str, variant: Variant, metric: str) -> Floats:
        """Of every run, the mean over its last epochs."""
        return statistics.final_values([run.closing(metric) for run in self.counted(task, variant)])

    def scores(self, variants: Iterable[Variant], metrics: Sequence[str]) -> list[dict[Variant, dict[str, Floats]]]:
        """For each metric the final values by variant and task; only tasks with all of them."""
        by_metric: list[dict[Variant, dict[str, Floats]]] = [{} for _ in metrics]
        for variant in variants:
            for task in self.tasks:
                finals = [self.final_values(task, variant, metric) for metric in metrics]
                if all(map(len, finals)):
                    for scores, values in zip(by_metric, finals, strict=True):
                        scores.setdefault(variant, {})[task] = values
        return by_metric

    def across_seeds(self, task: str, variant: Variant, metric: str) -> Estimate | None:
        """Of the last epoch's value, over seeds; the deviation is that of a sample, NaN for one seed."""
        values = np.array([run.column(metric)[-1] for run in self.counted(task, variant)])
        values = values[np.isfinite(values)]
        if not len(values):
            return None
        return Estimate(float(values.mean()), _deviation(values, ddof=1), len(values))

    @functools.cached_property
    def misleading(self) -> dict[tuple[str, Variant], str]:
        """What to say of safe rewards that returns below zero make mislead, by task and variant."""
        found = {}
        for task, variant in itertools.product(self.tasks, self.variants):
            pooled = [self.pooled(task, variant, name) for name in ("reward", "safety_probability", "safe_reward")]
            words = misleading(*(math.nan if estimate is None else estimate.mean for estimate in pooled))
            if words:
                found[task, variant] = words
        return found

    @property
    def below_zero(self) -> set[str]:
        """The tasks on which some safe rewards mislead."""
        return {task for task, _ in self.misleading}

    def warnings(self, variants: Sequence[Variant] | None = None) -> list[str]:
        """What a reader must know to judge the numbers, of these variants or all."""
        shown = self.variants if variants is None else variants
        found: dict[str, dict[str, None]] = {}
        for (task, variant), words in self.misleading.items():
            if variant in shown:
                found.setdefault(words, {})[task] = None
        for task, variant in itertools.product(self.tasks, shown):
            if self.of(task, variant) and self.setting(task, variant, "end_at_violation"):
                found.setdefault(CUT_SHORT, {})[f"{variant.title} on {task}"] = None
        return [f"{', '.join(places)}: {words}" for words, places in found.items()]

    def curve(self, task: str, variant: Variant, metric: str, window: int = SMOOTHING) -> Curve | None:
        """The mean over seeds of the trailing means over `window` epochs, or the 400,000 steps of longer ones.

        Of evaluations on fresh worlds it is the last one, and of what is measured now and then the mean of the last.
        """
        return curve(self.of(task, variant), metric, window)


def rivals(runs: Runs) -> list[Variant]:
    """The variants that compete: methods as published; if a method has no such run, its variants at cost limit 0."""

    def family(variant: Variant) -> str:  # SB-TRPO with critics is the same method
        return "sb-trpo" if variant.algo in ("sb-trpo_rcritic", "sb-trpo_critic") else variant.algo

    plain = {family(variant) for variant in runs.variants if variant.plain}
    strict = [variant for variant in runs.variants if not variant.get("cost_limit")]
    return [variant for variant in strict if variant.plain or family(variant) not in plain]


# ---- from the table ------------------------------------------------------------------------------------------------


def read_runs(table: Table) -> Runs:
    """The runs of a tidy table."""
    columns = as_columns(table)
    if not any(len(values) for values in columns.values()):
        return Runs(notes=["there are no runs"])
    for name in ("task", "algo", "epoch"):
        if name not in columns:
            raise ValueError(f"the table of runs has no column {name}; it has {', '.join(columns) or 'none'}")
    try:
        raw_runs = [_run(rows, columns) for rows in _rows_by_run(columns)]
        shared = _shared_settings(raw_runs)
        notes = notes_on(shared)
        runs = _select(_without_repetitions([_with_variant(raw, shared) for raw in raw_runs], notes), notes)
    except (TypeError, ValueError, KeyError, OverflowError) as error:  # texts or lists in place of numbers
        raise ValueError(
            f"the table of runs cannot be read ({sentence(error)}); `sbtrpo collect RUNS` makes one"
        ) from error
    return dataclasses.replace(runs, shared=shared)


def as_columns(table: Table) -> dict[str, NDArray[Any]]:
    """The table's columns by name."""
    if isinstance(table, pyarrow.Table):
        return {name: table[name].to_numpy() for name in table.column_names}
    return {name: np.asarray(values) for name, values in table.items()}


def _rows_by_run(columns: Mapping[str, NDArray[Any]]) -> list[NDArray[np.intp]]:
    """The rows of each run, in the order of their epochs."""
    keys = (IDENTITY,) if IDENTITY in columns else ("task", "algo", "seed", "total_steps", *setting_columns(columns))
    numbers = np.zeros(len(columns["epoch"]), dtype=np.int64)
    for key in keys:
        if key in columns:
            _, inverse = np.unique(columns[key].astype(str), return_inverse=True)
            _, numbers = np.unique(numbers * (inverse.max(initial=0) + 1) + inverse, return_inverse=True)
    order = np.lexsort((columns["epoch"].astype(np.float64), numbers))
    return [rows for rows in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(rows)]


@dataclass(frozen=True)
class _Raw:
    run: Run
    settings: dict[str, Any]


def _run(rows: NDArray[np.intp], columns: Mapping[str, NDArray[Any]]) -> _Raw:
    first = {name: _plain(values[rows[0]]) for name, values in columns.items()}
    others = {*setting_columns(columns), IDENTITY, "task", "algo", "seed"}
    numbers = {
        name: values[rows].astype(np.float64)
        for name, values in columns.items()
        if name not in others and values.dtype.kind in "biuf"
    }
    numbers |= {name: _held(values) for name, values in numbers.items() if name.startswith(FRESH)}
    numbers.setdefault("steps", numbers["epoch"])
    given = {name: value for column, name in setting_columns(columns).items() if (value := first[column]) is not None}
    algo, settings = not_default(str(first["task"]), str(first["algo"]), given)
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


def _deviation(values: Floats, ddof: int) -> float:
    """NaN for one value."""
    return float(values.std(ddof=ddof)) if len(values) > 1 else math.nan


def _held(values: Floats) -> Floats:
    """An evaluation's numbers hold until the next one.

    >>> _held(np.array([np.nan, 1.0, np.nan, 3.0])).tolist()
    [nan, 1.0, 1.0, 3.0]
    """
    last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
    return np.where(last < 0, np.nan, values[last])


def _shared_settings(raw_runs: Sequence[_Raw]) -> dict[Group, dict[str, Any]]:
    """By task and method, what all runs have and is not the default: it does not make a variant, but is noted."""
    groups: dict[Group, list[dict[str, Any]]] = {}
    for raw in raw_runs:
        groups.setdefault((raw.run.task, raw.run.variant.algo), []).append(raw.settings)
    shared = {
        group: {
            name: value
            for name, value in {key: value for one in settings for key, value in one.items()}.items()
            if name in NEVER_APART
            or (not stands_out(name, *group) and all(name in other and other[name] == value for other in settings))
        }
        for group, settings in groups.items()
    }
    if {raw.settings.get("fidelity") for raw in raw_runs} == {"corrected"}:
        for same in shared.values():
            same["fidelity"] = "corrected"
    return shared


def _with_variant(raw: _Raw, shared: Mapping[Group, Mapping[str, Any]]) -> Run:
    algo, ranked = raw.run.variant.algo, [*NAMED, *setting_names()]
    apart = [name for name in raw.settings if name not in shared[raw.run.task, algo]]
    apart.sort(key=lambda name: (ranked.index(name) if name in ranked else len(ranked), name))
    return dataclasses.replace(raw.run, variant=Variant(algo, tuple((name, raw.settings[name]) for name in apart)))


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
    selected = Runs(notes=notes)
    left_out = 0
    for group in groups.values():
        selected.long += [run for run in group if run.total_steps >= LONG * usual]
        rest = [run for run in group if run.total_steps < LONG * usual]
        if rest:
            length = usual if any(run.total_steps == usual for run in rest) else max(r.total_steps for r in rest)
            chosen = [run for run in rest if run.total_steps == length]
            selected.usual += chosen
            left_out += len(rest) - len(chosen)
    if left_out:
        notes.append(f"runs left out since they are not of the usual {usual:,.0f} steps: {left_out}")
    notes += _unfinished(selected.usual)
    return selected


def _unfinished(runs: Sequence[Run]) -> list[str]:
    count = sum(not run.finished for run in runs)
    return [f"{UNFINISHED}{count} of {len(runs)}"] if count else []


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
        values_of = run.column(metric)
        if metric.startswith(HOLDS):
            smooth = _now_and_then(values_of)
        else:
            smooth = values_of if metric.startswith(FRESH) else trailing_mean(values_of, run.columns["steps"], window)
        row[np.searchsorted(steps, run.columns["steps"])] = smooth
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    mean = _ratio(np.where(finite, values, 0.0).sum(axis=0), count)
    variance = _ratio((np.where(finite, values - mean, 0.0) ** 2).sum(axis=0), count)
    return Curve(steps, mean, np.sqrt(variance), len(known))


def _now_and_then(values: Floats) -> Floats:
    """The mean of the last tenth of the measurements, which holds until the next one.

    >>> _now_and_then(np.array([np.nan, 1.0, np.nan, 3.0, np.nan])).tolist()
    [nan, 1.0, 1.0, 3.0, 3.0]
    """
    measured, means = np.isfinite(values), np.full(len(values), np.nan)
    means[measured] = trailing_mean(values[measured], window=max(1, measured.sum() // MEASUREMENTS))
    return _held(means)


def _ratio(sums: Floats, counts: NDArray[np.int_]) -> Floats:
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
