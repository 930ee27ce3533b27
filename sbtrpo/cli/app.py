"""The command line: `sbtrpo --help` lists the commands. They import torch and more only when they run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from sbtrpo.cli import policies, results, runs
from sbtrpo.cli.runs import INTERRUPTED
from sbtrpo.cli.settings import NoSettings, checkpoint, given, grid_settings, train_settings
from sbtrpo.cli.streams import print_anything
from sbtrpo.cli.tables import show_method, show_task, table_of
from sbtrpo.envs import describe
from sbtrpo.errors import UserError, alarms_in_a_line, in_a_sentence, sentence
from sbtrpo.version import VERSION

app = tyro.extras.SubcommandApp()
GridSettings: Any = NoSettings
"""What `benchmark` takes: the settings of all methods, as axes."""
NOBODY_READS = 141
"""Exit code when the output's reader has left, as in `sbtrpo tasks | head`: what shells report."""


@app.command
def demo(task: str = "SafetyCarCircle2-v0", epochs: int = 60, seed: int = 0, out: Path = Path("demo")) -> None:
    """Look at a random policy, train SB-TRPO for a few minutes, and see what that has gained.

    Args:
        task: a task id, which may also stand first; `sbtrpo tasks` lists them.
        epochs: of 20,000 steps each.
        seed: of worlds, network and noise.
        out: the folder for pictures and run; an earlier demo in it is replaced.
    """
    from sbtrpo.tools.demo import run_training_demo

    run_training_demo(task, epochs, seed, out)


@app.command
def look(task: str = "SafetyPointGoal2-v0", worlds: int = 20, seed: int = 0, out: Path = Path("look.png")) -> None:
    """Roll out a random policy, print its return, cost and safety, and draw the worlds from above.

    The task may also stand first: `sbtrpo look SafetyCarCircle2-v0`.

    Args:
        task: a task id, or a TOML file that describes a task; `sbtrpo tasks` lists the ids.
        worlds: how many worlds step together.
        seed: of the worlds and of the actions.
        out: where the picture goes, a name that ends in .png.
    """
    from sbtrpo.tools.demo import run_demo

    run_demo(task, worlds, seed, out)


app.command(runs.train)
app.command(runs.resume)


app.command(policies.evaluate)


@app.command
def benchmark(
    settings: Annotated[GridSettings, tyro.conf.arg(name="")],
    plan: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[PLAN]")] = None,
    out: Path = Path("runs"),
    workers: int | None = None,
    threads: int = 0,
    pack: int = 1,
    retries: int = 2,
    launcher: Literal["local", "ray"] = "local",
    address: str = "auto",
    dry_run: bool = False,
    quiet: bool = False,
) -> int:
    """Train a grid of tasks, algorithms, settings and seeds; what is finished is skipped, what stopped goes on.

    Args:
        plan: a file, or main, smoke and other names; the settings below override it, or make the grid without one.
        settings: of the runs; one that is given several values is an axis of the grid.
        out: the folder of the runs.
        workers: processes at once; one for each core if left out.
        threads: of each process; 0 shares the cores out.
        pack: learners of one task that share a simulator.
        retries: how often a failed run is tried again.
        launcher: processes on this machine, or Ray tasks on a cluster.
        address: of the Ray cluster.
        dry_run: list the runs, and run none.
        quiet: show nothing but failures.
    """
    from sbtrpo.benchmark import command

    return command.benchmark(
        plan, given(settings), out, workers, threads, pack, retries, launcher, address, dry_run, quiet
    )


@app.command
def collect(runs: tyro.conf.Positional[tuple[Path, ...]], out: Path | None = None, quiet: bool = False) -> None:
    """Gather all runs below a folder into one tidy Parquet table, and print their final metrics.

    Args:
        runs: the folder; of several, or of tables that were collected before, one table of all. Of copies of a run
            the one that got furthest counts.
        out: the table's name; results.parquet in the folder, if it is the only one.
        quiet: print nothing.
    """
    from sbtrpo.benchmark import command

    command.collect_runs(runs, out, quiet)


