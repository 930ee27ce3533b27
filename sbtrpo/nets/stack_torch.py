"""The stack of networks, Adam and clipping of `stack.py` on torch tensors: for large minibatches, and for GPUs.

Nothing here waits for the device: whether a gradient is clipped is a number that stays there. So the operations of many
minibatches queue up, and the host waits only where it reads a result.
"""

from __future__ import annotations

import itertools
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
        self.heads, self.extra, self._activation = heads, extra, ACTIVATIONS[activation]
        self.layers = list(itertools.pairwise(sizes))
        size = extra + count(heads, self.layers)
        # Two tensors, not two rows of one: autograd would take a gradient that is filled for parameters that changed.
        self.theta, self.gradient = (torch.zeros(size, dtype=dtype, device=device) for _ in range(2))
        self.params, self.gradients = (views(v, extra, heads, self.layers) for v in (self.theta, self.gradient))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Inputs (K, n, in), what each hidden layer makes of them, (K, n, out), and outputs (K, n, out).

        Args:
            x: (n, in); the K views of it that come back first share its memory.
        """
        activations = [x.expand(self.heads, *x.shape)]
        for weight, bias in zip(self.params[::2], self.params[1::2], strict=True):
            if len(activations) > 1:
                self._activation.in_place(activations[-1])
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
                self._activation.pull(signal, h)


class TensorAdam:
    """Torch's Adam in its fused form on one vector, counting steps on the device, so that one can be recorded.

    The count is a float32, as torch has it, and stays at 2^24, where nothing depends on it any more.
    """

    def __init__(self, size: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        self._mean, self._square = (torch.zeros(size, dtype=dtype, device=device) for _ in range(2))
        self._steps = torch.zeros((), device=device)

    def step(self, theta: Tensor, gradient: Tensor, learning_rate: float) -> None:
        """Move theta against the gradient, in place."""
        adam(
            [theta], [gradient], [self._mean], [self._square], [], [self._steps],
            fused=True, amsgrad=False, beta1=0.9, beta2=0.999, lr=learning_rate, weight_decay=0.0, eps=1e-8,
            maximize=False,
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Both moments and the number of steps, as `Adam` saves them."""
        mean, square = (moment.cpu().numpy().copy() for moment in (self._mean, self._square))
        return {"mean": mean, "square": square, "steps": int(self._steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, of `Adam` or of this."""
        self._mean.copy_(torch.as_tensor(state["mean"]))
        self._square.copy_(torch.as_tensor(state["square"]))
        self._steps.fill_(int(state["steps"]))


def clip_tensors_together(gradients: Sequence[Tensor], max_norm: float, beside: Tensor | float = 0.0) -> Tensor:
    """Scale gradients so that their joint norm, with a norm `beside` counted in, stays within a bound.

    Returns:
        The factor that was applied, 1 where none was needed: a tensor of no dimensions, still on the device.
    """
    squares = torch.stack([gradient @ gradient for gradient in gradients]).sum()
    norm = torch.sqrt(squares + beside * beside)
    factor = torch.where(norm <= max_norm, torch.ones_like(norm), max_norm / (norm + 1e-6))
    for gradient in gradients:
        gradient *= factor
    return factor
