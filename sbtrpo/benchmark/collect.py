"""Runs as one tidy table, and what they amount to.

A row is an epoch of a run. Columns are:

- `run` (its folder, below the root), `task`, `algo`, `seed`, `complete` (whether it ran to its end), `epochs` (of the
  whole run), and `total_steps`, `beta`, `cost_limit`, `advantage`, `solver` and `fidelity`, as the run had them;
- a task in a TOML file is called by its `id`, wherever the file lay; where runs had different files of one id, what
  tells these apart stands behind it, as in `Maze-v0@3f2a9c1b20aa`;
- `method_version`, where runs have different methods that `algo` calls the same, such as versions of a user's file;
- every other setting that is not the method's default in all runs, by its name (`config_<name>` where metrics.csv has
  that name, too);
- `fresh_<name>`, the numbers of evaluations.csv, in the rows of epochs after which the policy was evaluated on fresh
  worlds, where runs have such;
- everything in metrics.csv and timing.csv; empty where a method has no such number. A run with several constraints has
  `cost_<name>` and `safety_<name>` for each of them.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from sbtrpo.benchmark import statistics
from sbtrpo.benchmark.columns import (
    FRESH,
    VERSION,
    ambiguous_labels,
    constraint_metrics,
    constraint_names,
    label,
    task_names,
)
from sbtrpo.benchmark.run_files import beside, damage, digests, read_csv
from sbtrpo.benchmark.states import State, finished_epochs, progress, state
from sbtrpo.benchmark.statistics import bootstrap_interval, closing, final_values, interquartile_mean
from sbtrpo.config import TrainConfig, catalogue
from sbtrpo.errors import sentence
from sbtrpo.files import write_atomically
from sbtrpo.runs.folder import EVALUATIONS, read_run

METRICS = ("reward", "cost", "safety_probability", "safe_reward")
MAY_CHANGE = ("total_steps", "grow_by")
"""Settings that a run may be resumed with others of."""
LAST_EPOCHS = 20
"""Over which values are pooled; the paper's deviations fit such a pool rather than five final values."""
MOST_CELLS = 100_000_000
"""Of the largest table that is read."""
_ALWAYS = ("total_steps", "beta", "cost_limit", "advantage", "solver", "fidelity")
_OF_THE_METHOD = (*_ALWAYS[1:], "constraints", VERSION)
"""Settings that make a row of the table over tasks even where they differ between tasks alone."""
_KEYS = ("task", "algo")
_COUNTS = ("episodes", "faulted_episodes")
"""All of an epoch, and those that a fault has cut; older versions did not count the latter."""
_OVERALL = ("safety_probability", "safe_reward")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Collected:
    """All runs below a folder."""

    table: pyarrow.Table
    """One row a run and epoch; runs without an epoch have none."""
    states: dict[str, State]
    """Of every run, by its folder; one that was planned and never begun is pending."""
    unreadable: dict[str, str]
    """Folders of runs, and lists of planned ones, that could not be read, and why."""
    damaged: list[str]
    """What is wrong with files that the table can do without, each with its runs."""
    repeated: list[str] = field(default_factory=list)
    """Runs of which there were several copies."""

    def notes(self) -> list[str]:
        """How complete it is, then a sentence on all that is wrong."""
        return [self.sentence(), *self.unreadable.values(), *self.damaged, *counted_once(self.repeated)]

    def sentence(self) -> str:
        """How complete it is."""
        count = Counter(self.states.values())
        phrases = [f"{count[name]} {name}" for name in ("done", "running", "interrupted", "failed", "pending")]
        unreadable = f", {len(self.unreadable)} unreadable" if self.unreadable else ""
        return f"{len(self.states) + len(self.unreadable)} runs: {', '.join(phrases)}{unreadable}"


