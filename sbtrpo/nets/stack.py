"""Small networks for minibatches: forward and backward written out in NumPy, and Adam on one vector.

Minibatches are so small that the cost of an operation is mostly that of calling it. NumPy's calls are the cheapest, so
networks of one shape are stacked, weights (K, in, out), to pass through together, and all parameters of a stack lie in
one vector, so that a penalty, clipping and Adam are a few operations for all. `stack_torch.py` holds the same for large
minibatches and for GPUs; `forms.py` says which of the two is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from threadpoolctl import threadpool_limits

from sbtrpo.nets.activations import ACTIVATIONS
from sbtrpo.nets.distributions import Array

Floats = NDArray[Any]
"""Of float32 in training; tests also compute in float64."""


def count(heads: int, layers: Sequence[tuple[int, int]]) -> int:
    """Parameters of so many networks with these inputs and outputs of layers."""
    return heads * sum((inputs + 1) * outputs for inputs, outputs in layers)


def views(vector: Array, extra: int, heads: int, layers: Sequence[tuple[int, int]]) -> list[Array]:
    """A vector behind its first entries as weight (K, in, out), bias (K, 1, out), weight, ...; views, not copies."""
    shapes = [shape for inputs, outputs in layers for shape in ((heads, inputs, outputs), (heads, 1, outputs))]
    ends = itertools.accumulate((math.prod(shape) for shape in shapes), initial=extra)
    return [
        vector[start:end].reshape(shape) for (start, end), shape in zip(itertools.pairwise(ends), shapes, strict=True)
    ]


class Stack:
    """K networks of one shape with linear outputs, and room for `extra` parameters in front of theirs.

    `theta` and `gradient` are vectors; `params` and `gradients` are views of them, weight (K, in, out), bias
    (K, 1, out), weight, ...
    """

    def __init__(
        self,
        heads: int,
        sizes: Sequence[int],
        extra: int = 0,
        dtype: DTypeLike = np.float32,
        activation: str = "tanh",
    ) -> None:
        self.heads, self.extra, self._activation = heads, extra, ACTIVATIONS[activation]
        self.layers = list(itertools.pairwise(sizes))
        self.theta, self.gradient = np.zeros((2, extra + count(heads, self.layers)), dtype)
        self.params, self.gradients = (views(v, extra, heads, self.layers) for v in (self.theta, self.gradient))

    def forward(self, x: Floats) -> list[Floats]:
        """Inputs (n, in), what each hidden layer makes of them, (K, n, out), and outputs (K, n, out)."""
        activations = [x]
        for weight, bias in zip(self.params[::2], self.params[1::2], strict=True):
            if len(activations) > 1:
                self._activation.on_arrays(activations[-1], out=activations[-1])
            activations.append(activations[-1] @ weight)
            activations[-1] += bias
        return activations

    def backward(self, activations: Sequence[Floats], signal: Floats) -> None:
        """Fill `gradient` (but its extra entries) from the loss's slope in the outputs, (K, n, out)."""
        for layer in range(len(self.layers) - 1, -1, -1):
            h, weight = activations[layer], self.params[2 * layer]
            np.matmul(h.swapaxes(-1, -2), signal, out=self.gradients[2 * layer])
            np.sum(signal, axis=1, keepdims=True, out=self.gradients[2 * layer + 1])
            if layer:
                # With one output, as a critic's last layer has, the product is an outer one.
                signal = signal * weight.mT if weight.shape[2] == 1 else signal @ weight.mT
                signal *= self._activation.slope(h)


class Adam:
    """Adam (β 0.9 and 0.999, ε 1e-8) on one vector."""

    def __init__(self, size: int, dtype: DTypeLike = np.float32) -> None:
        self._mean, self._square, self._scratch = np.zeros((3, size), dtype)
        self._steps = 0

    def step(self, theta: Floats, gradient: Floats, learning_rate: float) -> None:
        """Move theta against the gradient, in place; the gradient's memory is used up."""
        mean, square, scratch = self._mean, self._square, self._scratch
        self._steps += 1
        mean *= 0.9
        mean += np.multiply(gradient, 0.1, out=scratch)
        gradient *= gradient
        gradient *= 0.001
        square *= 0.999
        square += gradient
        # Both corrections of the start, as factors: of the root's scale and of the learning rate.
        root = math.sqrt(1 - 0.999**self._steps)
        np.sqrt(square, out=scratch)
        scratch += 1e-8 * root
        np.divide(mean, scratch, out=scratch)
        scratch *= learning_rate * root / (1 - 0.9**self._steps)
        theta -= scratch

    def state_dict(self) -> dict[str, Any]:
        """Both moments and the number of steps."""
        return {"mean": self._mean.copy(), "square": self._square.copy(), "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._mean[:], self._square[:] = state["mean"], state["square"]
        self._steps = int(state["steps"])


def clip_together(gradients: Sequence[Floats], max_norm: float, beside: float = 0.0) -> float:
    """Scale gradients so that their joint norm, with a norm `beside` counted in, stays within a bound.

    Returns:
        The factor that was applied, 1 where none was needed.
    """
    norm = math.sqrt(sum(float(gradient @ gradient) for gradient in gradients) + beside * beside)
    if norm <= max_norm:
        return 1.0
    factor = max_norm / (norm + 1e-6)
    for gradient in gradients:
        gradient *= factor
    return factor


def one_blas_thread() -> threadpool_limits:
    """A context in which matrix products keep to one thread.

    Products of minibatches are too small to gain from a second one, and took 30 to 50 times as long with one while
    another process was busy on a two-core machine.
    """
    return threadpool_limits(limits=1, user_api="blas")
