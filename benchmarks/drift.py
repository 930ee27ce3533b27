"""What growing statistics of observations do to a policy that nobody updates: two checkpoints of a run, crossed.

Networks see observations in units of a running mean and deviation, which grow with the run. So a policy does something
else in the same state from epoch to epoch, whatever its trust region allows. Here the policy of an epoch acts with the
statistics of its own epoch and with those of another one, on fresh worlds; `kl` is how far the latter move it, in the
measure of the trust region (mean over states and dimensions of actions).

    python benchmarks/drift.py RUN --epochs 38 50 --table results/drift.csv
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import torch

from sbtrpo.learning.recorder import checkpoints_of
from sbtrpo.learning.rollout import Rollout
from sbtrpo.learning.trainer import Trainer
from sbtrpo.nets.normaliser import units
from sbtrpo.runs.folder import RunFolder


def play(folder: RunFolder, policy: dict[str, Any], statistics: dict[str, Any], worlds: int) -> tuple[Trainer, Rollout]:
    """An episode's length in each world, with a policy that sees in units of these statistics and learns nothing."""
    size = {"num_envs": worlds, "steps_per_epoch": worlds, "total_steps": worlds}
    trainer = Trainer(folder.config.replace(**size, engine="cpu", device="cpu", seed=12_345, end_at_violation=False))
    trainer.policy.load_state_dict({**policy, "normaliser": statistics})
    trainer.policy.normaliser.learns = False
    trainer.collector.start()  # anew: what worlds showed before is in other units
    return trainer, trainer.collector.collect(trainer.collector.pool.spec.episode_length)


@torch.no_grad()
def moved(trainer: Trainer, rollout: Rollout, statistics: dict[str, Any]) -> float:
    """KL from a policy to itself in units of other statistics, over the states of its rollout."""
    policy, seen = trainer.policy, rollout.obs.flatten(0, 1)
    (mean, scale), (other_mean, other_scale) = units(policy.normaliser.state_dict()), units(statistics)
    other = torch.as_tensor((seen.numpy() * scale + mean - other_mean) / other_scale, dtype=seen.dtype)
    outputs = [(policy.mean(obs), policy.log_std) for obs in (seen, other)]
    return float(policy.head.kl(torch, *outputs).mean()) / policy.head.dimensions


def crossed(run: Path, epochs: list[int], worlds: int) -> list[dict[str, Any]]:
    """A row for each policy and statistics of these epochs."""
    rows: list[dict[str, Any]] = []
    with RunFolder.open(run) as folder:
        states = {epoch: checkpoints_of(folder).load(epoch)[1]["policy"] for epoch in epochs}
        for epoch, policy in states.items():
            for other in epochs:
                trainer, rollout = play(folder, policy, states[other]["normaliser"], worlds)
                episodes = rollout.episodes
                rows.append({
                    "task": folder.config.task, "advantage": folder.config.get("advantage"), "policy": epoch,
                    "statistics": other, "reward": episodes["return"].mean(), "cost": episodes["cost"].mean(),
                    "safety_probability": (episodes["cost"] == 0).mean(), "length": episodes["length"].mean(),
                    "kl": moved(trainer, rollout, policy["normaliser"]),
                })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("--epochs", type=int, nargs="+", required=True, help="of which there are checkpoints")
    parser.add_argument("--worlds", type=int, default=200, help="fresh worlds of each pair (default: %(default)s)")
    parser.add_argument("--table", type=Path, help="add the rows to this CSV file")
    arguments = parser.parse_args()
    rows = crossed(arguments.run, arguments.epochs, arguments.worlds)
    rows = [{key: f"{x:.4g}" if isinstance(x, float) else x for key, x in row.items()} for row in rows]
    for row in rows:
        print(", ".join(f"{key} {value}" for key, value in row.items()))
    if arguments.table:
        new = not arguments.table.exists()
        with arguments.table.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writerows([dict(zip(rows[0], rows[0], strict=True)), *rows] if new else rows)


if __name__ == "__main__":
    main()
