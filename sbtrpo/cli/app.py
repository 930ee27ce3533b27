"""The command line: `sbtrpo --help` lists the commands. They import torch and more only when they run."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import Progress

from sbtrpo.cli.settings import NoSettings, checkpoint, given, grid_settings, train_settings
from sbtrpo.cli.streams import print_anything
from sbtrpo.cli.tables import evaluation_table, show_method, show_task, table_of
from sbtrpo.envs import describe
from sbtrpo.errors import UserError, alarms_in_a_line, in_a_sentence
from sbtrpo.files import check_writable, write_atomically

app = tyro.extras.SubcommandApp()
TrainSettings: Any = NoSettings
"""What `train` takes: the run's settings, and those of the method that the command line names."""
GridSettings: Any = NoSettings
"""What `benchmark` takes: the settings of all methods, as axes."""
NOBODY_READS, INTERRUPTED = 141, 130
"""Exit codes when the output's reader has left, as in `sbtrpo tasks | head`, and after Ctrl-C: what shells report."""


@app.command
def demo(task: str = "SafetyPointGoal2-v0", epochs: int = 60, seed: int = 0, out: Path = Path("demo")) -> None:
    """Look at a random policy, train SB-TRPO for a few minutes, and look at what became of it.

    Args:
        task: a task id; `sbtrpo tasks` lists them.
        epochs: of 20,000 steps each.
        seed: of worlds, network and noise.
        out: the folder for pictures and run; an earlier demo in it is replaced.
    """
    from sbtrpo.tools.demo import run_training_demo

    run_training_demo(task, epochs, seed, out)


@app.command
def look(task: str = "SafetyPointGoal2-v0", worlds: int = 20, seed: int = 0, out: Path = Path("look.png")) -> None:
    """Roll out a random policy, print its return, cost and safety, and draw the worlds from above.

    Args:
        task: a task id; `sbtrpo tasks` lists them.
        worlds: how many worlds step together.
        seed: of the worlds and of the actions.
        out: where the picture goes, a name that ends in .png.
    """
    from sbtrpo.tools.demo import run_demo

    run_demo(task, worlds, seed, out)


@app.command
def train(
    config: Annotated[TrainSettings, tyro.conf.arg(name="")],
    num_seeds: int = 1,
    out: Path | None = None,
    quiet: bool = False,
    wandb: bool = False,
) -> int:
    """Train a policy. The task may also stand first: `sbtrpo train SafetyPointGoal2-v0 --beta 0.8`.

    Args:
        config: the settings.
        num_seeds: runs with seeds `seed`, `seed` + 1000, ..., one after the other.
        out: the run's folder (a folder in it for each seed, if there are several).
        quiet: show nothing.
        wandb: also log to Weights & Biases.
    """
    from sbtrpo.config import TrainConfig
    from sbtrpo.learning import training
    from sbtrpo.runs.folder import RunFolder

    if num_seeds < 1:
        raise ValueError(f"num_seeds must be at least 1, got {num_seeds}")
    chosen = TrainConfig(**given(config))
    if idle := chosen.without_effect():
        verb = "changes" if len(idle) == 1 else "change"
        print(f"sbtrpo: {', '.join(idle)} {verb} nothing with advantage {chosen.method.advantage}", file=sys.stderr)
    for k in range(num_seeds):
        seeded = chosen.replace(seed=chosen.seed + 1000 * k)
        folder = out / f"seed{seeded.seed}" if out is not None and num_seeds > 1 else out
        path = training.train(seeded, folder, quiet, wandb)
        if not quiet:
            print(f"The run is in {path}")
        if not RunFolder.open(path).is_finished:
            return INTERRUPTED
    return 0


@app.command
def resume(
    run: tyro.conf.Positional[Path],
    quiet: bool = False,
    wandb: bool = False,
    engine: Literal["auto", "cpu", "gpu", "gpu-on-cpu"] | None = None,
) -> int:
    """Continue a stopped or killed run as if it had never stopped.

    Args:
        run: the run's folder.
        quiet: show nothing.
        wandb: also log to Weights & Biases.
        engine: what simulates the worlds from now on, cpu or gpu; as before if left out.
    """
    from sbtrpo.learning import training
    from sbtrpo.runs.folder import RunFolder

    return 0 if RunFolder.open(training.resume(run, quiet, wandb, engine)).is_finished else INTERRUPTED


