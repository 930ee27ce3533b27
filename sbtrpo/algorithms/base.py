"""What the trainer asks of a method, and the numbers that every method reports."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor

from sbtrpo.algorithms.multipliers import Controlled, Lagrangian, Multiplier, Multipliers
from sbtrpo.config import TrainConfig
from sbtrpo.config.settings import MethodSettings, setting
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.distributions import Array
from sbtrpo.nets.network import flatten
from sbtrpo.nets.policy import Policy

Diagnostics = dict[str, float]
Costs: TypeAlias = Sequence[float]
"""Ĵ_c of each constraint, the cost of recent episodes."""
S = TypeVar("S", bound=MethodSettings)


@dataclass(frozen=True)
class SeparateCritics(MethodSettings):
    """Settings of the methods whose critics have passes of their own, after the policy's step."""

    critic_batch: int = setting(128, least=1, needs="critics")
    """Samples in a minibatch of the critics."""
    critic_minibatches: int = setting(0, least=0, needs="critics")
    """Minibatches in a pass of the critics, of equal size; 0 leaves it to critic_batch."""
    critic_passes: int = setting(10, least=1, needs="critics")
    """Passes of the critics over an epoch's samples."""


def as_costs(costs: float | Costs) -> list[float]:
    """A number for each constraint, where a plain one may stand for one constraint.

    >>> as_costs(3.0), as_costs([3.0, 0.0])
    ([3.0], [3.0, 0.0])
    """
    return list(costs) if isinstance(costs, Sequence) else [costs]


def by_constraint(key: str, values: Sequence[float], names: Sequence[str]) -> Diagnostics:
    """A number of each constraint: under `key` where there is one constraint, otherwise under `key_<name>`.

    >>> by_constraint("multiplier", [0.1], ["c"]), by_constraint("multiplier", [0.1, 0.2], ["walls", "speed"])
    ({'multiplier': 0.1}, {'multiplier_walls': 0.1, 'multiplier_speed': 0.2})
    """
    keys = [key] if len(names) == 1 else [f"{key}_{name}" for name in names]
    return dict(zip(keys, values, strict=True))


@dataclass(frozen=True)
class Batch:
    """One epoch's samples, flattened; B = T * N."""

    obs: Tensor
    """(B, obs_dim), normalised as they were when acted on."""
    action: Tensor
    """(B, action_dim)"""
    log_prob: Tensor
    """(B,) of the actions under the rollout policy."""
    advantages: Tensor
    """(1 + C, B) of reward, then of each constraint's cost."""
    targets: Tensor | None = None
    """(K, B) what the critics should have said, if there are critics."""
    worlds: int = 0
    """N, if the update is to tell how much of what it learnt from half of the worlds holds in the others; otherwise 0.
    Samples of one time are in a row."""

    @property
    def advantage_r(self) -> Tensor:
        """(B,) of reward."""
        return self.advantages[0]

    @property
    def advantage_c(self) -> Tensor:
        """(B,) of the cost, for methods that take one constraint."""
        assert len(self.advantages) == 2
        return self.advantages[1]

    @property
    def finite(self) -> bool:
        """Whether all of it that is learnt from is numbers."""
        learnt = [self.advantages, *([] if self.targets is None else [self.targets])]
        return all(bool(torch.isfinite(tensor).all()) for tensor in learnt)


