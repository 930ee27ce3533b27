"""What a learner of a first-order method does with each of its minibatches, and the same of several learners at once.

A minibatch is some hundred operations that have next to nothing to do. So learners of a pack on a GPU whose lessons are
alike in all but data, networks and slopes have them together: every layer is one batched product, and clipping and Adam
are a few operations for all. Slopes are each method's own. A learner's numbers are those that it has alone, but for the
rounding of batched products.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.minibatches import Actor, BySlopes, Minibatch, Objective, Samples, Slopes
from sbtrpo.nets.critics import Critics, regress
from sbtrpo.nets.distributions import Array
from sbtrpo.nets.forms import Form
from sbtrpo.nets.stack_torch import StackRows


@dataclass(frozen=True, eq=False)
class Lesson:
    """A step of the actor, and one of the critics where they learn from the same minibatches."""

    actor: Actor
    critics: Critics | None
    samples: Samples
    reference_log_std: Array
    """Of the policy that `samples.reference` belongs to."""
    fixed: Any
    """What the method's `prepare` returned."""
    objective: Objective
    clip: Callable[[list[Array]], None]
    """Bounds the norm of gradients, in place."""
    bound: float | None
    """Of that norm; None if `clip` is not simply this."""
    rate: float
    """Learning rate of the actor."""
    critic_l2: float
    squares: Array
    """(K,) sums of the critics' squared errors so far."""

    def __call__(self, rows: Array) -> None:
        """Learn from the samples of these numbers."""
        self.learn(self.samples.at(rows))

    def learn(self, rows: Samples) -> None:
        """Learn from these samples."""
        actor, critics = self.actor, self.critics
        self.objective(actor, rows, self.reference_log_std, self.fixed)
        gradients = [actor.stack.gradient]
        if critics is not None:
            self.squares[:] += critics.form.square_sums(critics.backward(rows.obs, rows.targets, self.critic_l2))
            gradients.append(critics.stack.gradient)
        self.clip(gradients)
        actor.adam.step(actor.stack.theta, actor.stack.gradient, self.rate)
        if critics is not None:
            critics.step()

    @property
    def kind(self) -> Hashable | None:
        """The same of lessons that can be had together; None where only alone."""
        if self.bound is None or not isinstance(self.objective, BySlopes):
            return None
        actor, samples, critics = self.actor, self.samples, self.critics
        network = tuple(actor.stack.layers), actor.stack.activation, actor.head.discrete
        of_critics = critics and (tuple(critics.stack.layers), critics.learning_rate, self.critic_l2)
        return network, of_critics, samples.advantages.shape, samples.targets.shape, self.bound, self.rate