@app.command
def evaluate(
    run: tyro.conf.Positional[Path],
    episodes: int = 100,
    seed: int = 7,
    deterministic: bool = False,
    which: str = "last",
    faulted: Literal["unsafe", "apart"] | None = None,
    engine: Literal["auto", "cpu", "gpu", "gpu-on-cpu"] = "auto",
    json_only: Annotated[bool, tyro.conf.arg(name="json")] = False,
    out: Path | None = None,
) -> None:
    """Evaluate a run's policy on fresh layouts, with frozen observation statistics.

    Args:
        run: the run's folder.
        episodes: how many.
        seed: of the layouts and of the policy's noise; take one that training did not use.
        deterministic: act by the policy's mean instead of sampling.
        which: the checkpoint: last, best, or an epoch's number.
        faulted: what episodes count as that a fault has cut: unsafe, or apart from all rates; as in training if left
            out.
        engine: what simulates the worlds: cpu, gpu, or the faster one for so many episodes.
        json_only: print JSON alone; otherwise a table, and the JSON goes into a file.
        out: the name of that file; by default evaluation.json in the run's folder.
    """
    from sbtrpo.envs.faults import alarm
    from sbtrpo.runs import evaluation
    from sbtrpo.runs.judgement import misleading

    if out is not None:
        check_writable(out)
    result = evaluation.evaluate(run, episodes, seed, deterministic, checkpoint(which), faulted=faulted, engine=engine)
    if sentence := alarm(result.faulted_episodes, result.episodes, result.faulted):
        print(f"sbtrpo: {sentence}", file=sys.stderr)
    text = json.dumps(result.as_dict(), indent=2)
    if json_only:
        print(text)
    else:
        Console().print(evaluation_table(result))
        if words := misleading(result.reward, result.safety_probability, result.safe_reward):
            print(words)
    if json_only and out is None:
        return
    target = out or run / "evaluation.json"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, (text + "\n").encode(), alone=False)
    except OSError as error:
        if out is not None:
            raise
        print(f"sbtrpo: {target} is not written ({error.strerror}); name another file with --out", file=sys.stderr)


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
def collect(runs: tyro.conf.Positional[Path], out: Path | None = None, quiet: bool = False) -> None:
    """Gather all runs below a folder into one tidy Parquet table, and print their final metrics.

    Args:
        runs: the folder.
        out: the table's name.
        quiet: print nothing.
    """
    from sbtrpo.benchmark import command

    command.collect_runs(runs, out, quiet)


@app.command
def report(
    runs: tyro.conf.Positional[Path], out: Path = Path("report"), watch: bool = False, interval: float = 30.0
) -> None:
    """Write the paper's tables and figures, a comparison with its numbers, and a page, from whatever runs exist.

    Args:
        runs: the folder of the runs, or the table that `sbtrpo collect` made of them.
        out: the report's folder.
        watch: refresh the report until Ctrl-C.
        interval: seconds between two looks, with `watch`.
    """
    from sbtrpo.benchmark.collect import collect as gather
    from sbtrpo.benchmark.collect import read_table
    from sbtrpo.report import build
    from sbtrpo.report import watch as keep_watching

    videos = None if runs.is_file() else runs

    def read() -> tuple[Any, list[str]]:
        if runs.is_file():
            return read_table(runs), []
        collected = gather(runs)
        return collected.table, collected.notes()

    if watch:
        keep_watching(read, out, videos, interval)
        return
    table, notes = read()
    written = build(table, out, videos, notes)
    for note in notes[1:]:
        print(note)
    for sentence in written.alarms:
        print(f"sbtrpo: {sentence}", file=sys.stderr)
    for warning in written.warnings:
        print(warning)
    for gap in written.skipped:
        print(f"left out: {gap.part}: {gap.why}")
    print(written.index)


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
) -> int:
    """Try an environment or a method, and tell what to change before training.

    Args:
        task: `my_package:MyEnv-v0`, or a task of this package.
        algo: a method of your own, such as `my_package:MyMethod` or `file.py:MyMethod`; it is tried on the task, or on
            ToyCorridor-v0.
        seconds: how long to try an environment.
        seed: of the episodes.
        engine: where to try a method: with gpu its tensors are on the GPU, and the task must be one that it simulates.
    """
    from sbtrpo.envs.foreign.check import check_environment

    if algo is not None:
        from sbtrpo.learning.check import check_method

        outcome = check_method(
            algo, seed, task or ("ToyCorridor-v0" if engine == "cpu" else "SafetyPointGoal1-v0"), engine
        )
    elif engine != "cpu":
        raise ValueError("--engine is for methods; an environment is tried on the CPU, so leave it out")
    elif task is not None:
        outcome = check_environment(task, seconds, seed)
    else:
        raise ValueError("name a task, or a method with --algo")
    for line in outcome.lines():
        print(line)
    return 0 if outcome.ok else 1


