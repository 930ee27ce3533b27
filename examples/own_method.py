"""Two methods of one's own, one of each family. Neither needs a change in the package:

    sbtrpo check --algo examples/own_method.py:WaryTRPO
    sbtrpo train ToyCorridor-v0 --algo examples/own_method.py:WaryTRPO --calm 0.6
    sbtrpo benchmark --tasks ToyCorridor-v0 --algo sb-trpo examples/own_method.py:SoftPPO --out runs/own

docs/own_method.md leads there step by step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sbtrpo.algorithms import (
    Costs,
    FirstOrderMethod,
    Fixed,
    Minibatch,
    Proposal,
    Samples,
    Trial,
    TrustRegion,
    TrustRegionMethod,
    TrustRegionSettings,
    solve,
)
from sbtrpo.algorithms.ppo import PPOSettings
from sbtrpo.algorithms.sb_trpo import SBTRPOSettings, combine
from sbtrpo.config.settings import Advantage, setting

# ---- a trust-region method is its `propose` --------------------------------------------------------------------------


@dataclass(frozen=True)
class WaryTRPOSettings(TrustRegionSettings):
    """What trust-region methods have, with SB-TRPO's defaults, and two more; each is an option of the command line."""

    advantage: Advantage = "mc"
    cg_iterations: int = 50
    cg_damping: float = 0.02
    cg_tolerance: float = 0.05
    cg_epsilon: float = 0.0
    line_search_tries: int = 100

    calm: float = setting(0.5, least=0, most=1)
    """The safety bias β while recent episodes cost nothing."""
    half: float = setting(10.0, above=0)
    """The cost of an episode at which β is half-way from `calm` to 1."""


class WaryTRPO(TrustRegionMethod[WaryTRPOSettings]):
    """SB-TRPO that is the more careful the more recent episodes cost."""

    title = "Wary TRPO"
    Settings = WaryTRPOSettings

    def propose(self, region: TrustRegion, gradients: Tensor, costs: Costs) -> Proposal:
        """β = calm + (1 - calm) Ĵ_c / (Ĵ_c + half), then SB-TRPO's combination of both natural steps."""
        s, (cost,) = self.settings, costs
        beta = s.calm + (1 - s.calm) * cost / (cost + s.half)
        solution = solve(region, gradients, s)
        curvatures = (solution.x * solution.product).sum(dim=1)
        delta = combine(gradients, solution.x, curvatures, SBTRPOSettings(target_kl=s.target_kl, beta=beta))
        old = region.old

        def acceptable(trial: Trial) -> bool:
            return trial.kl <= s.target_kl and trial.surrogate_c <= old.surrogate_c

        curvature = solution.curvature(*delta.weights.tolist())
        return Proposal(delta.step, acceptable, solution, curvature, {**delta.facts, "bias": beta})


# ---- a first-order method is its loss --------------------------------------------------------------------------------


@dataclass(frozen=True)
class SoftPPOSettings(PPOSettings):
    """PPO's settings and the weight of the cost."""

    weight: float = setting(1.0, least=0)
    """Of the cost in the loss, where recent episodes cost much."""


class SoftPPO(FirstOrderMethod[SoftPPOSettings]):
    """PPO whose loss has a cost term that fades as episodes become safe."""

    title = "Soft PPO"
    Settings = SoftPPOSettings

    def prepare(self, samples: Samples, costs: Costs, progress: float) -> Fixed:
        """The weight during this update: in full where episodes cost much, 0 where they cost nothing."""
        (cost,) = costs
        return Fixed(report={"cost_weight": self.settings.weight * cost / (cost + 1)})

    def loss(self, batch: Minibatch) -> Tensor:
        """The clipped surrogates of both: -mean min(ρ A_r, clip(ρ) A_r) + w mean max(ρ A_c, clip(ρ) A_c)."""
        clipped = batch.ratio.clamp(1 - self.settings.clip, 1 + self.settings.clip)
        gain = torch.minimum(batch.ratio * batch.advantage_r, clipped * batch.advantage_r)
        harm = torch.maximum(batch.ratio * batch.advantage_c, clipped * batch.advantage_c)
        loss: Tensor = batch.fixed.report["cost_weight"] * harm.mean() - gain.mean()
        return loss
