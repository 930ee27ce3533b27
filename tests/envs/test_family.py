"""The family: every id of the original is there, with its sizes and numbers, and all of it is the same code."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

import sbtrpo
from sbtrpo.envs import describe
from sbtrpo.envs.layout import places
from sbtrpo.envs.registry import PAPER_TASKS, get_spec
from sbtrpo.envs.spec import NavigationSpec, cost_names

PAGE = Path(__file__).parent.parent.parent / "docs" / "tasks.md"

# Observation sizes of the Point as the page of the original gives them (the Car has 12 more), steps of an episode, and
# what costs.
HAZARDS, VASES = "cost_hazards", ("cost_vases_contact", "cost_vases_velocity")
NAVIGATION: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "Goal0": (28, 1000, ()),
    "Goal1": (60, 1000, (HAZARDS,)),
    "Goal2": (60, 1000, (HAZARDS, *VASES)),
    "Button0": (44, 1000, ()),
    "Button1": (76, 1000, ("cost_buttons", HAZARDS, "cost_gremlins")),
    "Button2": (76, 1000, ("cost_buttons", HAZARDS, "cost_gremlins")),
    "Push0": (44, 1000, ()),
    "Push1": (76, 1000, (HAZARDS,)),
    "Push2": (76, 1000, (HAZARDS, "cost_pillars")),
    "Circle0": (28, 500, ()),
    "Circle1": (28, 500, ("cost_out_of_boundary",)),
    "Circle2": (28, 500, ("cost_out_of_boundary",)),
    "Run0": (12, 500, ("cost_out_of_boundary",)),
}
VELOCITY = {"HalfCheetah": (17, 6), "Hopper": (11, 3), "Walker2d": (17, 6), "Ant": (27, 8), "Humanoid": (376, 17),
            "Swimmer": (8, 2)}  # fmt: skip
SIZES: dict[str, tuple[int, int, int]] = {
    f"Safety{robot}{task}-v0": (size + extra, 2, steps)
    for robot, extra in (("Point", 0), ("Car", 12))
    for task, (size, steps, _) in NAVIGATION.items()
} | {f"Safety{robot}Velocity-v{v}": (*sizes, 1000) for robot, sizes in VELOCITY.items() for v in (0, 1)}
COSTS = {f"Safety{robot}{task}-v0": row[2] for robot in ("Point", "Car") for task, row in NAVIGATION.items()}

# Objects and half side of the square of the levels below the paper's, from section 4 of the page: (count, keepout).
LAYOUTS: dict[str, tuple[float, dict[str, tuple[int, float]]]] = {
    "Goal0": (1.0, {"goal": (1, 0.305)}),
    "Goal1": (1.5, {"goal": (1, 0.305), "hazards": (8, 0.18), "vases": (1, 0.15)}),
    "Button0": (1.0, {"buttons": (4, 0.2), "goal": (1, 0.4)}),
    "Button1": (1.5, {"buttons": (4, 0.2), "goal": (1, 0.4), "hazards": (4, 0.18), "gremlins": (4, 0.4)}),
    "Push0": (1.0, {"goal": (1, 0.4), "push_box": (1, 0.2)}),
    "Push1": (1.5, {"goal": (1, 0.4), "hazards": (2, 0.4), "pillars": (1, 0.3), "push_box": (1, 0.2)}),
    "Circle0": (0.8, {"circle": (1, 0.0)}),
    "Circle1": (0.8, {"circle": (1, 0.0), "sigwalls": (2, 0.0)}),
    "Run0": (17.5, {"sigwalls": (2, 0.0)}),
}
NEW = [task for task in SIZES if task not in PAPER_TASKS]


def navigation(task: str) -> NavigationSpec:
    spec = get_spec(task)
    assert isinstance(spec, NavigationSpec)
    return spec


def random_actions(pool: sbtrpo.Pool, steps: int, seed: int = 0) -> Any:
    space = pool.single_action_space
    return np.random.default_rng(seed).uniform(space.low, space.high, (steps, pool.num_worlds, *space.shape))


def test_every_id_of_the_original_is_there_and_no_other() -> None:
    assert sorted(sbtrpo.task_ids()) == sorted(SIZES)
    assert len(SIZES) == 38
    assert set(PAPER_TASKS) <= set(SIZES)


def test_rows_tell_the_sizes_without_compiling_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("compiled")

    monkeypatch.setattr(mujoco.MjSpec, "compile", refuse)
    rows = {name: (observation, action, steps) for name, observation, action, steps, _ in describe.rows()}
    assert rows == SIZES
    for task in SIZES:
        describe.describe(task)


def check_random_steps(task: str, steps: int) -> None:
    pool = sbtrpo.make_pool(task, num_worlds=4, seed=1)
    obs, _ = pool.reset()
    size, action_size, length = SIZES[task]
    assert obs.shape == (4, size)
    assert pool.single_action_space.shape == (action_size,)
    assert pool.spec.episode_length == length
    assert pool.task.cost_names == COSTS.get(task, ("cost_velocity",)) == cost_names(pool.spec)
    ends = [0, *(part.stop for part in pool.task.observation_slices.values())]
    assert [part.start for part in pool.task.observation_slices.values()] == ends[:-1]
    assert ends[-1] == size
    lidars = [part for name, part in pool.task.observation_slices.items() if name.endswith("_lidar")]
    moved = np.zeros(4, bool)
    for action in random_actions(pool, steps):
        obs, reward, cost, _, _, info = pool.step(action)
        assert np.isfinite(obs).all()
        assert all(((obs[:, part] >= 0) & (obs[:, part] <= 1)).all() for part in lidars)
        components = [info[name] for name in pool.task.cost_names]
        np.testing.assert_array_equal(cost, np.any(components, axis=0) if components else np.zeros(4))
        moved |= reward != 0
    assert moved.all()
    assert pool.faults == 0


@pytest.mark.parametrize("task", SIZES)
def test_a_thousand_random_steps(task: str) -> None:
    check_random_steps(task, 250)  # in each of four worlds


@pytest.mark.slow
@pytest.mark.parametrize("task", SIZES)
def test_random_steps_through_the_ends_of_episodes(task: str) -> None:
    check_random_steps(task, 1010)


@pytest.mark.parametrize("task", NEW)
def test_one_seed_gives_one_trajectory_and_a_restored_pool_goes_on(task: str) -> None:
    def play(pool: sbtrpo.Pool, steps: Any) -> Any:
        return np.stack([np.column_stack(pool.step(action)[:5]) for action in steps])

    pool, twin = (sbtrpo.make_pool(task, num_worlds=n, seed=5, threads=t) for n, t in ((2, 1), (3, 2)))
    steps = random_actions(twin, 30)
    np.testing.assert_array_equal(pool.reset()[0], twin.reset()[0][:2])
    np.testing.assert_array_equal(play(pool, steps[:20, :2]), play(twin, steps[:20])[:, :2])
    state = pool.state_dict()
    state["steps"][1] = pool.spec.episode_length - 5
    restored = sbtrpo.make_pool(task, num_worlds=2, seed=0)
    pool.load_state_dict(state)
    restored.load_state_dict(state)
    after = play(pool, steps[20:, :2])
    np.testing.assert_array_equal(after, play(restored, steps[20:, :2]))
    assert after[4, 1, -1] == 1  # the end of an episode was among them


# ---- the easier levels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("robot", ["Point", "Car"])
@pytest.mark.parametrize("task", LAYOUTS)
def test_levels_have_the_objects_of_the_page(robot: str, task: str) -> None:
    spec = navigation(f"Safety{robot}{task}-v0")
    extent, groups = LAYOUTS[task]
    if robot == "Car" and "push_box" in groups:
        groups = groups | {"push_box": (1, 0.125)}
    assert spec.extent == extent
    assert [(group.kind, group.count, group.keepout) for group in spec.groups] == [
        (kind, count, keepout) for kind, (count, keepout) in groups.items()
    ]
    assert spec.robot_keepout == (0.0 if task.startswith(("Circle", "Run")) else 0.4)
    assert spec.lidar_range == (6.0 if task.startswith("Circle") else 3.0)


@pytest.mark.parametrize("robot", ["Point", "Car"])
@pytest.mark.parametrize("objective", ["Goal", "Button", "Push", "Circle"])
def test_levels_are_rows_of_the_same_code(robot: str, objective: str) -> None:
    """What the levels share is equal: the task's class, robot and objective, and what each kind of object is like."""
    specs = [navigation(f"Safety{robot}{objective}{level}-v0") for level in range(3)]
    paper = specs[2]
    kinds = {group.kind: group for group in paper.groups}
    for spec in specs[:2]:
        rows = [replace(group, count=0, cost=False, places=None) for group in spec.groups]
        assert rows == [replace(kinds[g.kind], count=0, cost=False, places=None) for g in spec.groups]
        assert replace(spec, id="", groups=(), extent=0.0) == replace(paper, id="", groups=(), extent=0.0)
    assert len({type(sbtrpo.make_pool(spec, num_worlds=1).task) for spec in specs}) == 1


