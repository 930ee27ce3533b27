"""The two forms of everything that passes through small networks, and which of them is used where.

NumPy's calls are the cheapest, so arrays of NumPy serve what is small and on the CPU, and few worlds there even where
the learner is on a GPU. Tensors of torch live on the learner's device and never leave it. A `Form` is one of the two:
its arrays, its networks, and the way in and out.
States are saved as NumPy arrays by both, so that a run may go on in the other form or on another device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor
from typing_extensions import override

from sbtrpo.nets.by_autograd import AutogradStack
from sbtrpo.nets.distributions import Array
from sbtrpo.nets.network import PUBLISHED, Design
from sbtrpo.nets.normaliser import AnyNormaliser, Normaliser, TensorNormaliser
from sbtrpo.nets.replayed import Replayed
from sbtrpo.nets.stack import Adam, Stack, clip_together, one_blas_thread
from sbtrpo.nets.stack_torch import TensorAdam, TensorStack, clip_tensors_together

CHUNK = 65_536
"""Rows that pass through a network at once where all samples do, so that memory stays bounded."""
MANY_WORLDS = 1600
"""From so many worlds on a policy acts faster with torch, on a CPU with several threads.

Measured with `benchmarks/crossing.py` on an x86 processor, with 2 as with 8 threads. With one thread torch is no faster
there at any size, and takes up to half as long again on an ARM processor.
"""
USUAL_WEIGHTS = 8192
"""Of the policy with which that was measured. Where the learner is on a GPU and the worlds are not, as many worlds are
many: every step of torch's then crosses to the GPU and back. With twice the weights half as many are many there.
"""
MANY_ROWS = 1024
"""From so many rows of a minibatch on, policy and critics learn faster with torch: with 8 threads, with 2 from 512."""


MOST_THREADS = 8
"""With more, torch's threads wait for each other: with 16 on 16 cores NumPy was faster up to 65,536 rows."""


class Form(Protocol):
    """Arrays of one kind, in one precision, in one place; shapes and meaning are the same in both forms."""

    xp: Any
    """The module of their functions: numpy or torch."""
    device: str
    """Where they are."""

    def array(self, values: Array) -> Array:
        """Numbers of either kind as an array of this form, in its precision; the same memory where that is possible."""

    def double(self, values: Array) -> Array:
        """The same in float64."""

    def tensor(self, values: Array) -> Tensor:
        """An array of this form as a tensor on the learner's device, without copying it where it is there."""

    def zeros(self, shape: Sequence[int], kind: type = float) -> Array:
        """Zeros of `float` (this form's precision), `int` or `bool`."""

    def join(self, pieces: Sequence[Array], axis: int = 0) -> Array:
        """One array of several, along an axis."""

    def square_sums(self, rows: Array) -> Array:
        """Sums of squares of each row: (K, n) -> (K,)."""

    def order(self, count: int, generator: torch.Generator) -> Array:
        """A random order of so many rows, from a generator of the CPU: the same in every form."""

    def stack(self, heads: int, sizes: Sequence[int], extra: int = 0, design: Design = PUBLISHED) -> Any:
        """Networks (see `Stack`)."""

    def adam(self, size: int) -> Any:
        """Adam on a vector (see `Adam`)."""

    def clip(self, gradients: Sequence[Array], max_norm: float, beside: Any = 0.0) -> Any:
        """Bound the gradients' joint norm (see `clip_together`)."""

    def normaliser(self, size: int) -> AnyNormaliser:
        """Statistics of observations, as yet of none."""

    def replayed(self, work: Callable[[Array], None], rows: int) -> Replayed | None:
        """Work on minibatches of so many rows, given by their numbers, that is recorded; None where nothing can be."""

    def calm(self) -> contextlib.AbstractContextManager[Any]:
        """A context for many small operations, in which threads do not get into each other's way."""


class NumpyForm(Form):
    """NumPy arrays on the CPU, of a learner there or on a device."""

    def __init__(self, dtype: DTypeLike = np.float32, learner: str = "cpu") -> None:
        self.xp, self.device, self._learner = np, "cpu", learner
        self._kinds = {float: np.dtype(dtype), int: np.dtype(np.int64), bool: np.dtype(bool)}

    @override
    def array(self, values: Array) -> Array:
        return to_numpy(values).astype(self._kinds[float], copy=False)

    @override
    def double(self, values: Array) -> Array:
        return to_numpy(values).astype(np.float64, copy=False)

    @override
    def tensor(self, values: Array) -> Tensor:
        return torch.from_numpy(values).to(self._learner)

    @override
    def zeros(self, shape: Sequence[int], kind: type = float) -> Array:
        return np.zeros(tuple(shape), self._kinds[kind])

    @override
    def join(self, pieces: Sequence[Array], axis: int = 0) -> Array:
        return np.concatenate(pieces, axis=axis)

    @override
    def square_sums(self, rows: Array) -> Array:
        return np.einsum("kn,kn->k", rows, rows)

    @override
    def order(self, count: int, generator: torch.Generator) -> Array:
        return torch.randperm(count, generator=generator).numpy()

    @override
    def stack(self, heads: int, sizes: Sequence[int], extra: int = 0, design: Design = PUBLISHED) -> Any:
        if design.image is not None:
            return AutogradStack(self, heads, sizes, extra, design)
        return Stack(heads, sizes, extra, self._kinds[float], design.activation)

    @override
    def adam(self, size: int) -> Adam:
        return Adam(size, self._kinds[float])

    @override
    def clip(self, gradients: Sequence[Array], max_norm: float, beside: Any = 0.0) -> float:
        return clip_together(gradients, max_norm, float(beside))

    @override
    def normaliser(self, size: int) -> Normaliser:
        return Normaliser(size)

    @override
    def replayed(self, work: Callable[[Array], None], rows: int) -> None:
        return None

    @override
    def calm(self) -> contextlib.AbstractContextManager[Any]:
        limits: contextlib.AbstractContextManager[Any] = one_blas_thread()
        return limits


