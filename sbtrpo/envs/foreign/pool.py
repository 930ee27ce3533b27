"""Foreign environments as a pool: any Gymnasium environment that tells its cost, in worker processes.

A worker resets some of its worlds, each with a seed, or steps all of them. The pool does the rest: time limits, new
episodes, and worlds that fail.
"""

from __future__ import annotations

import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sbtrpo.config.run import TIMEOUT
from sbtrpo.envs.faults import EnvironmentFailure
from sbtrpo.envs.foreign.environment import Info, UnfitEnvironment
from sbtrpo.envs.foreign.workers import Fault, Worker
from sbtrpo.envs.foreign.world import FIXED, Interface
from sbtrpo.envs.physics.cpu import available_cores
from sbtrpo.envs.streams import Floats, Ints
from sbtrpo.errors import Alarm

__all__ = ["EnvPool", "EnvironmentFailure", "UnfitEnvironment", "make_env_pool"]
Flags = NDArray[np.bool_]

GIVE_UP = 5
"""A world that fails this many times in a row, without a good step in between, ends the run."""


def episode_seed(seed: int, world: int, episode: int) -> int:
    """The seed of an episode, from the pool's seed, the world's index and the number of its earlier episodes.

    >>> episode_seed(0, 1, 2) == episode_seed(0, 1, 2) != episode_seed(0, 2, 1)
    True
    """
    # 31 bits: some simulators take no more.
    return int(np.random.SeedSequence((seed, world, episode)).generate_state(1)[0] >> 1)


def _learnable(values: Floats) -> bool:
    """Whether all are finite, also in the single precision of what is learnt from."""
    return bool((np.abs(values) <= np.finfo(np.float32).max).all())


def _close_all(workers: list[Worker]) -> None:
    while workers:
        workers.pop().close()


@dataclass(frozen=True)
class ForeignSpec:
    """The fields of a task's spec that users of a pool read."""

    id: str
    episode_length: int


@dataclass(frozen=True)
class ForeignTask:
    """The fields of a task that users of a pool read."""

    observation_size: int
    cost_names: tuple[str, ...]
    observation_slices: dict[str, slice]
    image: tuple[int, ...] | None
    """The shape of observations, where they are images."""


