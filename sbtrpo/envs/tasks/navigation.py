"""What all navigation tasks share: layouts, observation, costs, and the order of events in a step.

A subclass says what is rewarded: its `progress` is a distance to go, whose decrease is the reward, and whether the
goal is reached.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from sbtrpo.envs import layout
from sbtrpo.envs.arrays import (
    Array,
    Who,
    any_true,
    clip,
    copy,
    none_of,
    of,
    put,
    restore,
    reverse_axes,
    saved,
    which,
    yaw_quaternion,
)
from sbtrpo.envs.lidar import BINS, ego, first_bins, lidar
from sbtrpo.envs.observation import observation_size, observation_slices
from sbtrpo.envs.physics.base import Physics
from sbtrpo.envs.scene import Scene
from sbtrpo.envs.spec import NavigationSpec
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
        self.layouts, self.streams = layout.make_layouts(spec, n, seed, original, physics.device)

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
            to_go=xp.zeros(n, dtype=xp.float64, device=physics.device),
            target=xp.zeros(n, dtype=xp.int64, device=physics.qpos.device),
            timer=xp.zeros(n, dtype=xp.int64, device=physics.qpos.device),
        )
        self._costs: list[Cost] = cost_functions(spec, scene)
        self.cost_names = tuple(cost.name for cost in self._costs)
        heights = [group.z for group in spec.groups for _ in range(group.count)]
        self._heights = xp.reshape(xp.asarray(heights, **self._like), (-1, 1))
        self._substep = xp.arange(spec.substeps, **self._like) * scene.robot.timestep

        seen = [self.slices[group.kind] for group in spec.groups if group.lidar]
        self._first_bins = first_bins(xp, seen, spec.num_objects, n, self._like["device"])
        self._dark = xp.zeros((n, len(seen) + 1, BINS), **self._like)
        self.observation_slices = observation_slices(spec)
        self._sense_dim = scene.robot.sense_dim
        self._lidars = slice(self._sense_dim, self._sense_dim + len(seen) * BINS)
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

    def retarget(self, who: Who, places: Array) -> Any:
        """Choose a new target; `places` (n, 1 + M, 2) is where robot and objects stand. Returns who found one."""
        goal = self.slices["goal"].start
        xy, placed = self.layouts.draw_target(goal + 1, self.streams, who, places)
        # Where no place was found the episode ends, and its last observation still shows the old goal.
        mark = self.worlds.objects[:, goal, :2]
        put(mark, who, self.xp.where(placed[:, None], self.xp.asarray(xy, **self._like), of(mark, who)))
        return placed

    @override
    def seed(self, seed: int) -> None:
        self.layouts.seed(seed)
        self.streams.seed(seed)

    # ---- episodes ----------------------------------------------------------------------------------------------

    @override
    def reset(self, who: Who) -> None:
        xy, turns = self.layouts.take(who)
        self.place(who, xy, turns)
        self.layouts.check(self.retarget(who, xy))
        self.begin(who)

    def place(self, who: Who, xy: Array, turns: Array) -> None:
        """Write places (n, 1 + M, 2) and rotations (n, 1 + M) of robot and objects into the engine."""
        xp, scene, physics = self.xp, self.scene, self.physics
        xy, turns = xp.asarray(xy, **self._like), xp.asarray(turns, **self._like)
        quaternions = yaw_quaternion(xp, turns)
        objects = xp.concat([xy[:, 1:], xp.broadcast_to(self._heights, (len(xy), *self._heights.shape))], axis=2)
        put(self.worlds.objects, who, objects)

        if not scene.robot.free:  # its joints are relative to the body's start pose
            put(physics.field("body_pos")[:, scene.agent, :2], who, xy[:, 0])
            put(physics.field("body_quat")[:, scene.agent], who, quaternions[:, 0])
        for kind, bodies in scene.fixed.items():
            put(physics.field("body_pos")[:, bodies], who, objects[:, self.slices[kind]])
            put(physics.field("body_quat")[:, bodies], who, quaternions[:, 1:][:, self.slices[kind]])
        if scene.welds is not None:
            gremlins, data = self.slices["gremlins"], physics.field("eq_data")[:, scene.welds]
            put(data[:, :, 3:6], who, objects[:, gremlins])
            put(data[:, :, 6:10], who, quaternions[:, 1:][:, gremlins])

        physics.reset(who)
        if scene.robot.free:
            put(physics.qpos[:, :2], who, xy[:, 0])
            put(physics.qpos[:, 2], who, scene.robot.z)
            put(physics.qpos[:, 3:7], who, quaternions[:, 0])
        for kind, among in self.scene.free.items():
            put(self._free_qpos[:, among, :3], who, objects[:, self.slices[kind]])
            put(self._free_qpos[:, among, 3:], who, quaternions[:, 1:][:, self.slices[kind]])

    def begin(self, who: Who) -> None:
        """Begin episodes in the state that is now in the engine."""
        self.physics.forward(who)
        put(self.worlds.timer, who, 0)
        self.refresh()
        self.remember(who)

    def remember(self, who: Who) -> None:
        """Store the distance to go, from which the next step's reward is measured."""
        put(self.worlds.to_go, who, self.progress(self.worlds.at(who))[0])

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
        if self.scene.welds is None:
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
            who = which(met)
            placed = self.renew(who)
            if any_true(~placed):
                terminated = none_of(met)
                put(terminated, who, ~placed)
        return Outcome(reward, violated, met, terminated)

    def renew(self, who: Who) -> Any:
        """Give new targets to worlds that reached theirs. Returns who got one."""
        worlds = self.worlds
        places = self.xp.concat([of(worlds.position, who)[:, None, :2], of(worlds.objects, who)[:, :, :2]], axis=1)
        placed = self.retarget(who, places)
        self.refresh()
        self.remember(who)
        return placed

    @override
    def observe(self, who: Who | None = None) -> Array:
        """Sensors, then one lidar for each kind in view."""
        worlds = self.worlds if who is None else self.worlds.at(who)
        robot = self.scene.robot
        x, y = ego(worlds.offset, worlds.position[:, 2] if robot.free else None, worlds.frame)
        distance = self.xp.sqrt(x * x + y * y if robot.free else worlds.squared.T)
        n = distance.shape[1]
        readings = copy(self._dark[:n])
        lidar(self.xp, x, y, distance, self.spec.lidar_range, self._first_bins[:, :n], readings)
        observation = copy(self._blank[:n])
        observation[:, : self._sense_dim] = robot.sense(self.xp, worlds.sensors[:, : robot.num_sensors])
        observation[:, self._lidars] = readings.reshape(n, -1)[:, :-BINS]
        return observation

    @override
    def state_dict(self) -> dict[str, Any]:
        memory = {name: saved(getattr(self.worlds, name)) for name in _MEMORY}
        return {**memory, "streams": self.streams.state_dict(), "layouts": self.layouts.state_dict()}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in _MEMORY:
            restore(getattr(self.worlds, name), state[name])
        self.streams.load_state_dict(state["streams"])
        self.layouts.load_state_dict(state["layouts"])
        self.refresh()
