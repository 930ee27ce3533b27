"""The command line: `sbtrpo demo`, `sbtrpo tasks`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from sbtrpo.demo import run_demo
from sbtrpo.envs import get_spec, make_pool, task_ids
from sbtrpo.envs.layout import LayoutError
from sbtrpo.envs.spec import NavigationSpec, TaskSpec

app = tyro.extras.SubcommandApp()


@app.command
def demo(task: str = "SafetyPointGoal2-v0", worlds: int = 20, seed: int = 0, out: Path = Path("demo.png")) -> None:
    """Roll out a random policy, print its return, cost and safety, and draw the worlds from above.

    Args:
        task: a task id; `sbtrpo tasks` lists them.
        worlds: how many worlds step together.
        seed: of the worlds and of the actions.
        out: where the picture goes, a name that ends in .png.
    """
    run_demo(task, worlds, seed, out)


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
    if not isinstance(spec, NavigationSpec):
        return f"none; running faster than {spec.threshold} m/s*"
    return ", ".join(
        (f"{group.count} " if group.count > 1 else "") + group.kind.replace("_", " ") + ("*" if group.cost else "")
        for group in spec.groups
    )


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        app.cli(prog="sbtrpo", description="Reinforcement learning under hard safety constraints.", args=args)
    except (ValueError, LayoutError, OSError) as error:
        print("sbtrpo:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0
