"""Small tanh networks as flat lists of tensors, and those lists as one vector."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


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
