"""Settings of a training run: frozen dataclasses that are also the command line, the saved config and the docs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypeVar

from sbtrpo.config.catalogue import method

Advantage = Literal["mc", "mc-linear", "gae-reward", "gae"]
Fidelity = Literal["paper", "corrected"]
KLReduction = Literal["mean_over_dims", "sum_over_dims"]

T = TypeVar("T")
if TYPE_CHECKING:  # algorithms see resolved settings only, in which nothing is left open
    Own = Annotated[T, "None leaves it to the algorithm"]
else:
    Own = Optional
OWN: Any = None


@dataclass(frozen=True)
class TrainConfig:
    """One training run. What is None takes the algorithm's own value: the paper's, but for SB-TRPO's `cg_tolerance`."""

    task: str = "SafetyPointGoal2-v0"
    """Task id; `sbtrpo tasks` lists them."""
    algo: str = "sb-trpo"
    """`sbtrpo algorithms` lists them; hyphens and underscores are alike."""
    seed: int = 0
    num_envs: int = 20
    """Worlds stepped together."""
    steps_per_epoch: int = 20_000
    """Environment steps between updates, over all worlds."""
    total_steps: int = 20_000_000
    cost_limit: float = 0.0
    """On an episode's cost, for the methods that have one; SB-TRPO knows no limit but zero."""

    beta: Own[float] = OWN
    """SB-TRPO's safety bias: the share of the best cost decrease that every step must keep, in [0, 1]."""
    advantage: Own[Advantage] = OWN
    """mc: Monte Carlo returns, no critic (the paper's main results); gae-reward: a reward critic; gae: both critics;
    mc-linear: Monte Carlo returns minus a linear baseline fitted on the previous epoch."""
    solver: Own[Literal["convex", "exact"]] = OWN
    """SB-TRPO's. convex: the paper's combination of both steps; exact: the best reward step of the same cost
    decrease."""
    gamma: float = 0.99
    """Discount of reward and of cost."""
    gae_lambda: float = 0.95
    """Of generalised advantage estimates, for reward and for cost."""
    baseline_ridge: float = 1e-3
    """Of the linear baseline, relative to the mean square of its features."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers, of policy and critics."""

    target_kl: Own[float] = OWN
    """Radius of the trust region; first-order methods stop their passes beyond it."""
    cg_iterations: Own[int] = OWN
    """The most iterations of conjugate gradients."""
    cg_damping: Own[float] = OWN
    """Added to the Fisher matrix's diagonal."""
    cg_tolerance: Own[float] = OWN
    """Conjugate gradients stop at this relative residual; 0 runs all iterations."""
    line_search_tries: Own[int] = OWN
    """The most steps tried; if none is acceptable, the policy stays."""
    line_search_fraction: float = 0.8
    """By which a step shrinks from one try to the next."""
    line_search_first: float = 1.0
    """First step tried, as a share of the full one; 0.8 is the literal reading of the paper's algorithm box."""

    learning_rate: Own[float] = OWN
    """Of first-order methods' policies; falls linearly to 0 over the run."""
    policy_batch: Own[int] = OWN
    """Samples in a minibatch of the policy's passes."""
    policy_passes: Own[int] = OWN
    """The most passes over an epoch's samples."""
    clip: Own[float] = OWN
    """Ratios count up to 1 ± this."""
    critic_learning_rate: Own[float] = OWN
    """Of the critics; constant."""
    critic_batch: Own[int] = OWN
    """Samples in a minibatch of the critics, where they have passes of their own."""
    critic_passes: Own[int] = OWN
    """Passes over an epoch's samples, likewise."""
    critic_l2: float = 1e-3
    """Weight of the sum of squared parameters in a critic's loss."""
    max_grad_norm: float = 40.0
    """Bound on the norm of the gradients that are clipped together."""

    multiplier_init: Own[float] = OWN
    """The multiplier at the start (PID: its integral)."""
    multiplier_rate: Own[float] = OWN
    """Learning rate of the multiplier."""
    multiplier_max: Own[float] = OWN
    """The multiplier's upper bound; left out, the method's own, or none where it has none."""
    pid_kp: Own[float] = OWN
    """CPPO-PID: weight of the violation's moving average."""
    pid_ki: Own[float] = OWN
    """CPPO-PID: weight of the violation in the running sum."""
    pid_kd: Own[float] = OWN
    """CPPO-PID: weight of the cost's recent rise."""
    temperature: Own[float] = OWN
    """FOCOPS: what divides the advantage in the optimal policy's exponent."""
    cup_lambda: Own[float] = OWN
    """CUP: GAE's lambda in the weight of the second stage."""
    penalty: Own[float] = OWN
    """P3O and C3PO: weight of the hinge (C3PO: at the end of training)."""
    penalty_start: Own[float] = OWN
    """C3PO: share of the penalty at the start."""
    omega: Own[float] = OWN
    """C3PO: share of the room below the limit that a step may use up."""
    sigma: Own[float] = OWN
    """APPO: weight of the quadratic penalty."""
    barrier: Own[float] = OWN
    """C-TRPO: weight of the barrier in the divergence."""
    hysteresis: Own[float] = OWN
    """C-TRPO: share of the limit below which the cost must fall for recovery to end."""
    tolerance: Own[float] = OWN
    """CRPO: excess over the limit that still allows a reward step."""
    slack_above: Own[float] = OWN
    """PCRPO: excess over the limit beyond which only cost counts."""
    slack_below: Own[float] = OWN
    """PCRPO: (negative) excess below which only reward counts."""

    fidelity: Fidelity = "paper"
    """paper: quirks of the published code as they are; corrected: without them. Each is also a setting by itself:"""
    kl_reduction: Own[KLReduction] = OWN
    """The trust region's KL over action dimensions; paper: mean, corrected: sum."""
    cg_epsilon: Own[float] = OWN
    """Added to the denominators of conjugate gradients. SB-TRPO: 0, since 1e-6 keeps small gradients from converging
    early in training. Others, paper: 1e-6, corrected: 0."""
    bootstrap_raw_observation: Own[bool] = OWN
    """Whether critics judge time-outs on the raw last observation; paper: yes."""
    first_cost_zero: Own[bool] = OWN
    """Whether methods read a cost of 0 in their first update; paper: yes."""
    cpo_as_published: Own[bool] = OWN
    """CPO: the published dual with its wrong sign and projection; paper: yes."""
    pcpo_plain_gradient: Own[bool] = OWN
    """PCPO: a reward step along the plain gradient; paper: yes."""
    focops_broadcast: Own[bool] = OWN
    """FOCOPS: the indicator of the trust region scales all samples alike; paper: yes."""
    stale_critic_clip: Own[bool] = OWN
    """C3PO: the clipping of the policy's gradient counts the critics' last one; paper: yes."""

    device: str = "cpu"
    """Where the learner's tensors live: cpu or cuda."""
    threads: int = 0
    """Threads of the simulator; 0 takes all cores."""
    learner_threads: int = 0
    """Threads of the update; 0 leaves PyTorch's choice. Take 1 where other processes need the cores, too: PyTorch's
    threads wait for each other, and on busy cores an update takes many times as long with two as with one."""
    keep_last: int = 2
    """Checkpoints kept from the end of the run."""
    keep_every: int = 100
    """One checkpoint in so many epochs is kept for good; 0 keeps none."""
    checkpoint_every: int = 1
    """Epochs between checkpoints: a kill loses at most so many."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "algo", method(self.algo).name)
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
        """With the algorithm's own value where one was left open; what does not concern it stays None."""
        own = method(self.algo).defaults(self.task, self.fidelity)
        return dataclasses.replace(self, **{name: value for name, value in own.items() if getattr(self, name) is None})

    def digest(self) -> str:
        """Eight letters that tell runs with other settings apart, the seed aside."""
        settings = {k: v for k, v in dataclasses.asdict(self.resolved()).items() if k not in _OPERATIONAL}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


