"""What trust-region methods share: surrogates, the Fisher product, conjugate gradients, scaling, line search.

All of it works on the full batch and on the policy's parameters as one vector θ (log standard deviations first). At
fixed θ and observations the network's Jacobian J is a fixed linear map (`nets/linearised.py`), so a Fisher product,
F v = Jᵀ M J v / N with the closed form M of the outputs' distribution (σ⁻² for a Gaussian's means), is one forward and
one backward pass over stored activations, and several vectors pass through together.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.base import Batch, Costs, Diagnostics, Method, SeparateCritics, Trial, report
from sbtrpo.algorithms.pace import Pace, length
from sbtrpo.config import TrainConfig
from sbtrpo.config.settings import MethodSettings, setting
from sbtrpo.nets.critics import Critics, critic_losses
from sbtrpo.nets.forms import minibatch_form, rows_per_minibatch
from sbtrpo.nets.linearised import AnyLinearised, LinearisedChunks
from sbtrpo.nets.network import flatten, unflatten
from sbtrpo.nets.policy import Policy

KLReduction = Literal["mean_over_dims", "sum_over_dims"]


@dataclass(frozen=True)
class TrustRegionSettings(SeparateCritics):
    """Settings of the methods that take one step a batch, within a trust region."""

    target_kl: float = setting(0.01, above=0)
    """Radius of the trust region."""
    step_decay: float = setting(0.0, least=0, most=1)
    """Share of the steps' length that is gone at the end of the run; the radius falls as its square."""
    step_decay_from: float = setting(0.0, least=0, below=1, span="in [0, 1)")
    """Share of the run after which steps begin to grow shorter, linearly."""
    pace: float = setting(0.0, least=0)
    """Steps are at most so often as long as the part of them that successive updates agree on; 0: always full ones."""
    pace_memory: float = setting(0.98, least=0, below=1, span="in [0, 1)")
    """Weight of earlier updates in that agreement, each time another one has come."""
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

    @override
    def scheduled(self, progress: float) -> dict[str, Any]:
        if not self.step_decay:
            return {}
        return {"target_kl": self.target_kl * (1 - self.step_decay * over_since(self.step_decay_from, progress)) ** 2}


def over_since(begin: float, progress: float) -> float:
    """With that share of a run over, the share that is over of what lies behind `begin`.

    >>> over_since(0.5, 0.25), over_since(0.5, 0.75)
    (0.0, 0.5)
    """
    return max(0.0, progress - begin) / (1 - begin)


T = TypeVar("T", bound=TrustRegionSettings)


