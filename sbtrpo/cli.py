"""The command line: `sbtrpo train`, `resume`, `evaluate`, `tasks`, `algorithms`, `demo`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sbtrpo import algorithm_docs, catalogue, evaluation, training
from sbtrpo.checkpoint import DamagedCheckpoint
from sbtrpo.config import TrainConfig
from sbtrpo.demo import run_demo, run_training_demo
from sbtrpo.envs import get_spec, make_pool, task_ids
from sbtrpo.envs.layout import LayoutError
from sbtrpo.envs.spec import CorridorSpec, TaskSpec, VelocitySpec
from sbtrpo.training import TrainingError

app = tyro.extras.SubcommandApp()


@app.command
def demo(task: str = "SafetyPointGoal2-v0", epochs: int = 60, seed: int = 0, out: Path = Path("demo")) -> None:
    """Look at a random policy, train SB-TRPO for a few minutes, and look at what became of it.

    Args:
        task: a task id; `sbtrpo tasks` lists them.
        epochs: of 20,000 steps each.
        seed: of worlds, network and noise.
        out: the folder for pictures and run; an earlier demo in it is replaced.
    """
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
    run_demo(task, worlds, seed, out)


@app.command
def train(
    config: Annotated[TrainConfig, tyro.conf.arg(name="")],
    num_seeds: int = 1,
    out: Path | None = None,
    quiet: bool = False,
    wandb: bool = False,
) -> None:
    """Train a policy. The task may also stand first: `sbtrpo train SafetyPointGoal2-v0 --beta 0.8`.

    Args:
        config: the settings.
        num_seeds: runs with seeds `seed`, `seed` + 1000, ..., one after the other.
        out: the run's folder (a folder in it for each seed, if there are several).
        quiet: show nothing.
        wandb: also log to Weights & Biases.
    """
    if num_seeds < 1:
        raise ValueError(f"num_seeds must be at least 1, got {num_seeds}")
    for k in range(num_seeds):
        one = dataclasses.replace(config, seed=config.seed + 1000 * k)
        folder = out / f"seed{one.seed}" if out is not None and num_seeds > 1 else out
        path = training.train(one, folder, quiet, wandb)
        if not quiet:
            print(f"The run is in {path}")


@app.command
def resume(run: tyro.conf.Positional[Path], quiet: bool = False, wandb: bool = False) -> None:
    """Continue a stopped or killed run as if it had never stopped.

    Args:
        run: the run's folder.
        quiet: show nothing.
        wandb: also log to Weights & Biases.
    """
    training.resume(run, quiet, wandb)


@app.command
def evaluate(
    run: tyro.conf.Positional[Path],
    episodes: int = 100,
    seed: int = 7,
    deterministic: bool = False,
    which: str = "last",
    json_only: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Evaluate a run's policy on fresh layouts, with frozen observation statistics.

    Args:
        run: the run's folder.
        episodes: how many.
        seed: of the layouts and of the policy's noise; take one that training did not use.
        deterministic: act by the policy's mean instead of sampling.
        which: the checkpoint: last, best, or an epoch's number.
        json_only: print JSON alone; otherwise a table, and the JSON goes into the run's folder.
    """
    checkpoint: Any = int(which) if which.isdigit() else which
    if checkpoint not in ("last", "best") and not which.isdigit():
        raise ValueError(f"which must be last, best or an epoch's number, got {which!r}")
    found = evaluation.evaluate(run, episodes, seed, deterministic, checkpoint)
    text = json.dumps(found.as_dict(), indent=2)
    if json_only:
        print(text)
        return
    (run / "evaluation.json").write_text(text + "\n")
    Console().print(_evaluation_table(found))


def _evaluation_table(found: evaluation.Evaluation) -> Table:
    how = "mean action" if found.deterministic else "sampled actions"
    table = Table(box=box.SIMPLE_HEAD, title=f"{found.task}: {found.episodes} fresh episodes, {how}")
    table.add_column("measure")
    table.add_column("value", justify="right")
    low, high = found.safety_probability_interval
    table.add_row("reward", f"{found.reward:.3f} ± {found.reward_std:.3f}")
    table.add_row("cost", f"{found.cost:.3f} ± {found.cost_std:.3f}")
    table.add_row("safety probability", f"{found.safety_probability:.3f} (95 %: {low:.3f} to {high:.3f})")
    table.add_row("safe reward", f"{found.safe_reward:.3f}")
    table.add_row("violation probability, 95 % upper bound", f"{found.violation_probability_upper:.3f}")
    table.add_row("worlds that failed", str(found.faults))
    return table


@app.command
def tasks() -> None:
    """List the tasks: sizes, episode length, objects, and what costs."""
    table = Table(box=box.SIMPLE_HEAD, title="sizes of observation and action, steps of an episode; * costs")
    table.add_column("task", no_wrap=True)
    for name in ("obs", "act", "steps"):
        table.add_column(name, justify="right")
    table.add_column("objects")
    for task in task_ids():
        spec, pool = get_spec(task), make_pool(task, num_worlds=1)
        observation, action = pool.single_observation_space.shape[0], pool.single_action_space.shape[0]
        table.add_row(task, str(observation), str(action), str(spec.episode_length), _objects(spec))
    Console().print(table)


def _objects(spec: TaskSpec) -> str:
    """What stands in a task's worlds, with a star at what costs."""
    if isinstance(spec, CorridorSpec):
        return "a strip*"
    if isinstance(spec, VelocitySpec):
        return f"none; running faster than {spec.threshold} m/s*"
    return ", ".join(
        (f"{group.count} " if group.count > 1 else "") + group.kind.replace("_", " ") + ("*" if group.cost else "")
        for group in spec.groups
    )


@app.command
def algorithms(name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[NAME]")] = None) -> None:
    """List the algorithms, or show one: what it does, its settings, and the quirks of its published code.

    Args:
        name: of an algorithm; hyphens and underscores are alike.
    """
    console = Console(highlight=False)
    if name is None:
        title = "`sbtrpo algorithms <name>` shows the settings of one"
        console.print(_listing_table(algorithm_docs.methods(), title))
        return
    method = catalogue.method(name)
    console.print(f"[bold]{escape(method.title)}[/bold] ({escape(method.name)}): {escape(method.summary)}")
    console.print(f"Source: {escape(method.source)}")
    console.print(_listing_table(algorithm_docs.settings(method), "settings, as of fidelity paper"))
    console.print(_listing_table(algorithm_docs.quirks(method), "what fidelity decides"))


def _listing_table(listing: algorithm_docs.Listing, title: str) -> Table:
    """Names in one piece, all else as wide as the terminal allows."""
    table = Table(box=box.SIMPLE_HEAD, title=title)
    for k, column in enumerate(listing.columns):
        table.add_column(column, no_wrap=k == 0)
    for row in listing.rows:
        table.add_row(*map(escape, row))
    return table


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if args is None else args)
    if arguments[:1] == ["train"] and len(arguments) > 1 and not arguments[1].startswith("-"):
        arguments.insert(1, "--task")  # the task may stand first
    try:
        app.cli(prog="sbtrpo", description="Reinforcement learning under hard safety constraints.", args=arguments)
    except (ValueError, LayoutError, TrainingError, DamagedCheckpoint, OSError) as error:
        print("sbtrpo:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0