def collect(*roots: str | Path) -> Collected:
    """The table of all runs below a folder, or below several. Of copies of one run, the one that got furthest counts.

    Raises:
        FileNotFoundError: where there is no run.
    """
    unreadable: dict[str, str] = {}
    states: dict[str, State] = {}
    runs: dict[str, _Run] = {}
    repeated: list[str] = []
    for root in map(Path, roots):
        if not root.is_dir():
            raise FileNotFoundError(f"there is no folder {root}; give the one that holds the runs")
        states |= dict.fromkeys((name for name in _planned(root, unreadable) if name not in states), "pending")
        for path in _folders(root):
            name = _name(path, root)
            try:
                run = _Run(path, read_run(path))
                run.config.in_effect()  # its copies of files must be readable, too
            except (ValueError, OSError) as error:
                if name in runs:
                    name = unused(root.as_posix(), name, runs)
                unreadable[name] = f"{name}: {str(error).replace(f'{path}{os.sep}', '')}"
                states.pop(name, None)
                continue
            if name in runs and not run.config.differences(runs[name].config, but=MAY_CHANGE):
                repeated.append(name)
                run = max(run, runs[name], key=lambda one: progress(one.path).epoch)
            elif name in runs:
                name = unused(root.as_posix(), name, runs)
            states[name], runs[name] = state(run.path, run.config), run
    if not states and not unreadable:
        where = " or ".join(map(str, roots))
        raise FileNotFoundError(f"there is no run below {where}; a run's folder holds a config.toml")
    configs = [run.config for run in runs.values()]
    varied, ambiguous, tasks = _varied(configs), ambiguous_labels(configs), task_names(configs)
    tables = []
    wrong: dict[str, list[str]] = {}
    for name, run in sorted(runs.items()):
        try:
            task = tasks[run.config.task_entry.identity]
            facts = _facts(name, task, run.config, states[name] == "done", ambiguous)
            written = digests(run.path) if facts["complete"] else {}
            tables.append(_run_table(run.path, facts, run.config, varied, written))
            for words in damage(run.path, written):
                wrong.setdefault(words, []).append(name)
        except (ValueError, OSError) as error:
            unreadable[name] = f"{name}: {error}"
            states.pop(name)
    with_rows = [table for table in tables if table is not None]
    damaged = [f"{', '.join(names)}: {words}" for words, names in wrong.items()]
    return Collected(joined(with_rows) if with_rows else _no_rows(), states, unreadable, damaged, repeated)


@dataclass(frozen=True)
class _Run:
    path: Path
    config: TrainConfig


def _name(path: Path, root: Path) -> str:
    """What a table calls a run: its folder, below the root."""
    name = path.relative_to(root).as_posix() if path != root else root.resolve().name
    return os.fsencode(name).decode(errors="backslashreplace")


def unused(place: str, name: str, names: Collection[str]) -> str:
    """A name for another run than the one that has it: it says where that is from, and no other run has it.

    >>> unused("runs", "mine", {"mine"}), unused("runs", "mine", {"mine", "runs/mine"})
    ('runs/mine', 'runs/mine (2)')
    """
    apart = f"{place}/{name}"
    numbered = (f"{apart} ({number})" for number in itertools.count(2))
    return next(name for name in itertools.chain([apart], numbered) if name not in names)


def write_table(table: pyarrow.Table, path: str | Path) -> Path:
    """Write a table as Parquet, floats byte by byte: first bytes are alike, which saves a quarter of the space."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sink = pyarrow.BufferOutputStream()
    floats = [column.name for column in table.schema if pyarrow.types.is_floating(column.type)]
    others = [name for name in table.column_names if name not in floats]
    pyarrow.parquet.write_table(table, sink, compression="zstd", use_dictionary=others, use_byte_stream_split=floats)
    write_atomically(path, sink.getvalue().to_pybytes(), alone=False)
    return path


def read_table(path: str | Path) -> pyarrow.Table:
    """A table that `write_table` wrote."""
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if file.metadata.num_rows * file.metadata.num_columns > MOST_CELLS:  # a small file may hold a vast table
                raise ValueError(f"{path} is too large: a table of runs has at most {MOST_CELLS:,} cells")
        return pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        raise ValueError(f"{path} is no Parquet table; `sbtrpo collect RUNS` makes one") from error


def _planned(root: Path, unreadable: dict[str, str]) -> list[str]:
    """Folders of all runs that benchmark commands were to bring about here; a list that cannot be read is noted."""
    planned: dict[str, None] = {}
    for path in sorted((root / "plans").glob("*.json")):
        try:
            planned |= dict.fromkeys(map(str, json.loads(path.read_bytes())["runs"]))
        except (ValueError, TypeError, KeyError, OSError) as error:
            name = path.relative_to(root).as_posix()
            unreadable[name] = f"{name}, a list of planned runs, cannot be read ({error})"
    return list(planned)


def _folders(root: Path) -> list[Path]:
    """The folders of all runs, in order; what lies within a run is none."""
    folders: list[Path] = []
    for folder, below, files in os.walk(root):
        if "config.toml" in files:
            folders.append(Path(folder))
            below.clear()
    return sorted(folders)


# ---- the table ---------------------------------------------------------------------------------------------------


def _varied(configs: Sequence[TrainConfig]) -> list[str]:
    """Settings that are not the method's default in all runs, beside those that every table has."""
    changed: set[str] = set()
    for config in configs:
        usual = TrainConfig(task=config.task, algo=config.algo, fidelity=config.fidelity).settings()
        changed |= {name for name, value in config.in_effect().items() if value != usual[name]}
    return sorted(changed - {*_KEYS, "seed", *_ALWAYS})


