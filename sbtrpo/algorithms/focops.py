"""First Order Constrained Optimisation in Policy Space (Zhang et al., 2020).

The optimal policy in a KL ball around the old one is π* ∝ π_old exp(A / temperature); the network is drawn to it by

    loss = mean_i [ KL(π_θ ‖ π_old)_i - ρ_i A_i / temperature ] 1[KL_i ≤ δ],      A = (A_r - λ A_c) / (1 + λ)

with 0 ≤ λ ≤ 2. In the published code KL_i 1_i is a column and ρ_i A_i a row, so that the mean runs over all pairs:

    loss = mean_i KL_i 1_i - mean_i 1_i · mean_j ρ_j A_j / temperature              (`focops_broadcast`)
"""

from __future__ import annotations

from typing_extensions import override

from sbtrpo.algorithms.first_order import Minibatch, Slopes
from sbtrpo.algorithms.ppo_lag import PPOLag


class FOCOPS(PPOLag):
    """PPO-Lag's advantages, in a loss of its own."""

    @override
    def slopes(self, batch: Minibatch) -> Slopes:
        everywhere = batch.xp.ones_like(batch.kl)
        inside = everywhere * (batch.kl <= self.config.target_kl)  # counts as a constant
        gate = everywhere * inside.mean() if self.config.focops_broadcast else inside
        return Slopes(ratio=-gate * batch.advantage_r / self.config.temperature, kl=inside)