_OPERATIONAL = {"seed", "device", "threads", "learner_threads", "keep_last", "keep_every", "checkpoint_every"}
"""Settings that do not change what a run computes, or are part of its folder's name already."""


def _check(config: TrainConfig) -> None:
    """Refuse what cannot be meant, in one sentence each; what is left open is fine."""

    def need(condition: bool, sentence: str) -> None:
        if not condition:
            raise ValueError(sentence)

    def bound(low: float, *names: str, high: float = math.inf) -> None:
        for name in names:
            value = getattr(config, name)
            span = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
            need(value is None or low <= value <= high, f"{name} must be {span}, got {value}")

    bound(1, "num_envs", "steps_per_epoch", "total_steps", "cg_iterations", "line_search_tries")
    bound(1, "critic_batch", "critic_passes", "policy_batch", "policy_passes")
    bound(
        0,
        "seed",
        "threads",
        "learner_threads",
        "multiplier_init",
        "multiplier_rate",
        "multiplier_max",
        "penalty",
        "penalty_start",
        "sigma",
    )
    bound(0, "pid_kp", "pid_ki", "pid_kd", "barrier", "cg_damping", "cg_tolerance", "cg_epsilon", "tolerance")
    bound(0, "gae_lambda", "cup_lambda", "omega", "hysteresis", "clip", high=1)
    for name in ("target_kl", "temperature", "learning_rate", "critic_learning_rate", "max_grad_norm"):
        value = getattr(config, name)
        need(value is None or value > 0, f"{name} must be above 0, got {value}")
    need(
        config.beta is None or 0 <= config.beta <= 1,
        f"beta must be between 0 (reward only) and 1 (cost only), got {config.beta}",
    )
    need(config.cost_limit >= 0, f"cost_limit must be >= 0, got {config.cost_limit}; use 0 for a hard constraint")
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
    need(
        config.gamma < 1 or config.algo not in ("cup", "c_trpo"),
        f"{config.algo} divides by 1 - gamma; use a gamma below 1",
    )
    need(
        config.slack_above is None or config.slack_below is None or config.slack_below <= config.slack_above,
        f"slack_below ({config.slack_below}) must not lie above slack_above ({config.slack_above})",
    )