def _facts(name: str, task: str, config: TrainConfig, complete: bool, ambiguous: Collection[str]) -> dict[str, Any]:
    """What every table says of a run."""
    algo = label(config)
    facts = {
        "run": name,
        "task": task,
        "algo": algo,
        "seed": config.seed,
        "complete": complete,
        "epochs": config.epochs,
        **{key: config.get(key) for key in _ALWAYS},
    }
    if ambiguous:
        facts[VERSION] = catalogue.method(config.algo).identity if algo in ambiguous else None
    return facts


def _run_table(
    path: Path, facts: dict[str, Any], config: TrainConfig, varied: Sequence[str], written: Mapping[str, str]
) -> pyarrow.Table | None:
    """The rows of one run, whose files must have the digests in `written`; None if it has none."""
    metrics = read_csv(path / "metrics.csv", written)
    rows = 0 if metrics is None else metrics.num_rows
    if facts["complete"] and rows < (epochs := finished_epochs(path)):
        raise ValueError(f"the run is done, but metrics.csv is damaged: it holds {rows} of {epochs} epochs")
    if metrics is None:
        return None
    if missing := [key for key in ("epoch", *METRICS) if key not in metrics.column_names]:
        raise ValueError(f"metrics.csv has no column {missing[0]}")
    timing, fresh = (beside(metrics, path / name, written) for name in ("timing.csv", EVALUATIONS))
    count = metrics.num_rows
    values = config.settings() | {"init_from": config.in_effect()["init_from"]}  # by what it is, not where it lies
    settings = {f"config_{key}" if key in metrics.column_names else key: values.get(key) for key in varied}
    table = {key: constant(value, count) for key, value in {**facts, **settings}.items()}
    # A method may report a number by the name of a setting, as SB-TRPO does while beta moves.
    names = {key: f"metric_{key}" if key in table else key for key in metrics.column_names}
    table |= {name: metrics[key] for key, name in names.items()}
    table |= timing | {f"{FRESH}{key}": values for key, values in fresh.items() if key != "steps"}
    for key in ("epoch", "steps", *_COUNTS):
        if key in table:
            table[key] = pyarrow.compute.cast(table[key], pyarrow.int64(), safe=False)
    return pyarrow.table(table)


def constant(value: Any, count: int) -> pyarrow.Array:
    """A setting's value in so many rows."""
    if isinstance(value, tuple) and value and isinstance(value[0], float):
        value = " ".join(f"{number:g}" for number in value)  # one for each constraint
    return pyarrow.nulls(count) if value is None else pyarrow.array([value] * count)


def counted_once(names: Collection[str]) -> list[str]:
    """What to say of runs that are in several places."""
    return [f"runs that are in several places, and count once: {', '.join(names)}"] if names else []


def joined(tables: Sequence[pyarrow.Table]) -> pyarrow.Table:
    """All rows; a setting that is a number in some runs and one for each constraint in others is text in all.

    What a table has no column for is missing in its rows.
    """
    # What stands before the epochs says what a run is of, and does so still.
    before = [
        one for table in tables for one in itertools.takewhile(lambda column: column.name != "epoch", table.schema)
    ]
    texts = {column.name for column in before if pyarrow.types.is_string(column.type)}
    alike = [_with_texts(table, texts) for table in tables]
    try:
        whole = pyarrow.concat_tables(alike, promote_options="permissive").combine_chunks()
    except pyarrow.ArrowException as error:
        raise ValueError(f"these tables are too unlike to be joined ({sentence(error)})") from error
    return whole.select(list(dict.fromkeys([*(column.name for column in before), *whole.column_names])))


def _with_texts(table: pyarrow.Table, names: Collection[str]) -> pyarrow.Table:
    """The table with these columns as texts where they hold numbers."""
    for place, column in enumerate(table.schema):
        if column.name in names and pyarrow.types.is_floating(column.type):
            words = [None if number is None else f"{number:g}" for number in table[column.name].to_pylist()]
            table = table.set_column(place, column.name, pyarrow.array(words, pyarrow.string()))
    return table


