"""What first-order methods share: passes of minibatches over the batch until the policy has moved far enough.

Every loss here is a function of the samples' ratios ρ = π_θ(a|s)/π_old(a|s) and, in two methods, of the divergence
KL(π_θ ‖ π_ref) at their states. So a method gives the slopes of its loss in both, and the chain rule through the
Gaussian and its network is written once, below, in NumPy (see `networks.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from sbtrpo.algorithms.base import Batch, Costs, Diagnostics, Method, Trial, report
from sbtrpo.config import TrainConfig
from sbtrpo.config.settings import MethodSettings, setting
from sbtrpo.nets.critics import Critics, critic_losses
from sbtrpo.nets.policy import Policy
from sbtrpo.nets.stack import Adam, Floats, Stack, clip_together, one_blas_thread

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class FirstOrderSettings(MethodSettings):
    """Settings of the methods that pass over a batch in minibatches, with the critics in the same ones."""

    target_kl: float = setting(0.02, above=0)
    """Beyond this KL from the rollout policy, passes stop."""
    learning_rate: float = setting(3e-4, above=0)
    """Of the policy; falls linearly to 0 over the run."""
    policy_batch: int = setting(64, least=1)
    """Samples in a minibatch."""
    policy_minibatches: int = setting(0, least=0)
    """Minibatches in a pass, of equal size; 0 leaves it to policy_batch."""
    policy_passes: int = setting(40, least=1)
    """The most passes over an epoch's samples."""
    critic_learning_rate: float = 3e-4
    max_grad_norm: float = setting(40.0, above=0)
    """Bound on the norm of the gradients that are clipped together."""


F = TypeVar("F", bound=FirstOrderSettings)


@dataclass
class Samples:
    """Rows of a batch, worlds and time in one axis."""

    obs: Floats
    """(n, obs_dim)"""
    action: Floats
    """(n, m)"""
    log_prob: Floats
    """(n,) of the actions under the rollout policy."""
    advantages: Floats
    """(1 + C, n) of reward, then of each constraint's cost."""
    targets: Floats
    """(K, n) of the critics; K may be 0."""
    reference: Floats
    """(n, outputs) of the policy that the divergence is measured from."""

    def __len__(self) -> int:
        return len(self.obs)

    @property
    def advantage_r(self) -> Floats:
        """(n,) of reward, or of whatever a method optimises in its place."""
        of_reward: Floats = self.advantages[0]
        return of_reward

    @property
    def advantage_c(self) -> Floats:
        """(n,) of the cost, for methods that take one constraint."""
        _, of_cost = self.advantages
        return np.asarray(of_cost)

    def at(self, rows: Any) -> Samples:
        """These rows."""
        return Samples(
            obs=self.obs[rows],
            action=self.action[rows],
            log_prob=self.log_prob[rows],
            advantages=self.advantages[:, rows],
            targets=self.targets[:, rows],
            reference=self.reference[rows],
        )


@dataclass(frozen=True)
class Slopes:
    """Of a loss, which is a mean over samples, in each sample's quantities: (n,) each, times n."""

    ratio: Doubles
    kl: Doubles | None = None
    """In KL(π_θ ‖ π_ref), which is `Pass.divergence`."""


class Actor:
    """The policy for minibatches: log standard deviations and network in one vector."""

    def __init__(self, policy: Policy) -> None:
        sizes = [policy.params[1].shape[1], *(bias.shape[0] for bias in policy.params[2::2])]
        self.head, self.spreads = policy.head, policy.head.spreads
        self.stack = Stack(1, sizes, extra=self.spreads)
        self.adam = Adam(len(self.stack.theta))
        self.outputs = np.zeros((0, self.head.outputs), np.float32)
        """The network's, when `kl_from` was last asked: (n, outputs)."""
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
        return self._in_order(self.stack.theta, self.stack.params)

    def flat_gradient(self) -> Floats:
        """The gradient in the same order."""
        return self._in_order(self.stack.gradient, self.stack.gradients)

    def _in_order(self, vector: Floats, parts: Sequence[Floats]) -> Floats:
        return np.concatenate([vector[: self.spreads], *(part[0].T.reshape(-1) for part in parts)])

    def store(self, policy: Policy) -> None:
        """Give the parameters to the policy."""
        policy.set(torch.from_numpy(self.flat()).to(policy.device))

    def mean(self, obs: Floats) -> Floats:
        """The network's outputs: (n, outputs)."""
        found: Floats = self.stack.forward(obs)[-1][0]
        return found

    def kl_from(self, old_mean: Floats, old_log_std: Floats, obs: Floats) -> float:
        """KL(old ‖ this policy), summed over action dimensions, averaged over observations."""
        self.outputs = self.mean(obs)
        return float(self.head.kl(np, (old_mean, old_log_std), (self.outputs, self.log_std)).mean())