@app.command
def report(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    out: Path = Path("report"),
    watch: bool = False,
    interval: float = 30.0,
) -> None:
    """Write the paper's tables and figures, a comparison with its numbers, and a page, from whatever runs exist.

    Args:
        runs: the folder of the runs, or the table that `sbtrpo collect` made of them; of several, one report of all.
        out: the report's folder.
        watch: refresh the report until Ctrl-C.
        interval: seconds between two looks, with `watch`.
    """
    from sbtrpo.benchmark.sources import read_sources
    from sbtrpo.report import build
    from sbtrpo.report import watch as keep_watching

    if not runs:
        raise UserError(
            "give the folder of the runs, or a table that `sbtrpo collect` made of them, or several of these"
        )
    videos = runs[0] if len(runs) == 1 and not runs[0].is_file() else None

    def read() -> tuple[Any, list[str]]:
        sources = read_sources(runs)
        return sources.table, sources.notes

    if watch:
        keep_watching(read, out, videos, interval)
        return
    table, notes = read()
    written = build(table, out, videos, notes)
    for note in notes[1:] if any(not path.is_file() for path in runs) else notes:
        print(note)
    for words in written.alarms:
        print(f"sbtrpo: {words}", file=sys.stderr)
    for warning in written.warnings:
        print(warning)
    for gap in written.skipped:
        print(f"left out: {gap.part}: {gap.why}")
    print(written.index)


app.command(results.results)


