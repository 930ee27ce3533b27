"""How far growing statistics of observations move a policy between its updates, beside what the updates do.

Networks see observations in units of a running mean and deviation. Each epoch these grow by what was seen, and the
policy does something else in the same state, whatever the trust region allowed. Here runs of the published method tell
both: `kl` of the update and `statistics_kl` of the statistics over the same epoch, in the update's own measure.

    python benchmarks/drift.py SafetyHopperVelocity-v1 SafetySwimmerVelocity-v1 --epochs 50 --table results/drift.csv
    python benchmarks/drift.py SafetyHopperVelocity-v1 --worlds 400 --epochs 20 --advantage mc-linear
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbtrpo import Callback, TrainConfig, train
from sbtrpo.algorithms.base import Diagnostics
from sbtrpo.learning.callbacks import Run
from sbtrpo.learning.rollout import Rollout
from sbtrpo.nets.normaliser import Normaliser
from sbtrpo.runs.folder import RunFolder

COLUMNS = ("task", "worlds", "epoch", "reward", "safety_probability", "kl", "statistics_kl")


class Drift(Callback):
    """Adds `statistics_kl` to a run's numbers: KL of the policy in the units of an epoch's beginning to that in those
    of its end, over the epoch's states."""

    def on_epoch_begin(self, run: Run) -> None:
        self._before = _units(run)

    @torch.no_grad()
    def on_rollout(self, run: Run, rollout: Rollout) -> None:
        policy, seen = run.trainer.policy, rollout.obs.flatten(0, 1)
        (mean, scale), (new_mean, new_scale) = self._before, _units(run)
        earlier = ((seen * new_scale + new_mean - mean) / scale).to(seen.dtype)
        outputs = [(policy.mean(obs), policy.log_std) for obs in (earlier, seen)]
        self._kl = float(policy.head.kl(torch, *outputs).mean()) / policy.head.dimensions

    def on_update(self, run: Run, diagnostics: Diagnostics) -> None:
        diagnostics["statistics_kl"] = self._kl


def _units(run: Run) -> tuple[Tensor, Tensor]:
    """Mean and deviation of observations, as they are now."""
    now = run.trainer.policy.normaliser.state_dict()
    return torch.as_tensor(now["mean"]), torch.as_tensor(np.sqrt(now["var"] + Normaliser.EPSILON))


def measured(config: TrainConfig) -> list[dict[str, Any]]:
    """A row for each epoch of a run."""
    with tempfile.TemporaryDirectory() as folder:
        run = train(config, Path(folder) / "run", callbacks=Drift())
        metrics = RunFolder.open(run).metrics()
    fixed = {"task": config.task, "worlds": config.num_envs}
    return [fixed | {name: metrics[name][k] for name in COLUMNS[2:]} for k in range(1, config.epochs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", help="task ids")
    parser.add_argument("--worlds", type=int, default=20, help="each makes 1,000 steps an epoch (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=50, help="of each run (default: %(default)s)")
    parser.add_argument("--advantage", default="mc", help="the method's setting (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of each run (default: %(default)s)")
    parser.add_argument("--table", type=Path, help="add the rows to this CSV file")
    arguments = parser.parse_args()
    for task in arguments.tasks:
        steps = 1000 * arguments.worlds
        rows = measured(
            TrainConfig(
                task=task, num_envs=arguments.worlds, steps_per_epoch=steps, total_steps=arguments.epochs * steps,
                advantage=arguments.advantage, seed=arguments.seed, engine="cpu",
            )
        )  # fmt: skip
        for part in np.array_split(np.arange(len(rows)), 5):
            kl, drift = (float(np.median([rows[k][name] for k in part])) for name in ("kl", "statistics_kl"))
            print(f"{task}, epochs {part[0] + 2} to {part[-1] + 2}: median kl {kl:.2g}, statistics_kl {drift:.2g}")
        if arguments.table:
            new = not arguments.table.exists()
            with arguments.table.open("a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                if new:
                    writer.writeheader()
                writer.writerows({name: _short(row[name]) for name in COLUMNS} for row in rows)


def _short(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
