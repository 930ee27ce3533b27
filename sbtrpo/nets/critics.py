"""Value functions of reward and cost, fitted together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbtrpo.nets.stack import Adam, Floats, Stack, clip_together, one_blas_thread


class Critics:
    """K value networks of one shape. They live on the CPU; `device` is where values go."""

    def __init__(
        self, heads: int, observation_size: int, hidden: Sequence[int], learning_rate: float,
        generator: torch.Generator, device: str = "cpu",
    ) -> None:  # fmt: skip
        self.heads, self.learning_rate, self.device = heads, learning_rate, device
        self.stack = Stack(heads, [observation_size, *hidden, 1])
        self._adam = Adam(len(self.stack.theta))
        widths = [inputs for inputs, _ in self.stack.layers for _ in range(2)]
        for param, inputs in zip(self.stack.params, widths, strict=True):
            param[:] = (torch.rand(param.shape, generator=generator) * 2 - 1).numpy() / math.sqrt(inputs)

    def __call__(self, obs: Tensor) -> Tensor:
        """Values of observations (..., obs_dim): (K, ...)."""
        values = self.stack.forward(obs.reshape(-1, obs.shape[-1]).cpu().numpy())[-1]
        return torch.from_numpy(values.reshape(self.heads, *obs.shape[:-1])).to(self.device)

    def backward(self, x: Floats, y: Floats, l2: float, weights: Floats | None = None) -> Floats:
        """Fill the stack's gradient with that of Σ_k w_k (mean (V_k(x) - y_k)² + l2 ‖params_k‖²).

        Args:
            x: (n, obs_dim)
            y: (K, n)
            l2: weight of the sum of squared parameters in each head's loss.
            weights: (K,) of the heads; all 1 if left out.

        Returns:
            The errors V(x) - y, (K, n).
        """
        stack = self.stack
        activations = stack.forward(x)
        error: Floats = activations[-1][..., 0] - y
        stack.backward(activations, (error * np.float32(2 / len(x)))[..., None])
        stack.gradient += np.float32(2 * l2) * stack.theta
        if weights is not None:
            for gradient in stack.gradients:
                gradient *= weights[:, None, None]
        return error

    def step(self) -> None:
        """One step of Adam along the stack's gradient."""
        self._adam.step(self.stack.theta, self.stack.gradient, self.learning_rate)

    def fit(
        self,
        obs: Tensor,
        targets: Tensor,
        batch: int,
        passes: int,
        l2: float,
        max_norm: float,
        generator: torch.Generator,
        weights: Sequence[float] | None = None,
    ) -> tuple[Tensor, float]:
        """Regress each head on its targets.

        Args:
            obs: (B, obs_dim).
            targets: (K, B).
            batch: size of the minibatches; the last one may be smaller.
            passes: over the data, each in a fresh order.
            l2: weight of the sum of squared parameters in each head's loss.
            max_norm: bound on the gradient's norm, over all heads together.
            generator: of the orders, on the CPU.
            weights: of the heads' losses; all 1 if left out.

        Returns:
            (K,) mean squared errors in the last pass, and the norm of the last gradient.
        """
        x, y = obs.cpu().numpy(), targets.cpu().numpy()
        factors = None if weights is None else np.asarray(weights, np.float32)
        errors = np.zeros(self.heads)
        last = 0.0
        with one_blas_thread():
            for _ in range(passes):
                order = torch.randperm(len(x), generator=generator).numpy()
                shuffled_x, shuffled_y = x[order], y[:, order]
                errors[:] = 0
                for start in range(0, len(x), batch):
                    rows = slice(start, start + batch)
                    error = self.backward(shuffled_x[rows], shuffled_y[:, rows], l2, factors)
                    errors += np.einsum("kn,kn->k", error, error)
                    clip_together([self.stack.gradient], max_norm)
                    last = float(np.linalg.norm(self.stack.gradient)) if start + batch >= len(x) else last
                    self.step()
        return torch.from_numpy(errors / len(x)).float(), last

    def state_dict(self) -> dict[str, Any]:
        """Weights and Adam's state."""
        return {"params": self.stack.theta.copy(), **self._adam.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.stack.theta[:] = state["params"]
        self._adam.load_state_dict(state)


def critic_losses(losses: Tensor, names: Sequence[str] = ("c",)) -> dict[str, float]:
    """The critics' mean squared errors by name; there may be one for reward alone."""
    return {f"critic_loss_{name}": float(loss) for name, loss in zip(("r", *names), losses, strict=False)}
