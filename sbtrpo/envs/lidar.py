"""The pseudo-lidar: how near each kind of object is, in 16 directions around the robot.

Worlds come last in here, (M, N) and (16, M, N), so that the many small operations run along contiguous memory.
"""

from __future__ import annotations

import math
from typing import Any

from sbtrpo.envs.arrays import Array, copy, greatest, reverse_axes

BINS = 16
_WIDTH = 2 * math.pi / BINS


def bin_centres(xp: Any, like: Array) -> Array:
    """Centres of the bins as angles in (-π, π), the range of `atan2`: (16, 1, 1)."""
    centres = [(k + 0.5 if k < BINS // 2 else k + 0.5 - BINS) * _WIDTH for k in range(BINS)]
    return xp.asarray(centres, dtype=like.dtype, device=like.device)[:, None, None]


def ego(offset: Array, height: Array | None, frame: Array) -> tuple[Array, Array]:
    """Objects in the robot's own frame: x and y, (M, N) each.

    Args:
        offset: (N, M, 2), from the robot's centre to the objects', in the world's frame.
        height: (N,), of the robot's centre: the objects are taken at height 0, so that it leaks in when the robot is
            tilted; None for a robot that cannot tilt.
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


def runs_of(kinds: list[slice]) -> list[tuple[int, int, int]]:
    """Consecutive kinds of equal count as (first object, kinds, objects of each), to be reduced in one operation.

    >>> runs_of([slice(0, 1), slice(1, 11), slice(11, 21)])
    [(0, 1, 1), (1, 2, 10)]
    """
    runs: list[tuple[int, int, int]] = []
    for kind in kinds:
        count = kind.stop - kind.start
        if runs and runs[-1][2] == count and runs[-1][0] + runs[-1][1] * count == kind.start:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, count)
        else:
            runs.append((kind.start, 1, count))
    return runs


def lidar(
    xp: Any, x: Array, y: Array, distance: Array, runs: list[tuple[int, int, int]], max_range: float, centres: Array
) -> Array:
    """Lidar readings of the objects, kind by kind.

    An object at distance d and angle φ has strength s = max(0, 1 - d/max_range). It lights the bin it is in with s and
    spills over into both neighbours, linearly in φ: the weight of a bin falls from 1 within half a bin of its centre
    to 0 at one and a half. A bin shows the strongest object.

    Args:
        xp: the array namespace.
        x: (M, N), in the robot's frame.
        y: (M, N), likewise.
        distance: (M, N), of x and y.
        runs: `runs_of` the object ranges that get a block of bins each.
        max_range: the distance at which an object vanishes.
        centres: `bin_centres`, kept by the caller.

    Returns:
        (N, kinds, 16) readings in [0, 1].
    """
    strength = distance * (-1 / (max_range * _WIDTH))
    strength += 1 / _WIDTH
    strength = xp.maximum(strength, 0.0)
    # With c = |φ - centre|, the distance around the circle is π - |c - π|; weights are in angles until `strength`,
    # which is in units of the bin's inverse width, turns them into fractions.
    weight = xp.abs(xp.atan2(y, x) - centres)
    weight -= math.pi
    weight = xp.minimum(xp.abs(weight), math.pi - 0.5 * _WIDTH)
    weight -= math.pi - 1.5 * _WIDTH
    weight *= strength
    peaks = [weight[:, start : start + kinds * count].reshape(BINS, kinds, count, -1) for start, kinds, count in runs]
    readings = xp.concat([part[:, :, 0] if part.shape[2] == 1 else greatest(part, 2) for part in peaks], axis=1)
    return reverse_axes(xp.maximum(readings, 0.0))
