"""What first-order methods share: passes of minibatches over the batch until the policy has moved far enough.

Every loss here is a function of the samples' ratios ρ = π_θ(a|s)/π_old(a|s) and, in two methods, of the divergence
KL(π_θ ‖ π_ref) at their states. So a method gives the slopes of its loss in both, and the chain rule through the
Gaussian and its network is written once, below, in NumPy (see `networks.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sbtrpo.algorithms.base import Batch, Diagnostics, Method, report
from sbtrpo.algorithms.critics import Critics
from sbtrpo.algorithms.networks import Adam, Floats, Stack, clip_together, one_blas_thread
from sbtrpo.algorithms.trust_region import TrustRegion, critic_losses
from sbtrpo.config import TrainConfig
from sbtrpo.policy import Policy, flatten

Doubles = NDArray[np.float64]


@dataclass
class Samples:
    """Rows of a batch, worlds and time in one axis."""

    obs: Floats
    """(n, obs_dim)"""
    action: Floats
    """(n, m)"""
    log_prob: Floats
    """(n,) of the actions under the rollout policy."""
    advantage_r: Floats
    """(n,)"""
    advantage_c: Floats
    """(n,)"""
    targets: Floats
    """(K, n) of the critics; K may be 0."""
    reference: Floats
    """(n, outputs) of the policy that the divergence is measured from."""

    def __len__(self) -> int:
        return len(self.obs)

    def at(self, rows: Any) -> Samples:
        """These rows."""
        return Samples(
            obs=self.obs[rows],
            action=self.action[rows],
            log_prob=self.log_prob[rows],
            advantage_r=self.advantage_r[rows],
            advantage_c=self.advantage_c[rows],
            targets=self.targets[:, rows],
            reference=self.reference[rows],
        )


@dataclass(frozen=True)
class Slopes:
    """Of a loss, which is a mean over samples, in each sample's quantities: (n,) each, times n."""

    ratio: Doubles
    kl: Doubles | None = None
    """In KL(π_θ ‖ π_ref), which is `Actor.divergence`."""


class Actor:
    """The policy for minibatches: log standard deviations and network in one vector."""

    def __init__(self, policy: Policy) -> None:
        sizes = [policy.params[1].shape[1], *(bias.shape[0] for bias in policy.params[2::2])]
        self.head, self.spreads = policy.head, policy.head.spreads
        self.stack = Stack(1, sizes, extra=self.spreads)
        self.adam = Adam(len(self.stack.theta))
        self.load(policy)

    @property
    def log_std(self) -> Floats:
        """(m,)"""
        return self.stack.theta[: self.spreads]

    def load(self, policy: Policy) -> None:
        """Take over the policy's parameters."""
        self.log_std[:] = policy.log_std.cpu().numpy()
        for mine, theirs in zip(self.stack.params, policy.params[1:], strict=True):
            mine[0] = theirs.cpu().numpy().T

    def flat(self) -> Floats:
        """All parameters in the order of the policy's: (P,)."""
        parts = [part[0].T if part.shape[1] > 1 else part[0, 0] for part in self.stack.params]
        return np.concatenate([self.log_std, *(part.reshape(-1) for part in parts)])

    def store(self, policy: Policy) -> None:
        """Give the parameters to the policy."""
        policy.set(torch.from_numpy(self.flat()).to(policy.device))

    def mean(self, obs: Floats) -> Floats:
        """The network's outputs: (n, outputs)."""
        found: Floats = self.stack.forward(obs)[-1][0]
        return found

    def kl_from(self, old_mean: Floats, old_log_std: Floats, obs: Floats) -> float:
        """KL(old ‖ this policy), summed over action dimensions, averaged over observations."""
        return float(self.head.kl(np, (old_mean, old_log_std), (self.mean(obs), self.log_std)).mean())


class Pass:
    """The actor on one minibatch: ratios, divergence, and the way back from their slopes to the gradient.

    The network is in float32. What follows from its outputs is a few numbers a sample, and in float64: whether a ratio
    lies within the clipping range should not be left to rounding.
    """

    def __init__(self, actor: Actor, rows: Samples, reference_log_std: Floats) -> None:
        self.actor, self.rows, self.head = actor, rows, actor.head
        self.activations = actor.stack.forward(rows.obs)
        outputs, log_std = self.activations[-1][0].astype(np.float64), actor.log_std.astype(np.float64)
        self.policy, self.reference = (outputs, log_std), (rows.reference, reference_log_std)
        log_prob = self.head.log_prob(np, outputs, log_std, rows.action)
        self.ratio: Doubles = np.exp(log_prob - rows.log_prob)
        """(n,)"""

    def divergence(self) -> Doubles:
        """KL(this policy ‖ reference), summed over action dimensions: (n,)."""
        found: Doubles = self.head.kl(np, self.policy, self.reference)
        return found

    def backward(self, slopes: Slopes) -> None:
        """Fill the actor's gradient."""
        n, actor = len(self.rows), self.actor
        weight = (slopes.ratio * self.ratio / n)[:, None]
        in_outputs, in_log_std = (weight * slope for slope in self.head.score(np, *self.policy, self.rows.action))
        if slopes.kl is not None:
            weight = (slopes.kl / n)[:, None]
            further = (weight * slope for slope in self.head.kl_slope(np, self.policy, self.reference))
            in_outputs, in_log_std = (a + b for a, b in zip((in_outputs, in_log_std), further, strict=True))
        actor.stack.backward(self.activations, in_outputs[None].astype(np.float32))
        actor.stack.gradient[: actor.spreads] = in_log_std.sum(axis=0)