@app.command
def record(
    run: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RUN]")] = None,
    compare: tuple[Path, ...] = (),
    episodes: int = 3,
    seed: int = 7,
    out: Path | None = None,
    deterministic: bool = False,
    which: str = "last",
    width: int = 640,
    height: int = 480,
    speed: float = 2.0,
    camera: Literal["auto", "far", "top", "follow"] = "auto",
) -> None:
    """Film a run's policy, as MP4 and GIF; what costs flashes red.

    Args:
        run: the run's folder.
        compare: (further) runs on the same task, filmed side by side in the same layouts.
        episodes: how many, one after the other.
        seed: of the layouts and of the policy's noise.
        out: the name of the video; by default video.mp4 in the run's folder.
        deterministic: act by the policy's mean instead of sampling.
        which: the checkpoint: last, best, or an epoch's number.
        width: of one run's picture, in pixels.
        height: likewise.
        speed: how many times as fast as the simulated clock.
        camera: where to look from.
    """
    from sbtrpo.media import recording
    from sbtrpo.media.video import NO_ENCODER

    runs = [path for path in (run, *compare) if path is not None]
    if not runs:
        raise ValueError("name a run's folder, or several with --compare")
    with Progress(*Progress.get_default_columns(), transient=True) as bar:
        frames = bar.add_task("filming", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(frames, completed=done, total=total)

        films = recording.record(
            runs[0], episodes, seed, out, runs[1:], deterministic, checkpoint(which), width, height,
            speed=speed, camera=camera, progress=progress,
        )  # fmt: skip
    for path in films:
        print(path)
    if not any(path.suffix == ".mp4" for path in films):
        print(NO_ENCODER)


@app.command
def trajectories(
    run: tyro.conf.Positional[Path],
    episodes: int = 40,
    seed: int = 7,
    out: Path | None = None,
    deterministic: bool = False,
    which: str = "last",
) -> None:
    """Draw many episodes of a run's policy from above, safe ones and unsafe ones apart.

    Args:
        run: the run's folder.
        episodes: how many.
        seed: of the layouts and of the policy's noise.
        out: the name of the picture; by default trajectories.png in the run's folder.
        deterministic: act by the policy's mean instead of sampling.
        which: the checkpoint: last, best, or an epoch's number.
    """
    from sbtrpo.media.trajectories import draw_trajectories

    print(draw_trajectories(run, episodes, seed, out, deterministic, checkpoint(which)))


@app.command
def export(
    run: tyro.conf.Positional[Path],
    format: Literal["onnx", "torchscript"] = "onnx",
    out: Path | None = None,
    stochastic: bool = False,
    which: str = "last",
) -> None:
    """Write a run's policy, normaliser and scaling of actions included, as one file that needs nothing of this package.

    Args:
        run: the run's folder.
        format: onnx or torchscript.
        out: the file's name; by default policy.onnx or policy.pt in the run's folder.
        stochastic: sample actions from a second input, `noise`, instead of acting by the mean.
        which: the checkpoint: last, best, or an epoch's number.
    """
    from sbtrpo.runs import export as writer

    print(writer.export(run, format, out, not stochastic, checkpoint(which)))


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
    except KeyboardInterrupt:
        print("sbtrpo: interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # as Rich ends it
            return NOBODY_READS
        raise


def _declare_settings(arguments: list[str]) -> None:
    """Give the commands that take settings those of the methods at hand; for the others nobody waits for them."""
    global TrainSettings, GridSettings
    TrainSettings = train_settings(arguments) if arguments[:1] == ["train"] else NoSettings
    GridSettings = grid_settings(arguments) if arguments[:1] == ["benchmark"] else NoSettings


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["train"] and len(arguments) > 1 and not arguments[1].startswith("-"):
        arguments.insert(1, "--task")  # the task may stand first
    if "" not in sys.path:
        sys.path.insert(0, "")  # a user's environments and methods may lie in the working directory
    about = "Reinforcement learning under hard safety constraints."
    try:
        _declare_settings(arguments)
        code = app.cli(prog="sbtrpo", description=about, args=arguments)
    except BrokenPipeError:
        raise
    except (UserError, ValueError, OSError, ImportError, MemoryError) as error:
        print("sbtrpo:", in_a_sentence(error), file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0