class Method(ABC, Generic[S]):
    """A method: one update after the other, and whatever it carries between them.

    Args:
        policy: whose parameters an update changes.
        critics: which it fits; None if its advantages need none.
        config: of the run, with the method's settings in it.
        orders: shuffles minibatches.
        names: of the constraints, which are in the names of their numbers; "c" where there is one.
    """

    title: ClassVar[str] = ""
    """As a reader knows it; the name of the class if left out."""
    summary: ClassVar[str] = ""
    """What it does, in one line; the first line of the docstring if left out."""
    source: ClassVar[str] = ""
    """Where it was published, and the code whose behaviour fidelity "paper" has."""
    family: ClassVar[str] = ""
    Settings: ClassVar[type[MethodSettings]] = MethodSettings
    run_defaults: ClassVar[Mapping[str, Any]] = {}
    """What a run of it has where nothing else is asked for, of the settings that every run has but task, algo, seed."""
    constraints_taken: ClassVar[int | None] = 1
    """How many constraints it takes; None for any number."""
    may_stall: ClassVar[bool] = False
    """Whether updates without an acceptable step are part of the published method, however many."""
    trains_on: ClassVar[bool] = False
    """Whether it is meant for a policy that is trained already, which `init_from` names."""
    in_one: ClassVar[bool] = False
    """Whether policy and critics are fitted in the same passes, so that all fails with the policy's part."""

    def __init__(
        self, policy: Policy, critics: Critics | None, config: TrainConfig, orders: torch.Generator,
        names: Sequence[str] = ("c",),
    ) -> None:  # fmt: skip
        assert isinstance(config.method, self.Settings)
        self.policy, self.critics, self.orders, self.names = policy, critics, orders, tuple(names)
        self.config = config
        self.settings: S = config.method  # type: ignore[assignment]
        self.multipliers = Multipliers()
        if isinstance(config.method, Lagrangian | Controlled):
            self.multipliers = config.method.multipliers(len(self.names))

    @classmethod
    def missing(cls) -> str:
        """What a class must still define to be a method; nothing if it is one."""
        return ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))

    @property
    def multiplier(self) -> Multiplier | None:
        """The multiplier of a single constraint; None for a method without."""
        assert len(self.multipliers) <= 1
        return next(iter(self.multipliers), None)

    def update(self, batch: Batch, costs: float | Costs, progress: float) -> Diagnostics:
        """Change the policy and fit the critics; if the batch is not all numbers, everything stays as it was.

        Args:
            batch: one epoch's samples, at the policy's present parameters.
            costs: Ĵ_c of each constraint, the cost of recent episodes.
            progress: share of the run that is over, in [0, 1).
        """
        theta, state = flatten(self.policy.params), self.state_dict()
        critics = None if self.critics is None else self.critics.state_dict()
        diagnostics = self.attempt(batch, as_costs(costs), progress)
        if not batch.finite or (diagnostics["skipped"] and self.in_one):
            diagnostics |= {"skipped": 1.0, "accepted_step": 0.0}
            self.policy.set(theta)
            self.load_state_dict(state)
            if self.critics is not None and critics is not None:
                self.critics.load_state_dict(critics)
        return diagnostics

    @abstractmethod
    def attempt(self, batch: Batch, costs: Costs, progress: float) -> Diagnostics:
        """An update, which leaves the policy alone and says `skipped` if its step would not be finite."""

    def lagrange(self, costs: float | Costs) -> list[float]:
        """λ of each constraint after it has taken in the episodes' cost."""
        return self.multipliers.update(as_costs(costs))

    def state_dict(self) -> dict[str, Any]:
        """All that the next update depends on, beside policy, critics and the orders' generator."""
        return self.multipliers.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.multipliers.load_state_dict(state)


@dataclass(frozen=True)
class Trial:
    """What parameters give on the batch."""

    kl: float
    """KL(rollout policy || these parameters), reduced as the method's bound on it."""
    surrogates: tuple[float, ...]
    """mean(ρ A) of reward, then of each constraint's cost."""

    @property
    def surrogate_r(self) -> float:
        """Of reward."""
        return self.surrogates[0]

    @property
    def surrogate_c(self) -> float:
        """Of the cost, for methods that take one constraint."""
        _, cost = self.surrogates
        return cost

    @property
    def finite(self) -> bool:
        """Whether all of it is a number."""
        total = self.kl + sum(self.surrogates)
        return total - total == 0.0


def report(old: Trial, new: Trial, gradients: Array, applied: Array, names: Sequence[str] = ("c",)) -> Diagnostics:
    """What an update did, whatever the method.

    Args:
        old: what the parameters before gave on the batch.
        new: what those after give.
        gradients: (1 + C, P) of all surrogates before.
        applied: (P,) the change of the parameters.
        names: of the constraints, in the names of their numbers; "c" where there is one.
    """
    signals = ("r", *names)
    along = [float(g @ applied) for g in gradients]
    norms = [math.sqrt(float(g @ g)) for g in gradients]
    norm = math.sqrt(float(applied @ applied))
    changes = [after - before for before, after in zip(old.surrogates, new.surrogates, strict=True)]
    signs = [1.0, *([-1.0] * len(names))]  # an angle of 0 is the best direction: up for reward, down for costs
    angles = [degrees(sign * a, n * norm) for sign, a, n in zip(signs, along, norms, strict=True)]
    return {
        "kl": new.kl,
        **{f"surrogate_{name}_change": change for name, change in zip(signals, changes, strict=True)},
        **{f"surrogate_{name}_predicted": a for name, a in zip(signals, along, strict=True)},
        **{f"gradient_norm_{name}": n for name, n in zip(signals, norms, strict=True)},
        "step_norm": norm,
        **{f"angle_{name}": angle for name, angle in zip(signals, angles, strict=True)},
    }


def degrees(inner: float, norms: float) -> float:
    """The angle whose cosine is inner / norms; NaN where a vector is zero.

    >>> round(degrees(1.0, 2.0), 6), degrees(0.0, 0.0)
    (60.0, nan)
    """
    if norms == 0.0 or not math.isfinite(norms):
        return math.nan
    return math.degrees(math.acos(max(-1.0, min(1.0, inner / norms))))
