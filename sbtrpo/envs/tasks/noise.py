"""Normal noise from the worlds' random streams."""

from __future__ import annotations

import math

import numpy as np

from sbtrpo.seeding import Floats, Ints, OriginalStreams, Streams, uniform


def normal(streams: Streams, rows: Ints, count: int) -> Floats:
    """Draw `count` standard normal values for each of these worlds: (n, count)."""
    if isinstance(streams, OriginalStreams):
        return np.stack([_original_normal(streams, int(row), count) for row in rows])
    pairs = math.ceil(count / 2)
    draws = uniform(streams, rows, 2 * pairs)
    radius = np.sqrt(-2 * np.log1p(-draws[:, :pairs]))  # Box and Muller
    angle = 2 * math.pi * draws[:, pairs:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :count]


def _original_normal(streams: OriginalStreams, row: int, count: int) -> Floats:
    """`Generator.standard_normal` at the stream's place; it takes one word a value, and now and then more."""
    state = streams.state_dict()

    def source() -> np.random.PCG64:
        bits = np.random.PCG64(int(state["seeds"][row]))
        bits.advance(int(state["consumed"][row]))
        return bits

    drawn, counted = source(), source()
    values = np.random.Generator(drawn).standard_normal(count)
    words = 0
    while counted.state != drawn.state:
        counted.random_raw()
        words += 1
    streams.advance(np.array([row]), words)
    return values
