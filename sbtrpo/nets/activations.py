"""Activations of hidden layers: each with its slope as a function of its values, so that these are all that is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbtrpo.nets.distributions import Array


@dataclass(frozen=True)
class Activation:
    """One of them, in NumPy and in torch."""

    on_arrays: Callable[..., Any]
    """Into `out`, where that is given."""
    on_tensors: Callable[[Tensor], Tensor]
    in_place: Callable[[Tensor], Tensor]
    """Of tensors."""
    slope: Callable[[Array], Array]
    """The derivative where the values are these, of arrays and tensors alike."""
    pull: Callable[[Tensor, Tensor], Any]
    """Multiply a signal by the slope at some values, in place."""
    module: type[torch.nn.Module]
    onnx: str
    """The name of the operator."""


def _relu(x: Any, out: Any = None) -> Any:
    return np.maximum(x, 0, out=out)


def _elu(x: Any, out: Any = None) -> Any:
    return np.maximum(x, np.expm1(np.minimum(x, 0)), out=out)


ACTIVATIONS = {
    "tanh": Activation(
        np.tanh, torch.tanh, torch.tanh_, lambda h: 1 - h * h,
        lambda signal, h: signal.addcmul_(signal * h, h, value=-1), torch.nn.Tanh, "Tanh",
    ),
    "relu": Activation(
        _relu, torch.relu, torch.relu_, lambda h: h > 0, lambda signal, h: signal.mul_(h > 0), torch.nn.ReLU, "Relu"
    ),
    "elu": Activation(
        _elu, torch.nn.functional.elu, torch.nn.functional.elu_, lambda h: h.clip(max=0) + 1,
        lambda signal, h: signal.mul_(h.clip(max=0) + 1), torch.nn.ELU, "Elu",
    ),
}  # fmt: skip
