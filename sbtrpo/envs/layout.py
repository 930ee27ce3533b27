"""Where robot and objects stand at the start: rejection sampling, batched over worlds.

The original places objects one after the other, each by up to 100 uniform draws, and starts the whole layout again when
one of them finds no room. So layouts are conditioned on success, strongly in crowded scenes, and this is part of the
task. Here the same rule runs on arrays: attempts are tested in blocks, and restarts side by side on forked streams.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sbtrpo.envs.arrays import Array, to_numpy
from sbtrpo.envs.spec import NavigationSpec, Rectangle
from sbtrpo.envs.streams import Floats, Ints, Streams, make_streams, uniform
from sbtrpo.errors import UserError

ATTEMPTS = 100
RESTARTS = 10_000
CROWDED = 0.5
"""Discs of one size that are dropped at random jam when they cover 0.55 of the floor."""
CROWDED_PLACES = 100_000
"""In crowded rooms so many places are looked for in vain, at most: restarts times things."""
TARGET_ATTEMPTS = 10_000
_BLOCKS = (8, 32, 60, 900, 9000)  # attempts looked at together; a hundred in three looks, ten thousand in five
_JITTER = 1e-9  # the original draws "fixed" places from a square this small


class LayoutError(UserError, RuntimeError):
    """A layout has no room for one of its objects."""


@dataclass(frozen=True)
class Place:
    """Where one thing may be drawn, and how far others stay away."""

    name: str
    low: Floats
    """(2,)"""
    high: Floats
    keepout: float


def places(spec: NavigationSpec) -> list[Place]:
    """The robot and all objects in the order in which they are placed."""

    def square(name: str, keepout: float) -> Place:
        return Place(name, np.full(2, -spec.extent + keepout), np.full(2, spec.extent - keepout), keepout)

    def rectangle(name: str, keepout: float, area: Rectangle) -> Place:
        return Place(name, np.asarray(area[:2]), np.asarray(area[2:]), keepout)

    keepout = spec.robot_keepout
    robot = square("robot", keepout) if spec.start is None else rectangle("robot", keepout, spec.start)
    in_order = [robot]
    for group in spec.groups:
        for i in range(group.count):
            name = group.kind if group.count == 1 else f"{group.kind} {i}"
            if group.places is not None:
                centre = np.asarray(group.places[i])
                in_order.append(Place(name, centre - _JITTER, centre + _JITTER, group.keepout))
            elif group.area is not None:
                in_order.append(rectangle(name, group.keepout, group.area))
            else:
                in_order.append(square(name, group.keepout))
    return in_order


def crowding(things: list[Place]) -> float:
    """Share of the room that keepouts take, which never overlap: above 1 there is no layout."""
    low = np.min([thing.low - thing.keepout for thing in things], axis=0)
    high = np.max([thing.high + thing.keepout for thing in things], axis=0)
    taken = sum(math.pi * thing.keepout**2 for thing in things)
    return float(taken / (high - low).prod()) if taken else 0.0


def restarts_of(things: list[Place]) -> int:
    """How often a layout is started again: the original's 10,000 times, or less where keepouts take most of the room."""
    return min(RESTARTS, CROWDED_PLACES // len(things)) if crowding(things) > CROWDED else RESTARTS


def room_for(spec: NavigationSpec) -> list[Place]:
    """`places`, unless there is no room for them."""
    things = places(spec)
    if (share := crowding(things)) > 1:
        raise LayoutError(
            f"{spec.id}: the keepouts of robot and objects, {len(things)} things, take {share:.1f} times the"
            " room there is; use fewer objects, smaller keepouts or a larger extent"
        )
    return things


def draw_place(
    place: Place, streams: Streams, rows: Ints, standing: Floats, keepouts: Floats, attempts: int
) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Draw a place until it keeps its distance from everything that stands already.

    Args:
        place: what is placed.
        streams: where the draws come from.
        rows: (n,), the streams to draw from.
        standing: (n, m, 2), what stands already.
        keepouts: (m,), of what stands already.
        attempts: the most draws for one stream.

    Returns:
        xy (n, 2) and whether a place was found (n,).
    """
    xy = np.zeros((len(rows), 2))
    placed = np.zeros(len(rows), bool)
    waiting = np.arange(len(rows))
    reach = (keepouts + place.keepout) ** 2
    done = 0
    for block in _BLOCKS:
        block = min(block, attempts - done)
        if block == 0 or len(waiting) == 0:
            break
        draws = streams.peek(rows[waiting], 2 * block)
        x = place.low[0] + (place.high[0] - place.low[0]) * draws[:, ::2]
        y = place.low[1] + (place.high[1] - place.low[1]) * draws[:, 1::2]
        # (waiting, standing, block): attempts last, the longest axis.
        dx = standing[waiting, :, 0, None] - x[:, None, :]
        dy = standing[waiting, :, 1, None] - y[:, None, :]
        clear = (dx * dx + dy * dy >= reach[:, None]).all(axis=1)
        first = clear.argmax(axis=1)
        hit = clear[np.arange(len(waiting)), first]
        streams.advance(rows[waiting], 2 * np.where(hit, first + 1, block))
        xy[waiting[hit], 0], xy[waiting[hit], 1] = x[hit, first[hit]], y[hit, first[hit]]
        placed[waiting[hit]] = True
        waiting = waiting[~hit]
        done += block
    return xy, placed


def _try_layouts(things: list[Place], streams: Streams, rows: Ints) -> tuple[Floats, Ints]:
    """One attempt at a whole layout for each stream.

    Returns:
        xy (n, m, 2) and the number of things placed before the first that found no room (n,).
    """
    keepouts = np.asarray([thing.keepout for thing in things])
    xy = np.zeros((len(rows), len(things), 2))
    placed = np.full(len(rows), len(things))
    alive = np.arange(len(rows))
    for k, thing in enumerate(things):
        xy[alive, k], ok = draw_place(thing, streams, rows[alive], xy[alive, :k], keepouts[:k], ATTEMPTS)
        placed[alive[~ok]] = k
        alive = alive[ok]
        if len(alive) == 0:
            break
    return xy, placed


def sample_layout(spec: NavigationSpec, things: list[Place], streams: Streams, rows: Ints) -> Floats:
    """Places of the robot and all objects for these worlds: (n, 1 + objects, 2).

    Raises:
        LayoutError: when the original's 10,000 restarts do not suffice, or fewer where keepouts take most of the room.
    """
    crowded, most = crowding(things) > CROWDED, restarts_of(things)
    xy, placed = _try_layouts(things, streams, rows)
    waiting = np.flatnonzero(placed < len(things))
    restarts = np.ones(len(rows), int)
    while len(waiting):
        if len(waiting) == len(rows) and (crowded or restarts[0] > 1):
            waiting = waiting[:1]  # nobody has a layout: one world shows whether there are any
        if restarts[waiting[0]] >= most:
            k = int(placed[waiting[0]])
            raise LayoutError(
                f"{spec.id}: no room for {things[k].name} (keepout {things[k].keepout} m) beside {k} other things in a"
                f" square of half side {spec.extent} m, after {most} layouts of {ATTEMPTS} attempts;"
                " use fewer objects, smaller keepouts or a larger extent"
            )
        trials, reached = _try_layouts(things, *streams.fork(rows[waiting]))
        trials = trials.reshape(len(waiting), streams.parallel, len(things), 2)
        reached = reached.reshape(len(waiting), streams.parallel)
        best = (reached == len(things)).argmax(axis=1)  # the first success, or 0
        pick = np.arange(len(waiting)), best
        xy[waiting], placed[waiting] = trials[pick], reached[pick]
        restarts[waiting] += streams.parallel
        waiting = np.flatnonzero(placed < len(things))
    return xy


class Layouts:
    """The layouts of the worlds' next episodes.

    Sampling for one world takes almost as many array operations as for a hundred. So when one world needs a layout, the
    next layouts of all worlds are sampled with it. That does not change them, because layouts have random streams of
    their own. (The original has one generator for everything, so with it nothing is sampled early.)
    """

    def __init__(self, spec: NavigationSpec, streams: Streams, num_worlds: int) -> None:
        self.spec, self.streams = spec, streams
        self.things = room_for(spec)
        self.keepouts = np.asarray([thing.keepout for thing in self.things])
        self._xy: Array = np.zeros((num_worlds, len(self.things), 2))
        self._turns: Array = np.zeros((num_worlds, len(self.things)))
        self._ready: Array = np.zeros(num_worlds, bool)

    def seed(self, seed: int) -> None:
        """Start all streams anew."""
        self.streams.seed(seed)
        self._ready[:] = False

    def take(self, rows: Ints) -> tuple[Floats, Floats]:
        """Places (n, 1 + M, 2) and rotations (n, 1 + M) of robot and objects for new episodes."""
        if not self._ready[rows].all():
            fill = np.flatnonzero(~self._ready) if self.streams.parallel > 1 else rows
            self._xy[fill] = sample_layout(self.spec, self.things, self.streams, fill)
            self._turns[fill] = 2 * math.pi * uniform(self.streams, fill, len(self.things))
            self._ready[fill] = True
        self._ready[rows] = False
        return self._xy[rows], self._turns[rows]

    def check(self, placed: Any) -> None:
        """Refuse to begin an episode whose goal found no place."""
        if not placed.all():
            raise LayoutError(
                f"{self.spec.id}: no room for the goal after {TARGET_ATTEMPTS} attempts;"
                " use fewer objects, smaller keepouts or a larger extent"
            )

    def draw_target(self, k: int, streams: Streams, rows: Ints, places: Any) -> tuple[Floats, Any]:
        """Another place for thing k beside all others: xy (n, 2) and whether one was found (n,).

        Args:
            k: its number among `things`.
            streams: where the draws come from.
            rows: the worlds.
            places: (n, 1 + M, 2), where robot and objects stand.
        """
        others = [j for j in range(len(self.things)) if j != k]
        standing = to_numpy(places[:, others])
        return draw_place(self.things[k], streams, rows, standing, self.keepouts[others], TARGET_ATTEMPTS)

    def state_dict(self) -> dict[str, Any]:
        """The streams, and what is sampled already."""
        sampled = {"xy": self._xy.copy(), "turns": self._turns.copy(), "ready": self._ready.copy()}
        return {"streams": self.streams.state_dict(), **sampled}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.streams.load_state_dict(state["streams"])
        self._xy[:], self._turns[:], self._ready[:] = state["xy"], state["turns"], state["ready"]


def make_layouts(
    spec: NavigationSpec, num_worlds: int, seed: int, original: bool, device: str | None
) -> tuple[Layouts, Streams]:
    """The layouts of the worlds' episodes, and the streams of what happens within these; on a device if it is named."""
    if device is not None:
        from sbtrpo.envs.draws import TensorLayouts, tensor_streams  # needs the engine of that device

        on_device = tensor_streams(num_worlds, seed, device)
        return TensorLayouts(spec, on_device[0], num_worlds), on_device[1]
    for_layouts, streams = make_streams(num_worlds, seed, "mt19937" if original else None)
    return Layouts(spec, for_layouts, num_worlds), streams
