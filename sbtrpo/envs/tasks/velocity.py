"""Velocity: run forward, but not faster than a threshold (Gymnasium's MuJoCo robots, v4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import mujoco
from typing_extensions import override

from sbtrpo.envs.arrays import Array, Who, clip, copy, none_of, of, put, restore, saved
from sbtrpo.envs.observation import observation_size, observation_slices
from sbtrpo.envs.physics.base import Physics
from sbtrpo.envs.robots import RUNNERS, Runner
from sbtrpo.envs.spec import VelocitySpec
from sbtrpo.envs.streams import Streams, make_streams, uniform
from sbtrpo.envs.tasks.base import Outcome, Task
from sbtrpo.envs.tasks.noise import normal

FRESH = ("cfrc_ext",)
"""Observed fields that the engine computes from the state after the step. All other fields keep, as in the original,
what the last substep left in them: the values of the last stage of its Runge-Kutta scheme."""


def is_healthy(xp: Any, robot: Runner, qpos: Array, qvel: Array) -> Array:
    """Whether the episode goes on: (N,) bool."""
    checks = []
    for i, low, high in robot.healthy:
        if math.isfinite(low):
            checks.append(qpos[:, i] >= low if robot.healthy_ends else qpos[:, i] > low)
        if math.isfinite(high):
            checks.append(qpos[:, i] <= high if robot.healthy_ends else qpos[:, i] < high)
    if math.isfinite(robot.state_limit):
        checks.append(xp.max(xp.abs(qpos[:, 2:]), axis=1) < robot.state_limit)
        checks.append(xp.max(xp.abs(qvel), axis=1) < robot.state_limit)
    healthy = checks[0]
    for check in checks[1:]:
        healthy = healthy & check
    return healthy


def _place_reader(xp: Any, robot: Runner, model: mujoco.MjModel, physics: Physics) -> Callable[[], Array]:
    """A function that reads where the robots are, (N, 2), if the first entries of qpos do not say it."""
    if robot.position == "torso":
        torso = model.body("torso").id
        return lambda: physics.xpos[:, torso, :2]
    bodies = physics.output("xipos")
    share = xp.asarray(model.body_mass / model.body_mass.sum(), dtype=bodies.dtype, device=bodies.device)
    return lambda: xp.sum(bodies[:, :, :2] * share[:, None], axis=1)


def _streams(physics: Physics, seed: int, original: bool) -> Streams:
    """The random streams of what happens in episodes."""
    if physics.device is not None:
        from sbtrpo.envs.draws import tensor_streams  # needs the engine of that device

        return tensor_streams(physics.num_worlds, seed, physics.device)[1]
    return make_streams(physics.num_worlds, seed, "pcg64" if original else None)[1]


class Velocity(Task):
    """A running robot."""

    def __init__(self, spec: VelocitySpec, model: mujoco.MjModel, physics: Physics, seed: int, original: bool) -> None:
        xp = physics.xp
        self.spec, self.physics, self.xp = spec, physics, xp
        self.robot = robot = RUNNERS[spec.robot]
        self.streams = _streams(physics, seed, original)
        self.cost_names: tuple[str, ...] = ("cost_velocity",)
        like = {"dtype": physics.qpos.dtype, "device": physics.qpos.device}
        self._reference = xp.asarray(model.qpos0, **like)
        self._num_velocities = int(model.nv)
        self._dt = spec.substeps * float(model.opt.timestep)
        self.action_low = xp.asarray(model.actuator_ctrlrange[:, 0])
        self.action_high = xp.asarray(model.actuator_ctrlrange[:, 1])
        self.observation_slices = observation_slices(spec)
        self.observation_size = observation_size(spec)

        self._read_place = None if robot.position == "qpos" else _place_reader(xp, robot, model, physics)
        self._position = physics.qpos[:, :2] if self._read_place is None else xp.zeros((physics.num_worlds, 2), **like)
        """(N, 2), where the robots are: a view of qpos, or a copy of what `_read_place` gave."""
        self._way = self._position if spec.planar else self._position[:, 0]
        fields = [name for name in robot.observation_parts if name not in ("qpos", "qvel")]
        self._fields = [physics.output(name).reshape(physics.num_worlds, -1) for name in fields]
        self._left = [None if name in FRESH else xp.zeros_like(self._fields[k]) for k, name in enumerate(fields)]
        """What the last substep left of each field."""

    @override
    def seed(self, seed: int) -> None:
        self.streams.seed(seed)

    @override
    def reset(self, who: Who) -> None:
        """The reference pose at rest, with noise in positions and velocities."""
        xp, spec, physics, nq = self.xp, self.spec, self.physics, len(self._reference)
        if spec.normal_velocities:
            draws = 2 * uniform(self.streams, who, nq) - 1
            velocities = normal(self.streams, who, self._num_velocities)
        else:
            draws = 2 * uniform(self.streams, who, nq + self._num_velocities) - 1
            draws, velocities = draws[:, :nq], draws[:, nq:]
        like = {"dtype": self._reference.dtype, "device": self._reference.device}
        qpos = self._reference + spec.noise * xp.asarray(draws, **like)
        if (turn := self.robot.quaternion) is not None:
            qpos[:, turn] /= xp.sqrt(xp.sum(qpos[:, turn] ** 2, axis=1))[:, None]
        physics.reset(who)
        put(physics.qpos, who, qpos)
        put(physics.qvel, who, spec.noise * xp.asarray(velocities, **like))
        if self._needs_forward or physics.device is None:
            physics.forward(who)
        self._keep(who)

    @property
    def _needs_forward(self) -> bool:
        """Whether anything is read that the engine derives from the state."""
        return self._read_place is not None or bool(self._fields)

    def _keep(self, who: Who = slice(None)) -> None:
        """Copy what the last substep left in the engine, before the engine computes anything else."""
        if self._read_place is not None:
            put(self._position, who, of(self._read_place(), who))
        for field, left in zip(self._fields, self._left, strict=True):
            if left is not None:
                put(left, who, of(field, who))

    @override
    def step(self, action: Array) -> tuple[Outcome, Array | None]:
        """One environment step in every world; the engine itself clamps the controls."""
        xp, spec, physics = self.xp, self.spec, self.physics
        before = copy(self._way)
        physics.ctrl[:] = action
        if self._fields:
            failed = physics.step(spec.substeps, forward=True, between=self._keep)
        else:
            failed = physics.step(spec.substeps, forward=False)
            if self._read_place is not None:
                self._keep()
        velocity = (self._way - before) / self._dt
        forward = velocity[:, 0] if spec.planar else velocity
        # Summed in the action's own precision, as the original does.
        squares = physics.ctrl * physics.ctrl if self.robot.effort_in_double else action * action
        effort = xp.astype(xp.sum(squares, axis=1), forward.dtype)
        gain = forward if spec.forward_reward == 1 else spec.forward_reward * forward
        reward = gain + spec.survival_reward - spec.control_cost * effort
        speed = xp.sqrt(xp.sum(velocity * velocity, axis=1)) if spec.planar else forward
        too_fast = speed > spec.threshold
        fallen = ~is_healthy(xp, self.robot, physics.qpos, physics.qvel) if self.robot.healthy else None
        extra = {"x_velocity": forward, "y_velocity": velocity[:, 1]} if spec.planar else {"x_velocity": forward}
        return Outcome(reward, [too_fast], none_of(too_fast), fallen, extra), failed

    @override
    def observe(self, who: Who | None = None) -> Array:
        """qpos without its first entries, qvel, and for some robots what the engine computes from them."""
        qpos, qvel = self.physics.qpos, self.physics.qvel
        columns = [qpos[:, self.robot.unseen :], qvel]
        columns += [field if left is None else left for field, left in zip(self._fields, self._left, strict=True)]
        if who is not None:
            columns = [of(column, who) for column in columns]
        if math.isfinite(limit := self.robot.velocity_limit):
            columns[1] = clip(self.xp, columns[1], -limit, limit)
        return self.xp.concat(columns, axis=1)

    @override
    def state_dict(self) -> dict[str, Any]:
        """The random streams, and what is not in the engine's state."""
        state: dict[str, Any] = {"streams": self.streams.state_dict()}
        return state if self._read_place is None else {**state, "position": saved(self._position)}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.streams.load_state_dict(state["streams"])
        if self._read_place is not None:
            restore(self._position, state["position"])
