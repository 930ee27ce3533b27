"""The worlds of a navigation task as arrays, which reward and costs are computed from."""

from __future__ import annotations

import dataclasses

from sbtrpo.envs.arrays import Array, Who, of


@dataclasses.dataclass
class Worlds:
    """The arrays that task logic reads, each with a leading world axis; live for all worlds, or a selection of rows."""

    position: Array
    """(N, 3) the robot's centre."""
    frame: Array
    """(N, 3, 3) the robot's orientation."""
    sensors: Array
    """(N, nsensordata)"""
    objects: Array
    """(N, M, 3) centres of all objects, in placement order."""
    offset: Array
    """(N, M, 2) from the robot's centre to the objects'."""
    squared: Array
    """(N, M) squares of those distances."""
    free_velocity: Array
    """(N, F, 3) linear velocities of the free objects, in qpos order."""
    to_go: Array
    """(N,) the distance to go after the last step or re-targeting."""
    target: Array
    """(N,) int, the target button."""
    timer: Array
    """(N,) int, steps for which the buttons stay dark."""

    def at(self, who: Who) -> Worlds:
        """The entries of these worlds."""
        return Worlds(*(of(getattr(self, field.name), who) for field in dataclasses.fields(self)))
