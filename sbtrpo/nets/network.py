"""Small networks as flat lists of tensors, and those lists as one vector."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sbtrpo.config.run import RunSettings
from sbtrpo.nets.activations import ACTIVATIONS, Activation
from sbtrpo.nets.images import Image


@dataclass(frozen=True)
class Design:
    """What networks are made of beside the widths of their layers; by default as published."""

    activation: str = "tanh"
    orthogonal: bool = False
    """Whether the first weights are, and biases 0; otherwise all are uniform, as those of PyTorch's linear layers."""
    log_std: float = 0.0
    """The policy's at first."""
    normalise: bool = True
    """Whether observations are normalised; an image's pixels then go from their bounds to [-1, 1]."""
    image: Image | None = None
    """What is convolved first; None where observations are vectors."""
    plain: int = 0
    """So many of an observation's last entries are in units of their own, and never normalised."""

    @classmethod
    def of(cls, settings: RunSettings, image: Image | None = None, plain: int = 0) -> Design:
        """What a run's settings ask for."""
        orthogonal = settings.initialisation == "orthogonal"
        log_std, normalise = settings.initial_log_std, settings.normalise_observations
        return cls(settings.activation, orthogonal, log_std, normalise, image, plain)

    @property
    def function(self) -> Activation:
        """The activation."""
        return ACTIVATIONS[self.activation]

    def layers(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Inputs and outputs of each layer, where sizes are those of the observation, hidden layers and outputs."""
        if self.image is None:
            return list(itertools.pairwise(sizes))
        return [*self.image.layers, *itertools.pairwise([self.image.features, *sizes[1:]])]

    def draw(self, inputs: int, outputs: int, gain: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The first weight (outputs, inputs) and bias (outputs,) of a layer; the gain is that of orthogonal ones."""
        if self.orthogonal:
            weight = torch.nn.init.orthogonal_(torch.empty(outputs, inputs), gain, generator=generator)
            return weight, torch.zeros(outputs)
        bound = 1 / math.sqrt(inputs)
        weight, bias = (
            torch.rand(shape, generator=generator) * 2 * bound - bound for shape in ((outputs, inputs), (outputs,))
        )
        return weight, bias


PUBLISHED = Design()
HIDDEN_GAIN, POLICY_GAIN, CRITIC_GAIN = math.sqrt(2), 0.01, 1.0
"""Of orthogonal weights, in hidden layers and in the last one: first actions hardly depend on what is seen."""


@dataclass
class MLP:
    """A network with a linear output, as a flat list of tensors: weight, bias, weight, bias, ...

    Weights are (out, in). Where its design has an image, its first layers convolve that.
    """

    params: list[Tensor]
    design: Design = field(default=PUBLISHED)

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs (..., out) of inputs (..., in)."""
        activation, image, params = self.design.function, self.design.image, self.params
        if image is not None:
            convolutions = 2 * len(image.layers)
            x, params = image.convolve(x, params[:convolutions], activation), params[convolutions:]
        for weight, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
            x = activation.on_tensors(torch.nn.functional.linear(x, weight, bias))
        return torch.nn.functional.linear(x, params[-2], params[-1])


def make_mlp(sizes: Sequence[int], generator: torch.Generator, device: str = "cpu", design: Design = PUBLISHED) -> MLP:
    """A policy's network with its first weights."""
    layers = design.layers(sizes)
    gains = [HIDDEN_GAIN] * (len(layers) - 1) + [POLICY_GAIN]
    drawn = [design.draw(*layer, gain, generator) for layer, gain in zip(layers, gains, strict=True)]
    return MLP([tensor.to(device) for layer in drawn for tensor in layer], design)


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All entries as one vector (P,)."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The vector (P,) cut into tensors of these shapes; views, not copies."""
    parts = torch.split(vector, [tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]
