"""Environments for tests of the adapters, registered on import: good ones, and one for each thing that can go wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 8


class Walk(gymnasium.Env[Any, Any]):
    """A random walk that is pushed; it costs 1 above 1. `trouble` is what goes wrong in a step or reset."""

    def __init__(self, trouble: str = "", six: bool = False) -> None:
        self.observation_space = spaces.Box(-100.0, 100.0, (2,), np.float32)
        self.action_space = spaces.Box(np.array([-2.0], np.float32), np.array([4.0], np.float32))
        self.trouble, self.six = trouble, six
        self.x, self.t, self.seed = 0.0, 0, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.t, self.seed = self.np_random.uniform(-1, 1), 0, seed
        if self.trouble == "reset" and self._chosen(2):
            raise OSError("no licence")
        if self.trouble == "die in reset" and self._chosen(4):
            os._exit(3)
        return self._observe(), {}

    def _chosen(self, among: int) -> bool:
        """Some episodes, the same ones for the same seed."""
        return self.seed is not None and self.seed % among == 0

    def _observe(self) -> Any:
        return np.array([self.x, self.t], np.float32)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.t += 1
        self.x += 0.1 * float(action[0]) + self.np_random.normal(0, 0.1)
        self._suffer()
        obs, cost = self._observe(), float(self.x > 1)
        info: dict[str, Any] = {"cost_high": cost, "cost_of_all": np.ones(3), "goal_met": self.t == 3}
        if self.trouble == "nan" and self._chosen(2) and self.t == 3:
            obs[0] = np.nan
        if self.trouble == "negative" and self.t == 2:
            cost = -1.0
        if self.trouble == "shape" and self.t == 2:
            obs = obs[:1]
        reward, terminated = self.x, bool(self.x > 3)
        if self._chosen(2) and self.t == 3:
            reward = {"infinite": -np.inf, "huge": 1e39}.get(self.trouble, reward)
            cost = np.inf if self.trouble == "infinite cost" else cost
        if self.six:
            return obs, reward, cost, terminated, False, info
        if self.trouble == "no cost":
            return obs, reward, terminated, False, {"goal_met": info["goal_met"]}
        return obs, reward, terminated, False, info | {"cost": cost}

    def _suffer(self) -> None:
        if self.trouble == "raise" and self._chosen(2) and self.t == 3:
            raise ZeroDivisionError("as promised")
        if self.trouble == "always" and self.t == 1:
            raise ZeroDivisionError("as promised")
        if self.trouble == "die" and self._chosen(2) and self.t == 3:
            os._exit(3)
        if self.trouble == "hang" and self._chosen(2) and self.t == 3:
            time.sleep(600)


class Cliff(Walk):
    """A walk that is rewarded for its height, raises beyond a line, and never costs anything."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x /= 5
        return self._observe(), {}

    def _suffer(self) -> None:
        if self.x > 0.5:
            raise FloatingPointError("over the edge")

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"cost": 0.0, "cost_high": 0.0}


class Tired(Walk):
    """After so many steps in its process, every second step of an episode raises."""

    steps = 0

    def _suffer(self) -> None:
        Tired.steps += 1
        if Tired.steps > 300 and self.t == 2:
            raise MemoryError("worn out")


class Rooms(gymnasium.Env[Any, Any]):
    """Observations of all kinds, and a choice that counts from 1."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "room": spaces.Discrete(3),
                "both": spaces.Tuple((spaces.Box(0, 1, (2, 2), np.float64), spaces.MultiBinary(2))),
            }
        )
        self.action_space = spaces.Discrete(3, start=1)
        self.room = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.room = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.room = int(action) - 1
        return self._observe(), float(action), self.room == 2, False, {"cost": 0.5}

    def _observe(self) -> Any:
        return {"room": self.room, "both": (np.full((2, 2), 0.25), np.array([1, 0], np.int8))}


class Levers(gymnasium.Env[Any, Any]):
    """Two levers, of which the second counts from 1: together they earn a number of their own. It draws itself."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, tilt: float = 0.0) -> None:
        self.observation_space = spaces.Dict(
            {"levers": spaces.MultiDiscrete([2, 3]), "place": spaces.Box(-1.0, 1.0, (2,), np.float64)}
        )
        self.action_space = spaces.MultiDiscrete([2, 3], start=[0, 1])
        self.render_mode, self.tilt, self.levers, self.t = render_mode, tilt, np.zeros(2, np.int64), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.levers, self.t = np.zeros(2, np.int64), 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.t += 1
        self.levers = np.array([action[0], action[1] - 1])
        reward = 10.0 * self.levers[0] + self.levers[1] + self.tilt
        return self._observe(), reward, False, False, {"cost": float(self.levers[1] == 2)}

    def _observe(self) -> Any:
        return {"levers": self.levers, "place": self.np_random.uniform(-1, 1, 2)}

    def render(self) -> Any:
        assert self.render_mode == "rgb_array"
        return np.full((40, 60, 3), (self.t, *self.levers), np.uint8)


