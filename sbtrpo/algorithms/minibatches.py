"""Minibatches of first-order methods: what a loss is made of, and the way back from it to the policy's parameters.

Every loss here is a function of the samples' ratios ρ = π_θ(a|s)/π_old(a|s) and, in two methods, of the divergence
KL(π_θ ‖ π_ref) at their states. So a method may give the slopes of its loss in both, and the chain rule through the
distribution and its network is written once, in `Actor.backward`. Or it gives the loss, and autograd does the rest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from sbtrpo.nets.distributions import Array
from sbtrpo.nets.forms import Form, chunks, copy_of, module_of, to_numpy
from sbtrpo.nets.policy import Policy


@dataclass
class Samples:
    """Rows of a batch, worlds and time in one axis."""

    obs: Array
    """(n, obs_dim)"""
    action: Array
    """(n, m)"""
    log_prob: Array
    """(n,) of the actions under the rollout policy."""
    advantages: Array
    """(1 + C, n) of reward, then of each constraint's cost."""
    targets: Array
    """(K, n) of the critics; K may be 0."""
    reference: Array
    """(n, outputs) of the policy that the divergence is measured from."""

    def __len__(self) -> int:
        return len(self.obs)

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

    @property
    def advantage_r(self) -> Array:
        """(n,) of reward, or what a method puts in its place."""
        return self.advantages[0]

    @advantage_r.setter
    def advantage_r(self, values: Array) -> None:
        self._replace(0, values)

    @property
    def advantage_c(self) -> Array:
        """(n,) of the cost, for methods that take one constraint."""
        assert len(self.advantages) == 2
        return self.advantages[1]

    @advantage_c.setter
    def advantage_c(self, values: Array) -> None:
        self._replace(1, values)

    def _replace(self, signal: int, values: Array) -> None:
        """Other advantages in an array of their own: the report still reads the old one."""
        self.advantages = copy_of(self.advantages)
        self.advantages[signal] = values


@dataclass(frozen=True)
class Slopes:
    """Of a loss, which is a mean over samples, in each sample's quantities: (n,) each, times n."""

    ratio: Array
    kl: Array | None = None
    """In KL(π_θ ‖ π_ref), which is `Minibatch.kl`."""


class Minibatch:
    """What a loss is made of: some rows, and the policy there as it is now.

    The network is in the form's precision, which is float32 in training. What follows from its outputs is a few numbers
    a sample, and in float64: whether a ratio lies within the clipping range should not be left to rounding.

    Args:
        actor: whose distribution it is.
        rows: a minibatch, or all samples.
        policy: outputs (n, outputs) and log_std of the actor, in float64.
        reference_log_std: of the policy that `rows.reference` belongs to.
        fixed: what the method's `prepare` returned.
        activations: of the actor's network, where there is a way back through it.
    """

    def __init__(
        self, actor: Actor, rows: Samples, policy: tuple[Array, Array], reference_log_std: Array, fixed: Any = None,
        activations: Sequence[Array] = (),
    ) -> None:  # fmt: skip
        self.xp, self.double, self.head = actor.form.xp, actor.form.double, actor.head
        self.rows, self.policy, self.fixed, self.activations = rows, policy, fixed, activations
        self.reference = rows.reference, reference_log_std
        self.log_prob: Array = self.head.log_prob(self.xp, *policy, rows.action)
        """(n,) of the actions under the policy."""
        self.ratio: Array = self.xp.exp(self.log_prob - rows.log_prob)
        """(n,) ρ"""

    @functools.cached_property
    def kl(self) -> Array:
        """KL(policy ‖ reference), summed over action dimensions: (n,)."""
        return self.head.kl(self.xp, self.policy, self.reference)

    @property
    def obs(self) -> Array:
        """(n, obs_dim)"""
        return self.rows.obs

    @property
    def action(self) -> Array:
        """(n, m)"""
        return self.rows.action

    @property
    def advantages(self) -> Array:
        """(1 + C, n) of reward, then of each constraint's cost."""
        return self.rows.advantages

    @property
    def advantage_r(self) -> Array:
        """(n,) of reward, or what the method put in its place."""
        return self.rows.advantage_r

    @property
    def advantage_c(self) -> Array:
        """(n,) of the cost, for methods that take one constraint."""
        return self.rows.advantage_c

    def slopes_in_policy(self, slopes: Slopes) -> tuple[Array, Array]:
        """Of the loss, given its slopes, in the network's outputs, (n, outputs), and in log_std, (m,)."""
        xp, head, n = self.xp, self.head, self.ratio.shape[-1]
        weight = (slopes.ratio * self.ratio / n)[..., None]
        in_outputs, in_log_std = (weight * slope for slope in head.score(xp, *self.policy, self.action))
        if slopes.kl is not None:
            weight = (slopes.kl / n)[..., None]
            further = (weight * slope for slope in head.kl_slope(xp, self.policy, self.reference))
            in_outputs, in_log_std = (a + b for a, b in zip((in_outputs, in_log_std), further, strict=True))
        return in_outputs, in_log_std.sum(axis=-2)

    def totals(self) -> Any:
        """Sums over the rows, on the host: of KL(reference ‖ policy), and of ρ A of every signal."""
        kl = self.head.kl(self.xp, self.reference, self.policy).sum()
        weighted = [self.ratio @ self.double(advantage) for advantage in self.advantages]
        return to_numpy(self.xp.stack([kl, *weighted]))


