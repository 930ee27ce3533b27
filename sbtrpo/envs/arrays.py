"""Small array functions with a leading world axis, for NumPy and torch alike.

`xp` is an Array API namespace (`array_api_compat.numpy` or `array_api_compat.torch`); every function takes it first
so that the namespace is looked up once per pool rather than once per call.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""An array of the namespace at hand: `numpy.ndarray` on the CPU engine, `torch.Tensor` on a GPU."""
Who: TypeAlias = Any
"""Some of the worlds: row numbers on the host, or a tensor (N,) that marks them.

With row numbers (n,), arrays "of these worlds" have n entries. With a mark they have all N, of which only the marked
ones count: nothing has to wait until the device has told which worlds these are.
"""


def is_mark(who: Who) -> bool:
    """Whether worlds are marked by a tensor."""
    return hasattr(who, "masked_fill_")


def which(mask: Array) -> Who:
    """The worlds where a mask is True."""
    return mask if is_mark(mask) else mask.nonzero()[0]


def of(array: Array, who: Who) -> Array:
    """The entries of these worlds."""
    return array if is_mark(who) else array[who]


def put(array: Array, who: Who, values: Any) -> None:
    """Write the entries of these worlds, in place."""
    if not is_mark(who):
        array[who] = values
        return
    mark = who.reshape(-1, *(1,) * (array.ndim - 1))
    if hasattr(values, "where"):
        array.copy_(values.where(mark, array))
    else:
        array.masked_fill_(mark, values)


def length(xp: Any, vectors: Array) -> Array:
    """Euclidean length of vectors in space: (N, 3) -> (N,)."""
    squared = vectors * vectors
    return xp.sqrt(squared[:, 0] + squared[:, 1] + squared[:, 2])


def clip(xp: Any, x: Array, low: float, high: float) -> Array:
    """x, not below `low` and not above `high`."""
    return x.clamp(low, high) if is_mark(x) else xp.minimum(xp.maximum(x, low), high)


def at_least(xp: Any, x: Array, low: float) -> Array:
    """x, not below `low`."""
    return x.clamp(min=low) if is_mark(x) else xp.maximum(x, low)


def copy(array: Array) -> Array:
    """A copy that shares no memory, in the fewest instructions for small arrays."""
    return array.copy() if hasattr(array, "copy") else array.clone()


def saved(array: Array) -> Any:
    """A copy as a state keeps it: NumPy's, numbers in double precision, so that every engine may go on from it."""
    array = to_numpy(array)
    return array.astype(np.float64) if array.dtype.kind == "f" else array.copy()


def restore(array: Array, values: Any) -> None:
    """Fill an array with what a state kept."""
    if is_mark(array):
        array.copy_(array.new_tensor(values))
    else:
        array[...] = values


def to_numpy(array: Array) -> Any:
    """The array as NumPy's, for what is done on the host: random draws and layouts."""
    return array.cpu().numpy() if hasattr(array, "cpu") else array


def any_of(mask: Array) -> Array:
    """Whether any entry of each row is True: (N, M) -> (N,).

    NumPy and torch share this method; at the size of a step it takes half the time of `xp.any`.
    """
    return mask.any(axis=1)


def reverse_axes(array: Array) -> Array:
    """A view of a three-dimensional array with its axes reversed."""
    return array.permute(2, 1, 0) if hasattr(array, "permute") else array.transpose(2, 1, 0)


def keep_greatest(array: Array, index: Array, values: Array) -> None:
    """Raise entries of a flat array to the greatest of the values that point to them, in place."""
    if hasattr(array, "scatter_reduce_"):
        array.scatter_reduce_(0, index.reshape(-1), values.reshape(-1), "amax")
    else:
        np.maximum.at(array, index.reshape(-1), values.reshape(-1))


def only(mask: Array, array: Array) -> Array:
    """The entries where a mask is True, 0 elsewhere."""
    return array.masked_fill(~mask, 0) if is_mark(array) else np.where(mask, array, 0)


def suspicious(array: Array) -> bool:
    """Whether an entry may be NaN or infinite: a cheap look before a close one. A tensor always may."""
    if is_mark(array):
        return True
    total = float(array.sum())
    return total - total != 0.0


def any_true(mask: Array) -> bool:
    """Whether any entry may be True. A tensor is not asked, because the answer would have to be waited for."""
    return is_mark(mask) or bool(mask.any())


def all_finite(xp: Any, array: Array) -> bool:
    """Whether no entry is NaN or infinite."""
    return bool(xp.isfinite(array).all())


def none_of(mask: Array) -> Array:
    """A mask of the same shape that is False everywhere, cheaper than `zeros_like`."""
    return mask ^ mask


def quaternion_to_matrix(xp: Any, q: Array) -> Array:
    """Rotation matrices of unit quaternions (w, x, y, z): (N, 4) -> (N, 3, 3)."""
    w, x, y, z = q[:, 0], q[:, 1], q[:, 2], q[:, 3]
    rows = (
        (w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z),
    )
    return xp.stack([xp.stack(row, axis=-1) for row in rows], axis=-2)


def yaw_quaternion(xp: Any, angle: Array) -> Array:
    """Quaternions of rotations about z: (...) -> (..., 4)."""
    zero = xp.zeros_like(angle)
    return xp.stack([xp.cos(angle / 2), zero, zero, xp.sin(angle / 2)], axis=-1)
