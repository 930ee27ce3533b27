"""Safety-Biased Trust Region Policy Optimisation (paper, section 4, algorithm 1).

    Δ_r = argmax ⟨g_r, Δ⟩  s.t. ½ ΔᵀFΔ ≤ δ             the best reward step
    Δ_c = argmin ⟨g_c, Δ⟩  s.t. ½ ΔᵀFΔ ≤ δ             the best cost step
    μ   = the least share of Δ_c with which cost still falls by β of what Δ_c would give
    Δ   = (1 - μ) Δ_r + μ Δ_c                          then shrink until KL ≤ δ and cost does not rise

There is no cost limit, no recovery phase and no multiplier, and nothing is carried from one update to the next but the
pace of `sb-trpo_paced`. With several constraints every cost keeps its own share β_i of its own best decrease:
`several.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.base import Costs, Diagnostics, Trial, by_constraint
from sbtrpo.algorithms.several import joint_step
from sbtrpo.algorithms.trust_region import (
    Proposal,
    TrustRegion,
    TrustRegionMethod,
    TrustRegionSettings,
    over_since,
    solve,
)
from sbtrpo.config.settings import Advantage, Needs, for_each, setting

KAPPA = 1e-8
"""Keeps the share's denominator from vanishing (algorithm 1, line 7)."""


@dataclass(frozen=True)
class SBTRPOSettings(TrustRegionSettings):
    """The paper's, but for `cg_tolerance` and `cg_epsilon`: it runs all 50 iterations with 1e-6 in their denominators.

    See docs/algorithms/sb-trpo.md.
    """

    beta: float | tuple[float, ...] = setting(0.75, least=0, most=1, span="between 0 (reward only) and 1 (cost only)")
    """The safety bias: the share of the best cost decrease that every step must keep, in [0, 1]; one value, or one for
    each constraint."""
    beta_end: float | tuple[float, ...] | None = setting(None, least=0, most=1)
    """The safety bias at the end of the run, towards which beta moves linearly; one value, or one for each constraint.
    Left out, beta stays what it is."""
    beta_from: float = setting(0.0, least=0, below=1, span="in [0, 1)", needs="beta-end")
    """With beta_end: the share of the run after which beta begins to move."""
    solver: Literal["convex", "exact"] = "convex"
    """convex: the paper's combination of both steps; exact: the best reward step of the same cost decrease."""
    cost_to_go: Literal["sum", "first-hit"] = "sum"
    """What the cost of an action is: sum: all discounted costs that follow, as published; first-hit: γ to the power of
    the steps until the next violation, whatever it costs, which is nearer to the probability of violating."""
    first_hit_from: float = setting(0.0, least=0, below=1, span="in [0, 1)", needs="first-hit")
    """With cost_to_go first-hit: the share of the run from which on it counts; before that, costs are summed."""
    advantage: Advantage = "mc"
    cg_iterations: int = 50
    cg_damping: float = 0.02
    cg_tolerance: float = setting(0.05, least=0, paper="–")
    cg_epsilon: float = setting(0.0, least=0)
    """Added to the denominators of conjugate gradients: 0, since the published 1e-6 keeps small gradients from
    converging early in training."""
    line_search_tries: int = 100

    @property
    def share(self) -> float:
        """β of a single constraint."""
        return for_each("beta", self.beta, 1)[0]

    @override
    def first_hits(self, progress: float) -> bool:
        return self.cost_to_go == "first-hit" and progress >= self.first_hit_from

    @override
    def in_effect(self, needs: Needs | None) -> bool:
        return self.beta_end is not None if needs == "beta-end" else super().in_effect(needs)

    @override
    def scheduled(self, progress: float) -> dict[str, Any]:
        if self.beta_end is None:
            return super().scheduled(progress)
        beta, end = np.asarray(self.beta), np.asarray(self.beta_end)
        now = (beta + over_since(self.beta_from, progress) * (end - beta)).tolist()
        return {**super().scheduled(progress), "beta": tuple(now) if isinstance(now, list) else now}


class SBTRPO(TrustRegionMethod[SBTRPOSettings]):
    """The paper's method."""

    title = "SB-TRPO"
    summary = "the paper's method: every step keeps a share of the best cost decrease; Monte Carlo, no critic"
    source = "SB-TRPO: Towards Safe Reinforcement Learning with Hard Constraints"
    Settings = SBTRPOSettings

    constraints_taken = None

    @override
    def propose(self, region: TrustRegion, gradients: Tensor, costs: Costs) -> Proposal:
        settings = self.settings
        solution = solve(region, gradients, settings)
        if len(gradients) == 2:
            delta = combine(gradients, solution.x, (solution.x * solution.product).sum(dim=1), settings)
        else:
            delta = combine_several(gradients, solution.x, settings, self.names)
        old_costs = region.old.surrogates[1:]

        def acceptable(trial: Trial) -> bool:  # algorithm 1, line 12: no test of the reward
            falls = all(new <= old for new, old in zip(trial.surrogates[1:], old_costs, strict=True))
            return trial.kl <= settings.target_kl and falls

        facts = {**delta.facts, **self.residuals(solution)}
        if settings.beta_end is not None:
            facts |= by_constraint("beta", for_each("beta", settings.beta, len(self.names)), self.names)
        return Proposal(delta.step, acceptable, solution, solution.curvature(*delta.weights.tolist()), facts)


