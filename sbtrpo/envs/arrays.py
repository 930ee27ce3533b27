"""Small array functions with a leading world axis, for NumPy and torch alike.

`xp` is an Array API namespace (`array_api_compat.numpy` or `array_api_compat.torch`); every function takes it first
so that the namespace is looked up once per pool rather than once per call.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import array_api_compat

Array: TypeAlias = Any
"""An array of the namespace at hand: `numpy.ndarray` on the CPU engine, `torch.Tensor` on a GPU."""


def namespace(array: Array) -> Any:
    """The Array API namespace of an array."""
    return array_api_compat.array_namespace(array)


def planar_distance(xp: Any, a: Array, b: Array) -> Array:
    """Distance in x and y: (..., 3) and (..., 3) -> (...)."""
    gap = a[..., :2] - b[..., :2]
    return xp.sqrt(gap[..., 0] ** 2 + gap[..., 1] ** 2)


def distance(xp: Any, a: Array, b: Array) -> Array:
    """Distance in space: (..., 3) and (..., 3) -> (...)."""
    gap = a - b
    return xp.sqrt(xp.sum(gap * gap, axis=-1))


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