class EnvPool:
    """N worlds of a foreign environment, with the interface of `Pool`.

    Observations are flattened to (N, obs_dim) float64. Actions are (N, action_dim) floats in the environment's own
    bounds, to which they are clipped, or (N,) integers that count from 0 if its action space is Discrete, or
    combinations of such choices.

    Episode k of world i begins with a reset to `episode_seed(seed, i, k)`. So it does not depend on the number of
    worlds or processes, nor on what happens in other worlds.

    A world that raises, gives numbers that are not finite, or whose process dies is isolated as in `Pool`: its step
    earns nothing, its episode is truncated, its last good observation is final, and `faults` counts it.
    """

    restores_exactly = False
    """Foreign simulators cannot be saved: `load_state_dict` begins new episodes in all worlds."""
    binary_costs = False
    """Costs are any numbers from 0 on."""

    def __init__(
        self,
        task: str,
        num_worlds: int,
        seed: int = 0,
        threads: int = 0,
        episode_length: int | None = None,
        timeout: float = TIMEOUT,
        stopping: Callable[[], bool] = lambda: False,
        end_at_violation: bool = False,
    ) -> None:
        for name, value, least in (("num_worlds", num_worlds, 1), ("seed", seed, 0), ("threads", threads, 0)):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        self.num_worlds = n = int(num_worlds)
        self._seed = int(seed)
        self.timeout, self._end_at_violation = float(timeout), end_at_violation
        self.stopping = stopping
        """Whether somebody wants to stop; asked while a world does not answer."""
        self._workers: list[Worker] = []
        self._finalizer = weakref.finalize(self, _close_all, self._workers)
        rows = np.array_split(np.arange(n), min(n, threads or available_cores()))
        self._workers += [Worker(task, worker_rows) for worker_rows in rows]
        interface = self._describe(task)
        length = episode_length or interface.episode_length
        if length is None:
            self.close()
            raise UnfitEnvironment(
                f"{task} has no time limit; register it with max_episode_steps=..., so that episodes end"
            )
        self.spec = ForeignSpec(task, int(length))
        self.single_observation_space, self.single_action_space = interface.observation_space, interface.action_space
        self.env_action_space = interface.env_action_space
        """What one environment by itself takes."""
        self.notes = interface.notes
        """What becomes of its spaces, in words."""
        size = interface.observation_space.shape[0]
        self._costs = interface.costs
        self.task = ForeignTask(size, interface.costs.names, {"observation": slice(0, size)}, interface.image)
        self.faults = 0
        """Worlds that failed and were reset, since the pool was made."""
        self.last_error = ""
        """What was wrong with the last of them."""
        self._obs: Floats | None = None
        self._episodes: Ints = np.zeros(n, np.int64)  # begun so far
        self._steps: Ints = np.zeros(n, np.int64)
        self._stillborn: Ints = np.zeros(n, np.int64)  # failures since the last good step
        self._sums: Floats = np.zeros((3 + len(interface.costs.names), n))  # return, cost, goals, cost components
        self._alike: Counter[str] = Counter()  # faults of each kind

    def _describe(self, task: str) -> Interface:
        answer = self._answers({0: ("describe", episode_seed(self._seed, 0, 0))})[0]
        if isinstance(answer, Interface):
            return answer
        self.close()
        raise EnvironmentFailure(f"{task} fails in its first episode: {answer.error}; try the environment by itself")

    # ---- the interface of Pool ---------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> tuple[Floats, Info]:
        """Begin new episodes in all worlds; with a seed, from the first episode of that seed."""
        if seed is not None:
            self._seed = int(seed)
            self._episodes[:] = 0
        if self._obs is None:
            self._obs = np.zeros((self.num_worlds, self.task.observation_size))
        self._begin(np.arange(self.num_worlds))
        self._steps[:] = 0
        self._sums[:] = 0.0
        return self._obs.copy(), {}

    def step(self, action: NDArray[Any]) -> tuple[Floats, Floats, Floats, Flags, Flags, Info]:
        """Apply one action to each world."""
        action, names = self._checked(action), self.task.cost_names
        assert self._obs is not None
        values, errors = self._exchange(
            {w: ("step", action[worker.rows], self._costs) for w, worker in enumerate(self._workers)}
        )
        table = np.zeros((self.num_worlds, len(FIXED) + len(names) + self.task.observation_size))
        for row, value in values.items():
            table[row] = value
            if not _learnable(value):
                errors[row] = Fault("an observation, reward or cost was not finite")
        fault = np.zeros(self.num_worlds, np.bool_)
        fault[list(errors)] = True
        self._stillborn[~fault] = 0
        table[fault] = 0.0
        fixed, components, obs = np.split(table, (len(FIXED), len(FIXED) + len(names)), axis=1)
        reward, cost, terminated, truncated, goal_met = fixed.T.copy()
        obs = np.where(fault[:, None], self._obs, obs)
        for row, error in errors.items():
            self._count_fault(row, error)

        self._sums += np.concatenate([[reward, cost, goal_met], components.T])
        self._steps += 1
        self._obs = obs.copy()
        done = terminated.astype(np.bool_)
        if self._end_at_violation:
            done |= cost > 0
        cut = truncated.astype(np.bool_) | fault | (self._steps >= self.spec.episode_length)
        info: Info = dict(zip(names, components.T.copy(), strict=True))
        info |= {"goal_met": goal_met.astype(np.bool_), "fault": fault}
        if (done | cut).any():
            lost = self._begin(np.flatnonzero(done | cut))
            fault |= lost
            cut |= lost
            self._report(done | cut, obs, info)
        return self._obs.copy(), reward, cost, done, cut, info

    def wake(self) -> None:
        """Nobody sleeps here, as far as is known."""

    def state_dict(self) -> dict[str, Any]:
        """Seed and counters; the worlds themselves cannot be saved."""
        return {"seed": self._seed, "episodes": self._episodes.copy(), "faults": np.asarray(self.faults)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin a new episode in every world: the one after the last that the saved pool had begun."""
        if len(state["episodes"]) != self.num_worlds:
            raise ValueError(
                f"the state does not fit this pool, {self.num_worlds} worlds of {self.spec.id};"
                " make the pool with the num_worlds of the saved one"
            )
        self._seed = int(state["seed"])
        self._episodes[:] = state["episodes"]
        self.faults = int(state["faults"])
        self.reset()

    @property
    def last_obs(self) -> Floats:
        """The observations to act on next: (N, obs_dim)."""
        if self._obs is None:
            raise RuntimeError("a pool has no observation before its first reset; call pool.reset() first")
        return self._obs.copy()

    def render(self, world: int) -> NDArray[np.uint8]:
        """A picture of a world, (height, width, 3), where the environment was made with render_mode="rgb_array"."""
        w = next(w for w, worker in enumerate(self._workers) if world in worker.rows)
        picture: NDArray[np.uint8] = self._told(w, "render", world - int(self._workers[w].rows[0]))
        return picture

    def pictures_a_second(self) -> float:
        """How many the environment means to be shown."""
        return float(self._told(0, "pictures_a_second"))

    def close(self) -> None:
        """End the worker processes. A pool that is no longer used does so by itself."""
        self._finalizer()

    # ---- helpers -----------------------------------------------------------------------------------------------

    def _checked(self, action: NDArray[Any]) -> NDArray[Any]:
        if self._obs is None:
            raise RuntimeError("step was called before reset; call pool.reset() first")
        action, space = np.asarray(action), self.single_action_space
        shape = (self.num_worlds, *(space.shape or ()))
        if action.shape != shape:
            raise ValueError(f"action must have shape {shape}, got {action.shape}")
        if isinstance(space, spaces.Discrete):
            if not np.issubdtype(action.dtype, np.integer) or action.min() < 0 or action.max() >= space.n:
                raise ValueError(f"actions must be integers from 0 to {space.n - 1}, got {action}")
            return action
        if not np.isfinite(action).all():
            world = int(np.flatnonzero(~np.isfinite(action).all(axis=1))[0])
            raise ValueError(f"action of world {world} is not finite: {action[world]}; check the policy's output")
        within: NDArray[Any] = np.clip(action, space.low, space.high)
        return within

    def _answers(self, messages: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Send commands to workers, so that all work at once; returns what each answers."""
        if not self._workers:
            raise RuntimeError("the pool is closed; make another one")
        began = time.monotonic()
        for w, message in messages.items():
            self._workers[w].ask(*message)
        answers = {w: self._workers[w].answer(self.timeout, began, self.stopping) for w in messages}
        for answer in answers.values():
            if isinstance(answer, UnfitEnvironment):
                self.close()
                raise answer
        return answers

    def _told(self, w: int, *message: Any) -> Any:
        """What a worker answers, which must be well."""
        answer = self._answers({w: message})[w]
        if isinstance(answer, Fault):
            self.close()
            raise EnvironmentFailure(f"{self.spec.id} fails in {message[0]}: {answer.error}")
        return answer

    def _exchange(self, messages: Mapping[int, tuple[Any, ...]]) -> tuple[dict[int, Floats], dict[int, Fault]]:
        """Send commands to workers; returns results and errors by world."""
        results: dict[int, Floats] = {}
        errors: dict[int, Fault] = {}
        for w, answer in self._answers(messages).items():
            rows = self._workers[w].rows.tolist()
            if isinstance(answer, Fault):
                errors |= dict.fromkeys(rows, answer)
            else:
                results |= {rows[k]: value for k, value in answer[0].items()}
                errors |= {rows[k]: error for k, error in answer[1].items()}
        return results, errors

    def _begin(self, rows: Ints) -> Flags:
        """Start the next episodes of these worlds.

        Returns a mask (N,) of other worlds that began a new episode, too, because a reset killed their process.
        """
        assert self._obs is not None
        lost = np.zeros(self.num_worlds, np.bool_)
        waiting = set(rows.tolist())
        while waiting:
            messages: dict[int, tuple[Any, ...]] = {}
            for w, worker in enumerate(self._workers):
                slots = {k: row for k, row in enumerate(worker.rows.tolist()) if row in waiting}
                if slots:
                    seeds = {k: episode_seed(self._seed, row, int(self._episodes[row])) for k, row in slots.items()}
                    messages[w] = ("reset", seeds)
            self._episodes[list(waiting)] += 1
            results, errors = self._exchange(messages)
            for row, obs in results.items():
                self._obs[row] = obs
                if not _learnable(obs):
                    errors[row] = Fault("the first observation of an episode was not finite")
            waiting = set(errors)
            lost[list(waiting)] = True
            for row, error in errors.items():
                self._count_fault(row, error)
        lost[rows] = False
        return lost

    def _count_fault(self, row: int, fault: Fault) -> None:
        """Tell of the first fault of a kind with its traceback, and later how many there were."""
        self.faults += 1
        self.last_error = fault.error
        self._stillborn[row] += 1
        self._alike[fault.kind] += 1
        count, lines = self._alike[fault.kind], f"\n{fault.trace}" if fault.trace else ""
        if count == 1:
            self._warn(f"a world of {self.spec.id} failed and begins anew: {fault.error}{lines}")
        elif str(count).strip("0") == "1":
            self._warn(f"worlds of {self.spec.id} failed {count:,} times so far because of: {fault.error}")
        if self._stillborn[row] >= GIVE_UP:
            self.close()
            raise EnvironmentFailure(
                f"{self.spec.id}: world {row} failed {GIVE_UP} times in a row without a good step, at last because:"
                f" {fault.error}"
            )

    @staticmethod
    def _warn(words: str) -> None:
        warnings.warn(words, Alarm, stacklevel=4)

    def _report(self, ended: Flags, obs: Floats, info: Info) -> None:
        """Put the ended episodes into `info`, and count from 0 for the next ones."""
        info["final_obs"] = obs
        names = ("return", "cost", "goals", *self.task.cost_names)
        info["episode"] = {name: np.where(ended, total, 0.0) for name, total in zip(names, self._sums, strict=True)}
        info["episode"]["length"] = np.where(ended, self._steps, 0)
        info["_final_obs"] = info["_episode"] = ended
        self._steps[ended] = 0
        self._sums[:, ended] = 0.0


def make_env_pool(
    task: str,
    num_worlds: int = 20,
    seed: int = 0,
    threads: int = 0,
    episode_length: int | None = None,
    timeout: float = TIMEOUT,
    stopping: Callable[[], bool] = lambda: False,
    end_at_violation: bool = False,
) -> EnvPool:
    """A pool of worlds of a foreign environment.

    Args:
        task: "module:EnvId", or "module:EnvId?difficulty=2" with keyword arguments; importing the module registers
            the environment with Gymnasium.
        num_worlds: how many worlds step together.
        seed: of the episodes.
        threads: worker processes; 0 takes one for each core that this process may use.
        episode_length: the time limit, if not the one that the environment was registered with.
        timeout: seconds after which a process that does not answer is replaced.
        stopping: whether somebody wants to stop; asked while a process does not answer.
        end_at_violation: whether an episode is over with its first step that costs anything.
    """
    return EnvPool(task, num_worlds, seed, threads, episode_length, timeout, stopping, end_at_violation)
