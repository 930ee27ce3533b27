"""Several policies of one shape that act together: one batched product a layer, whatever their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from typing_extensions import override

from sbtrpo.nets.activations import Activation
from sbtrpo.nets.forms import Form
from sbtrpo.nets.normaliser import TensorNormaliser
from sbtrpo.nets.policy import Policy


def networks(params: Sequence[Tensor], x: Tensor, activation: Activation) -> Tensor:
    """Outputs (K, n, out) of K networks for inputs (K, n, in): those of `MLP`, with weights (K, out, in)."""
    for weight, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
        x = activation.on_tensors(torch.baddbmm(bias[:, None], x, weight.mT))
    return torch.baddbmm(params[-1][:, None], x, params[-2].mT)


class Policies:
    """K policies as one, to a collector: of N worlds the first N / K are the first policy's, and so on.

    Parameters and statistics lie side by side, (K, ...) each; what the policies have from now on are views of that. So
    whoever changes a policy in place changes it here.
    """

    def __init__(self, members: Sequence[Policy], worlds: int) -> None:
        self._worlds = worlds
        """N / K"""
        self._members, self.head, self.device = list(members), members[0].head, members[0].device
        self.observation_size, self._activation = members[0].observation_size, members[0].design.function
        self.params = [torch.stack(alike) for alike in zip(*(policy.params for policy in members), strict=True)]
        self.normaliser = Normalisers([cast(TensorNormaliser, policy.normaliser) for policy in members])
        for k, policy in enumerate(members):
            policy.params = [tensor[k] for tensor in self.params]

    @property
    def log_std(self) -> Tensor:
        """(N, actions) of each world's policy."""
        return self.params[0].repeat_interleave(self._worlds, dim=0)

    def mean(self, observation: Tensor) -> Tensor:
        """The networks' outputs for normalised observations of all worlds: (N, actions)."""
        apart = torch.unflatten(observation, 0, (-1, self._worlds))
        return networks(self.params[1:], apart, self._activation).flatten(0, 1)

    def to_env(self, action: Tensor) -> Tensor:
        """Actions as the environment's pool takes them, whose bounds are the same for all."""
        scaled: Tensor = self._members[0].to_env(action)
        return scaled

    def use(self, form: Form) -> None:
        """Nothing: their statistics are tensors already."""


class Normalisers(TensorNormaliser):
    """Statistics of observations of several policies, side by side; what these have from now on are views of that."""

    def __init__(self, members: Sequence[TensorNormaliser]) -> None:
        self.mean = torch.stack([own.mean for own in members])[:, None]
        self.var = torch.stack([own.var for own in members])[:, None]
        self.count = torch.stack([own.count for own in members])[:, None, None]
        self._members, self.plain = members, members[0].plain
        for k, own in enumerate(members):
            own.mean, own.var, own.count = self.mean[k, 0], self.var[k, 0], self.count[k, 0, 0]

    @property
    def learns(self) -> bool:  # type: ignore[override]
        """Whether they grow with what is seen; all of them do, or none, but for one whose learner has failed."""
        return all(own.learns for own in self._members)

    @override
    def merge(self, batch: Tensor) -> None:
        super().merge(torch.unflatten(batch, 0, (len(self.mean), -1)))

    @override
    def __call__(self, observation: Tensor) -> Tensor:
        return super().__call__(torch.unflatten(observation, 0, (len(self.mean), -1))).flatten(0, 1)