class Pass:
    """The actor on some rows: ratios, divergence, and the way back from their slopes to the gradient.

    The network is in float32. What follows from its outputs is a few numbers a sample, and in float64: whether a ratio
    lies within the clipping range should not be left to rounding.

    Args:
        actor: as it is now.
        rows: a minibatch, or all samples.
        reference_log_std: of the policy that `rows.reference` belongs to.
        activations: of the actor's network if they are known; the outputs alone where nothing will go back.
    """

    def __init__(
        self, actor: Actor, rows: Samples, reference_log_std: Floats, activations: Sequence[Floats] | None = None
    ) -> None:
        self.actor, self.rows, self.head = actor, rows, actor.head
        self.activations = actor.stack.forward(rows.obs) if activations is None else activations
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

    def gradients(self) -> Floats:
        """∇ mean(ρ A) of every signal, in the order of the policy's parameters: (1 + C, P)."""
        found = []
        for advantage in self.rows.advantages:
            self.backward(Slopes(advantage.astype(np.float64)))
            found.append(self.actor.flat_gradient())
        return np.stack(found)

    def trial(self) -> Trial:
        """All surrogates, and KL(reference ‖ this policy)."""
        rows, kl = self.rows, float(self.head.kl(np, self.reference, self.policy).mean())
        return Trial(kl, tuple(float(self.ratio @ a) / len(rows) for a in rows.advantages))


class FirstOrderMethod(Method[F]):
    """Passes of minibatches with Adam, critics included, until KL(old ‖ new) exceeds δ. A method is its `slopes`."""

    family = "first order"
    Settings: ClassVar[type[MethodSettings]] = FirstOrderSettings
    in_one = True

    def __init__(
        self, policy: Policy, critics: Critics | None, config: TrainConfig, orders: torch.Generator,
        names: Sequence[str] = ("c",),
    ) -> None:  # fmt: skip
        super().__init__(policy, critics, config, orders, names)
        self.actor = Actor(policy)

    def prepare(self, samples: Samples, costs: Costs, progress: float) -> Diagnostics:
        """Whatever is fixed during an update: multipliers, penalties. Returns numbers to report."""
        return {}

    @abstractmethod
    def slopes(self, found: Pass) -> Slopes:
        """Of the loss in a minibatch's ratios and divergences."""

    def attempt(self, batch: Batch, costs: Costs, progress: float) -> Diagnostics:
        """All passes, with the critics' in the same minibatches."""
        actor = self.actor
        actor.load(self.policy)
        before, theta = self.start(batch), actor.flat()
        gradients = before.gradients()
        samples = replace(before.rows)  # a method may put other advantages in their place
        rate = self.settings.learning_rate * (1 - progress)
        with one_blas_thread():
            facts = self.prepare(samples, costs, progress)
            facts |= self.passes(samples, rate)
        finite = bool(np.isfinite(actor.stack.theta).all())
        if finite:
            actor.store(self.policy)
            after = Pass(actor, before.rows, before.reference[1], [actor.outputs[None]])
        else:
            actor.load(self.policy)
            after = before
        return {
            "skipped": float(not finite),
            "accepted_step": float(finite),
            **report(before.trial(), after.trial(), gradients, actor.flat() - theta, self.names),
            "learning_rate": rate,
            **facts,
        }

    def passes(self, samples: Samples, rate: float) -> Diagnostics:
        """The passes, by default with the critics in the same minibatches."""
        count, kl, losses = self.run(samples, rate, self.critics if len(samples.targets) else None)
        return {"passes": float(count), "kl_at_stop": kl, **losses}

    def run(self, samples: Samples, rate: float, critics: Critics | None) -> tuple[int, float, Diagnostics]:
        """Passes until KL(reference ‖ actor) exceeds δ: how many, the KL then, and the critics' losses in the last."""
        c, actor = self.settings, self.actor
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
        losses = critic_losses(torch.from_numpy(errors / len(samples)), self.names) if critics is not None else {}
        return count, kl, losses

    def clip(self, gradients: list[Floats]) -> None:
        """Bound the norm of all gradients together."""
        clip_together(gradients, self.settings.max_grad_norm)

    def start(self, batch: Batch) -> Pass:
        """The rollout policy on all samples, of which it is the reference, too."""
        obs = batch.obs.cpu().numpy()
        activations = self.actor.stack.forward(obs)
        samples = Samples(
            obs=obs,
            action=batch.action.cpu().numpy(),
            log_prob=batch.log_prob.cpu().numpy(),
            advantages=batch.advantages.cpu().numpy(),
            targets=np.zeros((0, len(obs)), np.float32) if batch.targets is None else batch.targets.cpu().numpy(),
            reference=activations[-1][0],
        )
        return Pass(self.actor, samples, self.actor.log_std.copy(), activations)

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
