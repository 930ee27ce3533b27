"""What `sbtrpo benchmark` and `sbtrpo collect` do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow
import pyarrow.csv
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sbtrpo.benchmark.collect import METRICS, Overall, final, over_tasks, setting_columns, write_table
from sbtrpo.benchmark.columns import VERSION, constraint_metrics, constraint_names, short_version
from sbtrpo.benchmark.labelled import Labelled
from sbtrpo.benchmark.local import LocalLauncher
from sbtrpo.benchmark.plan import Plan, run_path, telling_apart, with_kept_files
from sbtrpo.benchmark.ray import RayLauncher
from sbtrpo.benchmark.schedule import Launcher, Result, Scheduler, write_manifest
from sbtrpo.benchmark.sources import read_sources
from sbtrpo.benchmark.states import LOG, is_done, state
from sbtrpo.benchmark.view import BenchmarkView
from sbtrpo.config import TrainConfig
from sbtrpo.config.run import Faulted
from sbtrpo.envs.faults import alarm
from sbtrpo.envs.physics.cpu import available_cores
from sbtrpo.errors import UserError
from sbtrpo.files import check_writable, write_atomically
from sbtrpo.learning.placement import place
from sbtrpo.learning.start import check_start


def make_plan(file: Path | None, settings: Mapping[str, Any]) -> Plan:
    """The plan of a file, with settings replaced; or that of settings alone."""
    if file is not None:
        plan = Plan.from_file(file)
        return plan.replaced(settings) if settings else plan
    if "tasks" not in settings:
        raise ValueError("name a plan, such as main (the paper's) or a file of yours, or tasks with --tasks")
    return Plan.from_settings(settings, name="command-line")


def benchmark(
    file: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    out: Path = Path("runs"),
    workers: int | None = None,
    threads: int = 0,
    pack: int = 1,
    retries: int = 2,
    launcher: Literal["local", "ray"] = "local",
    address: str = "auto",
    dry_run: bool = False,
    quiet: bool = False,
    console: Console | None = None,
) -> int:
    """Run a grid; returns the exit status: 0 if every run is done, 1 if one failed, 130 if interrupted before the end.

    Args:
        file: a plan in TOML.
        settings: axes by name, in place of the plan's.
        out: the folder for all runs.
        workers: processes at a time; if left out as many as cores, or one where runs are on a GPU. (Ray: as many as the
            cluster has room for.)
        threads: of each worker's simulator, and on Ray the cores of each; 0 shares the cores out (Ray: 1).
        pack: how many runs of one task share a simulator.
        retries: how often a failed run is tried again.
        launcher: local processes, or tasks on a Ray cluster.
        address: of the Ray cluster.
        dry_run: list the runs and their states, and run none.
        quiet: show nothing but failures.
        console: where to; standard output if left out.
    """
    plan = make_plan(file, settings or {})
    configs = plan.runs()
    for config in configs:
        check_start(config)
    console = console or Console()
    if dry_run:
        _list_runs(configs, out, console)
        return 0
    where: Launcher
    if launcher == "ray":
        out = out.resolve()  # a name that means the same on every node
        where = RayLauncher(address, threads)
    else:
        open_runs = sum(not is_done(run_path(out, config), config) for config in configs)
        most = max(1, math.ceil(open_runs / max(1, pack)))  # idle workers' cores go to the others
        where = LocalLauncher(min(_workers(configs) if workers is None else workers, most), threads)
    configs = with_kept_files(configs, out)
    scheduler = Scheduler(configs, out, where, retries, pack, BenchmarkView(quiet, console))
    write_manifest(plan.name, configs, out)
    try:
        result = scheduler.run()
    finally:
        if isinstance(where, RayLauncher):
            where.close()
    print_outcome(result, console, quiet)
    return result.exit_status


def _workers(configs: Iterable[TrainConfig]) -> int:
    """How many processes keep this machine busy: one is enough for a GPU, where packs take the place of processes."""
    on_gpu = any(config.engine != "cpu" and place(config).engine == "gpu" for config in configs)
    return 1 if on_gpu else available_cores()


def print_outcome(result: Result, console: Console, quiet: bool = False) -> None:
    """Say what became of the runs; failures with their errors and logs, whether quiet or not."""

    def say(line: str) -> None:
        console.print(line, soft_wrap=True, highlight=False, markup=False)

    done, failed, left = result.of("done"), result.of("failed"), result.of("interrupted")
    if not quiet:
        rest = f", {len(left)} left to resume: give the same command again" if left else ""
        say(f"{len(done)} of {len(result.runs)} runs done, {len(failed)} failed{rest}")
    for run in failed:
        say(f"failed after {run.attempts} attempts: {run.path}")
        say(f"    {run.error}")
        say(f"    log: {run.path / LOG}")


def _list_runs(configs: list[TrainConfig], out: Path, console: Console) -> None:
    """Each run with its folder, its state, and the settings in which its method's runs on its task differ."""
    alike: dict[tuple[str, str], list[TrainConfig]] = {}
    for config in configs:
        alike.setdefault((config.task_entry.identity, config.algo), []).append(config)
    apart = {group: telling_apart(runs) for group, runs in alike.items()}
    table = Table(box=box.SIMPLE_HEAD, title=f"{len(configs)} runs in {out}")
    table.add_column("run", overflow="fold")
    if any(apart.values()):
        table.add_column("settings", overflow="fold")
    table.add_column("state", no_wrap=True)
    for config in configs:
        path, names = run_path(out, config), apart[config.task_entry.identity, config.algo]
        words = [f"{name} {_word(name, config.get(name))}" for name in names]
        settings = [", ".join(words)] if any(apart.values()) else []
        table.add_row(*map(escape, [path.relative_to(out).as_posix(), *settings]), state(path, config))
    console.print(table)


