"""What trust-region methods share: surrogates, the Fisher product, conjugate gradients, scaling, line search.

All of it works on the full batch and on the policy's parameters as one vector θ (log standard deviations first). The
network is linearised once per update: at fixed θ and observations its Jacobian J is a fixed linear map, so a Fisher
product of the Gaussian's closed form, F v = Jᵀ(σ⁻² J v)/N, is one forward and one backward pass over stored
activations, and several vectors pass through together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sbtrpo.config import KLReduction
from sbtrpo.policy import MLP, Policy, flatten, gaussian_kl, gaussian_log_prob, unflatten


@dataclass(frozen=True)
class Batch:
    """One epoch's samples, flattened; B = T * N."""

    obs: Tensor
    """(B, obs_dim), normalised as they were when acted on."""
    action: Tensor
    """(B, action_dim)"""
    log_prob: Tensor
    """(B,) of the actions under the rollout policy."""
    advantage_r: Tensor
    """(B,)"""
    advantage_c: Tensor
    """(B,)"""


class Linearised:
    """The policy's mean network at θ on the batch's observations, as a linear map of its parameters.

    With x_l the input of layer l, and s_lj = ∂ output_j / ∂ (W_l x_l + b_l) a vector of each sample, all fixed,

        (J v)_j = Σ_l ⟨s_lj, dW_l x_l + db_l⟩        and        (Jᵀu)_l = Σ_samples (Σ_j u_j s_lj) [x_l, 1]ᵀ,

    so a pass is one matrix product per layer. There are few outputs; K vectors pass through together.
    """

    def __init__(self, network: MLP, obs: Tensor) -> None:
        params = network.params
        activations = [obs]
        for weight, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
            activations.append(torch.tanh(torch.nn.functional.linear(activations[-1], weight, bias)))
        self.output = torch.nn.functional.linear(activations[-1], params[-2], params[-1])
        """(B, outputs)"""
        one = torch.ones_like(obs[:, :1])
        self.inputs = [torch.cat([x, one], dim=1) for x in activations]
        """[x_l, 1] of every layer: (B, in + 1) each; with it a bias is one more column of its weight."""
        self.signals: list[list[Tensor]] = []
        """s_lj of every layer but the last and every output: (B, out) each. In the last, s_lj is the unit vector j."""
        signal = [row.expand(len(obs), -1) for row in params[-2]]
        for layer in range(len(activations) - 1, 0, -1):
            slope = 1 - activations[layer] * activations[layer]
            signal = [s * slope for s in signal]
            self.signals.insert(0, signal)
            signal = [s @ params[2 * layer - 2] for s in signal] if layer > 1 else []

    def pushforward(self, tangents: Sequence[Tensor]) -> Tensor:
        """J v: tangents shaped as the parameters with K in front -> (outputs, K, B)."""
        joined = [torch.cat([w, b[..., None]], dim=2) for w, b in zip(tangents[::2], tangents[1::2], strict=True)]
        k, outputs, _ = joined[-1].shape
        last = self.inputs[-1] @ joined[-1].reshape(k * outputs, -1).T
        found = last.view(-1, k, outputs).permute(2, 1, 0).contiguous()
        for x, tangent, signal in zip(self.inputs, joined, self.signals, strict=False):
            change = x.new_empty((k, len(x), tangent.shape[1]))
            for i in range(k):
                torch.mm(x, tangent[i].T, out=change[i])
            for j, s in enumerate(signal):
                found[j] += (change * s).sum(dim=2)
        return found

    def pullback(self, cotangent: Tensor) -> list[Tensor]:
        """Jᵀ u: (outputs, K, B) -> gradients shaped as the parameters with K in front."""
        outputs, k, b = cotangent.shape
        joined = []
        for x, signal in zip(self.inputs, self.signals, strict=False):
            error = cotangent[0, :, :, None] * signal[0]
            for j in range(1, outputs):
                error.addcmul_(cotangent[j, :, :, None], signal[j])
            joined.append(torch.stack([e.T @ x for e in error]))
        joined.append((cotangent.reshape(outputs * k, b) @ self.inputs[-1]).view(outputs, k, -1).transpose(0, 1))
        return [part for both in joined for part in (both[..., :-1], both[..., -1])]


