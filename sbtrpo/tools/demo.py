"""The demo: a random policy in many worlds, then a trained one, with numbers, curves and pictures from above."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from sbtrpo.config import TrainConfig
from sbtrpo.envs import Pool, make_pool
from sbtrpo.envs.arrays import to_numpy
from sbtrpo.envs.streams import Floats
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.errors import UserError
from sbtrpo.learning.training import train
from sbtrpo.runs.claims import Claim
from sbtrpo.runs.evaluation import Evaluation, evaluate, load_policy

Act = Callable[[Any], Any]
"""Actions (N, action_dim) for observations (N, obs_dim)."""


class Tracks:
    """The layouts and the robots' paths in the first episodes of a pool, for a picture from above."""

    def __init__(self, task: Navigation) -> None:
        self._worlds, self.spec = task.worlds, task.spec
        self.objects: Floats = np.array(to_numpy(task.worlds.objects))
        """(N, M, 3) positions of the objects when the episodes begin."""
        self.trails: Floats = np.full((task.spec.episode_length, len(self.objects), 2), np.nan)
        """(episode length, N, 2) positions of the robots before each step; NaN once a world's episode is over."""

    def record(self, step: int, running: NDArray[np.bool_]) -> None:
        """Note where the robots of the running worlds are.

        This must be called before the step, because the step that ends an episode also begins the next one.
        """
        self.trails[step, running] = to_numpy(self._worlds.position)[running, :2]


@dataclass(frozen=True)
class FirstEpisodes:
    """The first episode of every world of a pool."""

    returns: Floats
    """(N,)"""
    costs: Floats
    """(N,)"""
    steps_per_second: float
    """Environment steps, summed over all worlds."""
    tracks: Tracks | None
    """None for tasks without a layout."""

    @property
    def safety_probability(self) -> float:
        """Share of the episodes that cost nothing."""
        return float(np.mean(self.costs == 0))


TASK = "SafetyCarCircle2-v0"
"""Of the training demo: here a random policy mostly violates, and some minutes of training change that."""
EPISODES = 100
"""Fresh ones, in which the random policy and the trained one are compared."""


def run_demo(
    task: str = "SafetyPointGoal2-v0",
    worlds: int = 20,
    seed: int = 0,
    out: str | Path = "demo.png",
    console: Console | None = None,
) -> FirstEpisodes:
    """Roll out a random policy for one episode in every world; print what happened and save a picture.

    Args:
        task: a task id (see `sbtrpo.task_ids()`).
        worlds: how many worlds step together.
        seed: seeds the worlds and the actions.
        out: the picture's file name, which ends in .png.
        console: where the text goes; standard output if left out.
    """
    out = Path(out)
    if out.suffix.lower() != ".png":  # before the episode, so that nobody waits for this error
        raise ValueError(f"the picture is a PNG; let its name end in .png, got {str(out)!r}")
    return _show("a random policy", _random(task, seed), task, worlds, seed, out, console or Console())


def _random(task: str, seed: int) -> Act:
    """A policy that draws actions from all of the task's alike."""
    space: Any = make_pool(task, 1, seed).single_action_space
    rng = np.random.default_rng(seed)

    def act(obs: Any) -> Any:
        if isinstance(space, Discrete):
            return rng.integers(space.n, size=len(obs))
        return rng.uniform(space.low, space.high, (len(obs), *space.shape))

    return act


def _show(who: str, act: Act, task: str, worlds: int, seed: int, out: Path, console: Console) -> FirstEpisodes:
    """Roll out a policy for one episode in every world; print what happened and save a picture."""
    pool = make_pool(task, worlds, seed)
    length = pool.spec.episode_length
    console.print(f"{task}: {who} in {worlds} worlds, one episode of at most {length} steps each", soft_wrap=True)
    with _progress(console) as progress:
        bar = progress.add_task("stepping", total=length)
        episodes = roll_out(pool, seed, act, lambda: progress.advance(bar))
        progress.update(bar, completed=length)
    console.print(summary(episodes))
    if pool.faults:
        console.print(f"{pool.faults} simulations failed; their episodes were cut short and their worlds reset.")
    if episodes.tracks is None:
        console.print(f"There is no picture from above for {task}: it has no layout.", soft_wrap=True)
    else:
        _save_picture(episodes.tracks, episodes, f"{task}: {who}, seed {seed}", out)
        console.print(f"Saved the worlds from above as {out}", soft_wrap=True, highlight=False, markup=False)
    return episodes


