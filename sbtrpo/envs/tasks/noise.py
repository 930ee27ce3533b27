"""Normal noise from the worlds' random streams."""

from __future__ import annotations

import math

import numpy as np
from array_api_compat import array_namespace

from sbtrpo.envs.arrays import Array, Who
from sbtrpo.envs.original import OriginalStreams, original_normal
from sbtrpo.envs.streams import Streams, uniform


def normal(streams: Streams, who: Who, count: int) -> Array:
    """Draw `count` standard normal values for each of these worlds: (n, count)."""
    if isinstance(streams, OriginalStreams):
        return np.stack([original_normal(streams, int(row), count) for row in who])
    pairs = math.ceil(count / 2)
    draws = uniform(streams, who, 2 * pairs)
    xp = array_namespace(draws)
    radius = xp.sqrt(-2 * xp.log1p(-draws[:, :pairs]))  # Box and Muller
    angle = 2 * math.pi * draws[:, pairs:]
    return xp.concat([radius * xp.cos(angle), radius * xp.sin(angle)], axis=1)[:, :count]
