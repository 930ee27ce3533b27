"""What first-order methods share: passes of minibatches over the batch until the policy has moved far enough.

A method is its loss on a minibatch, given in one of two ways.

- `loss` is the loss itself, written with torch, and autograd differentiates it. This is the way for a new method.
- `slopes` are its derivatives in ratios and divergences, written by hand (see `minibatches.py`). They need no graph,
  run on NumPy arrays where minibatches are small, and take a fraction of the time.

Whether arrays are NumPy's or torch's is the `Form` (see `nets/forms.py`); what is written here holds for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.base import Batch, Costs, Diagnostics, Method, Trial, report
from sbtrpo.algorithms.lessons import Lesson
from sbtrpo.algorithms.minibatches import (
    Actor,
    ByLoss,
    BySlopes,
    Minibatch,
    Objective,
    Samples,
    Slopes,
    clipped,
    for_several,
)
from sbtrpo.config import TrainConfig
from sbtrpo.config.settings import MethodSettings, setting
from sbtrpo.nets.critics import Critics, critic_losses
from sbtrpo.nets.distributions import Array
from sbtrpo.nets.forms import Form, TorchForm, chunks, copy_of, minibatch_form, rows_per_minibatch
from sbtrpo.nets.policy import Policy

__all__ = [
    "Actor", "ByLoss", "BySlopes", "FirstOrderMethod", "FirstOrderSettings", "Fixed", "Minibatch", "Samples", "Slopes",
    "clipped", "for_several",
]  # fmt: skip


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

    @override
    def scheduled(self, progress: float) -> dict[str, float]:
        return {"learning_rate": self.learning_rate * (1 - progress)}


F = TypeVar("F", bound=FirstOrderSettings)


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """What stays the same during an update; a method whose loss reads more than the samples adds it in a subclass."""

    report: Diagnostics = field(default_factory=dict)
    """Numbers for the report."""


@dataclass(frozen=True)
class Survey:
    """All samples under the rollout policy, which is their reference, too."""

    samples: Samples
    log_std: Array
    trial: Trial
    gradients: Array
    """(1 + C, P) of all surrogates."""


class FirstOrderMethod(Method[F]):
    """Passes of minibatches with Adam, critics included, until KL(old ‖ new) exceeds δ.

    A method is its `loss` or its `slopes`: a class defines one of them, or inherits one.
    """

    family = "first order"
    Settings: ClassVar[type[MethodSettings]] = FirstOrderSettings
    in_one = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if {"loss", "slopes"} <= vars(cls).keys():
            raise TypeError(f"{cls.__name__} defines both loss and slopes; keep the one that it is to learn from")

    def __init__(
        self, policy: Policy, critics: Critics | None, config: TrainConfig, orders: torch.Generator,
        names: Sequence[str] = ("c",),
    ) -> None:  # fmt: skip
        super().__init__(policy, critics, config, orders, names)
        self.objective = self._objective()
        by_size = minibatch_form(policy.device, self.rows(config.steps_per_epoch))
        self._take(TorchForm(policy.device) if isinstance(self.objective, ByLoss) else by_size)

    @override
    @classmethod
    def missing(cls) -> str:
        defined = cls.loss is not FirstOrderMethod.loss or cls.slopes is not FirstOrderMethod.slopes
        return super().missing() if defined else "loss(self, batch)"

    def _objective(self) -> Objective:
        """What the nearest class defines."""
        for cls in type(self).__mro__:
            if cls is FirstOrderMethod:
                break
            if "loss" in vars(cls):
                return ByLoss(self.loss)
            if "slopes" in vars(cls):
                return BySlopes(self.slopes)
        raise TypeError(f"{type(self).__name__} defines neither loss nor slopes; define loss(self, batch)")

    def _take(self, form: Form) -> None:
        self.form, self.actor = form, Actor(self.policy, form)
        if self.critics is not None:
            self.critics.use(form)

    def use(self, form: Form) -> None:
        """Go on in another form, critics included."""
        state = self.actor.adam.state_dict()
        self._take(form)
        self.actor.adam.load_state_dict(state)

    def loss(self, batch: Minibatch) -> Tensor:
        """The loss of a minibatch, one number, by torch's functions of what `batch` offers."""
        raise NotImplementedError

    def slopes(self, batch: Minibatch) -> Slopes:
        """The loss's derivatives in a minibatch's ratios and divergences."""
        raise NotImplementedError

    def prepare(self, samples: Samples, costs: Costs, progress: float) -> Fixed:
        """Whatever is fixed during an update: multipliers, penalties. It may put other advantages into the samples."""
        return Fixed()

    def rows(self, samples: int) -> int:
        """Of a minibatch, where there are so many samples."""
        return rows_per_minibatch(self.settings.policy_batch, self.settings.policy_minibatches, samples)

    @override
    def attempt(self, batch: Batch, costs: Costs, progress: float) -> Diagnostics:
        actor = self.actor
        actor.load(self.policy)
        before, theta = self.start(batch), actor.flat()
        samples = replace(before.samples)
        rate = self.settings.scheduled(progress)["learning_rate"]
        with self.form.calm():
            fixed = self.prepare(samples, costs, progress)
            facts = fixed.report | self.passes(samples, rate, fixed)
        finite = bool(self.form.xp.isfinite(actor.stack.theta).all())
        after = before.trial
        if finite:
            actor.store(self.policy)
            after = self.finish(before)
        else:
            actor.load(self.policy)
        return {
            "skipped": float(not finite),
            "accepted_step": float(finite),
            **report(before.trial, after, before.gradients, actor.flat() - theta, self.names),
            "learning_rate": rate,
            **facts,
        }

    def passes(self, samples: Samples, rate: float, fixed: Fixed) -> Diagnostics:
        """The passes, by default with the critics in the same minibatches."""
        critics = self.critics if len(samples.targets) else None
        count, kl, losses = self.run(samples, rate, critics, fixed, self.objective)
        return {"passes": float(count), "kl_at_stop": kl, **losses}

    def run(
        self, samples: Samples, rate: float, critics: Critics | None, fixed: Fixed, objective: Objective
    ) -> tuple[int, float, Diagnostics]:
        """Passes until KL(reference ‖ actor) exceeds δ: how many, the KL then, and the critics' losses in the last."""
        c, actor, form, n = self.settings, self.actor, self.form, len(samples)
        reference_log_std, size = copy_of(actor.log_std), self.rows(n)
        squares = form.double(form.zeros((len(samples.targets),)))
        count, kl = 0, 0.0
        bound = c.max_grad_norm if type(self).clip is FirstOrderMethod.clip else None
        lesson = Lesson(
            actor, critics, samples, reference_log_std, fixed, objective, self.clip, bound, rate, c.critic_l2, squares
        )
        replayed = form.replayed(lesson, size) if self._repeats(objective) else None
        while count < c.policy_passes and kl <= c.target_kl:
            count += 1
            order = form.order(n, self.orders)
            squares[:] = 0
            if replayed is not None:
                replayed.over(order)
            else:
                shuffled = samples.at(order)
                for start in range(0, n, size):
                    lesson.learn(shuffled.at(slice(start, start + size)))
            kl = actor.kl_from(samples.reference, reference_log_std, samples.obs)
        losses = critic_losses(form.tensor(squares / n).cpu(), self.names) if critics is not None else {}
        return count, kl, losses

    def _repeats(self, objective: Objective) -> bool:
        """Whether every minibatch is the same work on tensors; what others write may keep numbers of its own."""
        parts = (objective.slopes, self.clip) if isinstance(objective, BySlopes) else ()
        ours = [part.__module__.startswith("sbtrpo.") for part in parts]
        return bool(ours) and all(ours) and self.policy.design.image is None

    def clip(self, gradients: list[Array]) -> None:
        """Bound the norm of all gradients together."""
        self.form.clip(gradients, self.settings.max_grad_norm)

    def start(self, batch: Batch) -> Survey:
        """All samples, in pieces, at the actor's present parameters."""
        actor, form, n = self.actor, self.form, len(batch.obs)
        samples = Samples(
            obs=form.array(batch.obs),
            action=form.array(batch.action),
            log_prob=form.array(batch.log_prob),
            advantages=form.array(batch.advantages),
            targets=form.zeros((0, n)) if batch.targets is None else form.array(batch.targets),
            reference=form.zeros((n, actor.head.outputs)),
        )
        log_std, gradients, totals = copy_of(actor.log_std), 0.0, 0.0
        for rows in chunks(n):
            piece = samples.at(rows)
            activations = actor.stack.forward(piece.obs)
            samples.reference[rows] = activations[-1][0]
            seen = actor.see(piece, log_std, activations=activations)
            gradients = gradients + len(piece) / n * actor.surrogate_gradients(seen)
            totals = totals + seen.totals()
        return Survey(samples, log_std, _trial(totals, n), gradients)

    def finish(self, before: Survey) -> Trial:
        """The same samples at the parameters that the passes have led to, where the outputs are known."""
        totals, actor = 0.0, self.actor
        for rows in chunks(len(before.samples)):
            outputs = [actor.outputs[rows][None]]
            totals = totals + actor.see(before.samples.at(rows), before.log_std, activations=outputs).totals()
        return _trial(totals, len(before.samples))

    @override
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "adam": self.actor.adam.state_dict()}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.actor.adam.load_state_dict(state["adam"])


def _trial(totals: Any, samples: int) -> Trial:
    kl, *surrogates = (float(total) / samples for total in totals)
    return Trial(kl, tuple(surrogates))
