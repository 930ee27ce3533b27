"""The tasks as Gymnasium environments: `gymnasium.make("sbtrpo:SafetyPointGoal2-v0")`, for other libraries.

A task of one's own has its id once it is registered, and without that its file is named:
`gymnasium.make("sbtrpo:Task-v0", task="my_task.toml")`.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from typing_extensions import override

from sbtrpo.envs.observation import UNVIOLATED
from sbtrpo.envs.registry import TaskLike, enter, get_spec, task_ids
from sbtrpo.envs.streams import Floats

if TYPE_CHECKING:
    from sbtrpo.envs.pool import LayoutRng, Pool

Info = dict[str, Any]
Flags = NDArray[np.bool_]
_OF_EPISODES = ("final_obs", "_final_obs", "episode", "_episode")
"""Entries of a pool's info that are not one value for each world."""
_NO_LIMIT = 2**62
_ENTRY_POINT, _VECTOR_ENTRY_POINT = f"{__name__}:SafetyEnv", f"{__name__}:SafetyVectorEnv"
ANY_TASK = "Task-v0"


def register(task: TaskLike) -> str:
    """Make a task known by its id, to this package and to Gymnasium; returns the id.

    Args:
        task: a spec, the path of a .toml file, or the same settings as a dict.
    """
    spec = get_spec(task)
    enter(spec)
    register_gymnasium()
    return spec.id


def make_env(task: TaskLike, **options: Any) -> gymnasium.Env[Any, Any]:
    """One world of any task, with the time limit of that task."""
    env = SafetyEnv(task, **options)
    return gymnasium.wrappers.TimeLimit(env, get_spec(task).episode_length)


def register_gymnasium() -> None:
    """Make all tasks known to Gymnasium by their ids, and `Task-v0`, which is told its task; may be called again."""
    if ANY_TASK not in gymnasium.registry:
        gymnasium.register(ANY_TASK, entry_point=f"{__name__}:make_env", vector_entry_point=_VECTOR_ENTRY_POINT)
    for task in task_ids():
        known = gymnasium.registry.get(task)
        if known is None or known.entry_point != _ENTRY_POINT:
            gymnasium.register(
                task,
                entry_point=_ENTRY_POINT,
                vector_entry_point=_VECTOR_ENTRY_POINT,
                max_episode_steps=get_spec(task).episode_length,
                kwargs={"task": task},
            )


def observation_space(pool: Pool) -> spaces.Box:
    """Lidar entries lie in [0, 1], and so does what tells of violations; all others anywhere."""
    low, high = np.full((2, pool.task.observation_size), np.inf) * [[-1.0], [1.0]]
    for name, entries in pool.task.observation_slices.items():
        if name.endswith("_lidar") or name == UNVIOLATED:
            low[entries], high[entries] = 0.0, 1.0
    return spaces.Box(low, high, dtype=np.float64)


def _pool(task: TaskLike, num_worlds: int, threads: int, layout_rng: LayoutRng, steps: int | None) -> Pool:
    """A pool, with another time limit than its task's if one is given."""
    from sbtrpo.envs.pool import make_pool  # it imports MuJoCo, and registering must be fast

    pool = make_pool(task, num_worlds, threads=threads, layout_rng=layout_rng)
    if steps is not None:
        pool.spec = dataclasses.replace(pool.spec, episode_length=steps)
    return pool


def _metadata(pool: Pool) -> Info:
    """What can be shown here; a window needs a screen."""
    screen = sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    model = getattr(pool.physics, "model", None)
    seconds = model.opt.timestep * getattr(pool.spec, "substeps", 1) if model is not None else 0.02
    return {"render_modes": ["human", "rgb_array"][not screen :], "render_fps": round(1 / seconds)}


