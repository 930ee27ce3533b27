"""The pool: N worlds of one task, stepped together. The step that ends an episode also begins the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Literal, cast

import gymnasium
import numpy as np

from sbtrpo.config.run import TIMEOUT
from sbtrpo.config.tasks import is_foreign
from sbtrpo.envs.arrays import (
    Array,
    Who,
    all_finite,
    any_true,
    copy,
    is_mark,
    none_of,
    of,
    only,
    put,
    restore,
    saved,
    suspicious,
    which,
)
from sbtrpo.envs.engines import NoEngine, choose, within_memory
from sbtrpo.envs.observation import UNVIOLATED
from sbtrpo.envs.registry import TaskLike, get_spec
from sbtrpo.envs.tasks import Outcome, make_task
from sbtrpo.errors import sentence

Info = dict[str, Any]
LayoutRng = Literal["fast", "original"]


class Pool:
    """N worlds of one task.

    `step` returns `(obs, reward, cost, terminated, truncated, info)`, each with a leading world axis. In `info`:

    - `cost_<component>`, `goal_met`, `fault`: (N,) of this step; velocity tasks add `x_velocity`.
    - Only in steps in which an episode ended, as in Gymnasium's vector environments:
      `final_obs` (N, obs_dim) has the last observations of the ended episodes;
      `episode` is a dict of (N,) arrays `return`, `cost`, `length`, `goals` and `cost_<component>` of those episodes;
      `_final_obs` and `_episode` (N,) mark the worlds whose episodes ended.

    A world whose simulation fails, or whose observation or reward is not finite, is isolated: its step earns nothing,
    its episode is truncated, its last good observation is final, and `faults` counts it.
    """

    binary_costs = True
    """Cost components are 0 or 1, and a step costs 1 where any of them does."""

    def __init__(
        self,
        task: TaskLike,
        num_worlds: int,
        seed: int = 0,
        engine: str = "cpu",
        threads: int = 0,
        layout_rng: LayoutRng = "fast",
        sleep: bool = True,
        end_at_violation: bool = False,
    ) -> None:
        self.spec = get_spec(task)
        _check_count("num_worlds", num_worlds, least=1)
        _check_count("threads", threads, least=0)
        _check_count("seed", seed, least=0)
        self.num_worlds = num_worlds = int(num_worlds)
        if layout_rng not in ("fast", "original"):
            raise ValueError(f"layout_rng must be 'fast' or 'original', got {layout_rng!r}")
        original = layout_rng == "original"
        self.task, self.physics = make_task(self.spec, num_worlds, int(seed), engine, threads, original, sleep)
        xp = self._xp = self.physics.xp
        device = self.physics.device
        marked = device is not None
        self._end_at_violation = end_at_violation
        self.everyone: Who = xp.ones(num_worlds, dtype=xp.bool, device=device) if marked else np.arange(num_worlds)

        size = self.task.observation_size
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float64)
        low, high = (np.asarray(bound, np.float64) for bound in (self.task.action_low, self.task.action_high))
        self.single_action_space = gymnasium.spaces.Box(low, high, dtype=np.float64)
        self.env_action_space = self.single_action_space
        """What one environment by itself takes."""
        self._faults = xp.zeros(1, dtype=xp.int64, device=device)
        self.last_error = "the simulation diverged"
        """What was wrong with the last of the worlds that failed."""
        self._obs: Array | None = None
        self._steps = xp.zeros(num_worlds, dtype=xp.int64, device=device)
        self._longest = 0  # steps of the longest running episode: most steps need no closer look at the time limit
        # Over the running episodes: return, cost, goals, then the cost components; worlds last.
        self._sums = xp.zeros((3 + len(self.task.cost_names), num_worlds), dtype=xp.float64, device=device)
        self._unviolated = self.task.observation_slices.get(UNVIOLATED)
        self._float_dtypes = (xp.float32, xp.float64)

    @property
    def faults(self) -> int:
        """Worlds that failed and were reset, since the pool was made."""
        return int(self._faults[0])

    def reset(self, seed: int | None = None) -> tuple[Array, Info]:
        """Begin new episodes in all worlds; with a seed, from the start of that seed's streams."""
        if seed is not None:
            _check_count("seed", seed, least=0)
            self.task.seed(int(seed))
        self._begin(self.everyone)
        self._show(self._tell(self.task.observe()))
        return copy(self._obs), {}

    def _begin(self, who: Who) -> None:
        self.task.reset(who)
        put(self._steps, who, 0)
        put(self._sums.T, who, 0.0)
        self._longest = 0 if is_mark(who) else int(self._xp.max(self._steps))

    def step(self, action: Array) -> tuple[Array, Array, Array, Array, Array, Info]:
        """Apply one action to each world, (N, action_dim)."""
        return self.advance(self._checked(action))

    def advance(self, action: Array) -> tuple[Array, Array, Array, Array, Array, Info]:
        """`step`, for actions that are known to be right."""
        outcome, failed = self._act(action)
        obs = self.task.observe()
        if failed is not None or suspicious(obs) or suspicious(outcome.reward):
            failed = self._isolate(outcome, obs, failed)
        earned = copy(self._sums)  # for its shape; every entry is overwritten
        earned[0] = outcome.reward
        earned[1] = reduce(or_, outcome.violated) if outcome.violated else 0.0
        earned[2] = outcome.goal_met
        for k, violated in enumerate(outcome.violated, start=3):
            earned[k] = violated
        self._sums += earned
        self._tell(obs)
        self._steps += 1
        self._longest += 1
        fault = none_of(outcome.goal_met) if failed is None else failed
        terminated = none_of(fault) if outcome.terminated is None else outcome.terminated
        if self._end_at_violation:
            terminated = terminated | (earned[1] > 0)
        truncated = copy(fault)
        if time_is_up := self.physics.device is not None or self._longest >= self.spec.episode_length:
            truncated |= self._steps >= self.spec.episode_length
        info: Info = {name: earned[k] for k, name in enumerate(self.task.cost_names, start=3)}
        info["goal_met"] = outcome.goal_met
        info["fault"] = fault
        info |= outcome.extra
        may_end = time_is_up or failed is not None or outcome.terminated is not None or self._end_at_violation
        if may_end and any_true(ended := terminated | truncated):
            obs = self._end(ended, obs, info)
        self._show(obs)
        return copy(obs), earned[0], earned[1], terminated, truncated, info

    def _act(self, action: Array) -> tuple[Outcome, Array | None]:
        """Let the task step; returns what that earned and the mask of failed worlds, if any."""
        return self.task.step(action)

    def _tell(self, obs: Array, who: Who | None = None) -> Array:
        """Write into observations of these worlds whether nothing has cost so far, where the task has that seen."""
        if self._unviolated is not None:
            cost = self._sums[1] if who is None else of(self._sums[1], who)
            obs[:, self._unviolated] = (cost == 0)[:, None]
        return obs

    def _show(self, obs: Array) -> None:
        """Keep the observations to act on next."""
        self._obs = obs

    def _checked(self, action: Array) -> Array:
        if self._obs is None:
            raise RuntimeError("step was called before reset; call pool.reset() first")
        if not hasattr(action, "dtype"):
            action = np.asarray(action)
        shape = (self.num_worlds, self.single_action_space.shape[0])
        if tuple(action.shape) != shape:
            raise ValueError(f"action must have shape {shape}, (worlds, action size), got {tuple(action.shape)}")
        if action.dtype not in self._float_dtypes:
            kind = type(self._steps).__name__
            raise TypeError(f"action must be a float32 or float64 {kind}, got {action.dtype}; convert it")
        if self.physics.device is None and not all_finite(self._xp, action):
            world = int(self._xp.nonzero(~self._xp.all(self._xp.isfinite(action), axis=1))[0][0])
            raise ValueError(f"action of world {world} is not finite: {action[world]}; check the policy's output")
        return action

    def _isolate(self, outcome: Any, obs: Array, failed: Array | None) -> Array:
        """Take failed worlds out of this step: no reward, no cost, and the last good observation."""
        xp = self._xp
        broken = ~(xp.all(xp.isfinite(obs), axis=1) & xp.isfinite(outcome.reward))
        failed = broken if failed is None else failed | broken
        flags = (*outcome.violated, outcome.goal_met, outcome.terminated)
        for values in (outcome.reward, *flags, *outcome.extra.values()):
            if values is not None:
                put(values, failed, 0)
        assert self._obs is not None
        put(obs, failed, of(self._obs, failed))
        self._faults += xp.count_nonzero(failed)
        return failed

    def _end(self, ended: Array, obs: Array, info: Info) -> Array:
        """Report the ended episodes and begin the next ones; returns the observations to go on from."""
        who = which(ended)
        info["final_obs"] = obs
        names = ("return", "cost", "goals", *self.task.cost_names)
        info["episode"] = {name: only(ended, self._sums[k]) for k, name in enumerate(names)}
        info["episode"]["length"] = only(ended, self._steps)
        info["_final_obs"] = info["_episode"] = ended
        self._begin(who)
        obs = copy(obs)
        put(obs, who, self._tell(self.task.observe(who), who))
        return obs

    def wake(self, who: Who | None = None) -> None:
        """Wake all sleeping bodies, of all worlds or of these; nothing else changes."""
        self.physics.wake(self.everyone if who is None else who)

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on but who sleeps, as nested dicts of arrays. Taking it changes nothing.

        The engine cannot restore who sleeps: in a restored pool all bodies are awake. So it continues bit for bit as a
        pool does whose state was taken just after `wake`, as training does at the end of every epoch. A pool with
        sleeping bodies may part from its restored twin by rounding, which then grows.
        """
        if self._obs is None:
            raise RuntimeError("a pool has no state before its first reset; call pool.reset() first")
        return {
            "physics": self.physics.state_dict(),
            "task": self.task.state_dict(),
            "obs": saved(self._obs),
            "steps": saved(self._steps),
            "sums": saved(self._sums),
            "faults": np.asarray(self.faults),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue, all bodies awake, where `state_dict` of a pool of the same task, size and streams was taken."""
        shape = (self.num_worlds, self.task.observation_size)
        if tuple(state["obs"].shape) != shape or _shapes(state["task"]) != _shapes(self.task.state_dict()):
            raise ValueError(
                f"the state does not fit this pool, {self.num_worlds} worlds of {self.spec.id};"
                " make the pool with the task, layout_rng and num_worlds of the saved one"
            )
        self.physics.load_state_dict(state["physics"])
        self.task.load_state_dict(state["task"])
        device = self.physics.device
        if self._obs is None or device is None:
            dtype = self._xp.float64 if device is None else self.physics.qpos.dtype
            self._obs = self._xp.zeros(shape, dtype=dtype, device=device)
        restore(self._obs, state["obs"])
        restore(self._steps, state["steps"])
        self._longest = int(self._xp.max(self._steps))
        restore(self._sums, state["sums"])
        self._faults[0] = int(state["faults"])

    @property
    def last_obs(self) -> Array:
        """The observations to act on next: (N, obs_dim)."""
        if self._obs is None:
            raise RuntimeError("a pool has no observation before its first reset; call pool.reset() first")
        return copy(self._obs)


