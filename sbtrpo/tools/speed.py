"""Measures a pool's speed beside that of its physics engine alone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from sbtrpo.envs import Pool, make_pool
from sbtrpo.envs.physics.cpu import CpuPhysics
from sbtrpo.envs.tasks.navigation import Navigation

SLICE, WARM_UP = 20, 60
"""Steps that pool and engine run in turn, and steps at the start that do not count."""


@dataclass(frozen=True)
class Speed:
    """Environment steps per second, of a pool and of its engine alone."""

    pool: float
    physics: float

    @property
    def ratio(self) -> float:
        """The share of the engine's speed that the pool reaches."""
        return self.pool / self.physics


def measure_speed(task: str, worlds: int, seconds: float, threads: int = 0, sleep: bool = True) -> Speed:
    """Run pool and engine in turn, in short slices, so that noise of the machine falls on both.

    The engine takes the same actions from the same layouts. The pool's episodes are staggered: resets come at the rate
    of a long run, and their time counts.
    """
    pool, engine = (_staggered(task, worlds, threads, sleep) for _ in range(2))
    rng = np.random.default_rng(0)
    pool_time = engine_time = 0.0
    steps = -WARM_UP  # bodies must come to rest first: they rest for most of an episode
    while steps < SLICE or pool_time + engine_time < seconds:
        actions = rng.uniform(-1, 1, (SLICE, worlds, *pool.single_action_space.shape))
        start = time.perf_counter()
        ends = [pool.step(action)[5].get("_episode") for action in actions]
        pool_slice = time.perf_counter() - start
        engine_slice = sum(_advance(engine, action, ended) for action, ended in zip(actions, ends, strict=True))
        if steps >= 0:
            pool_time, engine_time = pool_time + pool_slice, engine_time + engine_slice
        steps += SLICE
    return Speed(steps * worlds / pool_time, steps * worlds / engine_time)


def measure_pool(
    task: str, worlds: int, seconds: float, threads: int = 0, warm_up: int = WARM_UP, slice_steps: int = SLICE
) -> float:
    """Environment steps per second of a pool by itself."""
    pool, rng = _staggered(task, worlds, threads, sleep=True), np.random.default_rng(0)
    steps, spent = -warm_up, 0.0
    while steps <= 0 or spent < seconds:
        actions = rng.uniform(-1, 1, (slice_steps, worlds, *pool.single_action_space.shape))
        start = time.perf_counter()
        for action in actions:
            pool.step(action)
        spent += (time.perf_counter() - start) * (steps >= 0)
        steps += slice_steps
    return steps * worlds / spent


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
    """Step the engine alone; returns the seconds that this took."""
    assert isinstance(pool.physics, CpuPhysics)
    path = pool.task.gremlin_path() if isinstance(pool.task, Navigation) else None
    pool.physics.ctrl[:] = np.clip(action, -1, 1)
    start = time.perf_counter()
    pool.physics.advance(pool.spec.substeps, forward=isinstance(pool.task, Navigation), mocap=path)  # type: ignore[union-attr]
    spent = time.perf_counter() - start
    if ended is not None:
        pool.task.reset(np.flatnonzero(ended))
    return spent