class SafetyEnv(gymnasium.Env[Any, Any]):
    """One world of a task in Gymnasium's five-value form; a step's cost is `info["cost"]`.

    `info` also has the cost components, `goal_met`, and `fault`: whether the simulation failed, which truncates the
    episode. The time limit is a wrapper that `gymnasium.make` adds, as for all environments; without it an episode
    goes on until it terminates.

    Args:
        task: a task id (`sbtrpo.task_ids()` lists them), the path of a .toml file, or the same settings as a dict.
        render_mode: None, "rgb_array", or "human" for a window.
        width: of pictures.
        height: of pictures.
        layout_rng: as of `make_pool`.

    >>> env = SafetyEnv("SafetyPointGoal2-v0")
    >>> obs, info = env.reset(seed=0)
    >>> obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    >>> sorted(info)[:3]
    ['cost', 'cost_hazards', 'cost_vases_contact']
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 50}  # noqa: RUF012 (as in the base class)

    def __init__(
        self,
        task: TaskLike,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
        layout_rng: LayoutRng = "fast",
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be None, 'human' or 'rgb_array', got {render_mode!r}")
        self.pool = _pool(task, 1, threads=1, layout_rng=layout_rng, steps=_NO_LIMIT)
        self.metadata = _metadata(self.pool)
        self.render_mode, self._size = render_mode, (width, height)
        self.observation_space = observation_space(self.pool)
        self.action_space = self.pool.single_action_space
        self._renderer: Any = None
        self._violated: list[str] = []  # by the last step
        self._seeded = self._ended = False
        self._next: Floats | None = None
        """The first observation of the next episode, which a pool begins in the step that ends one."""

    @override
    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Floats, Info]:
        """Begin the first episode of a seed; without a seed the next episode, at first of a random seed."""
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        if seed is not None or self._next is None:
            self._next = self.pool.reset(seed=seed)[0][0]
        obs, self._next = self._next, None
        self._seeded, self._ended, self._violated = True, False, []
        if self.render_mode == "human":
            self.render()
        return obs, {}

    @override
    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, Info]:
        if self._ended or not self._seeded:
            raise gymnasium.error.ResetNeeded("the episode has ended or not yet begun; call reset() first")
        obs, reward, cost, terminated, truncated, infos = self.pool.step(np.asarray(action, np.float64)[None])
        info = {"cost": float(cost[0])}
        info |= {name: values[0].item() for name, values in infos.items() if name not in _OF_EPISODES}
        self._violated = [name for name in self.pool.task.cost_names if info[name]]
        if "final_obs" in infos:
            self._next, obs, self._ended, self._violated = obs[0], infos["final_obs"], True, []
        if self.render_mode == "human":
            self.render()
        return np.array(obs[0]), float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    @override
    def render(self) -> NDArray[np.uint8] | None:
        """The world as it is now, (height, width, 3), with what costs in red; None if it is shown in a window."""
        if self.render_mode is None:
            return None
        if self._renderer is None:
            from sbtrpo.envs.view.render import Renderer  # few need it

            self._renderer = Renderer(self.pool, *self._size, window=self.render_mode == "human")
        if self.render_mode == "human":
            self._renderer.show(0, self._violated)
            return None
        frame: NDArray[np.uint8] = self._renderer.frame(0, self._violated)
        return frame

    @override
    def close(self) -> None:
        """Let go of the renderer; may be called again."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


class SafetyVectorEnv(gymnasium.vector.VectorEnv[Floats, Floats, NDArray[Any]]):
    """A pool in Gymnasium's vector form. The step that ends an episode also begins the next one.

    `info["cost"]`, (N,), is the cost of this step in every world, also where it ended an episode. In such steps
    `info["final_obs"]` holds the last observations, and `info["final_info"]["episode"]` return, cost, length and more
    of the ended episodes; `_final_obs` and `_final_info` mark their worlds.
    """

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012 (as in the base class)

    def __init__(
        self,
        num_envs: int,
        task: TaskLike,
        max_episode_steps: int | None = None,
        threads: int = 0,
        layout_rng: LayoutRng = "fast",
    ) -> None:
        self.pool = _pool(task, num_envs, threads, layout_rng, max_episode_steps)
        self.num_envs = num_envs
        self.single_observation_space = observation_space(self.pool)
        self.single_action_space = self.pool.single_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seeded = False

    @override
    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Floats, Info]:
        """Begin the first episodes of a seed; without a seed the next episodes, at first of a random seed."""
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        obs: Floats = self.pool.reset(seed=seed)[0]
        return obs, {}

    @override
    def step(self, actions: Floats) -> tuple[Floats, Floats, Flags, Flags, Info]:
        obs, reward, cost, terminated, truncated, infos = self.pool.step(np.asarray(actions, np.float64))
        everywhere = np.ones(self.num_envs, np.bool_)
        values = {"cost": cost} | {name: value for name, value in infos.items() if name not in _OF_EPISODES}
        info: Info = dict(values)
        info |= {f"_{name}": everywhere.copy() for name in values}
        if "episode" in infos:
            ended = infos["_episode"]
            final = np.full(self.num_envs, None, object)  # as Gymnasium's vector environments have it
            for world in np.flatnonzero(ended):
                final[world] = np.array(infos["final_obs"][world])
            statistics = infos["episode"] | {f"_{name}": ended.copy() for name in infos["episode"]}
            info |= {"final_obs": final, "_final_obs": ended.copy()}
            info["final_info"] = {"episode": statistics, "_episode": ended.copy()}
            info["_final_info"] = ended.copy()
        return obs, reward, terminated, truncated, info


class SixValues(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment with `info["cost"]` in Safety Gymnasium's form: `step` returns the cost as its third value.

    >>> env = SixValues(SafetyEnv("SafetyPointGoal2-v0"))
    >>> obs, info = env.reset(seed=0)
    >>> obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
    """

    @override
    def step(self, action: Any) -> tuple[Any, float, float, bool, bool, Info]:  # type: ignore[override]
        """(obs, reward, cost, terminated, truncated, info)"""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(reward), float(info["cost"]), terminated, truncated, info
