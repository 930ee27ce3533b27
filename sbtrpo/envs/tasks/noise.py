"""Normal noise from the worlds' random streams."""

from __future__ import annotations

import math

import numpy as np

from sbtrpo.envs.original import OriginalStreams, original_normal
from sbtrpo.envs.streams import Floats, Ints, Streams, uniform


def normal(streams: Streams, rows: Ints, count: int) -> Floats:
    """Draw `count` standard normal values for each of these worlds: (n, count)."""
    if isinstance(streams, OriginalStreams):
        return np.stack([original_normal(streams, int(row), count) for row in rows])
    pairs = math.ceil(count / 2)
    draws = uniform(streams, rows, 2 * pairs)
    radius = np.sqrt(-2 * np.log1p(-draws[:, :pairs]))  # Box and Muller
    angle = 2 * math.pi * draws[:, pairs:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :count]
