"""What trust-region methods share: surrogates, the Fisher product, conjugate gradients, scaling, line search.

All of it works on the full batch and on the policy's parameters as one vector θ (log standard deviations first). The
network is linearised once per update: at fixed θ and observations its Jacobian J is a fixed linear map, so a Fisher
product, F v = Jᵀ M J v / N with the closed form M of the outputs' distribution (σ⁻² for a Gaussian's means), is one
forward and one backward pass over stored activations, and several vectors pass through together.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from sbtrpo.algorithms.base import Batch, Diagnostics, Method, Trial, report
from sbtrpo.config.settings import MethodSettings, setting
from sbtrpo.nets.critics import critic_losses
from sbtrpo.nets.network import MLP, flatten, unflatten
from sbtrpo.nets.policy import Policy

KLReduction = Literal["mean_over_dims", "sum_over_dims"]


@dataclass(frozen=True)
class TrustRegionSettings(MethodSettings):
    """Settings of the methods that take one step a batch, within a trust region."""

    target_kl: float = setting(0.01, above=0)
    """Radius of the trust region."""
    cg_iterations: int = setting(15, least=1)
    """The most iterations of conjugate gradients."""
    cg_damping: float = setting(0.1, least=0)
    """Added to the Fisher matrix's diagonal."""
    cg_tolerance: float = setting(0.0, least=0)
    """Conjugate gradients stop at this relative residual; 0 runs all iterations."""
    line_search_tries: int = setting(15, least=1)
    """The most steps tried; if none is acceptable, the policy stays."""
    line_search_fraction: float = setting(0.8, above=0, below=1, span="in (0, 1)")
    """By which a step shrinks from one try to the next."""
    line_search_first: float = setting(1.0, above=0)
    """First step tried, as a share of the full one; 0.8 is the literal reading of the paper's algorithm box."""
    critic_batch: int = setting(128, least=1, needs="critics")
    """Samples in a minibatch of the critics."""
    critic_minibatches: int = setting(0, least=0, needs="critics")
    """Minibatches in a pass of the critics, of equal size; 0 leaves it to critic_batch."""
    critic_passes: int = setting(10, least=1, needs="critics")
    """Passes of the critics over an epoch's samples."""
    max_grad_norm: float = setting(40.0, above=0, needs="critics")
    """Bound on the norm of the critics' gradient."""
    kl_reduction: KLReduction = setting(
        "mean_over_dims",
        corrected="sum_over_dims",
        quirk="The published trust regions average the KL over action dimensions, too, so that a target of δ is m·δ in"
        " truth; corrected, dimensions are summed.",
    )
    """The trust region's KL over action dimensions; paper: mean, corrected: sum."""
    cg_epsilon: float = setting(
        1e-6,
        least=0,
        corrected=0.0,
        quirk="The published conjugate gradients add 1e-6 to their denominators, which hampers small gradients;"
        " corrected, 0.",
    )
    """Added to the denominators of conjugate gradients; paper: 1e-6, corrected: 0."""


