"""How good and how safe a trained policy is: many fresh episodes, frozen statistics, intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from sbtrpo.envs import make_pool
from sbtrpo.envs.foreign.environment import is_foreign
from sbtrpo.nets.policy import Policy
from sbtrpo.runs.checkpoint import CheckpointStore
from sbtrpo.runs.folder import RunFolder
from sbtrpo.runs.intervals import clopper_pearson_upper, wilson_interval

WORLDS, FOREIGN_WORLDS = 200, 20
"""The most worlds that play at once; a foreign environment is a simulator of its own."""


@dataclass(frozen=True)
class Evaluation:
    """The result of many episodes."""

    task: str
    episodes: int
    deterministic: bool
    reward: float
    reward_std: float
    cost: float
    cost_std: float
    safety_probability: float
    """Share of the episodes without cost."""
    safety_probability_interval: tuple[float, float]
    """Wilson's interval at 95 %."""
    violation_probability_upper: float
    """Clopper and Pearson's one-sided upper bound at 95 %."""
    safe_reward: float
    """Mean reward, unsafe episodes counting 0."""
    length: float
    faults: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def load_policy(run: str | Path, which: Literal["last", "best"] | int = "last") -> Policy:
    """The policy of a run's checkpoint, with the observation statistics it was trained with.

    >>> import tempfile, numpy as np
    >>> from sbtrpo import TrainConfig, train
    >>> config = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=200)
    >>> policy = load_policy(train(config, out=tempfile.mkdtemp(), quiet=True))
    >>> policy.act(np.zeros((3, 2)), deterministic=True).shape
    (3, 2)
    """
    folder = RunFolder.open(run)
    config = folder.config
    _, state = CheckpointStore(folder.checkpoints).load(which)
    saved = state["policy"]
    inputs, actions, discrete = saved["params"][1].shape[1], len(saved["params"][-1]), not len(saved["params"][0])
    policy = Policy(inputs, actions, config.hidden, torch.Generator(), discrete=discrete)
    policy.load_state_dict(saved)
    return policy


def evaluate(
    run: str | Path,
    episodes: int = 100,
    seed: int = 7,
    deterministic: bool = False,
    which: Literal["last", "best"] | int = "last",
    threads: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Evaluate a run's policy on fresh layouts, all worlds in parallel.

    Every world contributes the same number of its first episodes, so that short episodes do not count for more.

    Args:
        run: the run's folder.
        episodes: how many.
        seed: of the layouts and of the policy's noise; take one that training did not use.
        deterministic: act by the policy's mean.
        which: the last checkpoint, the best one, or that of an epoch.
        threads: of the simulator; 0 takes all cores.
        progress: told the number of finished episodes from time to time.

    >>> import tempfile
    >>> from sbtrpo import TrainConfig, train
    >>> config = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=200)
    >>> evaluate(train(config, out=tempfile.mkdtemp(), quiet=True), episodes=10).episodes
    10
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    policy, task = load_policy(run, which), RunFolder.open(run).config.task
    found, faults = play(policy, task, episodes, seed, deterministic, threads, progress)
    unsafe = int((found["cost"] > 0).sum())
    return Evaluation(
        task=task,
        episodes=episodes,
        deterministic=deterministic,
        reward=float(found["return"].mean()),
        reward_std=float(found["return"].std()),
        cost=float(found["cost"].mean()),
        cost_std=float(found["cost"].std()),
        safety_probability=1 - unsafe / episodes,
        safety_probability_interval=wilson_interval(episodes - unsafe, episodes),
        violation_probability_upper=clopper_pearson_upper(unsafe, episodes),
        safe_reward=float((found["return"] * (found["cost"] == 0)).mean()),
        length=float(found["length"].mean()),
        faults=faults,
    )


def play(
    policy: Policy, task: str, episodes: int, seed: int, deterministic: bool, threads: int = 0,
    progress: Callable[[int], None] | None = None,
) -> tuple[dict[str, NDArray[Any]], int]:  # fmt: skip
    """Whole episodes of a policy: return, cost and length of each, and the number of worlds that failed."""
    worlds = FOREIGN_WORLDS if is_foreign(task) else WORLDS
    pool = make_pool(task, min(episodes, worlds), seed, threads=threads)
    obs, _ = pool.reset()
    share = -(-episodes // pool.num_worlds)
    noise = torch.Generator().manual_seed(seed)
    done = np.zeros(pool.num_worlds, np.int64)
    found: dict[str, list[tuple[int, int, float]]] = {"return": [], "cost": [], "length": []}
    while (done < share).any():
        obs, _, _, _, _, info = pool.step(policy.act(obs, deterministic, generator=noise))
        if "episode" in info:
            for world in np.flatnonzero(info["_episode"] & (done < share)):
                for name, values in found.items():
                    values.append((int(done[world]), int(world), float(info["episode"][name][world])))
                done[world] += 1
            if progress is not None:
                progress(int(done.sum()))
    # The first ones of every world, then the second ones, ...: as many as were asked for.
    return {name: np.asarray([x for _, _, x in sorted(rows)][:episodes]) for name, rows in found.items()}, pool.faults