# ---- collect -----------------------------------------------------------------------------------------------------


def collect_runs(
    runs: Sequence[Path], out: Path | None = None, quiet: bool = False, console: Console | None = None
) -> Path:
    """Write the tidy table of all runs below folders, and beside it, as CSV, what they amount to.

    Args:
        runs: the folders of the runs, or tables that were collected before.
        out: where the table goes, a name that ends in .parquet; `results.parquet` in the only folder if left out.
        quiet: show nothing.
        console: where to; standard output if left out.
    """
    if not runs:
        raise UserError("give the folder of the runs, or several, or tables that `sbtrpo collect` made of others")
    if out is None and (len(runs) > 1 or runs[0].is_file()):
        raise UserError("say where the table of all these goes: --out FILE.parquet")
    out = runs[0] / "results.parquet" if out is None else out
    if out.suffix != ".parquet":
        raise ValueError(f"out must end in .parquet, got {out}")
    check_writable(out)
    collected = read_sources(
        runs, needs=("run", "task", "algo", "seed", "complete", "epochs", "epoch", "steps", *METRICS)
    )
    write_table(collected.table, out)
    summary = final(collected.table)
    beside = out.with_name(f"{out.stem}-final.csv")
    _write_csv(summary, beside)
    aggregate = over_tasks(collected.table)
    over_all = out.with_name(f"{out.stem}-overall.csv")
    if aggregate.tasks:
        _write_csv(aggregate.table, over_all)
    else:
        over_all.unlink(missing_ok=True)  # an earlier one, which no longer holds
    if not quiet:
        console = console or Console()
        constraints = constraint_names(collected.table.column_names)
        for table in _final_tables(summary, setting_columns(collected.table), constraints):
            console.print(table)
        lines = [*_alarms(summary), *collected.notes]
        if aggregate.tasks:
            console.print(_overall_table(aggregate))
            lines = [*_what_counts(aggregate), *lines]
        lines.append(
            f"The table is {out}, its summary {beside}" + (f", over tasks {over_all}" if aggregate.tasks else "")
        )
        for line in lines:
            console.print(line, soft_wrap=True, highlight=False, markup=False)
    return out


def _alarms(summary: pyarrow.Table) -> Iterator[str]:
    """What to say of methods many of whose episodes a fault has cut."""
    for row in summary.to_pylist():
        counted: Faulted = "apart" if row.get("faulted") == "apart" else "unsafe"
        if sentence := alarm(row["faulted_episodes"] or 0, row["episodes"] or 0, counted):
            yield f"{row['algo']} on {row['task']}: {sentence}"


def _write_csv(table: pyarrow.Table, path: Path) -> None:
    """Lists, such as the sizes of hidden layers, are written as text: CSV has none."""
    columns = {
        name: ["" if value is None else " ".join(map(str, value)) for value in table[name].to_pylist()]
        if pyarrow.types.is_list(table[name].type)
        else table[name]
        for name in table.column_names
    }
    sink = pyarrow.BufferOutputStream()
    pyarrow.csv.write_csv(pyarrow.table(columns), sink)
    write_atomically(path, sink.getvalue().to_pybytes(), alone=False)