class FirstOrderMethod(Method):
    """Passes of minibatches with Adam, critics included, until KL(old ‖ new) exceeds δ. A method is its `slopes`."""

    def __init__(self, policy: Policy, critics: Critics | None, config: TrainConfig, orders: torch.Generator) -> None:
        super().__init__(policy, critics, config, orders)
        self.actor = Actor(policy)

    def prepare(self, samples: Samples, cost: float, progress: float) -> Diagnostics:
        """Whatever is fixed during an update: multipliers, penalties. Returns numbers to report."""
        return {}

    @abstractmethod
    def slopes(self, found: Pass) -> Slopes:
        """Of the loss in a minibatch's ratios and divergences."""

    def update(self, batch: Batch, cost: float, progress: float) -> Diagnostics:
        """All passes, with the critics' in the same minibatches."""
        region = TrustRegion(self.policy, batch, "sum_over_dims", 0.0)
        gradients = region.gradients()
        self.actor.load(self.policy)
        samples = self._samples(batch)
        rate = self.config.learning_rate * (1 - progress)
        adam, critics = self.actor.adam.state_dict(), None if self.critics is None else self.critics.state_dict()
        with one_blas_thread():
            facts = self.prepare(samples, cost, progress)
            facts |= self.passes(samples, rate)
        finite = bool(np.isfinite(self.actor.stack.theta).all())
        if finite:
            self.actor.store(self.policy)
        else:  # as if the update had not been tried, so that the next one may succeed
            self.actor.adam.load_state_dict(adam)
            if self.critics is not None and critics is not None:
                self.critics.load_state_dict(critics)
        theta = flatten(self.policy.params)
        return {
            "skipped": float(not finite),
            "accepted_step": float(finite),
            **report(region, gradients, theta, region.evaluate(theta)),
            "learning_rate": rate,
            **facts,
        }

    def passes(self, samples: Samples, rate: float) -> Diagnostics:
        """The passes, by default with the critics in the same minibatches."""
        count, kl, losses = self.run(samples, rate, self.critics if len(samples.targets) else None)
        return {"passes": float(count), "kl_at_stop": kl, **losses}

    def run(self, samples: Samples, rate: float, critics: Critics | None) -> tuple[int, float, Diagnostics]:
        """Passes until KL(reference ‖ actor) exceeds δ: how many, the KL then, and the critics' losses in the last."""
        c, actor = self.config, self.actor
        reference_log_std = actor.log_std.copy()
        errors = np.zeros(len(samples.targets))
        count, kl = 0, 0.0
        while count < c.policy_passes and kl <= c.target_kl:
            count += 1
            shuffled = samples.at(torch.randperm(len(samples), generator=self.orders).numpy())
            errors[:] = 0
            for start in range(0, len(samples), c.policy_batch):
                rows = shuffled.at(slice(start, start + c.policy_batch))
                found = Pass(actor, rows, reference_log_std)
                found.backward(self.slopes(found))
                together = [actor.stack.gradient]
                if critics is not None:
                    error = critics.backward(rows.obs, rows.targets, c.critic_l2)
                    errors += np.einsum("kn,kn->k", error, error)
                    together.append(critics.stack.gradient)
                self.clip(together)
                actor.adam.step(actor.stack.theta, actor.stack.gradient, rate)
                if critics is not None:
                    critics.step()
            kl = actor.kl_from(samples.reference, reference_log_std, samples.obs)
        losses = critic_losses(torch.from_numpy(errors / len(samples))) if critics is not None else {}
        return count, kl, losses

    def clip(self, gradients: list[Floats]) -> None:
        """Bound the norm of all gradients together."""
        clip_together(gradients, self.config.max_grad_norm)

    def _samples(self, batch: Batch) -> Samples:
        obs = batch.obs.cpu().numpy()
        return Samples(
            obs=obs,
            action=batch.action.cpu().numpy(),
            log_prob=batch.log_prob.cpu().numpy(),
            advantage_r=batch.advantage_r.cpu().numpy(),
            advantage_c=batch.advantage_c.cpu().numpy(),
            targets=np.zeros((0, len(obs)), np.float32) if batch.targets is None else batch.targets.cpu().numpy(),
            reference=self.actor.mean(obs),
        )

    def state_dict(self) -> dict[str, Any]:
        """The multiplier and Adam's moments."""
        return {**super().state_dict(), "adam": self.actor.adam.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.actor.adam.load_state_dict(state["adam"])


def clipped(ratio: Doubles, advantage: Floats, clip: float) -> Doubles:
    """Slope in ρ of PPO's min(ρ A, clip(ρ, 1 - ε, 1 + ε) A): A, or 0 where the clipped term is the smaller one.

    The pessimistic bound of a cost, max(ρ A, clip(ρ) A), is the same of -A: its slope is `-clipped(ratio, -A, clip)`.

    >>> clipped(np.array([0.5, 1.0, 1.5]), np.array([1.0, 1.0, 1.0]), 0.2).tolist()
    [1.0, 1.0, 0.0]
    """
    beyond = np.where(advantage > 0, ratio > 1 + clip, ratio < 1 - clip)
    return np.where(beyond, 0.0, advantage)
