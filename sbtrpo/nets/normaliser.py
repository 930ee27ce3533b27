"""Running statistics of observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Normaliser:
    """Running mean and variance of observations, in float64, starting from mean 0 and variance 1 with a count of 1e-4.

    >>> import numpy as np
    >>> normaliser = Normaliser(size=2)
    >>> normaliser.update(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> normaliser.mean.round(3).tolist()
    [2.0, 3.0]
    """

    EPSILON = 1e-8
    learns = True
    """Whether it grows with what is seen; see `fix`."""
    plain = 0
    """So many of the last entries keep a mean of 0 and a variance of 1, whatever is seen."""

    def __init__(self, size: int) -> None:
        self.mean: NDArray[np.float64] = np.zeros(size)
        self.var: NDArray[np.float64] = np.ones(size)
        self.count = 1e-4

    def update(self, batch: NDArray[np.float64]) -> None:
        """Merge a batch of observations (n, size) into the statistics, if these grow with what is seen."""
        if self.learns:
            self.merge(batch)

    def merge(self, batch: NDArray[np.float64]) -> None:
        """The same in any case."""
        n = len(batch)
        total = self.count + n
        mean = batch.mean(axis=0)
        gap = mean - self.mean
        spread = ((batch - mean) ** 2).sum(axis=0)
        self.var = (self.var * self.count + spread + gap * gap * (self.count * n / total)) / total
        self.mean = self.mean + gap * (n / total)
        self.count = total
        if self.plain:
            self.mean[-self.plain :], self.var[-self.plain :] = 0.0, 1.0

    def __call__(self, observation: NDArray[np.float64]) -> NDArray[np.float64]:
        """The observation in units of the statistics; never clipped."""
        return (observation - self.mean) / np.sqrt(self.var + self.EPSILON)

    def fix(self, mean: float, scale: float) -> None:
        """From now on this is subtracted from every entry, and what is left divided by the scale."""
        self.mean[:], self.var[:], self.learns = mean, scale * scale - self.EPSILON, False

    def state_dict(self) -> dict[str, NDArray[np.float64]]:
        """Mean, variance and count."""
        return {"mean": self.mean.copy(), "var": self.var.copy(), "count": np.asarray(self.count)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.mean, self.var = np.array(state["mean"]), np.array(state["var"])
        self.count = float(state["count"])


class TensorNormaliser:
    """The same statistics as float64 tensors on a device, always in the same memory.

    Those of several policies are (K, 1, size), their counts (K, 1, 1), and batches (K, n, size): see `policies.py`.

    >>> normaliser = TensorNormaliser(size=2)
    >>> normaliser.update(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> normaliser.mean.round(decimals=3).tolist()
    [2.0, 3.0]
    """

    EPSILON = Normaliser.EPSILON
    learns = True
    plain = 0

    def __init__(self, size: int, device: str = "cpu") -> None:
        self.mean = torch.zeros(size, dtype=torch.float64, device=device)
        self.var = torch.ones(size, dtype=torch.float64, device=device)
        self.count = torch.full((), 1e-4, dtype=torch.float64, device=device)

    def update(self, batch: Tensor) -> None:
        """Merge a batch of observations (n, size) into the statistics, if these grow with what is seen."""
        if self.learns:
            self.merge(batch)

    def merge(self, batch: Tensor) -> None:
        """The same in any case."""
        n, several = batch.shape[-2], self.mean.dim() > 1
        total = self.count + n
        batch = batch.double()
        mean = batch.mean(dim=-2, keepdim=several)
        gap = mean - self.mean
        spread = ((batch - mean) ** 2).sum(dim=-2, keepdim=several)
        self.var.copy_((self.var * self.count + spread + gap * gap * (self.count * n / total)) / total)
        self.mean += gap * (n / total)
        self.count.copy_(total)
        if self.plain:
            self.mean[..., -self.plain :], self.var[..., -self.plain :] = 0.0, 1.0

    def __call__(self, observation: Tensor) -> Tensor:
        """The observation in units of the statistics, in float64; never clipped."""
        return (observation.double() - self.mean) / torch.sqrt(self.var + self.EPSILON)

    def fix(self, mean: float, scale: float) -> None:
        """From now on this is subtracted from every entry, and what is left divided by the scale."""
        self.mean[:], self.var[:], self.learns = mean, scale * scale - self.EPSILON, False

    def state_dict(self) -> dict[str, NDArray[np.float64]]:
        """Mean, variance and count, as `Normaliser` saves them."""
        mean, var = (values.cpu().numpy().copy() for values in (self.mean, self.var))
        return {"mean": mean, "var": var, "count": np.asarray(float(self.count))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, of either class."""
        for tensor, name in ((self.mean, "mean"), (self.var, "var"), (self.count, "count")):
            tensor.copy_(torch.as_tensor(np.asarray(state[name], np.float64)))


AnyNormaliser: TypeAlias = Normaliser | TensorNormaliser


def units(statistics: Mapping[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean that is subtracted and the deviation that divides, of statistics as they are saved."""
    mean, var = (np.asarray(statistics[name], np.float64) for name in ("mean", "var"))
    return mean, np.sqrt(var + Normaliser.EPSILON)
