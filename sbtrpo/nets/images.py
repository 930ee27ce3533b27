"""Images as networks see them: convolutions of 4 x 4 pixels in steps of 2, each of which halves both sides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import Tensor

from sbtrpo.nets.activations import Activation

CHANNELS = (16, 32, 32)
"""Of the convolutions; a small image has the first ones only, so that at least 4 pixels are left to a side."""
KERNEL, STRIDE, PADDING = 4, 2, 1
ROWS = 1024
"""Images that pass through a network at once, so that memory stays bounded."""


@dataclass(frozen=True)
class Image:
    """What an environment's observations are pictures of.

    >>> image = Image((64, 48, 3), 0, 255)
    >>> image.sides, image.channels, image.layers, image.features
    ((64, 48), 3, [(48, 16), (256, 32), (512, 32)], 1536)
    """

    shape: tuple[int, ...]
    """(height, width), (height, width, channels) or (channels, height, width); the fewest are the channels."""
    low: float
    high: float
    """The bounds of a pixel."""

    @property
    def size(self) -> int:
        """How many numbers an image has."""
        return math.prod(self.shape)

    @property
    def channels_first(self) -> bool:
        """Whether they come before the sides, as convolutions want them."""
        return len(self.shape) == 2 or self.shape[0] < self.shape[2]

    @property
    def channels(self) -> int:
        """1 for one in grey."""
        return 1 if len(self.shape) == 2 else self.shape[0 if self.channels_first else 2]

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width."""
        if len(self.shape) == 2:
            return self.shape[0], self.shape[1]
        return (self.shape[1], self.shape[2]) if self.channels_first else (self.shape[0], self.shape[1])

    @property
    def shape_in_rows(self) -> tuple[int, int, int]:
        """The shape with its channels, if there is but one."""
        height, width = self.sides
        return (self.channels, height, width) if self.channels_first else (height, width, self.channels)

    @property
    def to_planes(self) -> tuple[int, int, int, int]:
        """The order of the axes of n images in which channels come before the sides."""
        return (0, 1, 2, 3) if self.channels_first else (0, 3, 1, 2)

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each convolution; its weight is a matrix (outputs, inputs), as a linear layer's is."""
        halvings = min(len(CHANNELS), int(math.log2(min(self.sides))) - 2)
        channels = [self.channels, *CHANNELS[:halvings]]
        return [(inputs * KERNEL * KERNEL, outputs) for inputs, outputs in itertools.pairwise(channels)]

    @property
    def features(self) -> int:
        """What the last convolution gives."""
        halvings, (height, width) = len(self.layers), self.sides
        return self.layers[-1][1] * (height >> halvings) * (width >> halvings)

    def convolve(self, x: Tensor, params: Sequence[Tensor], activation: Activation) -> Tensor:
        """The features (..., features) of images in rows (..., size), with weight, bias, ... of each convolution."""
        planes = self.planes(x)
        for weight, bias in zip(params[::2], params[1::2], strict=True):
            kernels = weight.reshape(len(weight), -1, KERNEL, KERNEL)
            planes = activation.on_tensors(torch.nn.functional.conv2d(planes, kernels, bias, STRIDE, PADDING))
        return planes.reshape(*x.shape[:-1], -1)

    def planes(self, x: Tensor) -> Tensor:
        """Images in rows as convolutions take them, (n, channels, height, width)."""
        return x.reshape(-1, *self.shape_in_rows).permute(self.to_planes)

    def as_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {**asdict(self), "shape": list(self.shape)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """The image of a checkpoint."""
        return cls(tuple(map(int, saved["shape"])), float(saved["low"]), float(saved["high"]))


def pieces(rows: int) -> list[slice]:
    """All rows, `ROWS` at a time."""
    return [slice(start, min(start + ROWS, rows)) for start in range(0, rows, ROWS)]