class TorchForm(Form):
    """Torch tensors on a device."""

    def __init__(self, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self.xp, self.device = torch, device
        self._kinds = {float: dtype, int: torch.int64, bool: torch.bool}

    @override
    def array(self, values: Array) -> Array:
        return torch.as_tensor(values, dtype=self._kinds[float], device=self.device)

    @override
    def double(self, values: Array) -> Array:
        return torch.as_tensor(values, dtype=torch.float64, device=self.device)

    @override
    def tensor(self, values: Array) -> Tensor:
        tensor: Tensor = values
        return tensor

    @override
    def zeros(self, shape: Sequence[int], kind: type = float) -> Array:
        return torch.zeros(tuple(shape), dtype=self._kinds[kind], device=self.device)

    @override
    def join(self, pieces: Sequence[Array], axis: int = 0) -> Array:
        return torch.cat(list(pieces), dim=axis)

    @override
    def square_sums(self, rows: Array) -> Array:
        return (rows * rows).sum(dim=1)

    @override
    def order(self, count: int, generator: torch.Generator) -> Array:
        return torch.randperm(count, generator=generator).to(self.device)

    @override
    def stack(self, heads: int, sizes: Sequence[int], extra: int = 0, design: Design = PUBLISHED) -> Any:
        if design.image is not None:
            return AutogradStack(self, heads, sizes, extra, design)
        return TensorStack(heads, sizes, extra, self._kinds[float], self.device, design.activation)

    @override
    def adam(self, size: int) -> TensorAdam:
        return TensorAdam(size, self._kinds[float], self.device)

    @override
    def clip(self, gradients: Sequence[Array], max_norm: float, beside: Any = 0.0) -> Tensor:
        return clip_tensors_together(gradients, max_norm, beside)

    @override
    def normaliser(self, size: int) -> TensorNormaliser:
        return TensorNormaliser(size, self.device)

    @override
    def replayed(self, work: Callable[[Array], None], rows: int) -> Replayed | None:
        return Replayed(work, rows, self.device) if torch.device(self.device).type == "cuda" else None

    @override
    def calm(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()


def acting_form(device: str, worlds: int, on_host: bool = False, weights: int = USUAL_WEIGHTS) -> Form:
    """The form in which a policy of so many weights on a device acts in so many worlds, there or on the host."""
    few = worlds * max(weights, USUAL_WEIGHTS) < MANY_WORLDS * USUAL_WEIGHTS
    if on_host and torch.device(device).type != "cpu" and few:
        return NumpyForm(learner=device)
    return _form(device, worlds >= MANY_WORLDS)


def minibatch_form(device: str, rows: int) -> Form:
    """The form in which networks on a device pass over minibatches of so many rows."""
    return _form(device, rows >= MANY_ROWS)


def _form(device: str, many: bool) -> Form:
    """Tensors on a GPU, and on the CPU where there is much to do at once and torch has threads to share it."""
    if torch.device(device).type == "cpu" and not (many and 1 < torch.get_num_threads() <= MOST_THREADS):
        return NumpyForm()
    return TorchForm(device)


def rows_per_minibatch(batch: int, count: int, samples: int) -> int:
    """Rows of a minibatch: `batch`, or what cuts the samples into `count` minibatches where that is above 0.

    The last minibatch of a pass may have fewer.

    >>> rows_per_minibatch(64, 0, 20_000), rows_per_minibatch(64, 4, 20_000), rows_per_minibatch(64, 3, 10)
    (64, 5000, 4)
    """
    rows = -(-samples // count) if count > 0 else batch
    return min(rows, samples)


def chunks(rows: int, networks: int = 1) -> list[slice]:
    """All rows in pieces of bounded size, the smaller the more networks see them at once.

    >>> chunks(100_000)
    [slice(0, 65536, None), slice(65536, 100000, None)]
    """
    size = max(1, CHUNK // networks)
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def to_numpy(values: Array) -> Any:
    """Numbers of either kind as a NumPy array on the host."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def copy_of(values: Array) -> Array:
    """In memory of its own, of the same kind and in the same place."""
    return values.clone() if isinstance(values, Tensor) else values.copy()


def module_of(values: Array) -> Any:
    """The module of an array's functions: torch or numpy."""
    return torch if isinstance(values, Tensor) else np