@dataclass(frozen=True)
class RewardCriticSettings(SBTRPOSettings):
    """With a critic for reward."""

    advantage: Advantage = "gae-reward"


class SBTRPORewardCritic(SBTRPO):
    """SB-TRPO with a critic for reward."""

    title = "SB-TRPO, reward critic"
    summary = "SB-TRPO with a critic for reward, Monte Carlo for cost"
    Settings = RewardCriticSettings


@dataclass(frozen=True)
class CriticsSettings(SBTRPOSettings):
    """With critics for reward and cost."""

    advantage: Advantage = "gae"


class SBTRPOCritics(SBTRPO):
    """SB-TRPO with both critics."""

    title = "SB-TRPO, both critics"
    summary = "SB-TRPO with critics for reward and cost"
    Settings = CriticsSettings


@dataclass(frozen=True)
class AnnealedSettings(SBTRPOSettings):
    """With steps that grow shorter in the second half of the run."""

    step_decay: float = 1.0
    step_decay_from: float = 0.5


class SBTRPOAnnealed(SBTRPO):
    """SB-TRPO whose steps grow shorter: most of each is the noise of its episodes, which short ones add up less."""

    title = "SB-TRPO, annealed"
    summary = "SB-TRPO whose steps grow shorter in the second half of the run, so that less of their noise stays"
    Settings = AnnealedSettings


@dataclass(frozen=True)
class PacedSettings(SBTRPOSettings):
    """With steps as long as successive updates agree."""

    pace: float = 2.0


class SBTRPOPaced(SBTRPO):
    """SB-TRPO whose steps are as long as there is reason for: see `pace.py`."""

    title = "SB-TRPO, paced"
    summary = "SB-TRPO whose steps are as long as successive updates agree, so that less of them is noise"
    Settings = PacedSettings


class SBTRPOGrowing(SBTRPO):
    """SB-TRPO that learns from more episodes the longer it has learnt, and whose policy moves in updates alone."""

    title = "SB-TRPO, growing"
    summary = "SB-TRPO whose updates learn from more and more episodes, with steady statistics"
    run_defaults: ClassVar[Mapping[str, Any]] = {"epoch_growth": 0.02, "statistics": "steady"}


@dataclass(frozen=True)
class HitsSettings(SBTRPOSettings):
    """With violations in the place of costs."""

    cost_to_go: Literal["sum", "first-hit"] = "first-hit"


class SBTRPOHits(SBTRPOGrowing):
    """SB-TRPO, growing, that lowers the chance of a violation instead of the sum of costs."""

    title = "SB-TRPO, first hits"
    summary = "SB-TRPO, growing, that learns from how soon the next violation comes, whatever it costs"
    Settings = HitsSettings


@dataclass(frozen=True)
class LateHitsSettings(HitsSettings):
    """With violations in the place of costs at the end of the run."""

    first_hit_from: float = setting(0.75, least=0, below=1, span="in [0, 1)", needs="first-hit")


class SBTRPOLateHits(SBTRPOHits):
    """SB-TRPO, growing, that sums costs while it learns to earn, and at the end lowers the chance of a violation."""

    title = "SB-TRPO, late hits"
    summary = "SB-TRPO, growing, that learns from how soon the next violation comes in the last quarter of the run"
    Settings = LateHitsSettings


class SBTRPOPolished(SBTRPO):
    """SB-TRPO for a policy that is trained: updates lower the chance of a violation, from thousands of episodes."""

    title = "SB-TRPO, polished"
    summary = "SB-TRPO that makes a trained policy (init_from) safer: first hits, 1,600 worlds an update"
    Settings = HitsSettings
    trains_on = True
    run_defaults: ClassVar[Mapping[str, Any]] = {
        "num_envs": 1_600, "steps_per_epoch": 1_600_000, "total_steps": 80_000_000, "statistics": "steady",
    }  # fmt: skip


