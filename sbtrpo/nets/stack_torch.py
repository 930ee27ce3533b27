"""The stack of networks, Adam and clipping of `stack.py` on torch tensors: for large minibatches, and for GPUs.

Nothing here waits for the device: whether a gradient is clipped is a number that stays there. So the operations of many
minibatches queue up, and the host waits only where it reads a result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from sbtrpo.nets.activations import ACTIVATIONS
from sbtrpo.nets.stack import count, views


class TensorStack:
    """K networks of one shape with linear outputs, and room for `extra` parameters in front of theirs.

    As `Stack`: `theta` and `gradient` are vectors; `params` and `gradients` are views of them, weight (K, in, out),
    bias (K, 1, out), weight, ...
    """

    def __init__(
        self,
        heads: int,
        sizes: Sequence[int],
        extra: int = 0,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        activation: str = "tanh",
    ) -> None:
        self.heads, self.extra, self.activation = heads, extra, ACTIVATIONS[activation]
        self.layers = list(itertools.pairwise(sizes))
        size = extra + count(heads, self.layers)
        # Two tensors, not two rows of one: autograd would take a gradient that is filled for parameters that changed.
        self.theta, self.gradient = (torch.zeros(size, dtype=dtype, device=device) for _ in range(2))
        self.params, self.gradients = (views(v, extra, heads, self.layers) for v in (self.theta, self.gradient))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Inputs (K, n, in), what each hidden layer makes of them, (K, n, out), and outputs (K, n, out).

        Args:
            x: (n, in), or (K, n, in) where each network has inputs of its own; what comes back first shares its memory.
        """
        activations = [x if x.ndim == 3 else x.expand(self.heads, *x.shape)]
        for weight, bias in zip(self.params[::2], self.params[1::2], strict=True):
            if len(activations) > 1:
                self.activation.in_place(activations[-1])
            activations.append(torch.baddbmm(bias, activations[-1], weight))
        return activations

    def backward(self, activations: Sequence[Tensor], signal: Tensor) -> None:
        """Fill `gradient` (but its extra entries) from the loss's slope in the outputs, (K, n, out)."""
        for layer in range(len(self.layers) - 1, -1, -1):
            h, weight = activations[layer], self.params[2 * layer]
            torch.bmm(h.mT, signal, out=self.gradients[2 * layer])
            torch.sum(signal, dim=1, keepdim=True, out=self.gradients[2 * layer + 1])
            if layer:
                # With one output, as a critic's last layer has, the product is an outer one.
                signal = signal * weight.mT if weight.shape[2] == 1 else torch.bmm(signal, weight.mT)
                self.activation.pull(signal, h)


