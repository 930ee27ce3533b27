"""Layouts, targets and rotations on a device are those of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sbtrpo
from sbtrpo.envs.layout import LayoutError, make_layouts
from sbtrpo.envs.registry import get_spec
from sbtrpo.envs.spec import NavigationSpec
from tests.gpu.engines import DEVICE, HOPPER, LIGHT, numbers, pool_of

WORLDS = 64


def spec_of(task: str) -> NavigationSpec:
    spec = get_spec(task)
    assert isinstance(spec, NavigationSpec)
    return spec


@pytest.mark.parametrize(
    "task",
    [
        "SafetyPointGoal2-v0",
        "SafetyPointPush2-v0",
        "SafetyPointButton2-v0",  # whose layouts start again most often
        "SafetyCarCircle2-v0",
        "SafetyPointRun0-v0",
        "SafetyCarGoal1-v0",
    ],
)
def test_layouts_and_targets_are_those_of_the_host(task: str) -> None:
    """World by world, whichever worlds ask, draw for draw."""
    spec = spec_of(task)
    ours, our_streams = make_layouts(spec, WORLDS, 5, False, DEVICE)
    theirs, their_streams = make_layouts(spec, WORLDS, 5, False, None)
    asks = np.random.default_rng(0)
    goal = 1 + spec.slices()["goal"].start if spec.has("goal") else 1
    for share in (1.0, 0.3, 1.0, 0.1, 0.6):
        mask = asks.random(WORLDS) < share
        who = torch.tensor(mask, device=DEVICE)
        rows = np.flatnonzero(mask)
        xy, turns = ours.take(who)
        expected_xy, expected_turns = theirs.take(rows)
        np.testing.assert_array_equal(numbers(xy)[rows], expected_xy)
        np.testing.assert_array_equal(numbers(turns)[rows], expected_turns)

        target, placed = ours.draw_target(goal, our_streams, who, xy)
        expected, found = theirs.draw_target(goal, their_streams, rows, expected_xy)
        np.testing.assert_array_equal(numbers(placed)[rows], found)
        np.testing.assert_array_equal(numbers(target)[rows][found], expected[found])
        chosen = our_streams.integers(who, 7)
        np.testing.assert_array_equal(numbers(chosen)[rows], their_streams.integers(rows, 7))
    assert_same_streams(our_streams, their_streams)


def assert_same_streams(ours: Any, theirs: Any) -> None:
    for name, values in theirs.state_dict().items():
        np.testing.assert_array_equal(ours.state_dict()[name], values)


def test_a_room_that_is_too_small_is_told() -> None:
    crowded = {
        "id": "Crowded-v0",
        "robot": "point",
        "objective": "goal",
        "extent": 1.0,
        "objects": [{"kind": "goal"}, {"kind": "hazards", "count": 9, "keepout": 0.29}],
    }
    spec = get_spec(crowded)
    assert isinstance(spec, NavigationSpec)
    layouts: Any = make_layouts(spec, 2, 0, False, DEVICE)[0]
    layouts.take(torch.ones(2, dtype=torch.bool, device=DEVICE))
    with pytest.raises(LayoutError, match="use fewer objects"):
        layouts.raise_if_failed()
    full = {**crowded, "objects": [{"kind": "goal"}, {"kind": "hazards", "count": 40, "keepout": 0.29}]}
    spec = get_spec(full)
    assert isinstance(spec, NavigationSpec)
    with pytest.raises(LayoutError, match="times the room there is"):
        make_layouts(spec, 2, 0, False, DEVICE)


@pytest.mark.parametrize(
    "task",
    [
        LIGHT,
        HOPPER,
        *(
            pytest.param(task, marks=pytest.mark.slow)
            for task in ("SafetyPointPush2-v0", "SafetyPointButton2-v0", "SafetyCarCircle2-v0", "SafetyPointRun0-v0")
        ),
    ],
)
def test_worlds_begin_as_those_of_the_cpu(task: str) -> None:
    """Several episodes, also of some worlds alone, and another seed."""
    ours, theirs = pool_of(task, 6, 3), sbtrpo.make_pool(task, 6, 3)
    accelerometer = theirs.task.observation_slices.get("accelerometer", slice(0, 0))

    def compare(obs: Any, expected: Any, rows: Any) -> None:
        gap = np.delete(np.abs(numbers(obs) - expected), np.r_[accelerometer], axis=1)[rows]
        assert gap.max() < 1e-4
        for name in ("objects", "target", "timer", "to_go"):
            if hasattr(theirs.task, "worlds"):
                mine, wanted = (numbers(getattr(pool.task.worlds, name)) for pool in (ours, theirs))  # type: ignore[attr-defined]
                np.testing.assert_allclose(mine[rows], wanted[rows], rtol=0, atol=2e-6)

    for seed in (None, None, 8):
        compare(ours.reset(seed)[0], theirs.reset(seed)[0], slice(None))
    some = np.array([1, 4])
    mark = torch.zeros(6, dtype=torch.bool, device=DEVICE)
    mark[some] = True
    ours.task.reset(mark)
    theirs.task.reset(some)
    compare(ours.task.observe(), theirs.task.observe(), slice(None))


def renewed(task: str, worlds: int) -> tuple[Any, Any]:
    """The places of all objects after three new targets in every second world, on both engines."""
    places = []
    for pool in (pool_of(task, worlds, 2), sbtrpo.make_pool(task, worlds, 2)):
        pool.reset()
        mask = np.arange(worlds) % 2 == 0
        who = np.flatnonzero(mask) if pool.physics.device is None else torch.tensor(mask, device=DEVICE)
        for _ in range(3):
            pool.task.renew(who)  # type: ignore[attr-defined]
        places.append(numbers(pool.task.worlds.objects))  # type: ignore[attr-defined]
    return places[0], places[1]


@pytest.mark.parametrize(
    "task",
    [LIGHT, *(pytest.param(f"SafetyPoint{name}2-v0", marks=pytest.mark.slow) for name in ("Push", "Button"))],
)
def test_new_targets_are_those_of_the_cpu(task: str) -> None:
    ours, theirs = renewed(task, 8)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)