@dataclass(frozen=True)
class Direction:
    """A step and how it came about."""

    step: Tensor
    """(P,)"""
    weights: Tensor
    """(1 + C,) of the natural gradients in the step."""
    facts: Diagnostics
    """`mu`: share of the cost step; NaN where the exact solver does without one. `cosine`: between the gradients of
    reward and cost in the metric F⁻¹; positive when reward ascent raises cost."""


def combine(gradients: Tensor, natural: Tensor, curvature: Tensor, settings: SBTRPOSettings) -> Direction:
    """The step Δ from both gradients (2, P), F⁻¹ of them (2, P), and their curvatures xᵀFx (2,)."""
    g_r, g_c = gradients
    a, c = float(g_r @ natural[0]), float(g_c @ natural[1])
    b = float(g_c @ natural[0])
    cosine = max(-1.0, min(1.0, b / math.sqrt(a * c))) if a > 0 and c > 0 else 0.0
    if settings.solver == "exact":
        mu, weights = math.nan, _exact_weights(a, c, cosine, settings)
    else:
        scale = torch.sqrt(2 * settings.target_kl / (curvature + 1e-8)).tolist()
        mu = safety_share(scale[0] * b, -scale[1] * c, settings.share)
        weights = (1 - mu) * scale[0], -mu * scale[1]
    coefficients = torch.tensor(weights, dtype=natural.dtype, device=natural.device)
    return Direction(coefficients @ natural, coefficients, {"mu": mu, "cosine": cosine})


def combine_several(gradients: Tensor, natural: Tensor, settings: SBTRPOSettings, names: Sequence[str]) -> Direction:
    """The step for several constraints, from all gradients (1 + C, P) and F⁻¹ of them; see `several.py`.

    Beside μ it tells `kept`, the share of all promises that can be kept together, and for each constraint the
    `decrease` to first order, as a share of the best, and the cosine between its gradient and the reward's.
    """
    gram = (gradients.double() @ natural.double().T).cpu().numpy()
    joint = joint_step(gram, for_each("beta", settings.beta, len(names)), settings.target_kl, settings.solver)
    coefficients = torch.as_tensor(joint.weights, dtype=natural.dtype, device=natural.device)
    lengths = np.sqrt(np.maximum(np.diagonal(gram), 1e-20))
    cosines = np.clip(gram[0, 1:] / (lengths[0] * lengths[1:]), -1.0, 1.0)
    facts = {
        "mu": joint.mu,
        "kept": joint.kept,
        **by_constraint("decrease", joint.decreases.tolist(), names),
        **by_constraint("cosine", cosines.tolist(), names),
    }
    return Direction(coefficients @ natural, coefficients, facts)


def safety_share(cost_of_r: float, cost_of_c: float, beta: float) -> float:
    """μ, the least share of Δ_c for which ⟨g_c, Δ⟩ ≤ β ⟨g_c, Δ_c⟩ (algorithm 1, line 7).

    Args:
        cost_of_r: ⟨g_c, Δ_r⟩, the cost change of the reward step.
        cost_of_c: ⟨g_c, Δ_c⟩ ≤ 0, that of the cost step.
        beta: the safety bias.

    The algorithm's ratio is clipped to [0, 1] and taken only where it is one: with inexact natural gradients its
    denominator may fall below zero when both steps agree, and the bare formula then explodes.

    >>> round(safety_share(0.0, -1.0, 0.75), 6), safety_share(-1.0, -1.0, 0.75), safety_share(0.0, 0.0, 0.75)
    (0.75, 0.0, 0.0)
    """
    excess = cost_of_r - beta * cost_of_c
    span = cost_of_r - cost_of_c + KAPPA
    if excess <= 0 or span <= KAPPA:
        return 0.0
    return min(1.0, excess / span)


def _exact_weights(a: float, c: float, x: float, settings: SBTRPOSettings) -> tuple[float, float]:
    """The best reward step that cuts cost by β of the best, in closed form (appendix, corrected).

    With the unit natural gradients u_r and u_c and x their cosine, the optimum lies on the trust region's boundary at
    the share β of -u_c and fills up with what of u_r is orthogonal to u_c. Valid for every β in [0, 1]. Returned are
    the weights of both natural gradients, whose squared lengths are a and c.
    """
    radius, beta = math.sqrt(2 * settings.target_kl), settings.share
    tiny = 1e-20
    along_r = radius / math.sqrt(a) if a > tiny else 0.0
    along_c = radius / math.sqrt(c) if c > tiny else 0.0
    if c <= tiny or (a > tiny and x <= -beta):
        return along_r, 0.0
    if a <= tiny or 1 - x * x <= 1e-12:
        return 0.0, -beta * along_c
    sideways = math.sqrt((1 - beta * beta) / (1 - x * x))
    return sideways * along_r, -(beta + sideways * x) * along_c