def _final_tables(summary: pyarrow.Table, settings: list[str], constraints: list[str]) -> Iterator[Labelled]:
    """For each task the final epochs across seeds, and those of each constraint where runs have several.

    Settings are shown only where they differ within a method.
    """
    rows = summary.to_pylist()
    shown = [name for name in settings if any(_differs(rows, row, name) for row in rows)]
    for task in dict.fromkeys(row["task"] for row in rows):
        of_task = [row for row in rows if row["task"] == task]
        yield _final_table(task, of_task, shown)
        by_constraint = _constraint_table(of_task, shown, constraints)
        if by_constraint.rows:
            yield by_constraint


def _final_table(task: str, rows: list[dict[str, Any]], shown: list[str]) -> Labelled:
    title = f"{task}, final epoch: mean ± standard deviation across seeds"
    table = _table(title, ("algo", *shown), ("seeds", "reward", "cost", "P(safe)", "safe reward"))
    for row in rows:
        seeds = f"{row['seeds']}" + (f" + {row['incomplete']} not done" if row["incomplete"] else "")
        table.add(_words(row, ("algo", *shown)), [seeds, *(_plus_minus(row, metric) for metric in METRICS)])
    return table


def _constraint_table(rows: list[dict[str, Any]], shown: list[str], constraints: list[str]) -> Labelled:
    title = "each constraint: mean ± standard deviation across seeds"
    table = _table(title, ("method", *shown, "constraint"), ("cost", "P(safe)"))
    for row in rows:
        for name in constraints:
            cost, safety = constraint_metrics(name)
            if row[f"{cost}_mean"] is not None:
                numbers = [_plus_minus(row, cost), _plus_minus(row, safety)]
                table.add([*_words(row, ("algo", *shown)), name], numbers)
    return table


def _table(title: str, labels: Iterable[str], numbers: Sequence[str]) -> Labelled:
    return Labelled(title, ["version" if name == VERSION else name for name in labels], numbers)


def _words(row: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Settings as the terminal shows them."""
    return [_word(name, row[name]) for name in names]


def _word(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == VERSION:
        return short_version(value)
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _overall_table(aggregate: Overall) -> Labelled:
    """Every method over all tasks that count; settings only where they differ within a method."""
    rows = aggregate.table.to_pylist()
    differing = {name for row in rows for name in aggregate.settings[row["algo"]]}
    shown = [name for name in aggregate.table.column_names if name in differing]
    count = f"{len(aggregate.tasks)} task{'s' if len(aggregate.tasks) > 1 else ''}"
    title = f"over {count}: interquartile mean and its 95 % bootstrap interval"
    table = _table(title, ("algo", *shown), ("runs", "P(safe)", "scaled safe reward"))
    for row in rows:
        numbers = [
            f"{row[f'{name}_iqm']:.2f} ({row[f'{name}_iqm_low']:.2f} to {row[f'{name}_iqm_high']:.2f})"
            for name in ("safety_probability", "normalised_safe_reward")
        ]
        table.add(_words(row, ("algo", *shown)), [str(row["runs"]), *numbers])
    return table


def _what_counts(aggregate: Overall) -> Iterator[str]:
    """Which tasks are in the table over tasks, and who is not, where methods ran on different ones."""
    if aggregate.left_out or aggregate.other_tasks:
        yield f"Tasks that count there: {', '.join(aggregate.tasks)}"
    if aggregate.other_tasks:
        yield f"Tasks that do not, since not all its methods have complete runs: {', '.join(aggregate.other_tasks)}"
    if aggregate.left_out:
        names = []
        for key in aggregate.left_out:
            settings = aggregate.settings[key["algo"]]
            values = zip(settings, _words(key, settings), strict=True)
            names.append(" ".join([key["algo"], *(f"{name}={value}" for name, value in values)]))
        yield f"Without complete runs on all tasks that count: {', '.join(names)}"


def _differs(rows: list[dict[str, Any]], row: dict[str, Any], name: str) -> bool:
    """Whether a setting is another one in a row of the same task and method."""
    return any(
        other[name] != row[name] and (other["task"], other["algo"]) == (row["task"], row["algo"]) for other in rows
    )


def _plus_minus(row: Mapping[str, Any], metric: str) -> str:
    mean, std = row[f"{metric}_mean"], row[f"{metric}_std"]
    if mean is None or math.isnan(mean):  # no episode has ended
        return "-"
    return f"{mean:z.2f}" if std is None else f"{mean:z.2f} ± {std:.2f}"