class Lamp(gymnasium.Env[Any, Any]):
    """A lamp shines in one half of a dim picture; naming its side is rewarded, and the left answer costs."""

    def __init__(self, form: str = "image") -> None:
        picture: spaces.Box = spaces.Box(0, 255, (8, 8, 1), np.uint8)
        if form == "unbounded":
            picture = spaces.Box(-np.inf, np.inf, (8, 8, 1), np.float32)
        self.form, self.action_space = form, spaces.Discrete(2)
        self.observation_space = spaces.Dict({"lamp": picture}) if form == "within" else picture

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        reward = float(action == self.side)
        return self._observe(), reward, False, False, {"cost": float(action == 0)}

    def _observe(self) -> Any:
        self.side = int(self.np_random.integers(2))
        picture = self.np_random.integers(0, 100, (8, 8, 1)).astype(self.observation_space.dtype or np.uint8)
        row, column = self.np_random.integers(0, 7), self.np_random.integers(0, 3) + 4 * self.side
        picture[row : row + 2, column : column + 2] = 255
        return {"lamp": picture} if self.form == "within" else picture


class Odd(Walk):
    """A walk with other faults, which concern its spaces, its numbers and its randomness."""

    def __init__(self, oddity: str) -> None:
        super().__init__()
        self.oddity = oddity
        if oddity == "unbounded":
            self.action_space = spaces.Box(-np.inf, np.inf, (1,))
        if oddity == "several":
            self.action_space = spaces.MultiDiscrete([40, 40])
        if oddity == "of any length":
            self.observation_space = spaces.Sequence(spaces.Discrete(2))
        if oddity == "words":
            self.observation_space = spaces.Dict({"place": self.observation_space, "name": spaces.Text(3)})
        if oddity == "bounds":
            self.observation_space = spaces.Box(-0.01, 0.01, (2,), np.float32)
        if oddity == "constructor":
            raise KeyError("no such map")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        found = super().reset(seed=seed)
        if self.oddity == "unseeded":
            self.x = float(np.random.default_rng().uniform(-1, 1))
        if self.oddity == "same start":
            self.x = 0.5
        if self.oddity == "bare reset":
            return self._observe()
        return self._observe(), found[1]

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if self.oddity == "four":
            return obs, reward, terminated, info
        if self.oddity == "text cost":
            info["cost"] = "much"
        if self.oddity == "nan reward":
            reward = np.nan
        if self.oddity == "debts":
            reward -= 10.0
        if self.oddity == "dtype":
            obs = obs.astype(np.float64)
        if self.oddity == "never costs":
            info["cost"] = 0.0
        if self.oddity == "slow":
            time.sleep(0.02)
        return obs, reward, terminated, truncated, info


def _left(t: int) -> float:
    return 0.5 * (t % 2)


COSTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "vector": lambda t: {"cost": np.array([_left(t), 0.25], np.float32)},
    "list": lambda t: {"cost": [_left(t), 0]},
    "named": lambda t: {"cost": (_left(t), 0.25)},
    "entries": lambda t: {"cost_left": np.float32(_left(t)), "cost_right": 0.25, "cost_sum": 9.0},
    "one entry": lambda t: {"cost_left": _left(t)},
    "vector of one": lambda t: {"cost": np.array([_left(t)]), "cost_left": _left(t)},
    "named one": lambda t: {"cost": [_left(t)]},
    "growing": lambda t: {"cost": np.ones(1 + t)},
    "grown up": lambda t: {"cost": [1.0] * t},
    "shrinking": lambda t: {"cost": np.ones(2) if t == 1 else 1.0},
    "vanishing": lambda t: {"cost": np.ones(2)} if t == 1 else {},
    "deep": lambda t: {"cost": np.ones(2) if t == 1 else np.ones((2, 2))},
    "misnamed": lambda t: {"cost": np.ones(2)},
    "one word": lambda t: {"cost": np.ones(2)},
    "twins": lambda t: {"cost": np.ones(2)},
    "total": lambda t: {"cost": np.ones(2)},
    "empty": lambda t: {"cost": []},
    "text in a vector": lambda t: {"cost": [0.0, "much"]},
    "nan in a vector": lambda t: {"cost": np.array([0.0, np.nan if t == 3 else 0.0])},
    "negative in a vector": lambda t: {"cost": np.array([2.0, -1.0 if t == 2 else 0.0])},
    "nan entry": lambda t: {"cost_left": 0.0, "cost_right": np.nan if t == 3 else 0.0},
    "negative entry": lambda t: {"cost_left": 2.0, "cost_right": -1.0 if t == 2 else 0.0},
    "lost entry": lambda t: {"cost_left": 1.0} | ({"cost_right": 0.0} if t == 1 else {}),
    "new entry": lambda t: {"cost_left": 1.0} | ({"cost_right": 0.0} if t > 1 else {}),
    "late cost": lambda t: {"cost_left": 1.0} | ({"cost": 0.0} if t > 1 else {}),
    "array entry": lambda t: {"cost_left": 1.0, "cost_right": np.zeros(2)},
    "nan component": lambda t: {"cost": _left(t), "cost_left": np.nan if t == 3 else 0.0},
    "negative component": lambda t: {"cost": _left(t), "cost_left": -1.0 if t == 3 else 0.0},
    "late component": lambda t: {"cost": _left(t)} | ({"cost_left": 1.0} if t == 3 else {}),
    "beside a vector": lambda t: {"cost": [_left(t), 0.0], "cost_left": 1.0},
}
"""What `info` tells of the costs in step t, from 1 on."""
COST_NAMES: dict[str, Any] = {
    "named": ["left", "cost_right"],
    "named one": ("left",),
    "misnamed": ("left", "middle", "right"),
    "one word": "ab",
    "twins": ("left", "cost_left"),
    "total": ("left", "sum"),
}


class Costly(gymnasium.Env[Any, Any]):
    """Nothing happens but costs."""

    def __init__(self, form: str, six: bool = False) -> None:
        self.observation_space = spaces.Box(0.0, 100.0, (1,), np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (1,))
        self.form, self.six, self.t = form, six, 0
        if form in COST_NAMES:
            self.cost_names = COST_NAMES[form]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        obs, reward, info = np.full(1, float(self.t)), float(self.t), COSTS[self.form](self.t)
        if self.six:
            return obs, reward, info.pop("cost"), False, False, info
        return obs, reward, False, False, info


class Matrix(Costly):
    """Actions are matrices, and there is nothing to see."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__("one entry")
        self.action_space = spaces.Box(-1.0, 1.0, (2, 2))
        self.render_mode = render_mode

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        return super().step(action)

    def render(self) -> Any:
        return None


def _register(name: str, entry: str, limit: int | None = LENGTH, **kwargs: Any) -> None:
    if f"{name}-v0" not in gymnasium.registry:
        gymnasium.register(f"{name}-v0", f"{__name__}:{entry}", max_episode_steps=limit, kwargs=kwargs)


TROUBLES = (
    "reset", "die in reset", "nan", "infinite", "infinite cost", "huge",
    "negative", "shape", "no cost", "raise", "always", "die", "hang",
)  # fmt: skip
ODDITIES = (
    "unbounded", "several", "of any length", "bounds", "constructor", "unseeded", "same start", "bare reset", "four",
    "text cost", "nan reward", "dtype", "never costs", "slow", "words",
    "debts",
)  # fmt: skip


def name_of(what: str) -> str:
    """The id of a faulty environment, with its module."""
    return f"{__name__}:{what.title().replace(' ', '')}-v0"


_register("Walk", "Walk")
_register("SixWalk", "Walk", six=True)
_register("Endless", "Walk", limit=None)
_register("Rooms", "Rooms")
_register("Levers", "Levers")
_register("Matrix", "Matrix")
_register("Lamp", "Lamp")
_register("LampWithin", "Lamp", form="within")
_register("LampUnbounded", "Lamp", form="unbounded")
_register("Cliff", "Cliff", limit=40)
_register("Tired", "Tired")
_register("SixCosts", "Costly", form="vector", six=True)
for _what in COSTS:
    _register(name_of(_what).split(":")[1].removesuffix("-v0"), "Costly", form=_what)
for _what in TROUBLES:
    _register(name_of(_what).split(":")[1].removesuffix("-v0"), "Walk", trouble=_what)
for _what in ODDITIES:
    _register(name_of(_what).split(":")[1].removesuffix("-v0"), "Odd", oddity=_what)
