"""The parts of an observation and where they lie, known from the spec alone: nothing is compiled to tell a size."""

from __future__ import annotations

import itertools

from sbtrpo.envs.lidar import BINS
from sbtrpo.envs.robots import ROBOTS, RUNNERS
from sbtrpo.envs.spec import NavigationSpec, TaskSpec, VelocitySpec

UNVIOLATED = "unviolated"
"""1 while nothing in the episode has cost anything, 0 in the observation after the first step that costs, and on."""


def observation_slices(spec: TaskSpec) -> dict[str, slice]:
    """Index range of every part of the observation, in order.

    >>> from sbtrpo.envs.registry import get_spec
    >>> observation_slices(get_spec("SafetyCarGoal1-v0"))["goal_lidar"]
    slice(24, 40, None)
    """
    if isinstance(spec, NavigationSpec):
        sizes = ROBOTS[spec.robot].observation_parts | {
            f"{group.kind}_lidar": BINS for group in spec.groups if group.lidar
        }
        if spec.observe_violation:
            sizes |= {UNVIOLATED: 1}
    elif isinstance(spec, VelocitySpec):
        sizes = RUNNERS[spec.robot].observation_parts
    else:
        sizes = {"position": 2}
    ends = itertools.accumulate(sizes.values())
    return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}


def observation_size(spec: TaskSpec) -> int:
    """Entries of the observation."""
    return max(int(entries.stop) for entries in observation_slices(spec).values())


def action_size(spec: TaskSpec) -> int:
    """Entries of the action."""
    if isinstance(spec, NavigationSpec):
        return ROBOTS[spec.robot].action_dim
    return RUNNERS[spec.robot].action_dim if isinstance(spec, VelocitySpec) else 2