class Together:
    """Lessons of L learners that are alike."""

    def __init__(self, lessons: Sequence[Lesson]) -> None:
        self.lessons, first = lessons, lessons[0]
        self._form: Form = first.actor.form
        self._actors = StackRows([one.actor.stack for one in lessons], [one.actor.adam for one in lessons])
        critics = [one.critics for one in lessons if one.critics is not None]
        self._critics = StackRows([one.stack for one in critics], [one.adam for one in critics]) if critics else None
        self._samples = Samples(
            **{name: torch.cat([getattr(one.samples, name) for one in lessons], dim) for name, dim in _SAMPLES.items()}
        )
        self._reference_log_std = torch.stack([one.reference_log_std for one in lessons])[:, None]
        self._squares = torch.stack([one.squares for one in lessons])

    def numbers(self, orders: Sequence[Tensor], rows: int) -> Tensor:
        """Of the samples, in the learners' orders: so many rows of the first, so many of the second, ..., and again."""
        count = len(orders[0])
        of_all = torch.stack([order + k * count for k, order in enumerate(orders)])
        return torch.cat([piece.flatten() for piece in torch.split(of_all, rows, dim=1)])

    def load(self) -> None:
        """Take over what the learners hold."""
        self._actors.load()
        if self._critics is not None:
            self._critics.load()
        self._squares.copy_(torch.stack([one.squares for one in self.lessons]))

    def store(self) -> None:
        """Give it back to them."""
        self._actors.store()
        if self._critics is not None:
            self._critics.store()
        for one, squares in zip(self.lessons, self._squares, strict=True):
            one.squares.copy_(squares)

    def __call__(self, numbers: Tensor) -> None:
        """Learn from as many samples of each learner, the first one's first."""
        first, actors, critics = self.lessons[0], self._actors, self._critics
        rows = _apart(self._samples.at(numbers), len(self.lessons))
        activations = actors.forward(rows.obs)
        in_outputs, in_log_std = self._slopes(rows, activations[-1])
        actors.backward(activations, self._form.array(in_outputs))
        actors.gradient[:, : actors.extra] = in_log_std
        gradients = [actors.mine(actors.gradient)]
        if critics is not None:
            heads = len(rows.targets)
            obs = rows.obs[:, None].expand(-1, heads, -1, -1).flatten(0, 1)
            error = regress(critics, obs, rows.targets.transpose(0, 1).flatten(0, 1), first.critic_l2)
            self._squares += self._form.square_sums(error).view_as(self._squares)
            gradients.append(critics.mine(critics.gradient))
        assert first.bound is not None
        self._form.clip(gradients, first.bound)
        actors.step(first.rate)
        if critics is not None and first.critics is not None:
            critics.step(first.critics.learning_rate)

    def _slopes(self, rows: Samples, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Of the learners' losses in their networks' outputs, (L, n, outputs), and in their log_std, (L, m)."""
        actors, double = self._actors, self._form.double
        policy = double(outputs), double(actors.theta[:, None, : actors.extra])
        batch = Minibatch(self.lessons[0].actor, rows, policy, self._reference_log_std)
        slopes = [
            cast(BySlopes, lesson.objective).slopes(Own(batch, k, lesson.fixed))
            for k, lesson in enumerate(self.lessons)
        ]
        in_kl = [slope.kl for slope in slopes]
        none = torch.zeros_like(batch.ratio[0])
        kl = None if all(slope is None for slope in in_kl) else [none if slope is None else slope for slope in in_kl]
        ratio = torch.stack([slope.ratio for slope in slopes])
        return batch.slopes_in_policy(Slopes(ratio, kl and torch.stack(kl)))


class Own(Minibatch):
    """One learner's share of a minibatch of several, whose quantities are computed for all."""

    def __init__(self, whole: Minibatch, learner: int, fixed: Any) -> None:
        self.xp, self.double, self.head = whole.xp, whole.double, whole.head
        self.rows, self.fixed, self.activations = _of_learner(whole.rows, learner), fixed, ()
        (outputs, log_std), (_, reference_log_std) = whole.policy, whole.reference
        self.policy = outputs[learner], log_std[learner, 0]
        self.reference = self.rows.reference, reference_log_std[learner, 0]
        self.log_prob, self.ratio = whole.log_prob[learner], whole.ratio[learner]
        self._whole, self._learner = whole, learner

    @functools.cached_property
    @override
    def kl(self) -> Array:
        return self._whole.kl[self._learner]


_SAMPLES = {"obs": 0, "action": 0, "log_prob": 0, "advantages": 1, "targets": 1, "reference": 0}
"""What samples have, and along which axis they lie."""


def _apart(rows: Samples, learners: int) -> Samples:
    """Rows of several learners, (L n, ...), each with an axis of its own, (L, n, ...)."""
    return Samples(**{name: getattr(rows, name).unflatten(dim, (learners, -1)) for name, dim in _SAMPLES.items()})


def _of_learner(rows: Samples, learner: int) -> Samples:
    return Samples(**{name: getattr(rows, name).select(dim, learner) for name, dim in _SAMPLES.items()})
