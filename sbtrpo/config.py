"""Settings of a training run: frozen dataclasses that are also the command line, the saved config and the docs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

Advantage = Literal["mc", "mc-linear", "gae-reward", "gae"]
Fidelity = Literal["paper", "corrected"]
KLReduction = Literal["mean_over_dims", "sum_over_dims"]


@dataclass(frozen=True)
class TrainConfig:
    """One training run; the defaults are the paper's."""

    task: str = "SafetyPointGoal2-v0"
    """Task id; `sbtrpo tasks` lists them."""
    algo: Literal["sb-trpo"] = "sb-trpo"
    seed: int = 0
    num_envs: int = 20
    """Worlds stepped together."""
    steps_per_epoch: int = 20_000
    """Environment steps between updates, over all worlds."""
    total_steps: int = 20_000_000
    cost_limit: float = 0.0
    """Recorded with the run; SB-TRPO knows no limit but zero."""

    beta: float = 0.75
    """Safety bias: the share of the best cost decrease that every step must keep, in [0, 1]."""
    advantage: Advantage = "mc"
    """mc: Monte Carlo returns, no critic (the paper's main results); gae-reward: a reward critic; gae: both critics;
    mc-linear: Monte Carlo returns minus a linear baseline fitted on the previous epoch."""
    solver: Literal["convex", "exact"] = "convex"
    """convex: the paper's combination of both steps; exact: the best reward step of the same cost decrease."""
    gamma: float = 0.99
    gae_lambda: float = 0.95
    target_kl: float = 0.01
    cg_iterations: int = 50
    cg_damping: float = 0.02
    cg_tolerance: float = 0.05
    """Conjugate gradients stop at this relative residual; 0 runs all iterations."""
    cg_epsilon: float = 0.0
    """Added to the denominators of conjugate gradients. The published code has 1e-6, which keeps small gradients from
    converging early in training: without it 16 iterations come nearer to the solution there than 50 with it."""
    line_search_tries: int = 100
    line_search_fraction: float = 0.8
    line_search_first: float = 1.0
    """First step tried, as a share of the full one; 0.8 is the literal reading of the paper's algorithm box."""
    kl_reduction: KLReduction | None = None
    """None: averaged over action dimensions for fidelity "paper", summed for "corrected"."""
    baseline_ridge: float = 1e-3
    """Of the linear baseline, relative to the mean square of its features."""

    hidden: tuple[int, ...] = (64, 64)
    critic_learning_rate: float = 1e-3
    critic_batch: int = 128
    critic_passes: int = 10
    critic_l2: float = 1e-3
    max_grad_norm: float = 40.0

    fidelity: Fidelity = "paper"
    """paper: quirks of the published code as they are; corrected: without them. Each is also a setting by itself."""
    bootstrap_raw_observation: bool | None = None
    """Whether critics judge time-outs on the raw last observation; None: yes for fidelity "paper"."""

    device: str = "cpu"
    """Where the learner's tensors live: cpu or cuda."""
    threads: int = 0
    """Threads of the simulator; 0 takes all cores."""
    keep_last: int = 2
    """Checkpoints kept from the end of the run."""
    keep_every: int = 100
    """One checkpoint in so many epochs is kept for good; 0 keeps none."""
    checkpoint_every: int = 1
    """Epochs between checkpoints: a kill loses at most so many."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return self.total_steps // self.steps_per_epoch

    @property
    def steps_per_world(self) -> int:
        """T, the steps of each world in an epoch."""
        return self.steps_per_epoch // self.num_envs

    def resolved(self) -> TrainConfig:
        """With every None replaced by what the fidelity says."""
        paper = self.fidelity == "paper"
        defaults: dict[str, Any] = {
            "kl_reduction": "mean_over_dims" if paper else "sum_over_dims",
            "bootstrap_raw_observation": paper,
        }
        return dataclasses.replace(self, **{k: v for k, v in defaults.items() if getattr(self, k) is None})

    def digest(self) -> str:
        """Eight letters that tell runs with other settings apart, the seed aside."""
        settings = {k: v for k, v in dataclasses.asdict(self).items() if k not in _OPERATIONAL}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


_OPERATIONAL = {"seed", "device", "threads", "keep_last", "keep_every", "checkpoint_every"}
"""Settings that do not change what a run computes, or are part of its folder's name already."""


def _check(config: TrainConfig) -> None:
    """Refuse what cannot be meant, in one sentence each."""

    def need(condition: bool, sentence: str) -> None:
        if not condition:
            raise ValueError(sentence)

    positive = ("num_envs", "steps_per_epoch", "total_steps", "cg_iterations", "line_search_tries", "critic_batch")
    for name in positive:
        need(getattr(config, name) >= 1, f"{name} must be at least 1, got {getattr(config, name)}")
    need(config.seed >= 0, f"seed must be at least 0, got {config.seed}")
    need(0 <= config.beta <= 1, f"beta must be between 0 (reward only) and 1 (cost only), got {config.beta}")
    need(config.cost_limit >= 0, f"cost_limit must be >= 0, got {config.cost_limit}; use 0 for a hard constraint")
    need(config.target_kl > 0, f"target_kl must be above 0, got {config.target_kl}")
    need(0 < config.gamma <= 1, f"gamma must be in (0, 1], got {config.gamma}")
    need(
        0 < config.line_search_fraction < 1,
        f"line_search_fraction must be in (0, 1), got {config.line_search_fraction}",
    )
    need(
        config.steps_per_epoch % config.num_envs == 0,
        f"steps_per_epoch must be a multiple of num_envs, got {config.steps_per_epoch} and {config.num_envs}",
    )
    need(
        config.total_steps >= config.steps_per_epoch,
        f"total_steps ({config.total_steps}) must hold at least one epoch of {config.steps_per_epoch} steps",
    )
    need(bool(config.hidden) and min(config.hidden) >= 1, f"hidden must name at least one layer, got {config.hidden}")
