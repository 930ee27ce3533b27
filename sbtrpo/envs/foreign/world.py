"""One world of a foreign environment: vectors in and out, whatever its spaces and its form of `step`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sbtrpo.envs.foreign.costs import CostReader, cost_reader
from sbtrpo.envs.foreign.environment import (
    Combinations,
    FlatAction,
    UnfitEnvironment,
    env_action_space,
    flat_action_space,
    flat_observation_space,
    flattened,
    image_shape,
    make_environment,
    number,
    one_line,
    split_step,
    time_limit,
)
from sbtrpo.envs.streams import Floats

FIXED = ("reward", "cost", "terminated", "truncated", "goal_met")
"""Columns of a step's values; cost components and the observation follow."""


@dataclass(frozen=True)
class Interface:
    """What a pool has to know about an environment."""

    observation_space: spaces.Box
    action_space: FlatAction
    """As a pool takes actions: one vector, or a choice that counts from 0."""
    env_action_space: FlatAction
    """As the environment itself does: of any shape and precision, or a choice that counts from anywhere."""
    costs: CostReader
    episode_length: int | None
    image: tuple[int, ...] | None = None
    """The shape of observations, where they are images."""
    notes: tuple[str, ...] = ()
    """What becomes of its spaces."""


class World:
    """One environment, held to the rules in every step."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.env = make_environment(task)
        self.observation_space = flat_observation_space(task, self.env.observation_space)
        self.action_space = flat_action_space(task, self.env.action_space)
        self._taken = env_action_space(task, self.env.action_space)

    def reset(self, seed: int) -> Floats:
        """Begin an episode; returns the observation, (obs_dim,)."""
        result = self.env.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise UnfitEnvironment(f"{self.task}: reset must take a seed and return (obs, info)")
        return self._flatten(result[0])

    def step(self, action: NDArray[Any], costs: CostReader) -> Floats:
        """One step; returns `FIXED`, the cost components and the observation in a row."""
        result = self.env.step(self.to_environment(action))
        obs, reward, cost, terminated, truncated, info = split_step(self.task, result)
        total, components = costs.read(self.task, cost, info)
        costs.refuse_negative(self.task, total, components)
        fixed = (number(self.task, "reward", reward), total, bool(terminated), bool(truncated))
        return np.concatenate([[*fixed, bool(info.get("goal_met", False)), *components], self._flatten(obs)])

    def describe(self, seed: int) -> Interface:
        """Look at one step."""
        space = self.env.action_space
        space.seed(seed)
        try:
            self.reset(seed)
            _, _, cost, _, _, info = split_step(self.task, self.env.step(space.sample()))
        except UnfitEnvironment:
            raise
        except Exception as error:
            raise UnfitEnvironment(f"{self.task} fails in its first step: {one_line(error)}").because(error) from error
        costs = cost_reader(self.task, self.env, cost, info)
        taken, image = env_action_space(self.task, space), image_shape(self.env.observation_space)
        notes = tuple(flattened(self.env.observation_space, space))
        return Interface(
            self.observation_space, self.action_space, taken, costs, time_limit(self.env), image=image, notes=notes
        )

    def to_environment(self, action: NDArray[Any]) -> Any:
        """A flat action in the environment's own form."""
        space = self._taken
        if isinstance(space, Combinations):
            return space.table[int(action)].copy()
        if isinstance(space, spaces.Discrete):
            return space.start + int(action)
        return action.reshape(space.shape).astype(space.dtype)

    def render(self) -> NDArray[np.uint8]:
        """A picture of the world, (height, width, 3)."""
        try:
            picture = self.env.render()
        except Exception as error:
            raise UnfitEnvironment(f"{self.task} fails in render: {one_line(error)}").because(error) from error
        if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8 or picture.shape[2:] != (3,):
            raise UnfitEnvironment(
                f"{self.task}: render returned no picture; with render_mode rgb_array it must return an array of uint8,"
                " (height, width, 3)"
            )
        return picture

    def _flatten(self, obs: Any) -> Floats:
        try:
            flat = np.asarray(spaces.flatten(self.env.observation_space, obs), np.float64)
        except Exception as error:
            raise UnfitEnvironment(
                f"{self.task}: an observation does not fit the observation space ({one_line(error)})"
            ) from error
        if flat.shape != self.observation_space.shape:
            raise UnfitEnvironment(
                f"{self.task}: an observation has {flat.size} entries but the observation space"
                f" {self.observation_space.shape[0]}; correct the space or the observation"
            )
        return flat

    def close(self) -> None:
        """Let go of the environment, whatever state it is in."""
        with contextlib.suppress(Exception):
            self.env.close()
