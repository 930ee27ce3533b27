"""Made-up benchmarks: curves that end where the paper's table says, with noise, in the columns of the tidy table."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow

from sbtrpo.report import paper

STEPS_PER_EPOCH = 20_000
NASTY = "<script>alert('x')</script>|$\\frac{_%&~^#`*"
"""A task id from a run's folder that nobody should trust."""


def run(
    task: str, algo: str, seed: int = 0, epochs: int = 30, total_epochs: int | None = None, **settings: Any
) -> dict[str, Any]:
    """The columns of one run."""
    name = f"{task}/{algo}/seed{seed}-{epochs}" + "".join(f"-{key}{value}" for key, value in sorted(settings.items()))
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    cells = paper.main().get(algo, paper.main()["cpo"]).get(task)
    means = (
        {m: cells[m].mean for m in paper.METRICS} if cells else dict(zip(paper.METRICS, (1, 0.7, 2, 9), strict=True))
    )
    shift = 1 + 0.5 * (0.75 - settings.get("beta", 0.75)) * 4
    epoch = np.arange(1, epochs + 1)
    rise = 1 - np.exp(-4 * epoch / epochs)
    noise = lambda: 1 + 0.15 * rng.standard_normal(epochs)  # noqa: E731
    spikes = (rng.random(epochs) < 0.03) * 40.0
    cost = np.maximum(0, means["cost"] * shift * noise() + 90 * np.exp(-12 * epoch / epochs) + spikes)
    safety = np.clip(means["safety_probability"] / shift**0.3 * rise * noise() - spikes / 100, 0, 1)
    return {
        "run": [name] * epochs,
        "task": [task] * epochs,
        "algo": [algo] * epochs,
        "seed": np.full(epochs, seed),
        "total_steps": np.full(epochs, (total_epochs or epochs) * STEPS_PER_EPOCH),
        **{
            key: [value] * epochs
            for key, value in {"beta": None, "cost_limit": 0.0, "advantage": None, **settings}.items()
        },
        "epoch": epoch,
        "steps": epoch * STEPS_PER_EPOCH,
        "reward": means["reward"] * shift * rise * noise() - 0.5 * (1 - rise),
        "cost": cost,
        "safety_probability": safety,
        "safe_reward": means["safe_reward"] * shift * rise * noise(),
        "update_seconds": 0.2 + 0.05 * rng.random(epochs),
        "accepted_step": np.where(rng.random(epochs) < 0.05, 0.0, 1.0),
        "angle_r": np.clip(rng.normal({"sb-trpo": 70, "cpo": 92}.get(algo, 95), 8, epochs), 0, 180),
        "angle_c": np.clip(rng.normal({"sb-trpo": 65, "cpo": 40}.get(algo, 35), 6, epochs), 0, 180),
        "surrogate_r_change": 0.01 * noise(),
        "surrogate_c_change": -0.05 * noise(),
        "surrogate_r_predicted": 0.009 * noise(),
        "surrogate_c_predicted": -0.06 * noise(),
        "kl": 0.004 * noise(),
        "kl_predicted": 0.0042 * noise(),
        "kl_predicted_damped": 0.0065 * noise(),
    }


def table(runs: Sequence[dict[str, Any]]) -> pyarrow.Table:
    """All of them in one table."""
    return pyarrow.concat_tables([pyarrow.table(one) for one in runs], promote_options="permissive")


def benchmark(
    tasks: Sequence[str], algos: Sequence[str], seeds: int = 2, epochs: int = 30, studies: bool = True
) -> pyarrow.Table:
    """All methods on all tasks, and the paper's studies on some of them."""
    runs = [run(task, algo, 1000 * k, epochs) for task in tasks for algo in algos for k in range(seeds)]
    if studies:
        button, circle = "SafetyPointButton2-v0", "SafetyCarCircle2-v0"
        for k in range(seeds):
            runs += [run(button, "sb-trpo", 1000 * k, epochs, beta=beta) for beta in (0.6, 0.7, 0.8, 0.9)]
            runs += [run(circle, algo, 1000 * k, epochs, cost_limit=15.0) for algo in ("cpo", "c_trpo")]
            runs.append(run(circle, "sb-trpo_critic", 1000 * k, epochs, advantage="gae", beta=0.8))
            runs.append(run(circle, "crpo", 1000 * k, epochs))
        runs.append(run(button, "sb-trpo", 0, int(2.25 * epochs)))
    return table(runs)
