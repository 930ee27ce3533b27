"""Value functions of reward and cost, fitted together.

Both critics are one batched network: a pass serves all K heads, while each keeps its own loss and its own parameters.
Minibatches are small, so what counts is the number of operations: forward and backward pass are written out, and all
parameters lie in one vector, so that the penalty, the clipping and Adam are one operation each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Critics:
    """K value networks of one shape, tanh with a linear output."""

    def __init__(
        self, heads: int, observation_size: int, hidden: Sequence[int], learning_rate: float,
        generator: torch.Generator, device: str = "cpu",
    ) -> None:  # fmt: skip
        self.heads = heads
        self._sizes = list(itertools.pairwise([observation_size, *hidden, 1]))
        count = sum(heads * (inputs + 1) * outputs for inputs, outputs in self._sizes)
        self._theta = torch.zeros(count, device=device)
        self._gradient = torch.zeros_like(self._theta)
        self._stored, self._stored_gradients = self._views(self._theta), self._views(self._gradient)
        self.params = [self._by_head(i, part) for i, part in enumerate(self._stored)]
        """weight (K, in, out), bias (K, 1, out), weight, ...: views of one vector."""
        for param, (inputs, _) in zip(self.params, (size for size in self._sizes for _ in range(2)), strict=True):
            values = (torch.rand(param.shape, generator=generator) * 2 - 1) / math.sqrt(inputs)
            param.copy_(values)
        self.learning_rate = learning_rate
        self._steps = 0
        self._mean, self._square = torch.zeros_like(self._theta), torch.zeros_like(self._theta)
        """Adam's moments."""

    def _views(self, vector: Tensor) -> list[Tensor]:
        """Parameters as they are stored: in the first layer, whose input all heads share, (in, K * out) and (K * out).

        In the others (K, in, out) and (K, 1, out).
        """
        k, shapes = self.heads, list[tuple[int, ...]]()
        for layer, (inputs, outputs) in enumerate(self._sizes):
            shapes += [(k, inputs, outputs), (k, 1, outputs)] if layer else [(inputs, k * outputs), (k * outputs,)]
        parts = torch.split(vector, [math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def _by_head(self, index: int, stored: Tensor) -> Tensor:
        return stored if index > 1 else stored.view(-1, self.heads, self._sizes[0][1]).transpose(0, 1)

    def _activations(self, x: Tensor) -> list[Tensor]:
        """Outputs of every layer for inputs (n, obs_dim): (K, n, out) each."""
        first = torch.addmm(self._stored[1], x, self._stored[0])
        found = [first.view(len(x), self.heads, self._sizes[0][1]).transpose(0, 1)]
        for weight, bias in zip(self._stored[2::2], self._stored[3::2], strict=True):
            found.append(torch.baddbmm(bias, _tanh_(found[-1]), weight))
        return found

    def __call__(self, obs: Tensor) -> Tensor:
        """Values of observations (..., obs_dim): (K, ...)."""
        values = self._activations(obs.reshape(-1, obs.shape[-1]))[-1]
        return values.reshape(self.heads, *obs.shape[:-1])

    def fit(
        self,
        obs: Tensor,
        targets: Tensor,
        batch: int,
        passes: int,
        l2: float,
        max_norm: float,
        generator: torch.Generator,
    ) -> Tensor:
        """Regress each head on its targets.

        Args:
            obs: (B, obs_dim).
            targets: (K, B).
            batch: size of the minibatches; the last one may be smaller.
            passes: over the data, each in a fresh order.
            l2: weight of the sum of squared parameters in each head's loss.
            max_norm: bound on the gradient's norm, over all heads together.
            generator: of the orders, on the CPU.

        Returns:
            (K,) mean squared errors in the last pass.
        """
        errors = torch.zeros(self.heads, device=obs.device)
        for _ in range(passes):
            order = torch.randperm(len(obs), generator=generator).to(obs.device)
            shuffled_obs, shuffled_targets = obs[order], targets[:, order]
            errors.zero_()
            for x, y in zip(torch.split(shuffled_obs, batch), torch.split(shuffled_targets, batch, dim=1), strict=True):
                errors += self._backward(x, y)
                self._step(l2, max_norm)
        return errors / len(obs)

    def _backward(self, x: Tensor, y: Tensor) -> Tensor:
        """Gradients of Σ_heads mean((V(x) - y)²), x (n, obs_dim) and y (K, n); returns (K,) sums of squared errors."""
        *hidden, values = self._activations(x)
        error = values[..., 0] - y
        signal = (error * (2 / len(x)))[..., None]
        for layer in range(len(hidden), 0, -1):
            h, weight = hidden[layer - 1], self._stored[2 * layer]
            torch.bmm(h.mT, signal, out=self._stored_gradients[2 * layer])
            torch.sum(signal, dim=1, keepdim=True, out=self._stored_gradients[2 * layer + 1])
            # The last layer has one output; in the others a transposed copy is faster than a transposed product.
            passed = signal * weight.mT if weight.shape[2] == 1 else torch.bmm(signal, weight.mT.contiguous())
            signal = torch.ops.aten.tanh_backward(passed, h)
        joined = signal.transpose(0, 1).reshape(len(x), -1)
        torch.mm(x.T, joined, out=self._stored_gradients[0])
        torch.sum(joined, dim=0, out=self._stored_gradients[1])
        return error.square().sum(dim=1)

    def _step(self, l2: float, max_norm: float) -> None:
        """Add the penalty's gradient, clip, and take a step of Adam (β 0.9 and 0.999, ε 1e-8)."""
        gradient = self._gradient.add_(self._theta, alpha=2 * l2)
        norm = float(torch.linalg.vector_norm(gradient))
        if norm > max_norm:
            gradient.mul_(max_norm / (norm + 1e-6))
        self._steps += 1
        self._mean.lerp_(gradient, 0.1)
        self._square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        # Both corrections of the start, as factors: of the root's scale and of the learning rate.
        root = math.sqrt(1 - 0.999**self._steps)
        denominator = torch.sqrt(self._square).add_(1e-8 * root)
        self._theta.addcdiv_(self._mean, denominator, value=-self.learning_rate * root / (1 - 0.9**self._steps))

    def state_dict(self) -> dict[str, Any]:
        """Weights and Adam's moments."""
        moments = {"mean": self._mean.clone(), "square": self._square.clone(), "steps": self._steps}
        return {"params": self._theta.clone(), "moments": moments}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        moments = state["moments"]
        for vector, saved in (
            (self._theta, state["params"]),
            (self._mean, moments["mean"]),
            (self._square, moments["square"]),
        ):
            vector.copy_(torch.as_tensor(saved))
        self._steps = int(moments["steps"])


def _tanh_(x: Tensor) -> Tensor:
    """In place. PyTorch's builds for ARM take one number at a time; NumPy's are two to three times as fast."""
    if x.device.type != "cpu":
        return x.tanh_()
    array = x.numpy()
    np.tanh(array, out=array)
    return x
