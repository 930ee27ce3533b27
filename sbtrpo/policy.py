"""The policy: a Gaussian whose mean is a small network, and the observation statistics it was trained with.

Everything that acting needs is in one `Policy`: weights, log standard deviations and normaliser. Critics are separate
networks of the same shape. Weights are plain tensors in a flat list, so that an update can treat all of them as one
vector (`flatten`, `unflatten`) without copying modules.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Normaliser:
    """Running mean and variance of observations, in float64, starting from mean 0 and variance 1 with a count of 1e-4.

    >>> import numpy as np
    >>> normaliser = Normaliser(size=2)
    >>> normaliser.update(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> normaliser.mean.round(3).tolist()
    [2.0, 3.0]
    """

    EPSILON = 1e-8

    def __init__(self, size: int) -> None:
        self.mean: NDArray[np.float64] = np.zeros(size)
        self.var: NDArray[np.float64] = np.ones(size)
        self.count = 1e-4

    def update(self, batch: NDArray[np.float64]) -> None:
        """Merge a batch of observations (n, size) into the statistics."""
        n = len(batch)
        total = self.count + n
        mean = batch.mean(axis=0)
        gap = mean - self.mean
        spread = ((batch - mean) ** 2).sum(axis=0)
        self.var = (self.var * self.count + spread + gap * gap * (self.count * n / total)) / total
        self.mean = self.mean + gap * (n / total)
        self.count = total

    def __call__(self, observation: NDArray[np.float64]) -> NDArray[np.float64]:
        """The observation in units of the statistics; never clipped."""
        return (observation - self.mean) / np.sqrt(self.var + self.EPSILON)

    def state_dict(self) -> dict[str, NDArray[np.float64]]:
        """Mean, variance and count."""
        return {"mean": self.mean.copy(), "var": self.var.copy(), "count": np.asarray(self.count)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.mean, self.var = np.array(state["mean"]), np.array(state["var"])
        self.count = float(state["count"])


@dataclass
class MLP:
    """A tanh network with a linear output, as a flat list of tensors: weight, bias, weight, bias, ...

    Weights are (out, in).
    """

    params: list[Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs (..., out) of inputs (..., in)."""
        for weight, bias in zip(self.params[:-2:2], self.params[1:-2:2], strict=True):
            x = torch.tanh(torch.nn.functional.linear(x, weight, bias))
        return torch.nn.functional.linear(x, self.params[-2], self.params[-1])


def make_mlp(sizes: Sequence[int], generator: torch.Generator, device: str = "cpu") -> MLP:
    """A network with weights and biases uniform in ±1/sqrt(inputs), as PyTorch's linear layers are."""
    params = []
    for inputs, outputs in itertools.pairwise(sizes):
        bound = 1 / math.sqrt(inputs)
        shapes = ((outputs, inputs), (outputs,))
        params += [(torch.rand(shape, generator=generator) * 2 * bound - bound).to(device) for shape in shapes]
    return MLP(params)


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All entries as one vector (P,)."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The vector (P,) cut into tensors of these shapes; views, not copies."""
    parts = torch.split(vector, [tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


class Policy:
    """A diagonal Gaussian with a state-independent standard deviation.

    `params` is [log_std, weight, bias, weight, ...]; observations given to `mean` and `log_prob` are normalised ones.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        hidden: Sequence[int],
        generator: torch.Generator,
        device: str = "cpu",
    ) -> None:
        self.normaliser = Normaliser(observation_size)
        network = make_mlp([observation_size, *hidden, action_size], generator, device)
        self.params: list[Tensor] = [torch.zeros(action_size, device=device), *network.params]
        self.device = device

    @property
    def log_std(self) -> Tensor:
        """(action_size,)"""
        return self.params[0]

    def mean(self, observation: Tensor, params: Sequence[Tensor] | None = None) -> Tensor:
        """Mean actions of normalised observations, (..., action_size)."""
        return MLP(list(params or self.params)[1:])(observation)

    def log_prob(self, observation: Tensor, action: Tensor, params: Sequence[Tensor] | None = None) -> Tensor:
        """Log-density of actions, summed over their dimensions: (...)."""
        params = params or self.params
        return gaussian_log_prob(self.mean(observation, params), params[0], action)

    @torch.no_grad()
    def act(
        self, observation: NDArray[Any], deterministic: bool = False, seed: int | None = None
    ) -> NDArray[np.float32]:
        """Actions for raw observations (..., observation_size), with frozen statistics."""
        inputs = torch.as_tensor(self.normaliser(np.asarray(observation, np.float64)), dtype=torch.float32)
        mean = self.mean(inputs.to(self.device))
        if not deterministic:
            generator = None if seed is None else torch.Generator().manual_seed(seed)
            mean = mean + torch.exp(self.log_std) * torch.randn(mean.shape, generator=generator).to(self.device)
        return mean.cpu().numpy()

    def state_dict(self) -> dict[str, Any]:
        """Weights and statistics."""
        return {"params": [tensor.clone() for tensor in self.params], "normaliser": self.normaliser.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        for tensor, saved in zip(self.params, state["params"], strict=True):
            tensor.copy_(torch.as_tensor(saved))
        self.normaliser.load_state_dict(state["normaliser"])


def gaussian_log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """Log-density of a diagonal Gaussian, summed over the last axis."""
    z = (action - mean) * torch.exp(-log_std)
    return (-0.5 * z * z - log_std - _LOG_SQRT_2PI).sum(dim=-1)


def gaussian_kl(old_mean: Tensor, old_log_std: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """KL(old || new) of each action dimension: (..., action_size)."""
    ratio = torch.exp(2 * (old_log_std - log_std))
    gap = (old_mean - mean) * torch.exp(-log_std)
    return log_std - old_log_std + 0.5 * (ratio + gap * gap - 1)
