"""What the tasks and the pool ask of an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sbtrpo.envs.arrays import Array


class Physics(Protocol):
    """N worlds of one model.

    The arrays are live: each holds all worlds and shows the state after the last call. To set the state or a field of
    the model, write into its array. `xp` is their Array API namespace.
    """

    xp: Any
    model: Any
    num_worlds: int
    qpos: Array
    """(N, nq), writable."""
    qvel: Array
    """(N, nv), writable."""
    ctrl: Array
    """(N, nu), writable."""
    time: Array
    """(N,), writable."""
    sensordata: Array
    """(N, nsensordata)"""
    xpos: Array
    """(N, nbody, 3)"""
    xmat: Array
    """(N, nbody, 3, 3)"""

    def field(self, name: str) -> Array:
        """A field of the model with a value for each world, writable: a write counts from that world's next reset."""

    def output(self, name: str) -> Array:
        """A field that the engine derives from the state, (N, ...), not to be written."""

    def step(
        self,
        substeps: int,
        forward: bool,
        mocap: Array | None = None,
        between: Callable[[], None] | None = None,
    ) -> Array | None:
        """Advance all worlds.

        Args:
            substeps: number of integration steps.
            forward: whether sensors, poses and contacts are brought up to the new state.
            mocap: (N, substeps, 3), positions of the model's mocap body before each substep.
            between: called after the last substep and before `forward`: all outputs are then as that substep left them.

        Returns:
            A mask (N,) of the worlds that failed, or None when all is well. A failed world must be reset.
        """

    def reset(self, rows: Array) -> None:
        """Put these worlds into the model's initial state, with their model fields.

        The caller then sets qpos and calls `forward`.
        """

    def forward(self, rows: Array | None = None) -> None:
        """Compute everything that follows from the state."""

    def wake(self, rows: Array) -> None:
        """Wake all sleeping bodies of these worlds."""

    def state_dict(self) -> dict[str, Any]:
        """All worlds' state as arrays, but for who sleeps. Taking it changes nothing."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken, with all bodies awake."""