def _shapes(state: Mapping[str, Any]) -> dict[str, Any]:
    """The shapes of a state's arrays, nested as they are."""
    return {key: _shapes(entry) if isinstance(entry, Mapping) else tuple(entry.shape) for key, entry in state.items()}


def _check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def make_pool(
    task: TaskLike,
    num_worlds: int = 20,
    seed: int = 0,
    engine: str = "cpu",
    threads: int = 0,
    layout_rng: LayoutRng = "fast",
    sleep: bool = True,
    timeout: float = TIMEOUT,
    stopping: Callable[[], bool] = lambda: False,
    end_at_violation: bool = False,
) -> Pool:
    """A pool of worlds.

    Args:
        task: a task id, such as "SafetyPointGoal2-v0" (see `sbtrpo.task_ids()`), or a task of your own: the path of a
            .toml file or a dict (see docs/tasks.md).
        num_worlds: how many worlds step together.
        seed: of the worlds' random streams; world i's episodes depend on it and on i alone.
        engine: "cpu"; or "gpu", where observations, rewards, costs and masks are tensors on the GPU, and actions are
            taken from there; "auto" takes the one that is faster with so many worlds. "gpu-on-cpu" is for tests: it
            does on the CPU what "gpu" does.
        threads: threads of the engine; 0 takes all cores that this process may use.
        layout_rng: "fast", or "original" to draw what the original draws, world i from `RandomState(seed + i)`
            (velocity tasks: `default_rng(seed + i)`).
        sleep: whether resting bodies leave the solver until something touches them.
        timeout: seconds after which a process of an environment of your own counts as hung, and is replaced.
        stopping: whether somebody wants to stop; asked while such a process does not answer.
        end_at_violation: whether an episode is over, as `terminated`, with its first step that costs anything.

    >>> import numpy as np
    >>> pool = make_pool("SafetyPointGoal2-v0", num_worlds=4, seed=0)
    >>> obs, info = pool.reset()
    >>> obs, reward, cost, terminated, truncated, info = pool.step(np.zeros((4, 2)))
    >>> obs.shape, reward.shape, sorted(info)[:3]
    ((4, 60), (4,), ['cost_hazards', 'cost_vases_contact', 'cost_vases_velocity'])
    """
    engine = choose(engine, task, num_worlds, layout_rng == "original").engine
    if isinstance(task, str) and is_foreign(task):
        from sbtrpo.envs.foreign.pool import make_env_pool

        pool = make_env_pool(
            task, num_worlds, seed, threads, timeout=timeout, stopping=stopping, end_at_violation=end_at_violation
        )
        return cast("Pool", pool)  # it has the same interface
    if engine != "cpu":
        from sbtrpo.envs.gpu import GpuPool  # needs optional packages

        try:
            with within_memory(num_worlds):
                return GpuPool(task, num_worlds, seed, engine, threads, layout_rng, sleep, end_at_violation)
        except NotImplementedError as error:
            what = sentence(error).rstrip(".")
            raise NoEngine(f"MuJoCo Warp cannot simulate {get_spec(task).id} ({what}); use engine=cpu") from error
    return Pool(task, num_worlds, seed, engine, threads, layout_rng, sleep, end_at_violation)
