"""Central Path Proximal Policy Optimisation (Milosevic et al., 2025): P3O along a central path.

    loss = -mean min(ρ A_r, clip(ρ) A_r) + κ max(0, mean max(ρ A_c, clip(ρ) A_c) - min(b, ω b)),    b = limit - Ĵ_c

κ grows linearly over the run, from `penalty_start` of its final value on. Below the limit, a step may use up the share
ω of what is left. The critics are fitted afterwards, the reward's with double weight and without clipping.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from typing_extensions import override

from sbtrpo.algorithms.base import Costs, Diagnostics, as_costs
from sbtrpo.algorithms.first_order import Samples
from sbtrpo.algorithms.p3o import P3O, P3OSettings
from sbtrpo.config.settings import setting
from sbtrpo.nets.critics import critic_losses
from sbtrpo.nets.stack import Floats, clip_together


@dataclass(frozen=True)
class C3POSettings(P3OSettings):
    """With the central path, and critics that have passes of their own."""

    target_kl: float = 0.01
    policy_batch: int = 128
    policy_passes: int = 10
    critic_batch: int = setting(128, least=1, needs="critics")
    """Samples in a minibatch of the critics."""
    critic_minibatches: int = setting(0, least=0, needs="critics")
    """Minibatches in a pass of the critics, of equal size; 0 leaves it to critic_batch."""
    critic_passes: int = setting(10, least=1, needs="critics")
    """Passes of the critics over an epoch's samples."""
    penalty: float = 50.0
    """Weight of the hinge at the end of training."""
    penalty_start: float = setting(0.1, least=0, paper="–")
    """Share of the penalty at the start."""
    omega: float = setting(0.05, least=0, most=1)
    """Share of the room below the limit that a step may use up."""
    stale_critic_clip: bool = setting(
        True,
        corrected=False,
        quirk="The published gradient clipping of the actor counts the critics' gradients of the epoch before;"
        " corrected, the actor's alone.",
    )
    """The clipping of the policy's gradient counts the critics' last one; paper: yes."""


class C3PO(P3O[C3POSettings]):
    """P3O with another hinge, and critics on their own."""

    title = "C3PO"
    summary = "PPO with a growing hinge penalty that begins before the limit is reached"
    source = "Milosevic et al., Central Path Proximal Policy Optimization (2025); code: the C-TRPO authors'"
    Settings = C3POSettings

    _stale = 0.0
    """Norm of the critics' last gradient, which the published clipping counts, and shrinks, with the actor's."""

    @override
    def prepare(self, samples: Samples, costs: Costs, progress: float) -> Diagnostics:
        (cost,) = as_costs(costs)
        c = self.settings
        room = c.limit - cost
        self._weight = c.penalty * (c.penalty_start + (1 - c.penalty_start) * progress)
        self._offset = -min(room, c.omega * room)
        return {"penalty": self._weight}

    def passes(self, samples: Samples, rate: float) -> Diagnostics:
        """The actor's passes, then the critics'."""
        count, kl, _ = self.run(samples, rate, None)
        facts = {"passes": float(count), "kl_at_stop": kl}
        if self.critics is None or not len(samples.targets):
            return facts
        c, weights = self.settings, (2.0, 1.0)[: len(samples.targets)]
        data = torch.from_numpy(samples.obs), torch.from_numpy(samples.targets)
        losses, self._stale = self.critics.fit(
            *data, c.critic_batch, c.critic_passes, c.critic_l2, math.inf, self.orders, weights
        )
        return {**facts, **critic_losses(losses)}

    def clip(self, gradients: list[Floats]) -> None:
        """Bound the norm; as published, with the critics' stale gradient beside the actor's."""
        beside = self._stale if self.settings.stale_critic_clip else 0.0
        self._stale *= clip_together(gradients, self.settings.max_grad_norm, beside)

    def state_dict(self) -> dict[str, Any]:
        """With the norm of the critics' last gradient."""
        return {**super().state_dict(), "stale": self._stale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._stale = float(state["stale"])