T = TypeVar("T", bound=TrustRegionSettings)


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
        self.log_std, self.head = policy.log_std.clone(), policy.head
        # The published code averages the KL over action dimensions, too: a target of δ is then m·δ in truth.
        self.kl_scale = 1 / self.head.dimensions if kl_reduction == "mean_over_dims" else 1.0

    def gradients(self) -> Tensor:
        """∇ mean(ρ A) of every signal at θ, where every ratio ρ is 1: (1 + C, P)."""
        batch = self.batch
        in_outputs, in_log_std = self.head.score(torch, self.network.output, self.log_std, batch.action)
        weight = batch.advantages / len(in_outputs)
        return self._join(weight @ in_log_std, self.network.pullback(in_outputs.T[:, None, :] * weight))

    def fisher(self, vectors: Tensor) -> Tensor:
        """(F + damping I) v for each of the vectors: (K, P) -> (K, P)."""
        parts = [torch.stack(p) for p in zip(*(unflatten(v, self.policy.params) for v in vectors), strict=True)]
        change = self.network.pushforward(parts[1:])
        change = self.head.metric(torch, self.network.output, self.log_std, change)
        change *= self.kl_scale / len(self.batch.obs)
        product = self._join(parts[0] * (2 * self.kl_scale), self.network.pullback(change))
        return product.add_(vectors, alpha=self.damping)

    def _join(self, d_log_std: Tensor, d_network: Sequence[Tensor]) -> Tensor:
        return torch.cat([d_log_std, *(part.reshape(len(part), -1) for part in d_network)], dim=1)

    def evaluate(self, theta: Tensor) -> Trial:
        """Surrogates and KL at other parameters, on the same batch."""
        params = unflatten(theta, self.policy.params)
        return self._trial(self.policy.mean(self.batch.obs, params), params[0])

    @functools.cached_property
    def old(self) -> Trial:
        """The same at θ itself, where the network's outputs are known."""
        return self._trial(self.network.output, self.log_std)

    def _trial(self, outputs: Tensor, log_std: Tensor) -> Trial:
        batch, head = self.batch, self.head
        ratio = torch.exp(head.log_prob(torch, outputs, log_std, batch.action) - batch.log_prob)
        kl = head.kl(torch, (self.network.output, self.log_std), (outputs, log_std)).mean() * self.kl_scale
        surrogates = torch.stack([ratio @ advantage for advantage in batch.advantages]) / len(ratio)
        return Trial(float(kl), tuple(surrogates.tolist()))


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

    def curvature(self, *weights: float) -> float:
        """ΔᵀAΔ of the sum Δ of the solutions with these weights."""
        w = self.x.new_tensor(weights)
        return float(w @ (self.x @ self.product.T) @ w)


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
    residual = b.double()  # products are as precise as b; what builds up over the iterations is more so
    x, direction = torch.zeros_like(residual), residual.clone()
    rr = (residual * residual).sum(dim=1)
    goal = torch.clamp(tolerance**2 * rr, min=1e-20)
    done = 0
    while done < iterations:
        active = rr > goal
        if not bool(active.any()):
            break
        a_direction = product(direction.to(b.dtype)).double()
        curvature = (direction * a_direction).sum(dim=1) + epsilon
        alpha = active * rr / torch.where(curvature == 0, torch.ones_like(curvature), curvature)
        x = x + alpha[:, None] * direction
        residual = residual - alpha[:, None] * a_direction
        new_rr = (residual * residual).sum(dim=1)
        ratio = new_rr / (rr + epsilon + (rr == 0))
        direction = torch.where(active[:, None], residual + ratio[:, None] * direction, direction)
        rr = torch.where(active, new_rr, rr)
        done += 1
    norm = torch.clamp((b.double() ** 2).sum(dim=1), min=1e-30)
    return Solution(x.to(b.dtype), (b - residual).to(b.dtype), done, torch.sqrt(rr / norm))


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
    return Accepted(region.theta, 0.0, tries, region.old)


# ---- what trust-region methods have in common ----------------------------------------------------------------------


@dataclass(frozen=True)
class Proposal:
    """A full step, and what the line search asks of shorter ones."""

    step: Tensor
    """(P,) Δ"""
    acceptable: Callable[[Trial], bool]
    solution: Solution
    """The natural gradients it is made of."""
    curvature: float = math.nan
    """ΔᵀFΔ, damping included, where it is known without a further product."""
    facts: Diagnostics = field(default_factory=dict)
    """The method's own numbers."""


