"""Velocity: run forward, but not faster than a threshold (Gymnasium's MuJoCo robots, v4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mujoco

from sbtrpo.envs.arrays import Array, clip, copy, none_of
from sbtrpo.envs.physics.base import Physics
from sbtrpo.envs.spec import VelocitySpec
from sbtrpo.envs.tasks.base import Outcome
from sbtrpo.seeding import Ints, make_streams, uniform


def _observe_hopper(xp: Any, qpos: Array, qvel: Array) -> Array:
    return xp.concat([qpos[:, 1:], clip(xp, qvel, -10.0, 10.0)], axis=1)


def _hopper_is_healthy(xp: Any, qpos: Array, qvel: Array) -> Array:
    upright = (qpos[:, 1] > 0.7) & (xp.abs(qpos[:, 2]) < 0.2)
    return upright & (xp.max(xp.abs(qpos[:, 2:]), axis=1) < 100) & (xp.max(xp.abs(qvel), axis=1) < 100)


def _observe_swimmer(xp: Any, qpos: Array, qvel: Array) -> Array:
    return xp.concat([qpos[:, 2:], qvel], axis=1)


OBSERVE: dict[str, tuple[Callable[[Any, Array, Array], Array], int]] = {
    "hopper": (_observe_hopper, 11),
    "swimmer": (_observe_swimmer, 8),
}
IS_HEALTHY: dict[str, Callable[[Any, Array, Array], Array]] = {"hopper": _hopper_is_healthy}
"""Robots whose episode ends when they fall."""


class Velocity:
    """A running robot (see `Task`)."""

    def __init__(self, spec: VelocitySpec, model: mujoco.MjModel, physics: Physics, seed: int, original: bool) -> None:
        xp = physics.xp
        self.spec, self.physics, self.xp = spec, physics, xp
        _, self.streams = make_streams(physics.num_worlds, seed, "pcg64" if original else None)
        self.cost_names: tuple[str, ...] = ("cost_velocity",)
        self._reference = xp.asarray(model.qpos0, dtype=physics.qpos.dtype, device=physics.qpos.device)
        self._num_velocities = int(model.nv)
        self._dt = spec.substeps * float(model.opt.timestep)
        self._observe, self.observation_size = OBSERVE[spec.robot]
        self._is_healthy = IS_HEALTHY.get(spec.robot)
        self.action_low = xp.asarray(model.actuator_ctrlrange[:, 0])
        self.action_high = xp.asarray(model.actuator_ctrlrange[:, 1])
        positions = self.observation_size - self._num_velocities
        self.observation_slices = {"qpos": slice(0, positions), "qvel": slice(positions, self.observation_size)}

    def seed(self, seed: int) -> None:
        """Start the random streams anew."""
        self.streams.seed(seed)

    def reset(self, rows: Ints) -> None:
        """The reference pose and rest, each with uniform noise."""
        draws = uniform(self.streams, rows, len(self._reference) + self._num_velocities)
        noise = self.xp.asarray(2 * draws - 1, dtype=self._reference.dtype, device=self._reference.device)
        self.physics.reset(rows)
        self.physics.qpos[rows] = self._reference + self.spec.noise * noise[:, : len(self._reference)]
        self.physics.qvel[rows] = self.spec.noise * noise[:, len(self._reference) :]
        self.physics.forward(rows)

    def step(self, action: Array) -> tuple[Outcome, Array | None]:
        """One environment step in every world; the engine itself clamps the controls."""
        xp, spec, physics = self.xp, self.spec, self.physics
        before = copy(physics.qpos[:, 0])
        physics.ctrl[:] = action
        failed = physics.step(spec.substeps, forward=False)
        speed = (physics.qpos[:, 0] - before) / self._dt
        # Summed in the action's own precision, as the original does.
        effort = xp.astype(xp.sum(action * action, axis=1), speed.dtype)
        reward = speed + spec.survival_reward - spec.control_cost * effort
        too_fast = speed > spec.threshold
        fallen = None if self._is_healthy is None else ~self._is_healthy(xp, physics.qpos, physics.qvel)
        return Outcome(reward, [too_fast], none_of(too_fast), fallen, {"x_velocity": speed}), failed

    def observe(self, rows: Array | None = None) -> Array:
        """Positions without the way gone, and velocities."""
        qpos, qvel = self.physics.qpos, self.physics.qvel
        return self._observe(self.xp, qpos if rows is None else qpos[rows], qvel if rows is None else qvel[rows])

    def state_dict(self) -> dict[str, Any]:
        """The random streams; all else is in the engine."""
        return {"streams": self.streams.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.streams.load_state_dict(state["streams"])