class Actor:
    """The policy for minibatches: log standard deviations and network in one vector."""

    def __init__(self, policy: Policy, form: Form) -> None:
        sizes = [policy.observation_size, *policy.hidden, policy.head.outputs]
        self.form, self.head, self.spreads = form, policy.head, policy.head.spreads
        self.stack, self._network = form.stack(1, sizes, self.spreads, policy.design), policy.network
        self.adam = form.adam(len(self.stack.theta))
        self.outputs = form.zeros((0, self.head.outputs))
        """The network's, when `kl_from` was last asked: (n, outputs)."""
        self.load(policy)

    @property
    def log_std(self) -> Array:
        """(m,)"""
        return self.stack.theta[: self.spreads]

    def load(self, policy: Policy) -> None:
        """Take over the policy's parameters."""
        self.log_std[:] = self.form.array(policy.log_std)
        for mine, theirs in zip(self.stack.params, policy.params[1:], strict=True):
            mine[0] = self.form.array(theirs).T if theirs.ndim == 2 else self.form.array(theirs)

    def store(self, policy: Policy) -> None:
        """Give the parameters to the policy."""
        policy.set(self.form.tensor(self.flat()).to(policy.device))

    def flat(self) -> Array:
        """All parameters in the order of the policy's: (P,)."""
        return self._in_order(self.stack.theta, self.stack.params)

    def flat_gradient(self) -> Array:
        """The gradient in the same order."""
        return self._in_order(self.stack.gradient, self.stack.gradients)

    def _in_order(self, vector: Array, tensors: Sequence[Array]) -> Array:
        return self.form.join([vector[: self.spreads], *(tensor[0].T.reshape(-1) for tensor in tensors)])

    def mean(self, obs: Array) -> Array:
        """The network's outputs: (n, outputs)."""
        return self.form.join([self.stack.forward(obs[rows])[-1][0] for rows in chunks(len(obs))])

    def kl_from(self, old_mean: Array, old_log_std: Array, obs: Array) -> float:
        """KL(old ‖ this policy), summed over action dimensions, averaged over observations."""
        self.outputs, new = self.mean(obs), self.log_std
        divergences = [
            self.head.kl(self.form.xp, (old_mean[rows], old_log_std), (self.outputs[rows], new))
            for rows in chunks(len(obs))
        ]
        return float(self.form.join(divergences).mean())

    def see(
        self, rows: Samples, reference_log_std: Array, fixed: Any = None, activations: Sequence[Array] | None = None
    ) -> Minibatch:
        """Rows as they look now; with the network's activations, or outputs alone, where they are known."""
        if activations is None:
            activations = self.stack.forward(rows.obs)
        policy = self.form.double(activations[-1][0]), self.form.double(self.log_std)
        return Minibatch(self, rows, policy, reference_log_std, fixed, activations)

    def see_with_graph(self, rows: Samples, reference_log_std: Array, fixed: Any = None) -> Minibatch:
        """The same as functions of `leaves` that autograd differentiates."""
        log_std, *layers = self.leaves
        outputs = self._network([leaf[0] if k % 2 else leaf.T for k, leaf in enumerate(layers)])(rows.obs)
        return Minibatch(self, rows, (outputs.double(), log_std.double()), reference_log_std, fixed)

    @functools.cached_property
    def leaves(self) -> list[Tensor]:
        """log_std, weight, bias, ... for autograd: they share the stack's parameters, and `grad` its gradient."""
        stack = self.stack
        values = [self.log_std, *(param[0] for param in stack.params)]
        gradients = [stack.gradient[: self.spreads], *(gradient[0] for gradient in stack.gradients)]
        leaves = [value.detach().requires_grad_() for value in values]
        for leaf, gradient in zip(leaves, gradients, strict=True):
            leaf.grad = gradient
        return leaves

    def backward(self, batch: Minibatch, slopes: Slopes) -> None:
        """Fill the gradient from the slopes of a loss."""
        in_outputs, in_log_std = batch.slopes_in_policy(slopes)
        self.stack.backward(batch.activations, self.form.array(in_outputs[None]))
        self.stack.gradient[: self.spreads] = in_log_std

    def surrogate_gradients(self, batch: Minibatch) -> Array:
        """∇ mean(ρ A) of every signal, in the order of the policy's parameters: (1 + C, P)."""
        gradients = []
        for advantage in batch.advantages:
            self.backward(batch, Slopes(self.form.double(advantage)))
            gradients.append(self.flat_gradient())
        return self.form.xp.stack(gradients)


