"""The commands that train: `sbtrpo train` and `sbtrpo resume`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from sbtrpo.cli.settings import NoSettings, given

TrainSettings: Any = NoSettings
"""What `train` takes: the run's settings, and those of the method that the command line names."""
INTERRUPTED = 130
"""Exit code after Ctrl-C: what shells report."""


def train(
    settings: Annotated[TrainSettings, tyro.conf.arg(name="")],
    config: Path | None = None,
    num_seeds: int = 1,
    out: Path | None = None,
    quiet: bool = False,
    wandb: bool = False,
) -> int:
    """Train a policy. The task may also stand first: `sbtrpo train SafetyPointGoal2-v0 --beta 0.8`.

    Args:
        settings: of the run.
        config: a file to take settings from: the config.toml of a run, or a plan of which the flags leave one run, the
            seed aside. Flags come before it.
        num_seeds: runs with seeds `seed`, `seed` + 1000, ..., one after the other.
        out: the run's folder (a folder in it for each seed, if there are several).
        quiet: show nothing.
        wandb: also log to Weights & Biases.
    """
    from sbtrpo.learning import training
    from sbtrpo.runs.folder import RunFolder

    if num_seeds < 1:
        raise ValueError(f"num_seeds must be at least 1, got {num_seeds}")
    chosen = settings.base.replace(**given(settings))
    idle = chosen.without_effect()
    for reason in dict.fromkeys(idle.values()):
        names = [name for name in idle if idle[name] == reason]
        verb = "changes" if len(names) == 1 else "change"
        print(f"sbtrpo: {', '.join(names)} {verb} nothing with {reason} {chosen.get(reason)}", file=sys.stderr)
    for k in range(num_seeds):
        seeded = chosen.replace(seed=chosen.seed + 1000 * k)
        folder = out / f"seed{seeded.seed}" if out is not None and num_seeds > 1 else out
        path = training.train(seeded, folder, quiet, wandb)
        if not quiet:
            print(f"The run is in {path}")
        if not RunFolder.open(path).is_finished:
            return INTERRUPTED
    return 0


def resume(
    run: tyro.conf.Positional[Path],
    total_steps: int | None = None,
    quiet: bool = False,
    wandb: bool = False,
    engine: Literal["auto", "cpu", "gpu", "gpu-on-cpu"] | None = None,
    grow_by: Literal["steps", "worlds"] | None = None,
    device: str | None = None,
) -> int:
    """Continue a stopped or killed run as if it had never stopped, or make a finished one longer.

    Args:
        run: the run's folder.
        total_steps: a new length of the run, in steps from its beginning. What a method lets fall or grow over a run,
            such as a learning rate, follows the new length from here on.
        quiet: show nothing.
        wandb: also log to Weights & Biases.
        engine: what simulates the worlds from now on, cpu or gpu; as before if left out.
        grow_by: worlds, where epochs grow: from now on longer ones have more worlds, and those that there are go on.
        device: where the learner is from now on, auto, cpu or cuda, and with engine auto the worlds, too; as before if
            left out.
    """
    from sbtrpo.learning import training
    from sbtrpo.runs.folder import RunFolder

    path = training.resume(run, quiet, wandb, engine, total_steps, grow_by=grow_by, device=device)
    return 0 if RunFolder.open(path).is_finished else INTERRUPTED