class TrustRegion:
    """Everything about one batch at the rollout parameters θ."""

    def __init__(self, policy: Policy, batch: Batch, kl_reduction: KLReduction, damping: float) -> None:
        self.policy, self.batch, self.damping = policy, batch, damping
        self.theta = flatten(policy.params)
        self.network = Linearised(MLP(policy.params[1:]), batch.obs)
        self.log_std = policy.log_std.clone()
        # The published code averages the KL over action dimensions, too: a target of δ is then m·δ in truth.
        self.kl_scale = 1 / len(self.log_std) if kl_reduction == "mean_over_dims" else 1.0

    def gradients(self) -> Tensor:
        """∇ mean(ρ A) of reward and cost at θ, where every ratio ρ is 1: (2, P)."""
        batch, inverse_std = self.batch, torch.exp(-self.log_std)
        z = (batch.action - self.network.output) * inverse_std
        weight = torch.stack([batch.advantage_r, batch.advantage_c]) / len(z)
        d_mean = (z * inverse_std).T[:, None, :] * weight
        d_log_std = weight @ (z * z - 1)
        return self._join(d_log_std, self.network.pullback(d_mean))

    def fisher(self, vectors: Tensor) -> Tensor:
        """(F + damping I) v for each of the vectors: (K, P) -> (K, P)."""
        parts = [torch.stack(p) for p in zip(*(unflatten(v, self.policy.params) for v in vectors), strict=True)]
        d_mean = self.network.pushforward(parts[1:])
        d_mean *= torch.exp(-2 * self.log_std)[:, None, None] * (self.kl_scale / len(self.batch.obs))
        product = self._join(parts[0] * (2 * self.kl_scale), self.network.pullback(d_mean))
        return product.add_(vectors, alpha=self.damping)

    def _join(self, d_log_std: Tensor, d_network: Sequence[Tensor]) -> Tensor:
        return torch.cat([d_log_std, *(part.reshape(len(part), -1) for part in d_network)], dim=1)

    def evaluate(self, theta: Tensor) -> Trial:
        """Surrogates and KL at other parameters, on the same batch."""
        params = unflatten(theta, self.policy.params)
        return self._trial(self.policy.mean(self.batch.obs, params), params[0])

    def evaluate_old(self) -> Trial:
        """The same at θ itself, where the network's outputs are known."""
        return self._trial(self.network.output, self.log_std)

    def _trial(self, mean: Tensor, log_std: Tensor) -> Trial:
        batch = self.batch
        ratio = torch.exp(gaussian_log_prob(mean, log_std, batch.action) - batch.log_prob)
        kl = gaussian_kl(self.network.output, self.log_std, mean, log_std).sum(dim=1).mean() * self.kl_scale
        surrogates = torch.stack([ratio @ batch.advantage_r, ratio @ batch.advantage_c]) / len(ratio)
        return Trial(float(kl), float(surrogates[0]), float(surrogates[1]))


@dataclass(frozen=True)
class Trial:
    """What parameters give on the batch."""

    kl: float
    """KL(rollout policy || these parameters), reduced as the trust region's."""
    surrogate_r: float
    surrogate_c: float

    @property
    def finite(self) -> bool:
        """Whether all of it is a number."""
        total = self.kl + self.surrogate_r + self.surrogate_c
        return total - total == 0.0


@dataclass(frozen=True)
class Solution:
    """What conjugate gradients found."""

    x: Tensor
    """(K, P)"""
    product: Tensor
    """(K, P) A x, which is b less the residual: it costs no further product."""
    iterations: int
    residual: Tensor
    """(K,) relative to the right-hand sides."""


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, iterations: int, tolerance: float = 0.0, epsilon: float = 0.0
) -> Solution:
    """Solve A x = b for each row of b (K, P) together, so that every product serves all of them.

    Args:
        product: A applied to rows, (K, P) -> (K, P).
        b: right-hand sides.
        iterations: the most products.
        tolerance: a system is done when its residual falls below this share of its right-hand side.
        epsilon: added to denominators, as the published code does with 1e-6.
    """
    x = torch.zeros_like(b)
    residual, direction = b.clone(), b.clone()
    rr = (residual * residual).sum(dim=1)
    goal = torch.clamp(tolerance**2 * rr, min=1e-20)
    done = 0
    while done < iterations:
        active = (rr > goal).to(b.dtype)
        if not bool(active.any()):
            break
        a_direction = product(direction)
        curvature = (direction * a_direction).sum(dim=1) + epsilon
        alpha = active * rr / torch.where(curvature == 0, torch.ones_like(curvature), curvature)
        x = x + alpha[:, None] * direction
        residual = residual - alpha[:, None] * a_direction
        new_rr = (residual * residual).sum(dim=1)
        ratio = new_rr / (rr + epsilon + (rr == 0))
        direction = torch.where(active[:, None] > 0, residual + ratio[:, None] * direction, direction)
        rr = torch.where(active > 0, new_rr, rr)
        done += 1
    norm = torch.clamp((b * b).sum(dim=1), min=1e-30)
    return Solution(x, b - residual, done, torch.sqrt(rr / norm))


@dataclass(frozen=True)
class Accepted:
    """The outcome of a line search."""

    theta: Tensor
    step: float
    """The accepted fraction η of the full step; 0 when none was."""
    tries: int
    trial: Trial


def line_search(
    region: TrustRegion,
    delta: Tensor,
    acceptable: Callable[[Trial], bool],
    tries: int,
    fraction: float,
    first: float = 1.0,
) -> Accepted:
    """Shrink the step η·delta by `fraction` until it is acceptable; θ itself if it never is."""
    eta = first
    for attempt in range(1, tries + 1):
        theta = region.theta + eta * delta
        trial = region.evaluate(theta)
        if trial.finite and acceptable(trial):
            return Accepted(theta, eta, attempt, trial)
        eta *= fraction
    return Accepted(region.theta, 0.0, tries, region.evaluate_old())
