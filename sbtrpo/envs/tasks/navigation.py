"""What all navigation tasks share: layouts, observation, costs, and the order of events in a step.

A subclass says what is rewarded: its `progress` is a distance to go, whose decrease is the reward, and whether the
goal is reached.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from sbtrpo.envs import layout
from sbtrpo.envs.arrays import Array, any_true, clip, copy, none_of, reverse_axes, to_numpy, yaw_quaternion
from sbtrpo.envs.lidar import BINS, ego, first_bins, lidar
from sbtrpo.envs.observation import observation_size, observation_slices
from sbtrpo.envs.physics.base import Physics
from sbtrpo.envs.scene import Scene
from sbtrpo.envs.spec import NavigationSpec
from sbtrpo.envs.streams import Ints, make_streams
from sbtrpo.envs.tasks.base import Outcome, Task
from sbtrpo.envs.tasks.costs import Cost, cost_functions
from sbtrpo.envs.tasks.worlds import Worlds

GREMLIN_TRAVEL = 0.35
REWARD_LIMIT = 10.0
_MEMORY = ("objects", "to_go", "target", "timer")
"""Arrays of `Worlds` that the task owns; the others are the engine's."""


class Navigation(Task, ABC):
    """A robot among objects."""

    reward_limit = REWARD_LIMIT

    def __init__(self, spec: NavigationSpec, scene: Scene, physics: Physics, seed: int, original: bool) -> None:
        xp, n = physics.xp, physics.num_worlds
        self.spec, self.scene, self.physics, self.xp = spec, scene, physics, xp
        self._like = {"dtype": physics.qpos.dtype, "device": physics.qpos.device}
        self.slices = spec.slices()
        self.goal_radius = spec.group("goal").radius if spec.has("goal") else 0.0
        layout_streams, self.streams = make_streams(n, seed, "mt19937" if original else None)
        self.layouts = layout.Layouts(spec, layout_streams, n)

        num_free = sum(spec.group(kind).count for kind in scene.free)
        free_end = scene.free_qpos + 7 * num_free
        self._free_qpos = xp.reshape(physics.qpos[:, scene.free_qpos : free_end], (n, num_free, 7))
        free_end = scene.free_qvel + 6 * num_free
        # Worlds last in memory: small operations then run along all worlds at once.
        self._places = xp.zeros((3, spec.num_objects, n), **self._like)
        objects = reverse_axes(self._places)
        self.worlds = Worlds(
            position=physics.xpos[:, scene.agent],
            frame=physics.xmat[:, scene.agent],
            sensors=physics.sensordata,
            objects=objects,
            offset=objects[:, :, :2],
            squared=objects[:, :, 0],
            free_velocity=xp.reshape(physics.qvel[:, scene.free_qvel : free_end], (n, num_free, 6))[:, :, :3],
            to_go=xp.zeros(n, **self._like),
            target=xp.zeros(n, dtype=xp.int64, device=physics.qpos.device),
            timer=xp.zeros(n, dtype=xp.int64, device=physics.qpos.device),
        )
        self._costs: list[Cost] = cost_functions(spec, scene)
        self.cost_names = tuple(cost.name for cost in self._costs)
        self._substep = xp.arange(spec.substeps, **self._like) * scene.robot.timestep

        seen = [self.slices[group.kind] for group in spec.groups if group.lidar]
        self._first_bins = first_bins(xp, seen, spec.num_objects, n, self._like["device"])
        self._dark = xp.zeros((n, len(seen) + 1, BINS), **self._like)
        self.observation_slices = observation_slices(spec)
        self._sense_dim = scene.robot.sense_dim
        self.observation_size = observation_size(spec)
        self._blank = xp.zeros((n, self.observation_size), **self._like)
        self.action_low, self.action_high = -xp.ones(scene.robot.action_dim), xp.ones(scene.robot.action_dim)

    # ---- what a subclass says ----------------------------------------------------------------------------------

    @abstractmethod
    def progress(self, worlds: Worlds) -> tuple[Array, Array]:
        """The distance to go, (n,), whose decrease is the reward, and whether the goal is reached, (n,) bool."""

    def reward(self, worlds: Worlds) -> tuple[Array, Array]:
        """The step's reward and whether the goal is reached."""
        to_go, met = self.progress(worlds)
        reward = worlds.to_go - to_go + met
        worlds.to_go[:] = to_go
        return reward, met

    def retarget(self, rows: Ints, places: Array) -> Any:
        """Choose a new target; `places` (n, 1 + M, 2) is where robot and objects stand. Returns who found one."""
        goal = self.slices["goal"].start
        things, keepouts = self.layouts.things, self.layouts.keepouts
        keep = [k for k in range(len(things)) if k != goal + 1]
        xy, placed = layout.draw_place(
            things[goal + 1], self.streams, rows, to_numpy(places[:, keep]), keepouts[keep], layout.TARGET_ATTEMPTS
        )
        # Where no place was found the episode ends, and its last observation still shows the old goal.
        self.worlds.objects[rows[placed], goal, :2] = self.xp.asarray(xy[placed], **self._like)
        return placed

    @override
    def seed(self, seed: int) -> None:
        self.layouts.seed(seed)
        self.streams.seed(seed)

    # ---- episodes ----------------------------------------------------------------------------------------------

    @override
    def reset(self, rows: Ints) -> None:
        xy, turns = self.layouts.take(rows)
        self.place(rows, xy, turns)
        placed = self.retarget(rows, xy)
        if not placed.all():
            raise layout.LayoutError(
                f"{self.spec.id}: no room for the goal after {layout.TARGET_ATTEMPTS} attempts;"
                " use fewer objects, smaller keepouts or a larger extent"
            )
        self.begin(rows)

    def place(self, rows: Ints, xy: Array, turns: Array) -> None:
        """Write places (n, 1 + M, 2) and rotations (n, 1 + M) of robot and objects into the engine."""
        xp, scene, physics = self.xp, self.scene, self.physics
        xy, turns = xp.asarray(xy, **self._like), xp.asarray(turns, **self._like)
        quaternions = yaw_quaternion(xp, turns)
        heights = [group.z for group in self.spec.groups for _ in range(group.count)]
        self.worlds.objects[rows] = xp.concat(
            [xy[:, 1:], xp.broadcast_to(xp.asarray(heights, **self._like)[:, None], (len(rows), len(heights), 1))],
            axis=2,
        )
        objects = self.worlds.objects[rows]

        if not scene.robot.free:  # its joints are relative to the body's start pose
            physics.field("body_pos")[rows, scene.agent, :2] = xy[:, 0]
            physics.field("body_quat")[rows, scene.agent] = quaternions[:, 0]
        for kind, bodies in scene.fixed.items():
            physics.field("body_pos")[rows[:, None], bodies] = objects[:, self.slices[kind]]
            physics.field("body_quat")[rows[:, None], bodies] = quaternions[:, 1:][:, self.slices[kind]]
        if scene.welds:
            welds, gremlins = np.asarray(scene.welds), self.slices["gremlins"]
            physics.field("eq_data")[rows[:, None], welds, 3:6] = objects[:, gremlins]
            physics.field("eq_data")[rows[:, None], welds, 6:10] = quaternions[:, 1:][:, gremlins]

        physics.reset(rows)
        if scene.robot.free:
            physics.qpos[rows, :2] = xy[:, 0]
            physics.qpos[rows, 2] = scene.robot.z
            physics.qpos[rows, 3:7] = quaternions[:, 0]
        for kind, among in self.scene.free.items():
            self._free_qpos[rows, among, :3] = objects[:, self.slices[kind]]
            self._free_qpos[rows, among, 3:] = quaternions[:, 1:][:, self.slices[kind]]

    def begin(self, rows: Ints) -> None:
        """Begin episodes in the state that is now in the engine."""
        self.physics.forward(rows)
        self.worlds.timer[rows] = 0
        self.refresh()
        self.remember(rows)

    def remember(self, rows: Ints) -> None:
        """Store the distance to go, from which the next step's reward is measured."""
        self.worlds.to_go[rows] = self.progress(self.worlds.at(rows))[0]

    def refresh(self) -> None:
        """Read from the engine where the free objects and the robot are."""
        worlds = self.worlds
        for kind, among in self.scene.free.items():
            worlds.objects[:, self.slices[kind]] = self._free_qpos[:, among, :3]
        offset = self._places[:2] - worlds.position.T[:2, None, :]
        squared = offset * offset
        worlds.offset = reverse_axes(offset)
        worlds.squared = (squared[0] + squared[1]).T

    # ---- one step ----------------------------------------------------------------------------------------------

    @override
    def step(self, action: Array) -> tuple[Outcome, Array | None]:
        self.physics.ctrl[:] = clip(self.xp, action, -1.0, 1.0)
        failed = self.physics.step(self.spec.substeps, forward=True, mocap=self.gremlin_path())
        self.streams.tick()
        self.refresh()
        return self.evaluate(), failed

    def gremlin_path(self) -> Array | None:
        """Where the body that drags the gremlins stands before each substep: (N, substeps, 3)."""
        if not self.scene.welds:
            return None
        xp = self.xp
        t = self.physics.time[:, None] + self._substep
        height = xp.full_like(t, 0.1)
        return xp.stack([GREMLIN_TRAVEL * xp.sin(t), GREMLIN_TRAVEL * xp.cos(t), height], axis=2)

    def evaluate(self) -> Outcome:
        """Reward, costs and new targets for the state that is now in the engine, in the original's order."""
        xp, worlds = self.xp, self.worlds
        reward, met = self.reward(worlds)
        reward = clip(xp, reward, -self.reward_limit, self.reward_limit)
        violated = [cost(xp, worlds) for cost in self._costs]
        if "buttons" in self.slices:
            worlds.timer -= 1 * (worlds.timer > 0)
        terminated = None
        if any_true(met):
            rows = to_numpy(xp.nonzero(met)[0])
            placed = self.renew(rows)
            if not placed.all():
                terminated = none_of(met)
                terminated[rows[~placed]] = True
        return Outcome(reward, violated, met, terminated)

    def renew(self, rows: Ints) -> Any:
        """Give new targets to worlds that reached theirs. Returns who got one."""
        places = self.xp.concat([self.worlds.position[rows, None, :2], self.worlds.objects[rows, :, :2]], axis=1)
        placed = self.retarget(rows, places)
        self.refresh()
        self.remember(rows)
        return placed

    @override
    def observe(self, rows: Array | None = None) -> Array:
        """Sensors, then one lidar for each kind in view."""
        worlds = self.worlds if rows is None else self.worlds.at(rows)
        robot = self.scene.robot
        x, y = ego(worlds.offset, worlds.position[:, 2] if robot.free else None, worlds.frame)
        distance = self.xp.sqrt(x * x + y * y if robot.free else worlds.squared.T)
        n = distance.shape[1]
        readings = copy(self._dark[:n])
        lidar(self.xp, x, y, distance, self.spec.lidar_range, self._first_bins[:, :n], readings)
        observation = copy(self._blank[:n])
        observation[:, : self._sense_dim] = robot.sense(self.xp, worlds.sensors[:, : robot.num_sensors])
        observation[:, self._sense_dim :] = readings.reshape(n, -1)[:, :-BINS]
        return observation

    @override
    def state_dict(self) -> dict[str, Any]:
        memory = {name: copy(getattr(self.worlds, name)) for name in _MEMORY}
        return {**memory, "streams": self.streams.state_dict(), "layouts": self.layouts.state_dict()}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in _MEMORY:
            getattr(self.worlds, name)[:] = state[name]
        self.streams.load_state_dict(state["streams"])
        self.layouts.load_state_dict(state["layouts"])
        self.refresh()