class TrustRegion:
    """Everything about one batch at the rollout parameters θ. Sums over samples run in chunks of bounded memory."""

    def __init__(self, policy: Policy, batch: Batch, kl_reduction: KLReduction, damping: float) -> None:
        self.policy, self.batch, self.damping = policy, batch, damping
        self.theta = flatten(policy.params)
        # Copies: chunks that are not kept are linearised at θ, also after the policy has moved on.
        log_std, *network = (tensor.clone() for tensor in policy.params)
        self.log_std, self.head = log_std, policy.head
        self.chunks = LinearisedChunks(policy.network(network), batch.obs)
        # The published code averages the KL over action dimensions, too: a target of δ is then m·δ in truth.
        self.kl_scale = 1 / self.head.dimensions if kl_reduction == "mean_over_dims" else 1.0

    def gradients(self) -> Tensor:
        """∇ mean(ρ A) of every signal at θ, where every ratio ρ is 1: (1 + C, P)."""
        return self._gradients(self.batch.advantages)

    def gradients_of_halves(self) -> Tensor:
        """The same from every second world alone, and from the others: (2, 1 + C, P)."""
        advantages, worlds = self.batch.advantages, self.batch.worlds
        second = torch.arange(advantages.shape[1], device=advantages.device) % worlds % 2
        apart = [advantages * (second == half) * (worlds / ((worlds + 1 - half) // 2)) for half in (0, 1)]
        return torch.stack(self._gradients(torch.cat(apart)).chunk(2))

    def _gradients(self, advantages: Tensor) -> Tensor:
        """∇ mean(ρ A) for each row A of the advantages (K, B): (K, P)."""
        batch = self.batch

        def of_chunk(rows: slice, network: AnyLinearised) -> Tensor:
            in_outputs, in_log_std = self.head.score(torch, network.output, self.log_std, batch.action[rows])
            weight = advantages[:, rows] / len(batch.obs)
            return torch.cat([weight @ in_log_std, network.pullback(in_outputs.T[:, None, :] * weight)], dim=1)

        return self._sum(of_chunk)

    def fisher(self, vectors: Tensor) -> Tensor:
        """(F + damping I) v for each of the vectors: (K, P) -> (K, P)."""
        tangents = [torch.stack(v) for v in zip(*(unflatten(v, self.policy.params) for v in vectors), strict=True)]

        def of_chunk(rows: slice, network: AnyLinearised) -> Tensor:
            change = self.head.metric(torch, network.output, self.log_std, network.pushforward(tangents[1:]))
            change *= self.kl_scale / len(self.batch.obs)
            return network.pullback(change)

        product = torch.cat([tangents[0] * (2 * self.kl_scale), self._sum(of_chunk)], dim=1)
        return product.add_(vectors, alpha=self.damping)

    def solve(self, b: Tensor, settings: TrustRegionSettings, add: Callable[[Tensor], Tensor] | None) -> Solution:
        """See `solve` below."""

        def product(vectors: Tensor) -> Tensor:
            fisher = self.fisher(vectors)
            return fisher if add is None else fisher + add(vectors)

        return conjugate_gradient(product, b, settings.cg_iterations, settings.cg_tolerance, settings.cg_epsilon)

    def _sum(self, of_chunk: Callable[[slice, AnyLinearised], Tensor]) -> Tensor:
        return functools.reduce(torch.add, itertools.starmap(of_chunk, self.chunks))

    def evaluate(self, theta: Tensor) -> Trial:
        """Surrogates and KL at other parameters, on the same batch."""
        params = unflatten(theta, self.policy.params)
        return self._trial(lambda rows: self.policy.mean(self.batch.obs[rows], params), params[0])

    @functools.cached_property
    def old(self) -> Trial:
        """The same at θ itself, where the network's outputs are known."""
        return self._trial(lambda rows: self.chunks.output[rows], self.log_std)

    def _trial(self, outputs_of: Callable[[slice], Tensor], log_std: Tensor) -> Trial:
        """The means over the batch, from those over chunks and their shares."""
        shares = [(rows.stop - rows.start) / len(self.batch.obs) for rows in self.chunks.rows]
        means = [self._means(rows, outputs_of(rows), log_std).double() for rows in self.chunks.rows]
        kl, *surrogates = functools.reduce(torch.add, map(torch.mul, means, shares)).tolist()
        return Trial(kl, tuple(surrogates))

    def _means(self, rows: slice, outputs: Tensor, log_std: Tensor) -> Tensor:
        """(2 + C,) the KL, then mean(ρ A) of every signal, over these rows."""
        batch, head = self.batch, self.head
        ratio = torch.exp(head.log_prob(torch, outputs, log_std, batch.action[rows]) - batch.log_prob[rows])
        kl = head.kl(torch, (self.chunks.output[rows], self.log_std), (outputs, log_std)).mean() * self.kl_scale
        surrogates = torch.stack([ratio @ advantage for advantage in batch.advantages[:, rows]]) / len(ratio)
        return torch.cat([kl[None], surrogates])


@dataclass(frozen=True)
class Solution:
    """What conjugate gradients found."""

    x: Tensor
    """(K, P)"""
    product: Tensor
    """(K, P) A x, which is b less the residual: it costs no further product."""
    taken: Tensor
    """(K,) iterations of each."""
    residual: Tensor
    """(K,) relative to the right-hand sides."""

    @property
    def iterations(self) -> int:
        """Until all were solved."""
        return int(self.taken.max())

    def curvature(self, *weights: float) -> float:
        """ΔᵀAΔ of the sum Δ of the solutions with these weights."""
        w = self.x.new_tensor(weights)
        return float(w @ (self.x @ self.product.T) @ w)


def conjugate_gradient(
    product: Callable[[Tensor], Tensor],
    b: Tensor,
    iterations: int | Tensor,
    tolerance: float | Tensor = 0.0,
    epsilon: float | Tensor = 0.0,
) -> Solution:
    """Solve A x = b for each row of b (K, P) together, so that every product serves all of them.

    Args:
        product: A applied to rows, (K, P) -> (K, P).
        b: right-hand sides.
        iterations: the most products; like what follows for all rows, or (K,) of each.
        tolerance: a system is done when its residual falls below this share of its right-hand side.
        epsilon: added to denominators, as the published code does with 1e-6.
    """
    residual = b.double()  # products are as precise as b; what builds up over the iterations is more so
    x, direction = torch.zeros_like(residual), residual.clone()
    rr = (residual * residual).sum(dim=1)
    goal = torch.clamp(tolerance**2 * rr, min=1e-20)
    taken = torch.zeros_like(rr, dtype=torch.int64)
    while bool((active := (rr > goal) & (taken < iterations)).any()):
        a_direction = product(direction.to(b.dtype)).double()
        curvature = (direction * a_direction).sum(dim=1) + epsilon
        alpha = active * rr / torch.where(curvature == 0, torch.ones_like(curvature), curvature)
        x = x + alpha[:, None] * direction
        residual = residual - alpha[:, None] * a_direction
        new_rr = (residual * residual).sum(dim=1)
        ratio = new_rr / (rr + epsilon + (rr == 0))
        direction = torch.where(active[:, None], residual + ratio[:, None] * direction, direction)
        rr = torch.where(active, new_rr, rr)
        taken += active
    norm = torch.clamp((b.double() ** 2).sum(dim=1), min=1e-30)
    return Solution(x.to(b.dtype), (b - residual).to(b.dtype), taken, torch.sqrt(rr / norm))


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
    """Shrink the step η·delta by `fraction` until it is acceptable; θ itself if it never is.

    A step no longer than ε‖θ‖, ε of the parameters' precision, never is: it is lost in the rounding of θ, where the
    surrogates' changes are noise. Only a `delta` of zero, which a batch without any signal gives, is taken as it is.
    """
    eta, length, done = first, _norm(delta), 0
    rounding = torch.finfo(delta.dtype).eps * _norm(region.theta)
    while done < tries and not 0 < eta * length <= rounding:
        done += 1
        theta = region.theta + eta * delta
        trial = region.evaluate(theta)
        if trial.finite and acceptable(trial):
            return Accepted(theta, eta, done, trial)
        eta *= fraction
    return Accepted(region.theta, 0.0, done, region.old)


def _norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))


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
    region: type[TrustRegion] = TrustRegion
    """What looks at a batch; another one where several learners are updated together."""

    def __init__(
        self, policy: Policy, critics: Critics | None, config: TrainConfig, orders: torch.Generator,
        names: Sequence[str] = ("c",),
    ) -> None:  # fmt: skip
        super().__init__(policy, critics, config, orders, names)
        self.pace = Pace(flatten(policy.params), self.settings.pace_memory) if self.settings.pace else None
        if critics is not None:
            critics.use(minibatch_form(policy.device, self._critic_rows(config.steps_per_epoch)))

    @abstractmethod
    def propose(self, region: TrustRegion, gradients: Tensor, costs: Costs) -> Proposal:
        """The full step, from all surrogates' gradients (1 + C, P) and Ĵ_c of each constraint."""

    @override
    def attempt(self, batch: Batch, costs: Costs, progress: float) -> Diagnostics:
        settings = self.settings
        now = settings.scheduled(progress)
        if not now:
            return self._attempt(batch, costs)
        try:
            self.settings = dataclasses.replace(settings, **now)
            radius = {"radius": self.settings.target_kl} if "target_kl" in now else {}
            return {**radius, **self._attempt(batch, costs)}
        finally:
            self.settings = settings

    def _attempt(self, batch: Batch, costs: Costs) -> Diagnostics:
        """An update with the settings that hold now."""
        settings = self.settings
        region = self.region(self.policy, batch, settings.kl_reduction, settings.cg_damping)
        gradients = region.gradients()
        proposal, pace = self._paced(self.propose(region, gradients, costs), region)
        solution = proposal.solution
        skipped = not bool(torch.isfinite(proposal.step).all() & torch.isfinite(solution.x).all())
        accepted = Accepted(region.theta, 0.0, 0, region.old)
        if not skipped:
            shorten = settings.line_search_tries, settings.line_search_fraction, settings.line_search_first
            accepted = line_search(region, proposal.step, proposal.acceptable, *shorten)
        self.policy.set(accepted.theta)
        damped = accepted.step**2 * proposal.curvature
        common = report(region.old, accepted.trial, gradients, accepted.theta - region.theta, self.names)
        return {
            "skipped": float(skipped),
            "accepted_step": accepted.step,
            "line_search_tries": float(accepted.tries),
            "line_search_failed": float(accepted.step == 0.0 and not skipped),
            **common,
            "kl_predicted": 0.5 * (damped - settings.cg_damping * common["step_norm"] ** 2),
            "kl_predicted_damped": 0.5 * damped,
            "cg_iterations": float(solution.iterations),
            "cg_residual": float(solution.residual.max()),
            **proposal.facts,
            **pace,
            **dict(zip([f"holds_{name}" for name in ("r", *self.names)], what_holds(region, settings), strict=True)),
            **self._fit(batch),
        }

    def _paced(self, full: Proposal, region: TrustRegion) -> tuple[Proposal, Diagnostics]:
        """The proposal with a step as long as its pace allows."""
        if self.pace is None:
            return full, {}
        if not bool(torch.isfinite(full.step).all()):
            return full, {"agreement": math.nan, "step_length": math.nan}
        agreement = self.pace.agreement(full.step, region.fisher(full.step[None])[0])
        share = length(agreement, self.settings.pace)
        shorter = dataclasses.replace(full, step=share * full.step, curvature=share**2 * full.curvature)
        return shorter, {"agreement": agreement, "step_length": share}

    @override
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), **({} if self.pace is None else {"pace": self.pace.state_dict()})}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.pace is not None:
            self.pace.load_state_dict(state["pace"])

    def residuals(self, solution: Solution) -> Diagnostics:
        """`cg_residual_<signal>` of a solution that has a row for each signal."""
        keys = [f"cg_residual_{name}" for name in ("r", *self.names)]
        return dict(zip(keys, solution.residual.tolist(), strict=True))

    def _critic_rows(self, samples: int) -> int:
        """Of the critics' minibatches, where there are so many samples."""
        return rows_per_minibatch(self.settings.critic_batch, self.settings.critic_minibatches, samples)

    def _fit(self, batch: Batch) -> Diagnostics:
        """Fit the critics, if there are any; their losses."""
        if self.critics is None or batch.targets is None:
            return {}
        c, rows = self.settings, self._critic_rows(len(batch.obs))
        losses, _ = self.critics.fit(
            batch.obs, batch.targets, rows, c.critic_passes, c.critic_l2, c.max_grad_norm, self.orders
        )
        return critic_losses(losses, self.names)


