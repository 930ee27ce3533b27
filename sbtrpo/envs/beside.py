"""States of pools, laid side by side.

A pool's state is arrays with a row for each world, and worlds are independent of each other. So the states of several
pools, joined, are the state of one with all their worlds; and some rows of that are the state of a smaller pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Nested = dict[str, Any]
"""A state: arrays by name, in dicts within dicts."""


def shapes(state: Nested) -> Nested:
    """Of the arrays of a state."""
    return {key: shapes(value) if isinstance(value, dict) else np.shape(value) for key, value in state.items()}


def join(states: Sequence[Nested], whole: Nested) -> Nested:
    """States of several pools as one of all their worlds; `whole` is any state of such a pool."""
    joined: Nested = {}
    for key, large in whole.items():
        values = [state[key] for state in states]
        if isinstance(large, dict):
            joined[key] = join(values, large)
        else:
            axis = _world_axis(np.shape(values[0]), np.shape(large))
            joined[key] = values[0] if axis is None else np.concatenate(values, axis=axis)
    return joined


def cut(whole: Nested, small: Nested, rows: slice) -> Nested:
    """The state of these worlds, out of that of all; `small` holds the shapes of a state with fewer worlds."""
    state: Nested = {}
    for key, large in whole.items():
        if isinstance(large, dict):
            state[key] = cut(large, small[key], rows)
        else:
            axis = _world_axis(small[key], np.shape(large))
            index = () if axis is None else (slice(None),) * axis + (rows,)
            state[key] = np.array(large[index])
    return state


def _world_axis(small: tuple[int, ...], large: tuple[int, ...]) -> int | None:
    """The axis along which worlds lie: the one that is longer in the larger pool."""
    return next((axis for axis, (few, many) in enumerate(zip(small, large, strict=True)) if few != many), None)