@dataclass(frozen=True)
class BySlopes:
    """A gradient from slopes written by hand."""

    slopes: Callable[[Minibatch], Slopes]

    def __call__(self, actor: Actor, rows: Samples, reference_log_std: Array, fixed: Any) -> None:
        """Fill the actor's gradient."""
        batch = actor.see(rows, reference_log_std, fixed)
        actor.backward(batch, self.slopes(batch))


@dataclass(frozen=True)
class ByLoss:
    """A gradient by autograd."""

    loss: Callable[[Minibatch], Tensor]

    def __call__(self, actor: Actor, rows: Samples, reference_log_std: Array, fixed: Any) -> None:
        """Fill the actor's gradient."""
        with torch.enable_grad():
            value = self.loss(actor.see_with_graph(rows, reference_log_std, fixed))
        if value.ndim or not value.requires_grad:
            raise ValueError("loss must return one number that depends on the policy, such as (-batch.ratio).mean()")
        actor.stack.gradient.zero_()
        value.backward()  # type: ignore[no-untyped-call]


Objective: TypeAlias = BySlopes | ByLoss

M = TypeVar("M", bound=Callable[..., Slopes])


def for_several(*settings: str) -> Callable[[M], M]:
    """Marks slopes that may be asked for several learners at once: quantities have another axis before the samples'.

    They depend on the minibatch, on numbers in `fixed`, which are then columns, and on these settings of the method,
    and on nothing else.
    """

    def mark(slopes: M) -> M:
        slopes.of_settings = settings  # type: ignore[attr-defined]
        return slopes

    return mark


def clipped(ratio: Array, advantage: Array, clip: float) -> Array:
    """Slope in ρ of PPO's min(ρ A, clip(ρ, 1 - ε, 1 + ε) A): A, or 0 where the clipped term is the smaller one.

    The pessimistic bound of a cost, max(ρ A, clip(ρ) A), is the same of -A: its slope is `-clipped(ratio, -A, clip)`.

    >>> import numpy as np
    >>> clipped(np.array([0.5, 1.0, 1.5]), np.array([1.0, 1.0, 1.0]), 0.2).tolist()
    [1.0, 1.0, 0.0]
    """
    xp = module_of(ratio)
    beyond = xp.where(advantage > 0, ratio > 1 + clip, ratio < 1 - clip)
    return xp.where(beyond, 0.0, advantage)