@pytest.mark.parametrize("robot", ["Point", "Car"])
@pytest.mark.parametrize("objective", ["Goal", "Push", "Circle"])
def test_the_same_situation_is_the_same_at_every_level(robot: str, objective: str) -> None:
    """Robot, goal and box at the same places and all else out of reach: same sensors, lidars and rewards."""
    seen = []
    rows = np.arange(2)
    for level in range(3):
        pool = sbtrpo.make_pool(f"Safety{robot}{objective}{level}-v0", num_worlds=2, seed=0)
        pool.reset()
        task: Any = pool.task
        xy = 40.0 + 2 * np.arange(2 * (1 + task.spec.num_objects)).reshape(1, -1, 2).repeat(2, axis=0)
        turns = np.zeros(xy.shape[:2])
        xy[:, 0] = [[0.1, -0.2], [0.4, 0.3]]
        turns[:, 0] = 0.7
        for kind, place in (("goal", (0.9, 0.1)), ("push_box", (0.5, -0.3)), ("circle", (0.0, 0.0))):
            if kind in task.slices:
                xy[:, 1 + task.slices[kind].start] = place
        task.place(rows, xy, turns)
        task.begin(rows)
        away = ("hazards_lidar", "vases_lidar", "pillars_lidar")
        kept = [part for name, part in task.observation_slices.items() if name not in away]
        steps = []
        for _ in range(2):
            obs, reward, cost, _, _, _ = pool.step(np.full((2, 2), 0.01))
            steps.append(np.column_stack([*(obs[:, part] for part in kept), reward]))
        assert not cost.any()
        seen.append(np.stack(steps))
    # Accelerometer readings of the Car on the floor depend on the solver's path.
    np.testing.assert_allclose(seen[0], seen[2], rtol=0, atol=1e-6)
    np.testing.assert_allclose(seen[1], seen[2], rtol=0, atol=1e-6)


