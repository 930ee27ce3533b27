"""The pool on a GPU: its step is recorded once as a CUDA graph, and replayed."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
import warp as wp
from torch import Tensor
from typing_extensions import override

from sbtrpo.envs.draws import TensorLayouts
from sbtrpo.envs.physics.gpu import GpuPhysics
from sbtrpo.envs.pool import Info, Pool
from sbtrpo.envs.tasks import Outcome

WARM_UP = 3
"""How often work is done as it is before it is recorded: kernels are loaded then, and memory is claimed."""


class Recorded:
    """Work on a device that is done again and again: a few times as it is, then as a recorded graph.

    What it gives is written anew at every call. On Warp's CPU device there is nothing to record.
    """

    def __init__(self, work: Callable[[], Any], device: str | None) -> None:
        self._work, self._calls, self._outputs = work, 0, None
        self._stream = torch.cuda.Stream(device) if device == "cuda" else None  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None

    def forget(self) -> None:
        """Record anew at the next calls, because memory that the work uses has moved."""
        self._calls, self._outputs, self._graph = 0, None, None

    def __call__(self) -> Any:
        """Do the work."""
        if self._stream is None or self._calls < WARM_UP:
            self._calls += 1
            return self._work()
        if self._graph is None:
            self._record(self._stream)
        assert self._graph is not None
        self._graph.replay()
        return self._outputs

    def _record(self, stream: torch.cuda.Stream) -> None:
        torch.cuda.synchronize()
        gc.collect()
        gc.disable()  # what is freed during a recording corrupts it
        graph, beside = torch.cuda.CUDAGraph(), wp.stream_from_torch(stream)
        try:
            with torch.cuda.graph(graph, stream=stream), wp.ScopedStream(beside, sync_enter=False):
                wp.capture_begin(stream=beside, external=True)
                try:
                    self._outputs = self._work()
                finally:
                    wp.capture_end(stream=beside)
        finally:
            gc.enable()
        self._graph = graph


class GpuPool(Pool):
    """N worlds of one task, as tensors on a device. Nothing in a step waits for that device.

    `step` takes actions from there. In `info` the entries of ended episodes are there in every step, with `_episode`
    to mark the worlds whose episodes ended. An action that is not finite fails the world that it is for.
    """

    physics: GpuPhysics

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        device = self.physics.device
        self._layouts: TensorLayouts | None = getattr(self.task, "layouts", None)
        self._action = torch.zeros((self.num_worlds, *self.single_action_space.shape), device=device)
        self._recordings: weakref.WeakSet[Recorded] = weakref.WeakSet()
        self._recorded = self.recorded(lambda: self.advance(self._action))
        self._trouble = torch.zeros(1, dtype=torch.int64, pin_memory=device == "cuda")
        """Steps of worlds that ran out of room, as known a while ago: it comes by itself, nothing waits for it."""

    def recorded(self, work: Callable[[], Any]) -> Recorded:
        """Work that includes steps of this pool, recorded as one graph where there are graphs."""
        recorded = Recorded(work, self.physics.device)
        self._recordings.add(recorded)
        return recorded

    @override
    def reset(self, seed: int | None = None) -> tuple[Tensor, Info]:
        obs, info = super().reset(seed)
        self.attend()
        return obs, info

    def attend(self) -> int:
        """See to what happened on the device, which this waits for; returns the number of faults so far.

        Where worlds had more contacts than there was room for, there is more afterwards.
        """
        if self._layouts is not None:
            self._layouts.raise_if_failed()
        if sentence := self.physics.grow():
            self._forget()
            warnings.warn(f"{self.spec.id}: {sentence}", RuntimeWarning, stacklevel=2)
        return self.faults

    def _forget(self) -> None:
        for recorded in self._recordings:
            recorded.forget()

    @property
    def room(self) -> tuple[int, int]:
        """For contacts and constraint rows of a world."""
        return self.physics.room

    def make_room(self, *rooms: tuple[int, int]) -> None:
        """Have at least the room that each of these pools has."""
        contacts, rows = map(max, zip(self.room, *rooms, strict=True))
        if (contacts, rows) != self.room:
            self.physics.make_room(contacts, rows)
            self._forget()

    @override
    def _act(self, action: Tensor) -> tuple[Outcome, Tensor]:
        outcome, failed = super()._act(action)
        assert failed is not None
        return outcome, failed | ~torch.isfinite(action).all(dim=1)  # which the engine would clip, if it is too large

    @override
    def _show(self, obs: Tensor) -> None:
        if self._obs is None:
            self._obs = obs.clone()
        self._obs.copy_(obs)

    @override
    def step(self, action: Tensor) -> tuple[Any, ...]:
        self._action.copy_(self._checked(action))
        result: tuple[Any, ...] = _cloned(self._recorded())
        if self._trouble[0]:
            self.attend()
        self._trouble.copy_(self.physics.lost, non_blocking=True)
        return result


def _cloned(values: Any) -> Any:
    """Tensors in memory of their own, nested as they are."""
    if isinstance(values, Tensor):
        return values.clone()
    if isinstance(values, dict):
        return {name: _cloned(entry) for name, entry in values.items()}
    return tuple(_cloned(entry) for entry in values)
