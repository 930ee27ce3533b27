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
        self.optimiser = torch.optim.Adam([self._theta], lr=learning_rate, fused=True)
        self._theta.grad = self._gradient

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
        found = [first.view(len(x), self.heads, -1).transpose(0, 1)]
        for weight, bias in zip(self._stored[2::2], self._stored[3::2], strict=True):
            found.append(torch.baddbmm(bias, found[-1].tanh_(), weight))
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
        """Gradients of Σ_heads mean((V(x) - y)²) for x (n, obs_dim) and y (K, n); returns (K,) sums of squared errors."""
        *hidden, values = self._activations(x)
        error = values[..., 0] - y
        signal = (error * (2 / len(x)))[..., None]
        for layer in range(len(hidden), 0, -1):
            h, weight = hidden[layer - 1], self._stored[2 * layer]
            torch.bmm(h.mT, signal, out=self._stored_gradients[2 * layer])
            torch.sum(signal, dim=1, keepdim=True, out=self._stored_gradients[2 * layer + 1])
            # The last layer has one output; in the others a transposed copy is faster than a transposed product.
            passed = signal * weight.mT if weight.shape[2] == 1 else torch.bmm(signal, weight.mT.contiguous())
            signal = torch.addcmul(passed, passed * h, h, value=-1)  # tanh' = 1 - h²
        joined = signal.transpose(0, 1).reshape(len(x), -1)
        torch.mm(x.T, joined, out=self._stored_gradients[0])
        torch.sum(joined, dim=0, out=self._stored_gradients[1])
        return error.square().sum(dim=1)

    def _step(self, l2: float, max_norm: float) -> None:
        self._gradient.add_(self._theta, alpha=2 * l2)
        norm = torch.linalg.vector_norm(self._gradient)
        self._gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        self.optimiser.step()

    def state_dict(self) -> dict[str, Any]:
        """Weights and the optimiser's moments."""
        moments = self.optimiser.state.get(self._theta, {})
        return {"params": self._theta.clone(), "moments": {name: values.clone() for name, values in moments.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._theta.copy_(torch.as_tensor(state["params"]))
        moments = {name: torch.as_tensor(values).clone() for name, values in state["moments"].items()}
        self.optimiser.state.clear()
        if moments:
            self.optimiser.state[self._theta] = moments
