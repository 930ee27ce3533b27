"""Random streams and layouts as tensors: what `streams.py` and `layout.py` do on the host, without leaving a device.

Streams have the same keys and positions as on the host, and consume as much: world i's layouts and targets are the
same on every engine. Rejection sampling runs in kernels, where a block of threads looks for each place together.
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
ROUNDS = 8
"""So many times `PARALLEL` attempts at a layout are made side by side, before the rest are made one after the other."""
BLOCKS = 2048
"""How many of those are made at once."""
THREADS = 128
"""That look for one place."""


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
_ROUNDS = wp.constant(wp.int32(ROUNDS))
_LANES = wp.constant(wp.int32(ROUNDS * PARALLEL))
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
def _least(mine: int) -> int:
    """The least number that a thread of the block has; all of its threads wait for each other here."""
    return wp.tile_extract(wp.tile_min(wp.tile(mine)), 0)  # type: ignore[no-any-return]


@wp.func
def _between(low: wp.float64, high: wp.float64, key: wp.int64, position: wp.int64) -> wp.float64:
    return low + (high - low) * _uniform(key, position)


@wp.func
def _place(
    thread: int, key: wp.int64, start: wp.int64, k: int, except_for: int, upto: int, attempts: int,
    low: wp.array2d[wp.float64], high: wp.array2d[wp.float64], keepout: wp.array[wp.float64],
    row: int, xy: wp.array3d[wp.float64],
) -> wp.vec3d:  # fmt: skip
    """A place for thing k beside the first `upto` things but one: x, y, and the draws consumed, negative for none.

    The threads of a block make an attempt each. The first one to succeed counts, as if they were made in turn.
    """
    begun, best = int(0), int(attempts)  # noqa: RUF046, UP018, variables for Warp, not constants
    while best == attempts and begun < attempts:
        attempt, mine = begun + thread, int(attempts)
        if attempt < attempts:
            position = start + wp.int64(2 * attempt)
            x = _between(low[k, 0], high[k, 0], key, position)
            y = _between(low[k, 1], high[k, 1], key, position + wp.int64(1))
            clear = bool(True)  # noqa: UP018
            for j in range(upto):
                if clear and j != except_for:
                    dx, dy = xy[row, j, 0] - x, xy[row, j, 1] - y
                    reach = keepout[j] + keepout[k]
                    clear = dx * dx + dy * dy >= reach * reach
            if clear:
                mine = attempt
        best = _least(mine)
        begun += wp.block_dim()
    if best == attempts:
        return wp.vec3d(wp.float64(0.0), wp.float64(0.0), -wp.float64(2 * attempts))
    position = start + wp.int64(2 * best)
    return wp.vec3d(
        _between(low[k, 0], high[k, 0], key, position),
        _between(low[k, 1], high[k, 1], key, position + wp.int64(1)),
        wp.float64(2 * (best + 1)),
    )


@wp.func
def _layout(
    thread: int, key: wp.int64, start: wp.int64, low: wp.array2d[wp.float64], high: wp.array2d[wp.float64],
    keepout: wp.array[wp.float64], row: int, xy: wp.array3d[wp.float64],
) -> wp.int64:  # fmt: skip
    """One attempt at a whole layout, by a block: the draws consumed, negative if a thing found no room."""
    position = start
    for k in range(low.shape[0]):
        drawn = _place(thread, key, position, k, -1, k, _ATTEMPTS, low, high, keepout, row, xy)
        position += wp.int64(wp.abs(drawn[2]))
        if drawn[2] < wp.float64(0.0):
            return start - position
        xy[row, k, 0] = drawn[0]  # every thread writes, and reads what it wrote
        xy[row, k, 1] = drawn[1]
    return position - start


@wp.kernel
def _first_trials(
    wanted: wp.array[wp.bool], key: wp.array[wp.int64], low: wp.array2d[wp.float64], high: wp.array2d[wp.float64],
    keepout: wp.array[wp.float64], position: wp.array[wp.int64], xy: wp.array3d[wp.float64],
    waiting: wp.array[wp.int32], count: wp.array[wp.int32], lane: wp.array[wp.int32],
) -> None:  # fmt: skip
    """A first attempt, for the worlds that want a layout; those which need another one are listed as `waiting`."""
    world, thread = wp.tid()
    if not wanted[world]:
        return
    start = wp.int64(position[world])
    consumed = _layout(thread, key[world], start, low, high, keepout, world, xy)
    if thread == 0:
        position[world] = start + wp.abs(consumed)
        lane[world] = -1
        if consumed < wp.int64(0):
            lane[world] = _LANES
            waiting[wp.atomic_add(count, 0, 1)] = world


@wp.kernel
def _further_trials(
    key: wp.array[wp.int64], position: wp.array[wp.int64], waiting: wp.array[wp.int32], count: wp.array[wp.int32],
    low: wp.array2d[wp.float64], high: wp.array2d[wp.float64], keepout: wp.array[wp.float64],
    trials: wp.array3d[wp.float64], lane: wp.array[wp.int32],
) -> None:  # fmt: skip
    """Attempts side by side, each from a stream of its own, where one is needed; the first that succeeds counts."""
    block, thread = wp.tid()
    trial, batch = int(block), count[0] * _PARALLEL
    while trial < batch * _ROUNDS:
        world = waiting[trial % batch // _PARALLEL]
        j = trial // batch * _PARALLEL + trial % _PARALLEL
        if j < _least(lane[world]):
            child = wp.int64(_bits(key[world], position[world] + wp.int64(j)))
            done = _layout(thread, child, wp.int64(0), low, high, keepout, block, trials) > wp.int64(0)
            if done and thread == 0:
                wp.atomic_min(lane, world, j)
        trial += trials.shape[0]


@wp.kernel
def _layouts(
    wanted: wp.array[wp.bool], key: wp.array[wp.int64], most: int, low: wp.array2d[wp.float64],
    high: wp.array2d[wp.float64], keepout: wp.array[wp.float64], lane: wp.array[wp.int32],
    position: wp.array[wp.int64], xy: wp.array3d[wp.float64], turns: wp.array2d[wp.float64], failed: wp.array[wp.bool],
) -> None:  # fmt: skip
    """Rotations, for the worlds that want a layout; and places, by the attempt that succeeded or by further ones."""
    world, thread = wp.tid()
    if not wanted[world]:
        return
    own, at = key[world], wp.int64(position[world])
    chosen = _least(lane[world])  # which makes sure that all have read the position
    done = chosen < 0
    if chosen >= 0 and chosen < _LANES:
        child = wp.int64(_bits(own, at + wp.int64(chosen)))
        done = _layout(thread, child, wp.int64(0), low, high, keepout, world, xy) > wp.int64(0)
        at += wp.int64(chosen // _PARALLEL + 1) * _FORKS
    elif chosen >= 0:
        tried = int(_LANES)
        at += wp.int64(_ROUNDS) * _FORKS
        while not done and tried < most:
            for j in range(_PARALLEL):
                if not done:
                    child = wp.int64(_bits(own, at + wp.int64(j)))
                    done = _layout(thread, child, wp.int64(0), low, high, keepout, world, xy) > wp.int64(0)
            at += _FORKS
            tried += _PARALLEL
    for k in range(thread, low.shape[0], wp.block_dim()):
        turns[world, k] = _TURN * _uniform(own, at + wp.int64(k))
    if thread == 0:
        position[world] = at + wp.int64(low.shape[0])
        failed[world] = failed[world] or not done


@wp.kernel
def _targets(
    wanted: wp.array[wp.bool], key: wp.array[wp.int64], k: int, attempts: int, low: wp.array2d[wp.float64],
    high: wp.array2d[wp.float64], keepout: wp.array[wp.float64], standing: wp.array3d[wp.float64],
    position: wp.array[wp.int64], xy: wp.array2d[wp.float64], placed: wp.array[wp.bool],
) -> None:  # fmt: skip
    """Another place for thing k, for the worlds that want one; the others count as served."""
    world, thread = wp.tid()
    if not wanted[world]:
        placed[world] = True
        return
    start = wp.int64(position[world])
    drawn = _place(
        thread, key[world], start, k, k, low.shape[0], attempts, low, high, keepout, world, standing
    )  # fmt: skip
    if thread == 0:
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
        self._trials = torch.zeros((BLOCKS, len(self.things), 2), **number)
        self._waiting = torch.zeros(num_worlds, dtype=torch.int32, device=device)
        self._lane, self._count = torch.zeros_like(self._waiting), self._waiting.new_zeros(1)
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
        rules, waiting, lane, trials = _warp(*self._rules), *_warp(self._waiting, self._lane, self._trials)
        (count,) = _warp(self._count.zero_())
        drawn = [position, xy]
        _launch(_first_trials, n, [wanted, key, *rules], [*drawn, waiting, count, lane], device)
        _launch(_further_trials, BLOCKS, [key, position, waiting, count, *rules], [trials, lane], device)
        drawn += _warp(self._turns, self._failed)
        _launch(_layouts, n, [wanted, key, self._restarts, *rules, lane], drawn, device)
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
        given = [*_warp(rows, streams.key), k, TARGET_ATTEMPTS, *_warp(*self._rules, standing)]
        drawn = _warp(streams.position, self._target, self._placed)
        _launch(_targets, len(self._ready), given, drawn, _device(self._xy))
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


def _launch(kernel: Any, blocks: int, inputs: list[Any], outputs: list[Any], device: Any) -> None:
    wp.launch_tiled(kernel, dim=[blocks], inputs=inputs, outputs=outputs, block_dim=THREADS, device=device)


def _device(tensor: Tensor) -> Any:
    return wp.device_from_torch(tensor.device)
