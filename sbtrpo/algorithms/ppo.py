"""Proximal Policy Optimisation (Schulman et al., 2017): reward alone.

loss = -mean min(ρ A_r, clip(ρ, 1 - ε, 1 + ε) A_r)
"""

from __future__ import annotations

from typing_extensions import override

from sbtrpo.algorithms.first_order import FirstOrderMethod, Minibatch, Slopes, clipped


class PPO(FirstOrderMethod):
    """The yardstick: it does not know of the cost."""

    @override
    def slopes(self, batch: Minibatch) -> Slopes:
        return Slopes(-clipped(batch.ratio, batch.advantage_r, self.config.clip))
