"""Layouts: the keep-out rules hold, and every world's are its own."""

from __future__ import annotations

import numpy as np
import pytest

import sbtrpo
from sbtrpo.envs.layout import Layouts, draw_place, places, sample_layout
from sbtrpo.envs.original import OriginalStreams
from sbtrpo.envs.registry import get_spec
from sbtrpo.envs.spec import NavigationSpec, goal, hazards
from sbtrpo.envs.streams import CounterStreams

TASKS = [task for task in sbtrpo.task_ids() if "Velocity" not in task]


def navigation(task: str) -> NavigationSpec:
    spec = get_spec(task)
    assert isinstance(spec, NavigationSpec)
    return spec


@pytest.mark.parametrize("task", TASKS)
def test_everything_keeps_its_distance_and_stays_inside(task: str) -> None:
    spec = navigation(task)
    things = places(spec)
    xy = sample_layout(spec, things, CounterStreams(100, seed=0), np.arange(100))
    keepouts = np.array([thing.keepout for thing in things])
    gap = np.linalg.norm(xy[:, :, None] - xy[:, None], axis=3)
    reach = keepouts[:, None] + keepouts[None]
    np.fill_diagonal(reach, 0.0)
    assert (gap >= reach).all()
    for k, thing in enumerate(things):
        assert (xy[:, k] >= thing.low).all()
        assert (xy[:, k] <= thing.high).all()


@pytest.mark.parametrize(
    "spec",
    [
        navigation("SafetyPointButton2-v0"),
        NavigationSpec("Tight-v0", "point", "goal", (goal(0.3, 0.305), hazards(5, keepout=0.3)), extent=1.0),
    ],
    ids=["button", "tight"],  # about one of 100 and one of 150 layouts fits
)
def test_layouts_do_not_depend_on_who_is_sampled_with_whom(spec: NavigationSpec) -> None:
    things = places(spec)
    together = sample_layout(spec, things, CounterStreams(6, seed=3), np.arange(6))
    alone = [sample_layout(spec, things, CounterStreams(6, seed=3), np.array([k]))[0] for k in range(6)]
    np.testing.assert_array_equal(together, np.stack(alone))


def test_layouts_sampled_ahead_come_in_each_worlds_own_order() -> None:
    spec = navigation("SafetyPointGoal2-v0")
    ahead, one_by_one = (Layouts(spec, CounterStreams(3, seed=1), 3) for _ in range(2))
    everyone = [ahead.take(np.arange(3))[0] for _ in range(3)]
    for world in (2, 0, 1):
        for episode in range(3):
            xy = one_by_one.take(np.array([world]))[0]
            np.testing.assert_array_equal(xy[0], everyone[episode][world])


def test_the_first_attempt_that_fits_is_taken_and_no_draw_is_wasted() -> None:
    """In the original's stream too: what is peeked at but not used stays for the next draw."""
    spec = navigation("SafetyPointGoal2-v0")
    thing = places(spec)[1]
    streams, reference = OriginalStreams(1, 5, "mt19937"), np.random.RandomState(5)
    others = np.array([[[0.0, 0.0], [1.0, 1.0]]])
    keepouts = np.array([1.0, 0.8])
    xy, found = draw_place(thing, streams, np.array([0]), others, keepouts, attempts=100)
    while True:
        trial = np.array([reference.uniform(thing.low[0], thing.high[0]) for _ in range(2)])
        if (np.linalg.norm(trial - others[0], axis=1) >= keepouts + thing.keepout).all():
            break
    assert found.all()
    np.testing.assert_array_equal(xy[0], trial)
    assert streams.peek(np.array([0]), 1)[0, 0] == reference.random_sample()


def test_a_place_that_cannot_be_found_is_reported_as_such() -> None:
    spec = navigation("SafetyPointGoal2-v0")
    others, keepouts = np.zeros((2, 1, 2)), np.array([10.0])
    _, found = draw_place(places(spec)[1], CounterStreams(2, 0), np.arange(2), others, keepouts, attempts=100)
    assert not found.any()