class TensorAdam:
    """Torch's Adam in its fused form on one vector, counting steps on the device, so that one can be recorded.

    The count is a float32, as torch has it, and stays at 2^24, where nothing depends on it any more.
    """

    def __init__(self, size: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        self.mean, self.square = (torch.zeros(size, dtype=dtype, device=device) for _ in range(2))
        self.steps = torch.zeros((), device=device)

    def step(self, theta: Tensor, gradient: Tensor, learning_rate: float) -> None:
        """Move theta against the gradient, in place."""
        _step(learning_rate, [theta], [gradient], [self.mean], [self.square], [self.steps])

    def state_dict(self) -> dict[str, Any]:
        """Both moments and the number of steps, as `Adam` saves them."""
        mean, square = (moment.cpu().numpy().copy() for moment in (self.mean, self.square))
        return {"mean": mean, "square": square, "steps": int(self.steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, of `Adam` or of this."""
        self.mean.copy_(torch.as_tensor(state["mean"]))
        self.square.copy_(torch.as_tensor(state["square"]))
        self.steps.fill_(int(state["steps"]))


def _step(
    learning_rate: float,
    thetas: list[Tensor],
    gradients: list[Tensor],
    means: list[Tensor],
    squares: list[Tensor],
    steps: list[Tensor],
) -> None:
    adam(
        thetas, gradients, means, squares, [], steps,
        fused=True, amsgrad=False, beta1=0.9, beta2=0.999, lr=learning_rate, weight_decay=0.0, eps=1e-8, maximize=False,
    )  # fmt: skip


class StackRows(TensorStack):
    """Stacks of one shape, and their Adams, side by side: every network has a row, and all pass and step together.

    `theta` and `gradient` are (networks, parameters); `mine` has the rows of each stack as one row. Between `load` and
    `store` the stacks themselves stay as they were.
    """

    def __init__(self, stacks: Sequence[TensorStack], adams: Sequence[TensorAdam]) -> None:
        first = stacks[0]
        assert not first.extra or first.heads == 1
        self.heads, self.extra, self.layers = len(stacks) * first.heads, first.extra, first.layers
        self.activation, self._count = first.activation, len(stacks)
        shape = (self.heads, first.extra + count(1, first.layers))
        whole = [torch.zeros(shape, dtype=first.theta.dtype, device=first.theta.device) for _ in range(4)]
        self.theta, self.gradient, mean, square = whole
        self.params, self.gradients = self._views(self.theta), self._views(self.gradient)
        self._whole = [list(self.mine(values)) for values in whole]
        self._steps = [torch.zeros_like(one.steps) for one in adams]
        # What is loaded and stored, as rows here and as vectors there, and the place of each of a row's entries there.
        self._rows, self._their_steps = (self.theta, mean, square), [one.steps for one in adams]
        self._vectors = [stack.theta for stack in stacks], [one.mean for one in adams], [one.square for one in adams]
        numbers = torch.arange(len(first.theta), device=first.theta.device)
        parts = views(numbers, first.extra, first.heads, first.layers)
        extra = numbers[: first.extra].view(first.heads, first.extra)
        self._places = torch.cat([extra, *(part.flatten(1) for part in parts)], dim=1).flatten()
        self._places_back = self._places.argsort()

    def _views(self, rows: Tensor) -> list[Tensor]:
        """Rows of parameters as weight (K, in, out), bias (K, 1, out), weight, ...; views, not copies."""
        shapes = [shape for inputs, outputs in self.layers for shape in ((inputs, outputs), (1, outputs))]
        parts = torch.split(rows[:, self.extra :], [math.prod(shape) for shape in shapes], dim=1)
        return [torch.unflatten(part, 1, shape) for part, shape in zip(parts, shapes, strict=True)]

    def mine(self, values: Tensor) -> Tensor:
        """What each stack has of something like `theta`: (stacks, its parameters)."""
        return values.view(self._count, -1)

    def load(self) -> None:
        """Take over what the stacks and their Adams hold."""
        for rows, vectors in zip(self._rows, self._vectors, strict=True):
            self.mine(rows).copy_(torch.stack(vectors)[:, self._places])
        torch._foreach_copy_(self._steps, self._their_steps)

    def store(self) -> None:
        """Give it back to them."""
        for rows, vectors in zip(self._rows, self._vectors, strict=True):
            torch._foreach_copy_(vectors, list(self.mine(rows)[:, self._places_back]))
        torch._foreach_copy_(self._their_steps, self._steps)

    def step(self, learning_rate: float) -> None:
        """One step of every Adam."""
        theta, gradient, mean, square = self._whole
        _step(learning_rate, theta, gradient, mean, square, self._steps)


def clip_tensors_together(gradients: Sequence[Tensor], max_norm: float, beside: Tensor | float = 0.0) -> Tensor:
    """Scale gradients so that their joint norm, with a norm `beside` counted in, stays within a bound.

    Args:
        gradients: a learner's, (P,) each; or those of several, (L, P) each, whose norms are their own.
        max_norm: the bound.
        beside: what else counts.

    Returns:
        The factor that was applied, 1 where none was needed: a tensor of no dimensions, or (L,), still on the device.
    """
    squares = torch.stack([torch.linalg.vecdot(gradient, gradient) for gradient in gradients]).sum(dim=0)
    norm = torch.sqrt(squares + beside * beside)
    factor = torch.where(norm <= max_norm, torch.ones_like(norm), max_norm / (norm + 1e-6))
    for gradient in gradients:
        gradient *= factor[..., None]
    return factor
