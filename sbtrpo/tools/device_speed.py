"""Measures a pool on a device, and what learns from it, beside Warp's steps alone.

It needs the packages of the GPU engine. On Warp's CPU device it works likewise, so slowly that only tests want it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from typing import Any, cast

import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor

from sbtrpo.envs import make_pool
from sbtrpo.envs.gpu import GpuPool
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.tools.speed import SLICE, WARM_UP, Speed


class Stopwatch:
    """Sums what work takes on a device: by the clock, or by events on the device, which nothing waits for."""

    def __init__(self, device: str | None) -> None:
        self._on_gpu = device == "cuda"
        self._seconds = 0.0
        self._events: list[tuple[Any, Any]] = []

    def wait(self) -> None:
        """For the device."""
        if self._on_gpu:
            torch.cuda.synchronize()

    def whole(self, work: Callable[[], Any]) -> Any:
        """Do work, and count from its first order to its end."""
        self.wait()
        started = time.perf_counter()
        result = work()
        self.wait()
        self._seconds += time.perf_counter() - started
        return result

    def part(self, work: Callable[[], Any]) -> None:
        """Do work, and count what the device spends on it."""
        if not self._on_gpu:
            self.whole(work)
            return
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        self._events.append((begin, end))

    def read(self) -> float:
        """Seconds since the last reading."""
        self.wait()
        seconds = self._seconds + sum(float(begin.elapsed_time(end)) for begin, end in self._events) / 1e3
        self._seconds, self._events = 0.0, []
        return seconds


class Alone:
    """The bound: Warp's steps of a pool's worlds, all substeps and one forward, recorded as the pool records its own.

    Controls, gremlins and resets are those of the pool, and do not count.
    """

    def __init__(self, pool: GpuPool) -> None:
        self.pool, physics = pool, pool.physics
        self._path = self._gremlins()
        self._ended = torch.zeros(pool.num_worlds, dtype=torch.bool, device=physics.device)
        self._step = pool.recorded(self._work)
        self._reset = pool.recorded(lambda: pool.task.reset(self._ended))

    def _gremlins(self) -> Tensor | None:
        return self.pool.task.gremlin_path() if isinstance(self.pool.task, Navigation) else None

    def _work(self) -> None:
        physics = self.pool.physics
        with wp.ScopedDevice(physics.device):
            for k in range(self.pool.spec.substeps):  # type: ignore[union-attr]
                if self._path is not None:
                    physics.dragger.copy_(self._path[:, k])
                mjw.step(physics.warp_model, physics.data)
            mjw.forward(physics.warp_model, physics.data)

    def advance(self, action: Tensor, ended: Tensor, watch: Stopwatch) -> None:
        """One environment step, and new episodes where the pool's ended."""
        self.pool.physics.ctrl.copy_(action.clamp(-1, 1))
        if self._path is not None:
            self._path.copy_(cast("Tensor", self._gremlins()))
        watch.part(self._step)
        self._ended.copy_(ended)
        self._reset()


def device_pool(task: str, worlds: int, engine: str = "gpu", **options: Any) -> GpuPool:
    """A pool whose worlds are at different points of their episodes: resets come at the rate of a long run."""
    pool = make_pool(task, worlds, seed=0, engine=engine, **options)
    assert isinstance(pool, GpuPool)
    pool.reset()
    state = pool.state_dict()
    state["steps"][:] = np.linspace(0, pool.spec.episode_length - 1, worlds, endpoint=False).astype(int)
    pool.load_state_dict(state)
    return pool


def random_actions(pool: GpuPool, steps: int) -> Tensor:
    """Uniform ones, (steps, N, action_dim)."""
    shape = (steps, pool.num_worlds, *pool.single_action_space.shape)
    return torch.rand(shape, device=pool.physics.device) * 2 - 1


def play(pool: GpuPool, actions: Iterable[Tensor], watch: Stopwatch) -> list[Tensor]:
    """Steps of a pool; returns where episodes ended."""
    return cast("list[Tensor]", watch.whole(lambda: [pool.step(action)[5]["_episode"] for action in actions]))


def measure_device_speed(
    task: str, worlds: int, seconds: float, engine: str = "gpu", warm_up: int = WARM_UP, slice_steps: int = SLICE,
    **options: Any,
) -> Speed:  # fmt: skip
    """Run a pool and Warp's steps alone in turn, on the same worlds."""
    pool, alone = device_pool(task, worlds, engine, **options), Alone(device_pool(task, worlds, engine, **options))
    device = pool.physics.device
    of_pool, of_warp = Stopwatch(device), Stopwatch(device)
    steps, spent, bound = -warm_up, 0.0, 0.0
    while steps < slice_steps or spent + bound < seconds:
        actions = random_actions(pool, slice_steps)
        ends = play(pool, actions, of_pool)
        for action, ended in zip(actions, ends, strict=True):
            alone.advance(action, ended, of_warp)
        pool_slice, warp_slice = of_pool.read(), of_warp.read()
        if steps >= 0:
            spent, bound = spent + pool_slice, bound + warp_slice
        steps += slice_steps
    return Speed(steps * worlds / spent, steps * worlds / bound)


def measure_device_pool(
    task: str, worlds: int, seconds: float, engine: str = "gpu", warm_up: int = WARM_UP, slice_steps: int = SLICE
) -> float:
    """Environment steps per second of a pool by itself."""
    pool = device_pool(task, worlds, engine)
    watch, steps, spent = Stopwatch(pool.physics.device), 0, 0.0
    play(pool, random_actions(pool, warm_up), Stopwatch(pool.physics.device))
    while not steps or spent < seconds:
        play(pool, random_actions(pool, slice_steps), watch)
        spent, steps = spent + watch.read(), steps + slice_steps
    return steps * worlds / spent


def free_memory(engine: str) -> int:
    """Bytes on the GPU that nobody uses; 0 without one."""
    return torch.cuda.mem_get_info()[0] if engine == "gpu" else 0


def give_back(engine: str) -> None:
    """The memory of pools that nobody holds any more."""
    gc.collect()
    if engine == "gpu":
        torch.cuda.empty_cache()