def solve(
    region: TrustRegion, b: Tensor, settings: TrustRegionSettings, add: Callable[[Tensor], Tensor] | None = None
) -> Solution:
    """F⁻¹ b for each row of b (K, P), with what `add` gives added to the damped Fisher product."""
    return region.solve(b, settings, add)


def what_holds(region: TrustRegion, settings: TrustRegionSettings) -> list[float]:
    """Of each signal, the share of what a natural step from half of the worlds promises that holds in the others.

    To first order, and on average over both halves: (g₁ᵀΔ₂ + g₂ᵀΔ₁) / (g₁ᵀΔ₁ + g₂ᵀΔ₂) with Δ = F⁻¹g. It is 1 where
    both halves have the same gradient and 0, on average, where gradients are noise. NaN where nobody asked.
    """
    if region.batch.worlds < 2:
        return [math.nan] * len(region.batch.advantages)
    g = region.gradients_of_halves()
    delta = solve(region, g.flatten(0, 1), settings).x.view_as(g)
    own, other = ((g * steps).double().sum(dim=(0, 2)) for steps in (delta, delta.flip(0)))
    shares: list[float] = torch.where(own > 0, other / own, math.nan).tolist()
    return shares


def to_boundary(curvature: float, target_kl: float) -> float:
    """The factor that brings a vector x with xᵀFx = curvature to the boundary of the trust region."""
    return math.sqrt(2 * target_kl / (curvature + 1e-8)) if curvature >= 0 else math.nan