def test_what_does_not_cost_is_felt_but_free() -> None:
    pool = sbtrpo.make_pool("SafetyPointPush1-v0", num_worlds=1)
    pool.reset()
    task: Any = pool.task
    xy = np.array([[[0.0, 0.0], [3, 3], [5, 5], [7, 7], [0.31, 0.0], [9, 9]]])
    task.place(np.array([0]), xy, np.zeros((1, 6)))
    task.begin(np.array([0]))
    for _ in range(30):
        _, _, cost, _, _, info = pool.step(np.array([[1.0, 0.0]]))
        assert cost[0] == 0
    assert "cost_pillars" not in info
    assert task.worlds.position[0, 0] < 0.05  # stopped by the pillar


# ---- layouts from the original's seeds ------------------------------------------------------------------------------


def original_layout(spec: NavigationSpec, seed: int) -> tuple[list[Any], list[float], Any]:
    """Section 5 of the page, one draw at a time: places as drawn, rotations, and the target (place or button)."""
    stream = np.random.RandomState(seed)
    things = places(spec)

    def draw(thing: Any) -> Any:
        return np.array([stream.uniform(thing.low[axis], thing.high[axis]) for axis in range(2)])

    def fits(xy: Any, thing: Any, others: Any) -> bool:
        return all(math.dist(xy, other_xy) >= other.keepout + thing.keepout for other_xy, other in others)

    for _ in range(10_000):
        found: list[Any] = []
        for thing in things:
            tries = (draw(thing) for _ in range(100))
            xy = next((xy for xy in tries if fits(xy, thing, zip(found, things, strict=False))), None)
            if xy is None:
                break
            found.append(xy)
        if len(found) == len(things):
            break
    turns = [stream.uniform(0, 2 * math.pi) for _ in things]
    if spec.objective == "button":
        return found, turns, stream.randint(0, 4)
    if spec.objective in ("circle", "run"):
        return found, turns, None
    goal = 1 + spec.slices()["goal"].start
    others = [(xy, thing) for k, (xy, thing) in enumerate(zip(found, things, strict=True)) if k != goal]
    tries = (draw(things[goal]) for _ in range(10_000))
    return found, turns, next(xy for xy in tries if fits(xy, things[goal], others))


@pytest.mark.parametrize("task", [task for task in NEW if "Point" in task] + ["SafetyCarPush1-v0", "SafetyCarRun0-v0"])
def test_original_mode_draws_what_the_page_says(task: str) -> None:
    spec = navigation(task)
    pool = sbtrpo.make_pool(task, num_worlds=2, seed=30, layout_rng="original")
    logic: Any = pool.task
    xy, turns = logic.layouts.take(np.arange(2))
    logic.place(np.arange(2), xy, turns)
    logic.retarget(np.arange(2), xy)
    for world in range(2):
        found, rotations, target = original_layout(spec, 30 + world)
        np.testing.assert_allclose(xy[world], found, rtol=0, atol=1e-12)
        np.testing.assert_allclose(turns[world], rotations, rtol=0, atol=1e-12)
        if spec.objective == "button":
            assert logic.worlds.target[world] == target
        elif target is not None:
            goal = logic.worlds.objects[world, logic.slices["goal"].start, :2]
            np.testing.assert_allclose(goal, target, rtol=0, atol=1e-12)


