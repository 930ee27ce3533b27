"""The pseudo-lidar: how near each kind of object is, in 16 directions around the robot.

Worlds come last in here, (M, N), so that the many small operations run along contiguous memory.
"""

from __future__ import annotations

import math
from typing import Any

from sbtrpo.envs.arrays import Array, at_least, copy, keep_greatest

BINS = 16
_WIDTH = 2 * math.pi / BINS
_LAST = BINS - 1  # a mask, because BINS is a power of two


def ego(offset: Array, height: Array | None, frame: Array) -> tuple[Array, Array]:
    """Objects in the robot's own frame: x and y, (M, N) each.

    Args:
        offset: (N, M, 2), from the robot's centre to the objects', in the world's frame.
        height: (N,), of the robot's centre. Objects are taken at height 0, so that it changes x and y when the robot
            is tilted. None for a robot that cannot tilt.
        frame: (N, 3, 3), the robot's orientation; rows are world axes.
    """
    dx, dy = offset[:, :, 0].T, offset[:, :, 1].T
    axes = copy(frame[:, :2, :2].reshape(-1, 4).T)  # (4, N): four short rows instead of strides through all bodies
    x = dx * axes[0]
    x += dy * axes[2]
    y = dx * axes[1]
    y += dy * axes[3]
    if height is not None:
        x -= height * frame[:, 2, 0]
        y -= height * frame[:, 2, 1]
    return x, y


def first_bins(xp: Any, kinds: list[slice], num_objects: int, num_worlds: int, device: Any = None) -> Array:
    """Where each object's block of 16 bins begins in the flat readings of all worlds: (M, N).

    A world has a block for each kind in view, in their order, and a last one that takes all objects out of view.
    """
    blocks = [
        next((k for k, kind in enumerate(kinds) if i in range(num_objects)[kind]), len(kinds))
        for i in range(num_objects)
    ]
    worlds = xp.arange(num_worlds, device=device) * (len(kinds) + 1)
    return BINS * (xp.asarray(blocks, dtype=worlds.dtype, device=device)[:, None] + worlds)


def lidar(xp: Any, x: Array, y: Array, distance: Array, max_range: float, first: Array, readings: Array) -> None:
    """Write the lidar readings of the objects, kind by kind, into `readings`.

    An object at distance d and angle φ has strength s = max(0, 1 - d/max_range) in the bin it is in. Let p be the share
    of that bin that φ has passed: then the object also has strength p s in the next bin and (1 - p) s in the one
    before. A bin shows the strongest object.

    Args:
        xp: the array namespace.
        x: (M, N), in the robot's frame.
        y: (M, N), likewise.
        distance: (M, N), of x and y.
        max_range: the distance at which an object vanishes.
        first: `first_bins` of the objects, kept by the caller.
        readings: (N, kinds + 1, 16) zeros, which become readings in [0, 1]; the last kind is never shown.
    """
    strength = distance * (-1 / max_range)
    strength += 1.0
    strength = at_least(xp, strength, 0.0)
    passed = xp.atan2(y, x)
    passed *= 1 / _WIDTH
    whole = xp.floor(passed)
    passed -= whole
    passed *= strength
    bins = xp.astype(whole, first.dtype)
    flat = readings.reshape(-1)
    keep_greatest(flat, first + (bins & _LAST), strength)
    keep_greatest(flat, first + ((bins + 1) & _LAST), passed)
    keep_greatest(flat, first + ((bins - 1) & _LAST), strength - passed)