class TrustRegionMethod(Method[T]):
    """One step a batch: a direction, a line search along it, then the critics. A method is its `propose`."""

    family = "trust region"
    Settings: ClassVar[type[MethodSettings]] = TrustRegionSettings

    @abstractmethod
    def propose(self, region: TrustRegion, gradients: Tensor, cost: float) -> Proposal:
        """The full step, from both surrogates' gradients (2, P) and the episodes' cost Ĵ_c."""

    def attempt(self, batch: Batch, cost: float, progress: float) -> Diagnostics:
        """Step, then fit the critics."""
        settings = self.settings
        region = TrustRegion(self.policy, batch, settings.kl_reduction, settings.cg_damping)
        gradients = region.gradients()
        proposal = self.propose(region, gradients, cost)
        solution = proposal.solution
        skipped = not bool(torch.isfinite(proposal.step).all() & torch.isfinite(solution.x).all())
        found = Accepted(region.theta, 0.0, 0, region.old)
        if not skipped:
            shorten = settings.line_search_tries, settings.line_search_fraction, settings.line_search_first
            found = line_search(region, proposal.step, proposal.acceptable, *shorten)
        self.policy.set(found.theta)
        damped = found.step**2 * proposal.curvature
        common = report(region.old, found.trial, gradients, found.theta - region.theta)
        return {
            "skipped": float(skipped),
            "accepted_step": found.step,
            "line_search_tries": float(found.tries),
            "line_search_failed": float(found.step == 0.0 and not skipped),
            **common,
            "kl_predicted": 0.5 * (damped - settings.cg_damping * common["step_norm"] ** 2),
            "kl_predicted_damped": 0.5 * damped,
            "cg_iterations": float(solution.iterations),
            "cg_residual": float(solution.residual.max()),
            **proposal.facts,
            **self._fit(batch),
        }

    def _fit(self, batch: Batch) -> Diagnostics:
        """Fit the critics, if there are any; their losses."""
        if self.critics is None or batch.targets is None:
            return {}
        c = self.settings
        losses, _ = self.critics.fit(
            batch.obs, batch.targets, c.critic_batch, c.critic_passes, c.critic_l2, c.max_grad_norm, self.orders
        )
        return critic_losses(losses)


def solve(
    region: TrustRegion, b: Tensor, settings: TrustRegionSettings, add: Callable[[Tensor], Tensor] | None = None
) -> Solution:
    """F⁻¹ b for each row of b (K, P), with what `add` gives added to the damped Fisher product."""

    def product(vectors: Tensor) -> Tensor:
        found = region.fisher(vectors)
        return found if add is None else found + add(vectors)

    return conjugate_gradient(product, b, settings.cg_iterations, settings.cg_tolerance, settings.cg_epsilon)


def to_boundary(curvature: float, target_kl: float) -> float:
    """The factor that brings a vector x with xᵀFx = curvature to the boundary of the trust region."""
    return math.sqrt(2 * target_kl / (curvature + 1e-8)) if curvature >= 0 else math.nan


def natural_gradient_step(
    region: TrustRegion,
    gradients: Tensor,
    weights: tuple[float, float],
    settings: TrustRegionSettings,
    facts: Diagnostics | None = None,
    add: Callable[[Tensor], Tensor] | None = None,
    divergence: Callable[[Trial], float] | None = None,
) -> Proposal:
    """TRPO's step for one objective, w_r L_r + w_c L_c: accepted if that does not fall and the divergence is within δ.

    Args:
        region: the batch at θ.
        gradients: (2, P) of both surrogates.
        weights: w_r and w_c.
        settings: of the trust region.
        facts: to be reported.
        add: a matrix that is added to the Fisher matrix, as its product with rows.
        divergence: what takes the place of the KL.
    """
    w_r, w_c = weights
    solution = solve(region, (w_r * gradients[0] + w_c * gradients[1])[None], settings, add)
    curvature = float(solution.x[0] @ solution.product[0])
    scale = to_boundary(curvature, settings.target_kl)
    old = region.old

    def acceptable(trial: Trial) -> bool:
        gain = w_r * (trial.surrogate_r - old.surrogate_r) + w_c * (trial.surrogate_c - old.surrogate_c)
        return gain >= 0 and (trial.kl if divergence is None else divergence(trial)) <= settings.target_kl

    return Proposal(scale * solution.x[0], acceptable, solution, scale**2 * curvature, facts or {})
