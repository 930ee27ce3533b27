"""Random streams and layouts as tensors: what `streams.py` and `layout.py` do on the host, without leaving a device.

Streams have the same keys and positions as on the host, and consume as much: world i's layouts and targets are the
same on every engine. Rejection sampling runs in kernels, one thread a world.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor
from typing_extensions import override

from sbtrpo.envs.arrays import Who
from sbtrpo.envs.layout import ATTEMPTS, TARGET_ATTEMPTS, LayoutError, Layouts, restarts_of, room_for
from sbtrpo.envs.spec import NavigationSpec
from sbtrpo.envs.streams import CounterStreams, Streams, bits

PARALLEL = CounterStreams.parallel
ROUNDS = 12
"""How often so many attempts at a layout are made side by side, before the rest are made one after the other."""


class TensorStreams(Streams):
    """`CounterStreams` on a device. Worlds are marked by a tensor (N,), and what is drawn is drawn for all N."""

    parallel = PARALLEL

    def __init__(self, num_worlds: int, seed: int, purpose: int, device: str) -> None:
        self._host = CounterStreams(num_worlds, seed, purpose)
        self.key = torch.tensor(self._host.key, device=device)
        self.position = torch.zeros_like(self.key)
        self._counts: dict[int, Tensor] = {}

    @override
    def seed(self, seed: int) -> None:
        self._host.seed(seed)
        self.load_state_dict(self._host.state_dict())

    @override
    def peek(self, rows: Who, count: int) -> Any:
        if count not in self._counts:
            self._counts[count] = torch.arange(count, device=self.key.device)
        drawn = bits(self.key[:, None], self.position[:, None] + self._counts[count])
        return ((drawn >> 11) & 0x1FFFFFFFFFFFFF).double() * 2.0**-53

    @override
    def advance(self, rows: Who, count: Any) -> None:
        self.position += rows * count

    @override
    def integers(self, rows: Who, high: int) -> Any:
        drawn = (self.peek(rows, 1)[:, 0] * high).long()
        self.advance(rows, 1)
        return drawn

    @override
    def fork(self, rows: Who) -> Any:
        raise NotImplementedError("kernels fork streams by themselves")

    @override
    def tick(self) -> None:
        """Nothing to consume."""

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"key": self.key.cpu().numpy().copy(), "position": self.position.cpu().numpy().copy()}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.key.copy_(torch.as_tensor(np.asarray(state["key"])))
        self.position.copy_(torch.as_tensor(np.asarray(state["position"])))


def tensor_streams(num_worlds: int, seed: int, device: str) -> tuple[TensorStreams, TensorStreams]:
    """Streams for layouts, and for what happens within episodes."""
    return TensorStreams(num_worlds, seed, 0, device), TensorStreams(num_worlds, seed, 1, device)


# ---- kernels: the rules of `layout.py`, in double precision ------------------------------------------------------

wp.set_module_options({"enable_backward": False, "fuse_fp": False})  # fused products round otherwise than the host
_GAMMA = wp.constant(wp.uint64(0x9E3779B97F4A7C15))
_MIX_1 = wp.constant(wp.uint64(0xBF58476D1CE4E5B9))
_MIX_2 = wp.constant(wp.uint64(0x94D049BB133111EB))
_UNIT = wp.constant(wp.float64(2.0**-53))
_TURN = wp.constant(wp.float64(2.0 * math.pi))
_ATTEMPTS = wp.constant(wp.int32(ATTEMPTS))
_PARALLEL = wp.constant(wp.int32(PARALLEL))
_FORKS = wp.constant(wp.int64(PARALLEL))


@wp.func
def _bits(key: wp.int64, position: wp.int64) -> wp.uint64:
    z = wp.uint64(key) + wp.uint64(position + wp.int64(1)) * _GAMMA
    z = (z ^ (z >> wp.uint64(30))) * _MIX_1
    z = (z ^ (z >> wp.uint64(27))) * _MIX_2
    return z ^ (z >> wp.uint64(31))


@wp.func
def _uniform(key: wp.int64, position: wp.int64) -> wp.float64:
    return wp.float64(_bits(key, position) >> wp.uint64(11)) * _UNIT


@wp.func
def _place(
    key: wp.int64, start: wp.int64, k: int, except_for: int, upto: int, attempts: int,
    low: wp.array2d[wp.float64], high: wp.array2d[wp.float64], keepout: wp.array[wp.float64],
    world: int, xy: wp.array3d[wp.float64],
) -> wp.vec3d:  # fmt: skip
    """A place for thing k beside the first `upto` things but one: x, y, and the draws consumed, negative for none."""
    position = start
    for _attempt in range(attempts):
        x = low[k, 0] + (high[k, 0] - low[k, 0]) * _uniform(key, position)
        y = low[k, 1] + (high[k, 1] - low[k, 1]) * _uniform(key, position + wp.int64(1))
        position += wp.int64(2)
        clear = bool(True)  # noqa: UP018, a variable for Warp, where `True` is a constant
        for j in range(upto):
            if clear and j != except_for:
                dx, dy = xy[world, j, 0] - x, xy[world, j, 1] - y
                reach = keepout[j] + keepout[k]
                clear = dx * dx + dy * dy >= reach * reach
        if clear:
            return wp.vec3d(x, y, wp.float64(position - start))
    return wp.vec3d(wp.float64(0.0), wp.float64(0.0), -wp.float64(position - start))


@wp.func
def _layout(
    key: wp.int64, start: wp.int64, low: wp.array2d[wp.float64], high: wp.array2d[wp.float64],
    keepout: wp.array[wp.float64], world: int, xy: wp.array3d[wp.float64],
) -> wp.int64:  # fmt: skip
    """One attempt at a whole layout: the draws consumed, negative if a thing found no room."""
    position = start
    for k in range(low.shape[0]):
        drawn = _place(key, position, k, -1, k, _ATTEMPTS, low, high, keepout, world, xy)
        position += wp.int64(wp.abs(drawn[2]))
        if drawn[2] < wp.float64(0.0):
            return start - position
        xy[world, k, 0] = drawn[0]
        xy[world, k, 1] = drawn[1]
    return position - start


@wp.kernel
def _first_trials(
    wanted: wp.array[wp.bool], key: wp.array[wp.int64], low: wp.array2d[wp.float64], high: wp.array2d[wp.float64],
    keepout: wp.array[wp.float64], position: wp.array[wp.int64], xy: wp.array3d[wp.float64],
    restarts: wp.array[wp.int32], lane: wp.array[wp.int32],
) -> None:  # fmt: skip
    """A first attempt, for the worlds that want a layout: those which need another one have `restarts` above 0."""
    world = wp.tid()
    restarts[world] = 0
    lane[world] = _PARALLEL
    if wanted[world]:
        consumed = _layout(key[world], position[world], low, high, keepout, world, xy)
        position[world] = position[world] + wp.abs(consumed)
        if consumed < wp.int64(0):
            restarts[world] = 1


@wp.kernel
def _further_trials(
    key: wp.array[wp.int64], position: wp.array[wp.int64], restarts: wp.array[wp.int32], low: wp.array2d[wp.float64],
    high: wp.array2d[wp.float64], keepout: wp.array[wp.float64], trials: wp.array3d[wp.float64],
    lane: wp.array[wp.int32],
) -> None:  # fmt: skip
    """Attempts side by side, each from a stream of its own, where one is needed; the first that succeeds counts."""
    world, j = wp.tid()
    if restarts[world] > 0 and j < lane[world]:
        child = wp.int64(_bits(key[world], position[world] + wp.int64(j)))
        if _layout(child, wp.int64(0), low, high, keepout, world * _PARALLEL + j, trials) > wp.int64(0):
            wp.atomic_min(lane, world, j)


@wp.kernel
def _choose_trial(
    trials: wp.array3d[wp.float64], position: wp.array[wp.int64], restarts: wp.array[wp.int32],
    lane: wp.array[wp.int32], xy: wp.array3d[wp.float64],
) -> None:  # fmt: skip
    """Take the attempt that succeeded, where one did."""
    world = wp.tid()
    if restarts[world] > 0:
        position[world] = position[world] + _FORKS
        restarts[world] = restarts[world] + _PARALLEL
        if lane[world] < _PARALLEL:
            restarts[world] = 0
            for k in range(xy.shape[1]):
                xy[world, k, 0] = trials[world * _PARALLEL + lane[world], k, 0]
                xy[world, k, 1] = trials[world * _PARALLEL + lane[world], k, 1]


@wp.kernel
def _layouts(
    wanted: wp.array[wp.bool], key: wp.array[wp.int64], most: int, low: wp.array2d[wp.float64],
    high: wp.array2d[wp.float64], keepout: wp.array[wp.float64], restarts: wp.array[wp.int32],
    position: wp.array[wp.int64], xy: wp.array3d[wp.float64], turns: wp.array2d[wp.float64], failed: wp.array[wp.bool],
) -> None:  # fmt: skip
    """Rotations, for the worlds that want a layout; and places, one attempt after another, where all before failed."""
    world = wp.tid()
    if not wanted[world]:
        return
    own = key[world]
    at, tried = wp.int64(position[world]), wp.int32(restarts[world])  # variables for Warp, not entries of the arrays
    done = tried == 0
    while not done and tried < most:
        for j in range(_PARALLEL):
            if not done:
                child = wp.int64(_bits(own, at + wp.int64(j)))
                done = _layout(child, wp.int64(0), low, high, keepout, world, xy) > wp.int64(0)
        at += _FORKS
        tried += _PARALLEL
    for k in range(low.shape[0]):
        turns[world, k] = _TURN * _uniform(own, at + wp.int64(k))
    position[world] = at + wp.int64(low.shape[0])
    failed[world] = failed[world] or not done


@wp.kernel
def _targets(
    wanted: wp.array[wp.bool], key: wp.array[wp.int64], k: int, attempts: int, low: wp.array2d[wp.float64],
    high: wp.array2d[wp.float64], keepout: wp.array[wp.float64], standing: wp.array3d[wp.float64],
    position: wp.array[wp.int64], xy: wp.array2d[wp.float64], placed: wp.array[wp.bool],
) -> None:  # fmt: skip
    """Another place for thing k, for the worlds that want one; the others count as served."""
    world = wp.tid()
    placed[world] = True
    if not wanted[world]:
        return
    start = position[world]
    drawn = _place(key[world], start, k, k, low.shape[0], attempts, low, high, keepout, world, standing)
    position[world] = start + wp.int64(wp.abs(drawn[2]))
    xy[world, 0] = drawn[0]
    xy[world, 1] = drawn[1]
    placed[world] = drawn[2] > wp.float64(0.0)


class TensorLayouts(Layouts):
    """The layouts of the worlds' next episodes: one for each world is always at hand."""

    streams: TensorStreams

    def __init__(self, spec: NavigationSpec, streams: TensorStreams, num_worlds: int) -> None:
        self.spec, self.streams = spec, streams
        self.things = room_for(spec)
        self._restarts = restarts_of(self.things)
        device = streams.key.device
        number: dict[str, Any] = {"dtype": torch.float64, "device": device}
        rules = zip(*((thing.low, thing.high, thing.keepout) for thing in self.things), strict=True)
        self._rules = [torch.tensor(np.stack(values), **number) for values in rules]
        """Of each thing: the corners of where it may stand, and how far others stay away."""
        self._xy = torch.zeros((num_worlds, len(self.things), 2), **number)
        self._turns = torch.zeros((num_worlds, len(self.things)), **number)
        self._trials = torch.zeros((num_worlds * PARALLEL, len(self.things), 2), **number)
        self._tried = torch.zeros(num_worlds, dtype=torch.int32, device=device)
        self._lane = torch.zeros_like(self._tried)
        self._target = torch.zeros((num_worlds, 2), **number)
        self._placed = torch.ones(num_worlds, dtype=torch.bool, device=device)
        self._ready = torch.zeros(num_worlds, dtype=torch.bool, device=device)
        self._wanted = torch.zeros_like(self._ready)
        self._failed = torch.zeros_like(self._ready)
        """Worlds in which a layout or a goal found no room."""

    @override
    def seed(self, seed: int) -> None:
        self.streams.seed(seed)
        self._ready.zero_()

    @override
    def take(self, rows: Who) -> tuple[Any, Any]:
        self._fill()
        taken = self._xy.clone(), self._turns.clone()
        self._ready &= ~rows
        return taken

    def _fill(self) -> None:
        """Draw the layouts that are not at hand."""
        n, device = len(self._ready), _device(self._xy)
        torch.logical_not(self._ready, out=self._wanted)
        wanted, key, position, xy = _warp(self._wanted, self.streams.key, self.streams.position, self._xy)
        rules, tried, lane, trials = _warp(*self._rules), *_warp(self._tried, self._lane, self._trials)
        wp.launch(_first_trials, n, [wanted, key, *rules], [position, xy, tried, lane], device=device)
        for _ in range(ROUNDS):
            wp.launch(_further_trials, (n, PARALLEL), [key, position, tried, *rules], [trials, lane], device=device)
            wp.launch(_choose_trial, n, [trials], [position, tried, lane, xy], device=device)
        drawn = [position, xy, *_warp(self._turns, self._failed)]
        wp.launch(_layouts, n, [wanted, key, self._restarts, *rules, tried], drawn, device=device)
        self._ready.fill_(True)

    @override
    def check(self, placed: Any) -> None:
        self._failed |= ~placed

    def raise_if_failed(self) -> None:
        """Tell of layouts that found no room since the last call; this waits for the device."""
        if bool(self._failed.any()):
            self._failed.zero_()
            raise LayoutError(
                f"{self.spec.id}: a layout of {len(self.things)} things found no room after {self._restarts} layouts of"
                f" {ATTEMPTS} attempts; use fewer objects, smaller keepouts or a larger extent"
            )

    @override
    def draw_target(self, k: int, streams: Any, rows: Who, places: Any) -> tuple[Any, Any]:
        standing = places.double().contiguous()
        wp.launch(
            _targets,
            dim=len(self._ready),
            inputs=[*_warp(rows, streams.key), k, TARGET_ATTEMPTS, *_warp(*self._rules, standing)],
            outputs=_warp(streams.position, self._target, self._placed),
            device=_device(self._xy),
        )
        return self._target.clone(), self._placed.clone()

    @override
    def state_dict(self) -> dict[str, Any]:
        drawn = {"xy": self._xy, "turns": self._turns, "ready": self._ready}
        return {"streams": self.streams.state_dict(), **{name: x.cpu().numpy().copy() for name, x in drawn.items()}}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.streams.load_state_dict(state["streams"])
        for name, tensor in (("xy", self._xy), ("turns", self._turns), ("ready", self._ready)):
            tensor.copy_(torch.as_tensor(np.asarray(state[name])))


def _warp(*tensors: Tensor) -> list[Any]:
    """The same memory as Warp's arrays."""
    return [wp.from_torch(tensor) for tensor in tensors]


def _device(tensor: Tensor) -> Any:
    return wp.device_from_torch(tensor.device)