@app.command
def tasks(task: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[TASK]")] = None) -> None:
    """List the tasks, or show one: every part of its observation, its objects, and what costs.

    Args:
        task: an id, or a TOML file that describes a task.
    """
    console = Console(highlight=False)
    if task is None:
        console.print(table_of(describe.sheet(), "`sbtrpo tasks <task>` shows one in full"))
        return
    show_task(console, describe.describe(task))


@app.command
def check(
    task: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[TASK]")] = None,
    algo: str | None = None,
    seconds: float = 5.0,
    seed: int = 0,
    engine: Literal["cpu", "gpu", "gpu-on-cpu"] = "cpu",
    env_kwargs: tuple[str, ...] = (),
    env_timeout: float = 60.0,
) -> int:
    """Try an environment or a method, and tell what to change before training.

    Args:
        task: `my_package:MyEnv-v0`, or a task of this package.
        algo: a method of your own, such as `my_package:MyMethod` or `file.py:MyMethod`; it is tried on the task, or on
            ToyCorridor-v0.
        seconds: how long to try an environment.
        seed: of the episodes.
        engine: where to try a method: with gpu its tensors are on the GPU, and the task must be one that it simulates.
        env_kwargs: keyword arguments of your own environment, name=value each.
        env_timeout: seconds beyond its time after which your own environment counts as hung.
    """
    from sbtrpo.config.tasks import with_env_kwargs
    from sbtrpo.envs.foreign.check import check_environment

    if algo is not None:
        from sbtrpo.learning.check import check_method

        outcome = check_method(
            algo, seed, task or ("ToyCorridor-v0" if engine == "cpu" else "SafetyPointGoal1-v0"), engine
        )
    elif engine != "cpu":
        raise ValueError("--engine is for methods; an environment is tried on the CPU, so leave it out")
    elif task is not None:
        outcome = check_environment(with_env_kwargs(task, env_kwargs), seconds, seed, timeout=env_timeout)
    else:
        raise ValueError("name a task, or a method with --algo")
    for line in outcome.lines():
        print(line)
    return 0 if outcome.ok else 1


app.command(policies.record)


@app.command
def trajectories(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    episodes: int = 40,
    seed: int = 7,
    out: Path | None = None,
    deterministic: bool = False,
    which: str = "last",
    task: str | None = None,
) -> None:
    """Draw many episodes of a policy from above, safe ones and unsafe ones apart; or one of each of several policies.

    Args:
        runs: the run's folder, or the file of an exported policy. Of several, a safe and an unsafe episode each, those
            of median return.
        episodes: how many are played.
        seed: of the layouts and of the policy's noise.
        out: the name of the picture; by default trajectories.png in the run's folder, or one beside the file; of
            several runs, trajectories.png here.
        deterministic: act by the policy's mean instead of sampling.
        which: the checkpoint: last, best, or an epoch's number.
        task: where to play; by default the run's task, or the one that the file names.
    """
    from sbtrpo.media.side_by_side import draw_side_by_side
    from sbtrpo.media.trajectories import draw_trajectories

    if not runs:
        raise UserError("give the folder of a run, or the file of an exported policy, or several of these")
    if len(runs) == 1:
        print(draw_trajectories(runs[0], episodes, seed, out, deterministic, checkpoint(which), task))
        return
    beside = Path("trajectories.png") if out is None else out
    print(draw_side_by_side(runs, episodes, seed, beside, deterministic, checkpoint(which), task))


app.command(policies.export)


@app.command
def doctor(seconds: float = 10.0) -> int:
    """Print what a bug report needs and what is missing here, each with the command that mends it.

    Args:
        seconds: of the speed test; 0 leaves it out.
    """
    from sbtrpo.tools import doctor as physician

    findings = physician.examine(seconds)
    physician.report(findings)
    return 0 if physician.healthy(findings) else 1


@app.command
def algorithms(name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[NAME]")] = None) -> None:
    """List the algorithms, or show one: what it does, its settings, and the quirks of its published code.

    Args:
        name: of an algorithm; hyphens and underscores are alike. Or a method of your own: module:Class, file.py:Class.
    """
    from sbtrpo.config import catalogue
    from sbtrpo.tools import algorithm_docs

    console = Console(highlight=False)
    if name is None:
        title = "`sbtrpo algorithms <name>` shows the settings of one"
        console.print(table_of(algorithm_docs.methods(), title))
        return
    entry = catalogue.method(name)
    show_method(console, entry, algorithm_docs.settings(entry), algorithm_docs.quirks(entry))


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    print_anything()
    try:
        with alarms_in_a_line():
            return _main(args)
    finally:
        if args is None:  # all is done, and Ctrl-C would only break into the interpreter's end
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _main(args: Sequence[str] | None) -> int:
    try:
        try:
            return _run(list(sys.argv[1:] if args is None else args))
        finally:
            sys.stdout.flush()  # here, where an error can still be caught
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
        return NOBODY_READS
    except KeyboardInterrupt as stop:
        print("sbtrpo:", sentence(stop) or "interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # as Rich ends it
            return NOBODY_READS
        raise


def _declare_settings(arguments: list[str]) -> None:
    """Give the commands that take settings those of the methods at hand; for the others nobody waits for them."""
    global GridSettings
    runs.TrainSettings = train_settings(arguments) if arguments[:1] == ["train"] else NoSettings
    GridSettings = grid_settings(arguments) if arguments[:1] == ["benchmark"] else NoSettings


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print("sbtrpo", VERSION)
        return 0
    if arguments[:1] in (["train"], ["look"], ["demo"]) and len(arguments) > 1 and not arguments[1].startswith("-"):
        arguments.insert(1, "--task")  # the task may stand first
    if "" not in sys.path:
        sys.path.insert(0, "")  # a user's environments and methods may lie in the working directory
    about = "Reinforcement learning under hard safety constraints. `sbtrpo --version` tells which version this is."
    try:
        _declare_settings(arguments)
        code = app.cli(prog="sbtrpo", description=about, args=arguments)
    except BrokenPipeError:
        raise
    except (UserError, ValueError, OSError, ImportError, MemoryError) as error:
        print(*getattr(error, "__notes__", ()), f"sbtrpo: {in_a_sentence(error)}", sep="\n", file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0