def natural_gradient_step(
    region: TrustRegion,
    gradients: Tensor,
    weights: Sequence[float],
    settings: TrustRegionSettings,
    facts: Diagnostics | None = None,
    add: Callable[[Tensor], Tensor] | None = None,
    divergence: Callable[[Trial], float] | None = None,
) -> Proposal:
    """TRPO's step for one objective, Σ w_s L_s: accepted if that does not fall and the divergence is within δ.

    Args:
        region: the batch at θ.
        gradients: (1 + C, P) of all surrogates.
        weights: w_s of reward and of each cost.
        settings: of the trust region.
        facts: to be reported.
        add: a matrix that is added to the Fisher matrix, as its product with rows.
        divergence: what takes the place of the KL.
    """
    objective = functools.reduce(torch.add, [w * g for w, g in zip(weights, gradients, strict=True)])
    solution = solve(region, objective[None], settings, add)
    curvature = float(solution.x[0] @ solution.product[0])
    scale = to_boundary(curvature, settings.target_kl)
    old = region.old

    def acceptable(trial: Trial) -> bool:
        changes = [new - before for new, before in zip(trial.surrogates, old.surrogates, strict=True)]
        gain = sum(weight * change for weight, change in zip(weights, changes, strict=True))
        return gain >= 0 and (trial.kl if divergence is None else divergence(trial)) <= settings.target_kl

    return Proposal(scale * solution.x[0], acceptable, solution, scale**2 * curvature, facts or {})
