"""The pool on a GPU: its step is recorded once as a CUDA graph, and replayed."""

from __future__ import annotations

import gc
import os
from typing import Any

import torch
import warp as wp
from torch import Tensor
from typing_extensions import override

from sbtrpo.envs.draws import TensorLayouts
from sbtrpo.envs.pool import Info, Pool

WARM_UP = 2
"""Steps taken before the recording: kernels are loaded then, and memory is claimed."""


class GpuPool(Pool):
    """N worlds of one task, as tensors on a device. Nothing in a step waits for that device.

    `step` takes actions from there. In `info` the entries of ended episodes are there in every step, with `_episode`
    to mark the worlds whose episodes ended. An action that is not finite fails the world that it is for.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._action = torch.zeros((self.num_worlds, *self.single_action_space.shape), device=self.physics.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._outputs: tuple[Any, ...] = ()
        self._stream = torch.cuda.Stream() if self.physics.device == "cuda" and not os.environ.get("NOGRAPH") else None

    @override
    def reset(self, seed: int | None = None) -> tuple[Tensor, Info]:
        if seed is not None or self._obs is None:
            pass
        obs, info = super().reset(seed)
        layouts = getattr(self.task, "layouts", None)
        if isinstance(layouts, TensorLayouts):
            layouts.raise_if_failed()
        return obs, info

    @override
    def _show(self, obs: Tensor) -> None:
        if self._obs is None:
            self._obs = obs
        else:
            self._obs.copy_(obs)

    @override
    def step(self, action: Tensor) -> tuple[Any, ...]:
        self._action.copy_(self._checked(action))
        if self._stream is None:
            return self._advance(self._action)
        if self._graph is None:
            self._record()
        assert self._graph is not None
        self._graph.replay()
        return _cloned(self._outputs)

    def _record(self) -> None:
        """Record a step as a graph; the worlds are afterwards as they were before."""
        assert self._stream is not None
        state = self.state_dict()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream), wp.ScopedStream(wp.stream_from_torch(self._stream)):
            for _ in range(WARM_UP):
                self._advance(self._action)
        torch.cuda.synchronize()
        gc.collect()
        gc.disable()  # what is freed during a recording corrupts it
        try:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=self._stream):
                stream = wp.stream_from_torch(self._stream)
                with wp.ScopedStream(stream, sync_enter=False):
                    wp.capture_begin(stream=stream, external=True)
                    try:
                        self._outputs = self._advance(self._action)
                    finally:
                        wp.capture_end(stream=stream)
        finally:
            gc.enable()
        self.load_state_dict(state)


def _cloned(values: Any) -> Any:
    """Tensors in memory of their own, nested as they are."""
    if isinstance(values, Tensor):
        return values.clone()
    if isinstance(values, dict):
        return {name: _cloned(entry) for name, entry in values.items()}
    return tuple(_cloned(entry) for entry in values)
