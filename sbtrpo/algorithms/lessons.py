"""What a learner of a first-order method does with each of its minibatches, and the same of several learners at once.

A minibatch is some hundred operations that have next to nothing to do. So learners of a pack on a GPU whose lessons are
alike in all but data, networks and slopes have them together: every layer is one batched product, clipping and Adam are
a few operations for all, and so are slopes that methods share. A learner's numbers are those that it has alone, but for
the rounding of batched products.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, cast

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

    @property
    def kind_of_slopes(self) -> Hashable | None:
        """The same of lessons whose slopes may be asked for at once; None where only of one learner."""
        slopes: Any = cast(BySlopes, self.objective).slopes
        names = getattr(slopes, "of_settings", None)
        if names is None:
            return None
        return slopes.__func__, type(self.fixed), *(getattr(slopes.__self__.settings, name) for name in names)


class Together:
    """Lessons of L learners that are alike. Slopes are asked for at once of neighbours that are alike in them too."""

    def __init__(self, lessons: Sequence[Lesson]) -> None:
        self.lessons, first = lessons, lessons[0]
        self._shares = list(_shares(lessons))
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
        shares = [slopes(Own(batch, which, fixed)) for which, slopes, fixed in self._shares]
        ratio = torch.cat([_rows(share.ratio) for share in shares])
        kl = None
        if any(share.kl is not None for share in shares):
            all_kl = [torch.zeros_like(share.ratio) if share.kl is None else share.kl for share in shares]
            kl = torch.cat([_rows(of_share) for of_share in all_kl])
        return batch.slopes_in_policy(Slopes(ratio, kl))


class Own(Minibatch):
    """The share that some learners have of a minibatch of several, whose quantities are computed for all."""

    def __init__(self, whole: Minibatch, which: Which, fixed: Any) -> None:
        self.xp, self.double, self.head = whole.xp, whole.double, whole.head
        self.rows, self.fixed, self.activations = _of_learners(whole.rows, which), fixed, ()
        (outputs, log_std), (_, reference_log_std) = whole.policy, whole.reference
        self.policy = outputs[which], log_std[which]
        self.reference = self.rows.reference, reference_log_std[which]
        self.log_prob, self.ratio = whole.log_prob[which], whole.ratio[which]
        self._whole, self._which = whole, which

    @functools.cached_property
    @override
    def kl(self) -> Array:
        return self._whole.kl[self._which]


Which: TypeAlias = int | slice
"""Of the learners: one, whose quantities are (n, ...), or several, whose quantities are (G, n, ...)."""


def _shares(lessons: Sequence[Lesson]) -> Iterator[tuple[Which, Callable[[Minibatch], Slopes], Any]]:
    """Whose slopes are asked for at once, the slopes, and what is fixed for them."""
    for kind, neighbours in itertools.groupby(enumerate(lessons), key=lambda pair: pair[1].kind_of_slopes):
        numbers, group = zip(*neighbours, strict=True)
        slopes = [cast(BySlopes, lesson.objective).slopes for lesson in group]
        if kind is None:
            yield from zip(numbers, slopes, (lesson.fixed for lesson in group), strict=True)
        else:
            fixed = _in_columns([lesson.fixed for lesson in group], group[0].actor.form.double)
            yield slice(numbers[0], numbers[-1] + 1), slopes[0], fixed


def _rows(values: Tensor) -> Tensor:
    return values.view(-1, values.shape[-1])


def _in_columns(fixed: Sequence[Any], double: Callable[[Any], Tensor]) -> Any:
    """What is fixed for several learners: numbers as columns, (G, 1)."""
    names = [one.name for one in fields(fixed[0]) if isinstance(getattr(fixed[0], one.name), int | float)]
    return replace(fixed[0], **{name: double([[getattr(one, name)] for one in fixed]) for name in names})


_SAMPLES = {"obs": 0, "action": 0, "log_prob": 0, "advantages": 1, "targets": 1, "reference": 0}
"""What samples have, and along which axis they lie."""


def _apart(rows: Samples, learners: int) -> Samples:
    """Rows of several learners, (L n, ...), each with an axis of its own, (L, n, ...)."""
    return Samples(**{name: getattr(rows, name).unflatten(dim, (learners, -1)) for name, dim in _SAMPLES.items()})


def _of_learners(rows: Samples, which: Which) -> Samples:
    return Samples(**{name: getattr(rows, name)[(slice(None),) * dim + (which,)] for name, dim in _SAMPLES.items()})