def _no_rows() -> pyarrow.Table:
    text, number = pyarrow.string(), pyarrow.int64()
    fields = {"run": text, "task": text, "algo": text, "seed": number, "epoch": number}
    return pyarrow.table({name: pyarrow.array([], kind) for name, kind in fields.items()})


# ---- what the runs amount to -------------------------------------------------------------------------------------


def setting_columns(table: pyarrow.Table) -> list[str]:
    """Columns by which runs of one task and algorithm may differ, the seed aside."""
    names = table.column_names
    return names[names.index("epochs") + 1 : names.index("epoch")] if "epochs" in names else []


def _metrics(columns: Sequence[str]) -> list[str]:
    """The metrics of a table: those that every run has, and those of each constraint."""
    return [*METRICS, *(metric for name in constraint_names(columns) for metric in constraint_metrics(name))]


def final(table: pyarrow.Table, last_epochs: int = LAST_EPOCHS) -> pyarrow.Table:
    """One row for each task, algorithm and settings, over its complete runs.

    For every metric M of reward, cost, safety_probability, safe_reward, and of each constraint by itself (empty where
    runs have no such constraint):

    - `M_mean`, `M_std`: of the final epoch, across seeds (the deviation of a sample; empty with one seed);
    - `M_pooled_mean`, `M_pooled_std`: over the last 20 epochs of all seeds together (the deviation of that population);
    - `M_iqm`, `M_iqm_low`, `M_iqm_high`: the interquartile mean of the final epoch across seeds, and its 95 % bootstrap
      interval.

    `seeds` says how many runs counted and `incomplete` how many did not; `episodes` how many ended in all epochs of the
    former, and `faulted_episodes` how many of these a fault has cut (both empty for runs of older versions).
    """
    metrics = _metrics(table.column_names)
    rows = [_final_row(key, runs, metrics, last_epochs) for key, runs in _groups(table)]
    return pyarrow.Table.from_pylist(rows) if rows else pyarrow.table({})


@dataclass(frozen=True)
class Overall:
    """Methods over the tasks that they share."""

    table: pyarrow.Table
    """See `overall`."""
    tasks: list[str]
    """Those that count."""
    left_out: list[dict[str, Any]]
    """Algorithm and settings of those that have no complete runs on all of them."""
    other_tasks: list[str]
    """On which there are complete runs that do not count."""
    settings: dict[str, list[str]]
    """By algorithm, those in which its rows differ, and what is left out."""


def overall(table: pyarrow.Table, last_epochs: int = LAST_EPOCHS) -> pyarrow.Table:
    """One row for each algorithm and settings, over the complete runs on all tasks that these have in common.

    - `safety_probability_iqm`, `_iqm_low`, `_iqm_high`: the interquartile mean of all these runs, each with its mean
      over the last 20 epochs, and its 95 % bootstrap interval, stratified by task;
    - `normalised_safe_reward_iqm`, `_iqm_low`, `_iqm_high`: the same of the safe reward, where on each task the worst
      run is 0 and the best 1;
    - `tasks` and `runs`: over how many.

    Where not all have runs on the same tasks, those count that make the largest table without a gap. A setting that
    differs between an algorithm's tasks alone makes no row of its own; it is empty.
    """
    return over_tasks(table, last_epochs).table


def over_tasks(table: pyarrow.Table, last_epochs: int = LAST_EPOCHS) -> Overall:
    """The table of `overall`, and which tasks and runs are in it."""
    groups = [(key, complete) for key, runs in _groups(table) if (complete := [r for r in runs if r["complete"][0]])]
    settings = setting_columns(table)
    columns = ["algo", *settings, "task"]
    named = _telling_apart([key for key, _ in groups], settings)
    keys: dict[str, dict[str, Any]] = {}
    safety: dict[str, dict[str, Floats]] = {}
    reward: dict[str, dict[str, Floats]] = {}
    for key, runs in sorted(groups, key=lambda group: _order({name: group[0][name] for name in columns})):
        scores = [final_values([closing(run[name], run["steps"], last_epochs) for run in runs]) for name in _OVERALL]
        if not all(map(len, scores)):
            continue
        method = json.dumps([key["algo"], *(key[name] for name in named[key["algo"]])])
        here = {name: key[name] for name in columns[:-1]}
        before = keys.setdefault(method, here)
        keys[method] = {name: value if before[name] == value else None for name, value in here.items()}
        for by_method, values in zip((safety, reward), scores, strict=True):
            by_method.setdefault(method, {})[key["task"]] = values
    result = statistics.overall(safety, reward)
    rows = [_overall_row(keys[method], len(result.tasks), scored) for method, scored in result.methods.items()]
    return Overall(
        pyarrow.Table.from_pylist(rows) if rows else pyarrow.table({}),
        result.tasks,
        [key for method, key in keys.items() if method not in result.methods],
        sorted({task for tasks in reward.values() for task in tasks} - set(result.tasks)),
        {
            algo: _differing([key for key in keys.values() if key["algo"] == algo], names)
            for algo, names in named.items()
        },
    )