def run_training_demo(
    task: str = TASK,
    epochs: int = 60,
    seed: int = 0,
    out: str | Path = "demo",
    console: Console | None = None,
) -> Path:
    """Show a random policy, train one with SB-TRPO for a while, show it, and compare; returns the run's folder.

    Writes to `out`: `random.png` and `trained.png` (20 worlds from above), `curves.png`, and the run.

    Args:
        task: a task id (see `sbtrpo.task_ids()`).
        epochs: how many, each with 20,000 steps.
        seed: seeds worlds, network and noise.
        out: a folder; an earlier demo there is replaced.
        console: where the text goes; standard output if left out.
    """
    if epochs < 1:
        raise UserError(f"epochs must be at least 1, got {epochs}")
    console, out = console or Console(), Path(out)
    config = TrainConfig(task=task, seed=seed, algo="sb-trpo_late_hits", total_steps=epochs * 20_000)
    before = run_demo(task, 20, seed, out / "random.png", console)
    # An epoch has a rollout at the random policy's speed, and an update that takes about half of that time.
    minutes = 1.6 * config.total_steps / before.steps_per_second / 60
    console.print(
        f"\nNow {_count(epochs, 'epoch')} of {config.label}, {config.total_steps:,} steps"
        " (the paper's runs have 20,000,000):"
        f" about {_count(max(1, round(minutes)), 'minute')} on this machine. Ctrl-C ends it early.",
        soft_wrap=True,
    )
    with Claim(out / "run"):  # another demo may be at work there
        shutil.rmtree(out / "run")
    run = train(config, out / "run")
    if not (run / "metrics.csv").exists():
        raise KeyboardInterrupt
    policy = load_policy(run)
    console.print()
    epochs_done = len((run / "metrics.csv").read_bytes().splitlines()) - 1  # Ctrl-C may have ended the training early
    noise = torch.Generator().manual_seed(seed)
    _show(
        f"{config.label} after {_count(epochs_done, 'epoch')}",
        lambda obs: policy.act_in_pool(obs, False, noise),
        task, 20, seed + 1, out / "trained.png", console,
    )  # fmt: skip
    if (run / "curves.png").exists():
        shutil.copy(run / "curves.png", out / "curves.png")
    chance, trained = (evaluate(policy, EPISODES, seed + 2, task=task) for policy in (_random(task, seed + 2), run))
    console.print(gained(chance, trained), soft_wrap=True)
    console.print(f"See {out}/curves.png, {out}/random.png and {out}/trained.png.", soft_wrap=True, highlight=False)
    return run


def gained(before: Evaluation, after: Evaluation) -> str:
    """What training has changed, in one line."""
    pairs = [
        (name, getattr(before, field), getattr(after, field))
        for name, field in (("cost", "cost"), ("reward", "reward"), ("safe reward", "safe_reward"))
    ]
    return (
        f"Before and after, in {before.episodes} fresh episodes each: safety probability"
        f" {' -> '.join(map(_with_interval, (before, after)))}, 95 % intervals in brackets; "
        + ", ".join(f"{name} {first:z.2f} -> {last:z.2f}" for name, first, last in pairs)
        + "."
    )


def _with_interval(found: Evaluation) -> str:
    low, high = found.safety_probability_interval
    return f"{found.safety_probability:.2f} ({low:.2f} to {high:.2f})"


def roll_out(pool: Pool, seed: int, act: Act, after_step: Callable[[], None] = lambda: None) -> FirstEpisodes:
    """Play the first episode of every world; `after_step` is called after each step."""
    obs, _ = pool.reset(seed)
    n = pool.num_worlds
    tracks = Tracks(pool.task) if isinstance(pool.task, Navigation) else None
    returns, costs = np.full(n, np.nan), np.full(n, np.nan)
    running = np.ones(n, dtype=bool)
    steps, start = 0, time.perf_counter()
    while running.any():
        if tracks is not None:
            tracks.record(steps, running)
        obs, *_, info = pool.step(act(obs))
        steps += 1
        if "_episode" in info:
            first = running & to_numpy(info["_episode"])
            returns[first] = to_numpy(info["episode"]["return"])[first]
            costs[first] = to_numpy(info["episode"]["cost"] + info["fault"])[first]  # a fault costs 1
            running &= ~first
        after_step()
    return FirstEpisodes(returns, costs, n * steps / (time.perf_counter() - start), tracks)


def summary(episodes: FirstEpisodes) -> Table:
    """The numbers that the demo prints."""
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("mean return", f"{episodes.returns.mean():z.2f}")
    table.add_row("mean cost", f"{episodes.costs.mean():z.2f}")
    table.add_row("safety probability", f"{episodes.safety_probability:.2f}")
    table.add_row("environment steps per second", f"{episodes.steps_per_second:.0f}")
    return table


def _progress(console: Console) -> Progress:
    """A progress bar in a terminal; nothing in a pipe or a file."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _save_picture(tracks: Tracks, episodes: FirstEpisodes, title: str, out: Path) -> None:
    from sbtrpo.envs.view.topdown import draw_worlds  # here, so that matplotlib delays no first step

    out.parent.mkdir(parents=True, exist_ok=True)
    draw_worlds(tracks.spec, tracks.objects, tracks.trails, episodes.returns, episodes.costs, out, title)


def _count(number: int, of: str) -> str:
    return f"{number} {of}{'s' * (number != 1)}"
