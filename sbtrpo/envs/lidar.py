"""The pseudo-lidar: how near each kind of object is, in 16 directions around the robot."""

from __future__ import annotations

import math
from typing import Any

from sbtrpo.envs.arrays import Array

BINS = 16


def bin_centres(xp: Any, like: Array) -> Array:
    """Centres of the bins in units of bins, in (-8, 8), as angles come out of `atan2`: (16,)."""
    centres = [k + 0.5 if k < BINS // 2 else k + 0.5 - BINS for k in range(BINS)]
    return xp.asarray(centres, dtype=like.dtype, device=like.device)


def lidar(
    xp: Any,
    position: Array,
    frame: Array,
    objects: Array,
    kinds: list[slice],
    max_range: float,
    centres: Array,
) -> Array:
    """Lidar readings of the objects, kind by kind.

    An object at planar distance d and angle φ (in the robot's frame) has strength s = max(0, 1 - d/max_range). It
    lights the bin it is in with s and spills over into both neighbours, linearly in φ: the weight of a bin falls from
    1 within half a bin of its centre to 0 at one and a half. A bin shows the strongest object.

    Args:
        xp: the array namespace.
        position: (N, 3), the robot's.
        frame: (N, 3, 3), the robot's orientation; rows are world axes.
        objects: (N, M, 3), of which x and y count.
        kinds: object ranges, one for each block of bins.
        max_range: the distance at which an object vanishes.
        centres: `bin_centres`, kept by the caller.

    Returns:
        (N, len(kinds) * 16) readings in [0, 1].
    """
    gap = objects[:, :, :2] - position[:, None, :2]
    # The object is taken at height 0, so that the robot's height leaks in when it is tilted.
    ego = xp.matmul(gap, frame[:, :2, :2]) - (position[:, 2:] * frame[:, 2, :2])[:, None, :]
    x, y = ego[:, :, 0], ego[:, :, 1]
    strength = xp.maximum(1.0 - xp.hypot(x, y) / max_range, xp.zeros_like(x))
    angle = xp.atan2(y, x) * (BINS / (2 * math.pi))
    # |angle - centre| wraps at 16: with c that distance, the circular one is 8 - |c - 8|.
    wrapped = xp.abs(xp.abs(angle[:, :, None] - centres) - BINS / 2)
    weight = xp.minimum(xp.maximum(wrapped - (BINS / 2 - 1.5), 0.0 * centres), 0.0 * centres + 1.0)
    weight = weight * strength[:, :, None]
    return xp.concat([xp.max(weight[:, kind], axis=1) for kind in kinds], axis=1)