def _telling_apart(keys: Sequence[dict[str, Any]], settings: Sequence[str]) -> dict[str, list[str]]:
    """By algorithm, the settings that make rows: those that belong to the method, and what differs on one task."""
    by_algorithm: dict[str, list[str]] = {}
    for algo in dict.fromkeys(key["algo"] for key in keys):
        by_task: dict[str, list[dict[str, Any]]] = {}
        for key in keys:
            if key["algo"] == algo:
                by_task.setdefault(key["task"], []).append(key)
        on_one_task = {name for same_task in by_task.values() for name in _differing(same_task, settings)}
        by_algorithm[algo] = [name for name in settings if name in _OF_THE_METHOD or name in on_one_task]
    return by_algorithm


def _differing(keys: Sequence[dict[str, Any]], settings: Sequence[str]) -> list[str]:
    return [name for name in settings if any(key[name] != keys[0][name] for key in keys)]


def _overall_row(key: dict[str, Any], tasks: int, scored: statistics.MethodOverall) -> dict[str, Any]:
    row = {**key, "tasks": tasks, "runs": scored.runs}
    for name, value in (
        ("safety_probability", scored.safety_probability),
        ("normalised_safe_reward", scored.safe_reward),
    ):
        row |= {f"{name}_iqm": value.iqm, f"{name}_iqm_low": value.low, f"{name}_iqm_high": value.high}
    return row


def _groups(table: pyarrow.Table) -> Iterator[tuple[dict[str, Any], list[dict[str, NDArray[Any]]]]]:
    """The runs of each task, algorithm and settings, each with its columns in the order of epochs."""
    if not table.num_rows:
        return
    names = [*_KEYS, *setting_columns(table)]
    counts = [name for name in _COUNTS if name in table.column_names]
    wanted = [*_metrics(table.column_names), *counts, "complete", "epoch", "steps"]
    _, first, number = np.unique(table["run"].to_numpy(zero_copy_only=False), return_index=True, return_inverse=True)
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in wanted}
    order = np.lexsort((columns["epoch"], number))
    bounds = np.flatnonzero(np.diff(number[order])) + 1
    groups: dict[str, tuple[dict[str, Any], list[dict[str, NDArray[Any]]]]] = {}
    for rows, start in zip(np.split(order, bounds), first, strict=True):
        key = {name: table[name][int(start)].as_py() for name in names}
        group = groups.setdefault(json.dumps(key, sort_keys=True), (key, []))
        group[1].append({name: values[rows] for name, values in columns.items()})
    yield from sorted(groups.values(), key=lambda group: _order(group[0]))


def _order(key: dict[str, Any]) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in key.values()]


def _final_row(
    key: dict[str, Any], runs: list[dict[str, NDArray[Any]]], metrics: Sequence[str], last_epochs: int
) -> dict[str, Any]:
    complete = [run for run in runs if run["complete"][0]]
    row: dict[str, Any] = {**key, "seeds": len(complete), "incomplete": len(runs) - len(complete)}
    counting = [run for run in complete if np.isfinite(run.get("faulted_episodes", np.nan)).all()]
    row |= {name: int(sum(run[name].sum() for run in counting)) if counting else None for name in _COUNTS}
    for metric in metrics:
        known = [run for run in complete if metric in METRICS or np.isfinite(run[metric]).any()]
        last = np.array([run[metric][-1] for run in known], dtype=np.float64)
        pooled = np.concatenate([closing(run[metric], run["steps"], last_epochs) for run in known]) if known else last
        low, high = bootstrap_interval([last]) if len(last) else (None, None)
        row |= {
            f"{metric}_mean": float(last.mean()) if len(last) else None,
            f"{metric}_std": float(last.std(ddof=1)) if len(last) > 1 else None,
            f"{metric}_pooled_mean": float(pooled.mean()) if len(pooled) else None,
            f"{metric}_pooled_std": float(pooled.std()) if len(pooled) > 1 else None,
            f"{metric}_iqm": float(interquartile_mean(last)) if len(last) else None,
            f"{metric}_iqm_low": low,
            f"{metric}_iqm_high": high,
        }
    return row
