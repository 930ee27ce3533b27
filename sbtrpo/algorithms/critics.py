"""Value functions of reward and cost, fitted together.

Both critics are one batched network: weights are stacked, (K, in, out), so that a pass serves all K heads, while each
keeps its own loss and its own parameters. Minibatches are so small that the cost of an operation is mostly that of
calling it. So the forward and backward pass are written out, in NumPy, whose calls are the cheapest, and all parameters
lie in one vector, so that the penalty, the joint clipping and Adam are a few operations for all.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]


class Critics:
    """K value networks of one shape, tanh with a linear output. They live on the CPU; `device` is where values go."""

    def __init__(
        self, heads: int, observation_size: int, hidden: Sequence[int], learning_rate: float,
        generator: torch.Generator, device: str = "cpu",
    ) -> None:  # fmt: skip
        self.heads, self.learning_rate, self.device = heads, learning_rate, device
        self._sizes = list(itertools.pairwise([observation_size, *hidden, 1]))
        count = heads * sum((inputs + 1) * outputs for inputs, outputs in self._sizes)
        self._theta, self._gradient, self._mean, self._square, self._scratch = np.zeros((5, count), np.float32)
        """Parameters, their gradients, both of Adam's moments, and room to work in."""
        self._steps = 0
        self.params, self._gradients = self._views(self._theta), self._views(self._gradient)
        """weight (K, in, out), bias (K, 1, out), weight, ...: views of one vector."""
        for param, (inputs, _) in zip(self.params, (size for size in self._sizes for _ in range(2)), strict=True):
            param[:] = (torch.rand(param.shape, generator=generator) * 2 - 1).numpy() / math.sqrt(inputs)

    def _views(self, vector: Floats) -> list[Floats]:
        k = self.heads
        shapes = [shape for inputs, outputs in self._sizes for shape in ((k, inputs, outputs), (k, 1, outputs))]
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(vector, ends[:-1]), shapes, strict=True)]

    def __call__(self, obs: Tensor) -> Tensor:
        """Values of observations (..., obs_dim): (K, ...)."""
        values = self._activations(obs.reshape(-1, obs.shape[-1]).cpu().numpy())[-1]
        return torch.from_numpy(values.reshape(self.heads, *obs.shape[:-1])).to(self.device)

    def _activations(self, x: Floats) -> list[Floats]:
        """Inputs (n, obs_dim), what each hidden layer makes of them, (K, n, out), and values (K, n, 1)."""
        found = [x]
        for weight, bias in zip(self.params[::2], self.params[1::2], strict=True):
            if len(found) > 1:
                np.tanh(found[-1], out=found[-1])
            found.append(found[-1] @ weight)
            found[-1] += bias
        return found

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
        x, y = obs.cpu().numpy(), targets.cpu().numpy()
        errors = np.zeros(self.heads)
        with one_blas_thread():
            for _ in range(passes):
                order = torch.randperm(len(x), generator=generator).numpy()
                shuffled_x, shuffled_y = x[order], y[:, order]
                errors[:] = 0
                for start in range(0, len(x), batch):
                    rows = slice(start, start + batch)
                    error = self._backward(shuffled_x[rows], shuffled_y[:, rows])
                    errors += np.einsum("kn,kn->k", error, error)
                    self._step(l2, max_norm)
        return torch.from_numpy(errors / len(x)).float()

    def _backward(self, x: Floats, y: Floats) -> Floats:
        """Gradients of Σ_heads mean((V(x) - y)²) for x (n, obs_dim) and y (K, n); returns the errors V(x) - y."""
        *inputs, values = self._activations(x)
        error: Floats = values[..., 0] - y
        signal = (error * np.float32(2 / len(x)))[..., None]
        for layer in range(len(inputs) - 1, -1, -1):
            h, weight = inputs[layer], self.params[2 * layer]
            np.matmul(h.swapaxes(-1, -2), signal, out=self._gradients[2 * layer])
            np.sum(signal, axis=1, keepdims=True, out=self._gradients[2 * layer + 1])
            if layer:
                # With one output, as the last layer has, the product is an outer one.
                signal = signal * weight.mT if weight.shape[2] == 1 else signal @ weight.mT
                signal *= 1 - h * h
        return error

    def _step(self, l2: float, max_norm: float) -> None:
        """Add the penalty's gradient, clip, and take a step of Adam (β 0.9 and 0.999, ε 1e-8)."""
        theta, gradient, mean, square, scratch = self._theta, self._gradient, self._mean, self._square, self._scratch
        gradient += np.multiply(theta, np.float32(2 * l2), out=scratch)
        norm = math.sqrt(gradient @ gradient)
        if norm > max_norm:
            gradient *= np.float32(max_norm / (norm + 1e-6))
        self._steps += 1
        mean *= np.float32(0.9)
        mean += np.multiply(gradient, np.float32(0.1), out=scratch)
        gradient *= gradient
        gradient *= np.float32(0.001)
        square *= np.float32(0.999)
        square += gradient
        # Both corrections of the start, as factors: of the root's scale and of the learning rate.
        root = math.sqrt(1 - 0.999**self._steps)
        np.sqrt(square, out=scratch)
        scratch += np.float32(1e-8 * root)
        np.divide(mean, scratch, out=scratch)
        scratch *= np.float32(self.learning_rate * root / (1 - 0.9**self._steps))
        theta -= scratch

    def state_dict(self) -> dict[str, Any]:
        """Weights and Adam's state."""
        return {
            "params": self._theta.copy(),
            "mean": self._mean.copy(),
            "square": self._square.copy(),
            "steps": self._steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._theta[:], self._mean[:], self._square[:] = state["params"], state["mean"], state["square"]
        self._steps = int(state["steps"])


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep NumPy's matrix products to one thread, where its BLAS is the OpenBLAS of its wheels.

    Products of minibatches are too small to gain from a second thread, and took 30 to 50 times as long with one while
    another process was busy on a two-core machine.
    """
    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
        get, set_ = library.scipy_openblas_get_num_threads64_, library.scipy_openblas_set_num_threads64_
    except (AttributeError, OSError):  # another BLAS
        yield
        return
    threads = get()
    set_(1)
    try:
        yield
    finally:
        set_(threads)