# ---- Run ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("robot", ["Point", "Car"])
def test_run_pays_sixty_times_the_way_towards_the_far_place(robot: str) -> None:
    pool = sbtrpo.make_pool(f"Safety{robot}Run0-v0", num_worlds=50, seed=2)
    pool.reset()
    task: Any = pool.task
    start = np.array(task.worlds.position[:, :2])
    assert (np.abs(start[:, 0]) <= 0.2).all()
    assert np.ptp(start[:, 0]) > 0.2
    np.testing.assert_allclose(start[:, 1], 16.5, rtol=0, atol=1e-12)
    before, most = start, 0.0
    for _ in range(60):
        _, reward, cost, _, _, info = pool.step(np.tile([1.0, 0.0 if robot == "Point" else 1.0], (50, 1)))
        after = np.array(task.worlds.position[:, :2])
        way = np.hypot(before[:, 0], before[:, 1] + 1000) - np.hypot(after[:, 0], after[:, 1] + 1000)
        np.testing.assert_allclose(reward, 60 * way, rtol=0, atol=1e-9)
        np.testing.assert_array_equal(cost, np.abs(after[:, 0]) > 0.5)
        assert not info["goal_met"].any()
        before, most = after, max(most, cost.mean())
    assert 0 < most < 1  # straight ahead in all directions, most beyond the walls


def test_only_run_is_paid_beyond_ten() -> None:
    for task, paid in (("SafetyPointRun0-v0", 60.0), ("SafetyPointGoal0-v0", 10.0)):
        pool = sbtrpo.make_pool(task, num_worlds=1)
        pool.reset()
        logic: Any = pool.task
        logic.worlds.to_go += 1.0 if "Run" in task else 30.0
        assert pool.step(np.zeros((1, 2)))[1][0] == pytest.approx(paid, abs=0.1)


# ---- descriptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", SIZES)
def test_a_description_names_every_part_object_and_cost(task: str) -> None:
    spec, shown = get_spec(task), describe.describe(task)
    assert shown.id == task
    assert [name for name, _ in shown.facts] == ["robot", "reward", "episode", "start"]
    ends = [int(stop) for _, span, _, _ in shown.observation.rows for stop in [span.strip("[)").split(":")[1]]]
    assert ends == list(itertools.accumulate(int(size) for _, _, size, _ in shown.observation.rows))
    assert ends[-1] == SIZES[task][0]
    assert tuple(name for name, _ in shown.costs.rows) == cost_names(spec)
    if isinstance(spec, NavigationSpec):
        assert [(row[0], row[1]) for row in shown.objects.rows] == [(g.kind, str(g.count)) for g in spec.groups]


def test_descriptions_say_what_the_page_says() -> None:
    assert describe.rows(["SafetyCarPush1-v0"]) == [
        ("SafetyCarPush1-v0", 88, 2, 1000, "goal, 2 hazards*, pillar, push box")
    ]
    hopper = dict(describe.describe("SafetyHopperVelocity-v0").facts)
    assert hopper["reward"] == "forward velocity + 1 - 0.001 times the sum of squared actions"
    assert "qpos[1] leaves (0.7, inf)" in hopper["episode"]
    assert "1000 steps of 0.008 s" in hopper["episode"]
    button = describe.describe("SafetyPointButton1-v0")
    assert button.observation.rows[4][:3] == ("buttons_lidar", "[12:28)", "16")
    assert "dark" in dict(button.costs.rows)["cost_buttons"]
    toy = describe.describe("ToyCorridor-v0")
    assert toy.costs.rows[0][0] == "cost_strip"


def test_the_page_of_the_tasks_is_current(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert describe.main([str(PAGE), "--check"]) == 0
    page = tmp_path / "tasks.md"
    page.write_text("before\n<!-- generated: tasks -->\nold\n<!-- end -->\nafter\n")
    assert describe.main([str(page), "--check"]) == 1
    assert "is not current" in capsys.readouterr().err
    assert describe.main([str(page)]) == 0
    assert describe.sheet().markdown() in page.read_text()
    assert describe.main([str(page), "--check"]) == 0
