"""How near a pool comes to the speed of its physics."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from sbtrpo.envs import Pool, make_pool
from sbtrpo.envs.physics.cpu import CpuPhysics
from sbtrpo.envs.tasks.navigation import Navigation

SLICE, WARM_UP = 20, 60
"""Steps in which one of the two runs before it is the other's turn, and steps that do not count."""


@dataclass(frozen=True)
class Speed:
    """A pool's environment steps per second beside those of its engine alone."""

    pool: float
    physics: float

    @property
    def ratio(self) -> float:
        """What the pool reaches of the physics' speed."""
        return self.pool / self.physics


def measure_speed(task: str, worlds: int, seconds: float, threads: int = 0, sleep: bool = True) -> Speed:
    """Pool and engine in turns, in short slices, so that noise of the machine falls on both.

    The engine takes the same actions from the same layouts; the pool's episodes are staggered, so that resets come at
    the rate of a long run, and count as part of its time.
    """
    pool, bound = (_staggered(task, worlds, threads, sleep) for _ in range(2))
    rng = np.random.default_rng(0)
    pool_time = bound_time = 0.0
    steps = -WARM_UP  # bodies come to rest first, as they have for all but the start of an episode
    while steps < SLICE or pool_time + bound_time < seconds:
        actions = rng.uniform(-1, 1, (SLICE, worlds, *pool.single_action_space.shape))
        start = time.perf_counter()
        ends = [pool.step(action)[5].get("_episode") for action in actions]
        pool_slice = time.perf_counter() - start
        bound_slice = sum(_advance(bound, action, ended) for action, ended in zip(actions, ends, strict=True))
        if steps >= 0:
            pool_time, bound_time = pool_time + pool_slice, bound_time + bound_slice
        steps += SLICE
    return Speed(steps * worlds / pool_time, steps * worlds / bound_time)


def _staggered(task: str, worlds: int, threads: int, sleep: bool) -> Pool:
    """A pool whose worlds are at different points of their episodes."""
    pool = make_pool(task, worlds, seed=0, threads=threads, sleep=sleep)
    pool.reset()
    state = pool.state_dict()
    length = pool.spec.episode_length
    state["steps"][:] = np.linspace(0, length - 1, worlds, endpoint=False).astype(int)
    pool.load_state_dict(state)
    return pool


def _advance(pool: Pool, action: Any, ended: Any) -> float:
    """The engine's call of a step, and nothing else; returns its seconds."""
    assert isinstance(pool.physics, CpuPhysics)
    navigation = isinstance(pool.task, Navigation)
    path = pool.task.gremlin_path() if isinstance(pool.task, Navigation) else None
    pool.physics.ctrl[:] = np.clip(action, -1, 1)
    start = time.perf_counter()
    pool.physics.advance(pool.spec.substeps, forward=navigation, mocap=path)  # type: ignore[union-attr]
    spent = time.perf_counter() - start
    if ended is not None:
        pool.task.reset(np.flatnonzero(ended))
    return spent
