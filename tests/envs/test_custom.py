"""Tasks of one's own: from TOML or a dict, validated, described and written back."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sbtrpo
from sbtrpo.envs import describe
from sbtrpo.envs import spec as s
from sbtrpo.envs.custom import (
    DEFAULTS,
    KINDS,
    NEEDS,
    OBJECTIVES,
    SETTINGS,
    spec_from_dict,
    spec_from_toml,
    spec_to_toml,
)
from sbtrpo.envs.registry import get_spec
from sbtrpo.envs.spec import Group, NavigationSpec

EXAMPLES = sorted((Path(__file__).parent.parent.parent / "examples").glob("*.toml"))
FAMILY = [spec for task in sbtrpo.task_ids() if isinstance(spec := get_spec(task), NavigationSpec)]
BASE: dict[str, Any] = {
    "id": "Mine-v0",
    "robot": "point",
    "objective": "goal",
    "objects": [{"kind": "goal"}, {"kind": "hazards", "count": 3}, {"kind": "pillars", "places": [[1, 1], [-1, 1]]}],
}


def with_objects(*objects: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {**BASE, "objects": list(objects), **others}


def pool_of(settings: Any, worlds: int = 3, seed: int = 0) -> Any:
    pool = sbtrpo.make_pool(settings, num_worlds=worlds, seed=seed)
    pool.reset()
    return pool


# ---- what settings become -------------------------------------------------------------------------------------------


def test_defaults_are_the_familys() -> None:
    """The paper's tasks, written with as few words as possible."""
    goal = with_objects({"kind": "goal"}, {"kind": "hazards", "count": 10}, {"kind": "vases", "count": 10})
    assert spec_from_dict({**goal, "id": "SafetyPointGoal2-v0"}) == get_spec("SafetyPointGoal2-v0")
    button = with_objects(
        {"kind": "buttons", "count": 4},
        {"kind": "goal"},
        {"kind": "hazards", "count": 8},
        {"kind": "gremlins", "count": 6},
        id="SafetyCarButton2-v0",
        robot="car",
        objective="button",
        extent=1.8,
    )
    assert spec_from_dict(button) == get_spec("SafetyCarButton2-v0")
    for robot in ("point", "car"):
        hazards, pillars = {"kind": "hazards", "count": 4, "size": 0.3, "keepout": 0.4}, {"kind": "pillars", "count": 4}
        push = with_objects({"kind": "goal"}, hazards, pillars, {"kind": "push_box"}, robot=robot, objective="push")
        name = f"Safety{robot.capitalize()}Push2-v0"
        assert spec_from_dict({**push, "id": name}) == get_spec(name)
        walls = {"kind": "sigwalls", "boundary": [1.125, 1.125]}
        circle = with_objects({"kind": "circle"}, walls, robot=robot, objective="circle")
        name = f"Safety{robot.capitalize()}Circle2-v0"
        assert spec_from_dict({**circle, "id": name}) == get_spec(name)
        run = with_objects({"kind": "sigwalls", "boundary": [0.5]}, robot=robot, objective="run")
        name = f"Safety{robot.capitalize()}Run0-v0"
        assert spec_from_dict({**run, "id": name}) == get_spec(name)


def test_settings_become_groups() -> None:
    spec = spec_from_dict(
        with_objects(
            {"kind": "goal", "size": 0.5},
            {"kind": "vases", "count": 2, "size": 0.2, "cost": False, "density": 0.01, "lidar": False},
            {"kind": "pillars", "places": [[1, 0], [0, 1.5]], "keepout": 0.25},
            {"kind": "hazards", "count": 2, "area": [-1, -2, 1, -1]},
            extent=2.5,
            robot_keepout=0.3,
            lidar_range=5,
            episode_length=300,
            start=[-0.5, 0, 0.5, 0],
            substeps=5,
        )
    )
    assert spec.groups == (
        s.goal(0.5, 0.305 * (0.5 / 0.3)),
        Group("vases", 2, 0.3, "box", (0.2, 0.2, 0.2), 0.2 - 4e-5, "free", density=0.01, lidar=False),
        Group("pillars", 2, 0.25, "cylinder", (0.2, 0.5), 0.5, "fixed", cost=True, places=((1.0, 0.0), (0.0, 1.5))),
        Group("hazards", 2, 0.18, "cylinder", (0.2, 0.01), 0.02, "mark", cost=True, area=(-1.0, -2.0, 1.0, -1.0)),
    )
    assert (spec.extent, spec.robot_keepout, spec.lidar_range, spec.episode_length) == (2.5, 0.3, 5.0, 300)
    assert (spec.start, spec.substeps) == ((-0.5, 0.0, 0.5, 0.0), 5)


def test_a_dict_is_not_changed() -> None:
    before = copy.deepcopy(BASE)
    spec_from_dict(BASE)
    assert before == BASE


# ---- worlds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_and_are_described(path: Path) -> None:
    pool = pool_of(str(path), worlds=4)
    spec = pool.spec
    assert pool.step(np.zeros((4, 2)))[0].shape == (4, describe.rows([path])[0][1])
    rng = np.random.default_rng(0)
    for _ in range(100):
        obs, _, _, _, _, info = pool.step(rng.uniform(-1, 1, (4, 2)))
        assert np.isfinite(obs).all()
    assert pool.faults == 0
    assert {name for name in info if name.startswith("cost_")} == set(pool.task.cost_names)
    assert spec.id in path.read_text()
    assert describe.describe(path).id == spec.id


def test_there_are_examples() -> None:
    assert [path.stem for path in EXAMPLES] == ["courier", "goal_with_memory", "push_with_memory"]
    spec = spec_from_toml(EXAMPLES[0])
    assert spec.robot == "car"
    assert {group.kind for group in spec.groups if group.cost} == {"pillars", "hazards", "gremlins", "sigwalls"}


def test_places_areas_and_the_start_are_kept_to() -> None:
    pool = pool_of(
        with_objects(
            {"kind": "goal", "area": [1.0, -2.0, 2.0, -1.0]},
            {"kind": "pillars", "places": [[1, 1], [-1, 1]]},
            {"kind": "vases", "count": 2, "area": [-2, -2, -1, -1]},
            start=[-0.5, 0.0, 0.5, 0.0],
        ),
        worlds=50,
    )
    worlds, slices = pool.task.worlds, pool.task.slices
    np.testing.assert_allclose(worlds.objects[:, slices["pillars"], :2], [[[1, 1], [-1, 1]]] * 50, atol=1e-8)
    goals = worlds.objects[:, slices["goal"].start, :2]
    assert ((goals >= [1, -2]) & (goals <= [2, -1])).all()
    vases = worlds.objects[:, slices["vases"], :2]
    assert ((vases >= -2) & (vases <= -1)).all()
    robots = np.array(worlds.position[:, :2])
    np.testing.assert_allclose(robots[:, 1], 0, atol=1e-12)
    assert (np.abs(robots[:, 0]) <= 0.5).all()
    assert min(np.ptp(robots[:, 0]), np.ptp(goals[:, 0]), np.ptp(vases[:, 0, 0])) > 0.5


def test_a_goal_with_a_fixed_place_ends_the_episode_when_it_is_reached() -> None:
    pool = pool_of(with_objects({"kind": "goal", "places": [[1.0, 0.0]]}, start=[0, 0, 0, 0]), worlds=2)
    logic: Any = pool.task
    logic.place(np.array([0]), np.array([[[0.71, 0.0], [1.0, 0.0]]]), np.zeros((1, 2)))
    logic.begin(np.array([0]))
    for _ in range(20):
        _, reward, _, terminated, truncated, info = pool.step(np.tile([1.0, 0.0], (2, 1)))
        if terminated[0]:
            break
    assert reward[0] > 0.9
    np.testing.assert_array_equal(terminated, [True, False])
    assert not truncated.any()
    assert info["episode"]["goals"][0] == 1


def test_buttons_that_are_no_target_all_cost() -> None:
    """Where buttons are obstacles there is no target among them, and they never go dark."""
    pool = pool_of(with_objects({"kind": "goal"}, {"kind": "buttons", "count": 2}), worlds=3)
    logic: Any = pool.task
    xy = np.array([[[0.0, 0.0], [5, 5], [0.15, 0], [9, 9]], [[0.0, 0.0], [5, 5], [9, 9], [0.15, 0]],
                   [[0.0, 0.0], [5, 5], [9, 9], [-9, 9]]], float)  # fmt: skip
    logic.place(np.arange(3), xy, np.zeros((3, 4)))
    logic.begin(np.arange(3))
    np.testing.assert_array_equal(pool.step(np.zeros((3, 2)))[5]["cost_buttons"], [1, 1, 0])


def test_a_push_box_may_be_an_obstacle_that_costs() -> None:
    pool = pool_of(with_objects({"kind": "goal"}, {"kind": "push_box", "cost": True}), worlds=2)
    logic: Any = pool.task
    xy = np.array([[[0.0, 0.0], [5, 5], [0.33, 0]], [[0.0, 0.0], [5, 5], [9, 9]]], float)
    logic.place(np.arange(2), xy, np.zeros((2, 3)))
    logic.begin(np.arange(2))
    np.testing.assert_array_equal(pool.step(np.zeros((2, 2)))[5]["cost_push_box"], [1, 0])


def test_boundaries_may_differ_in_x_and_y() -> None:
    pool = pool_of(with_objects({"kind": "goal"}, {"kind": "sigwalls", "boundary": [2.0, 1.0]}, extent=2), worlds=4)
    logic: Any = pool.task
    xy = np.tile(np.array([[0.0, 0.0], [5, 5], [2, 0], [-2, 0], [0, 1], [0, -1]]), (4, 1, 1))
    xy[:, 0] = [[1.9, 0.9], [-2.1, 0.0], [0.0, 1.1], [1.5, -1.2]]
    logic.place(np.arange(4), xy, np.zeros((4, 6)))
    logic.begin(np.arange(4))
    np.testing.assert_array_equal(pool.step(np.zeros((4, 2)))[5]["cost_out_of_boundary"], [0, 1, 1, 1])


def test_a_task_may_have_no_objects_at_all() -> None:
    pool = pool_of({"id": "Empty-v0", "robot": "car", "objective": "run"})
    obs, _, cost, _, _, _ = pool.step(np.ones((3, 2)))
    assert obs.shape == (3, 24)
    assert not cost.any()
    assert pool.task.cost_names == ()


@pytest.mark.parametrize("robot", ["point", "car"])
@pytest.mark.parametrize("cost", [True, False])
def test_every_kind_at_once(robot: str, cost: bool) -> None:
    obstacles = [{"kind": kind, "count": 2, "cost": cost} for kind in ("hazards", "vases", "pillars", "gremlins")]
    walls = {"kind": "sigwalls", "boundary": [5.0], "cost": cost}
    everything = with_objects(
        {"kind": "buttons", "count": 3, "cost": cost}, {"kind": "goal"}, *obstacles, {"kind": "push_box"}, walls,
        robot=robot, objective="button", extent=4,
    )  # fmt: skip
    pool = pool_of(everything, worlds=2)
    rng = np.random.default_rng(0)
    for _ in range(20):
        obs = pool.step(rng.uniform(-1, 1, (2, 2)))[0]
    assert np.isfinite(obs).all()
    assert len(pool.task.cost_names) == (7 if cost else 0)
    assert pool.faults == 0
    pool.load_state_dict(pool.state_dict())


# ---- where tasks are taken from -------------------------------------------------------------------------------------


def test_paths_dicts_and_specs_are_tasks(tmp_path: Path) -> None:
    spec = spec_from_dict(BASE)
    path = tmp_path / "mine.toml"
    path.write_text(spec_to_toml(spec))
    assert get_spec(path) == get_spec(str(path)) == get_spec(BASE) == get_spec(spec) == spec
    first = [pool_of(task).last_obs for task in (path, str(path), BASE, spec)]
    for obs in first[1:]:
        np.testing.assert_array_equal(obs, first[0])
    assert spec.id not in sbtrpo.task_ids()  # reading a task does not register it


def test_a_task_of_ones_own_must_not_pass_for_another() -> None:
    with pytest.raises(ValueError, match=r"^id 'SafetyPointGoal2-v0' is the name of another task; choose another id$"):
        get_spec({**BASE, "id": "SafetyPointGoal2-v0"})
    same = tomllib.loads(spec_to_toml(FAMILY[2]))
    assert get_spec(same) == FAMILY[2]  # the copy in a run's folder


@pytest.mark.parametrize("task", [None, 3, b"x.toml"])
def test_other_things_are_no_tasks(task: Any) -> None:
    with pytest.raises(TypeError, match=r"^task must be a task id, the path of a \.toml file or a dict, got "):
        get_spec(task)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no task file 'nowhere\.toml'"):
        get_spec("nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("id = \n")
    with pytest.raises(ValueError, match=r"broken\.toml is not TOML: "):
        get_spec(broken)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(spec_to_toml(spec_from_dict(BASE)).replace("count = 3", "count = 0"))
    with pytest.raises(ValueError, match=r"wrong\.toml: objects\[1\]\.count must be at least 1, got 0$"):
        get_spec(wrong)


# ---- errors ---------------------------------------------------------------------------------------------------------

GOAL = {"kind": "goal"}
KIND_NAMES = "goal, hazards, vases, pillars, buttons, gremlins, push_box, circle, sigwalls"
RECTANGLE = "[x_min, y_min, x_max, y_max] with neither maximum below its minimum"
ID = "a name of letters, digits, hyphens, underscores and points that does not end in .toml"
BOUNDARY = "[x] or [x, y], each above 0"


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in BASE.items() if name not in names}


def complaint(task: Any) -> str | None:
    """What is said of a task, or None if nothing is wrong with it."""
    try:
        spec_from_dict(task)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        (without("objective"), "objective is missing; choose one of goal, button, push, circle, run"),
        (without("robot"), "robot is missing; choose one of point, car"),
        (without("id"), "id is missing; name the task, as in id = 'MyTask-v0'"),
        ({**BASE, "robot": "cra"}, "robot must be one of point, car, got 'cra'; did you mean car?"),
        ({**BASE, "robot": 7}, "robot must be one of point, car, got 7"),
        ({**BASE, "objective": "goals"},
         "objective must be one of goal, button, push, circle, run, got 'goals'; did you mean goal?"),
        ({**BASE, "id": "a/b"}, f"id must be {ID}, got 'a/b'"),
        ({**BASE, "id": "x.toml"}, f"id must be {ID}, got 'x.toml'"),
        ({**BASE, "id": 3}, f"id must be {ID}, got 3"),
        ({**BASE, "extend": 2}, "extend is not a setting; did you mean extent?"),
        ({**BASE, "zzz": 2}, "zzz is not a setting; choose from id, robot, objective, extent, robot_keepout,"
                             " lidar_range, episode_length, start, substeps, observe_violation, objects"),
        ({**BASE, "extent": "big"}, "extent must be a number of ordinary size, got 'big'"),
        ({**BASE, "extent": float("nan")}, "extent must be a number of ordinary size, got nan"),
        ({**BASE, "extent": True}, "extent must be a number of ordinary size, got True"),
        ({**BASE, "extent": 10**400}, f"extent must be a number of ordinary size, got {10**400}"),
        ({**BASE, "extent": 0}, "extent must be above 0, got 0"),
        ({**BASE, "extent": 0.3}, "robot_keepout must be below extent (0.3), got 0.4"),
        ({**BASE, "robot_keepout": -1}, "robot_keepout must be at least 0, got -1"),
        ({**BASE, "lidar_range": 0}, "lidar_range must be above 0, got 0"),
        ({**BASE, "episode_length": 2.5}, "episode_length must be a whole number, got 2.5"),
        ({**BASE, "episode_length": 0}, "episode_length must be at least 1, got 0"),
        ({**BASE, "substeps": True}, "substeps must be a whole number, got True"),
        ({**BASE, "observe_violation": 1}, "observe_violation must be true or false, got 1"),
        ({**BASE, "start": [0, 0, 1]}, f"start must be {RECTANGLE}, got [0, 0, 1]"),
        ({**BASE, "start": [1, 0, 0, 1]}, f"start must be {RECTANGLE}, got [1, 0, 0, 1]"),
        ({**BASE, "objects": 3}, "objects must be a list of tables, each written below [[objects]], got 3"),
        ({**BASE, "objects": ["goal"]}, "objects[0] must be a table of settings, got 'goal'"),
        (with_objects({"kind": "hazards"}), "objects must have an entry of kind 'goal' for objective 'goal'"),
        (with_objects(GOAL, objective="push"), "objects must have an entry of kind 'push_box' for objective 'push'"),
        (with_objects(GOAL, objective="button"), "objects must have an entry of kind 'buttons' for objective 'button'"),
        (with_objects(GOAL, objective="run"), "objects[0].kind 'goal' has no part in objective 'run'; leave it out"),
        (with_objects({"kind": "goal", "count": 2}),
         "objects[0].count is not a setting of goal; choose from kind, size, keepout, lidar, places, area"),
        (with_objects({"kind": "goal", "cost": True}),
         "objects[0].cost is not a setting of goal; choose from kind, size, keepout, lidar, places, area"),
        (with_objects({"kind": "goal", "places": [[1, 1]], "keepout": 0.1}, robot_keepout=0.1),
         "objects[0].keepout must be above 0.2 for a goal with a fixed place, got 0.1; a smaller one would pay for the"
         " same goal again and again"),
        (with_objects(GOAL, {"kind": "pillars", "places": [[0, 0]]}, start=[0.5, 0, 0.5, 0]),
         "start and objects[1].places[0] are 0.5 m apart, and their keepouts add up to 0.7 m; move one or set a smaller"
         " keepout"),
        (with_objects(GOAL, {"kind": "hazards"}, {"kind": "pillars", "count": 0}),
         "objects[2].count must be at least 1, got 0"),
        (with_objects(GOAL, {"kind": "hazards"}, {"kind": "hazards"}),
         "objects[2].kind repeats 'hazards'; give each kind one entry"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence_that_names_the_field(task: Any, sentence: str) -> None:
    assert complaint(task) == sentence


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"count": 2}, f"kind is missing; choose one of {KIND_NAMES}"),
        ({"kind": "hazard"}, f"kind must be one of {KIND_NAMES}, got 'hazard'; did you mean hazards?"),
        ({"kind": "circle"}, "kind 'circle' has no part in objective 'goal'; leave it out"),
        ({"kind": "hazards", "cuont": 2}, "cuont is not a setting of hazards; did you mean count?"),
        ({"kind": "pillars", "count": 5000}, "count must be at most 1000, got 5000"),
        ({"kind": "pillars", "cost": "yes"}, "cost must be true or false, got 'yes'"),
        ({"kind": "pillars", "lidar": 1}, "lidar must be true or false, got 1"),
        ({"kind": "pillars", "size": -0.1}, "size must be above 0, got -0.1"),
        ({"kind": "pillars", "keepout": 3}, "keepout must be below extent (2.0), got 3.0"),
        ({"kind": "vases", "density": 0}, "density must be above 0, got 0"),
        ({"kind": "vases", "places": []}, "places must be a list of places [x, y], got []"),
        ({"kind": "vases", "places": [[0, 1], [2]]}, "places[1] must be [x, y], got [2]"),
        ({"kind": "vases", "places": [[0, 1]], "count": 2}, "places must be as many as there are objects, 2, got 1"),
        ({"kind": "vases", "places": [[0, 1]], "area": [0, 0, 1, 1]},
         "area is for random places, and objects[1].places gives fixed ones; leave one out"),
        ({"kind": "pillars", "places": [[0, 0], [0.3, 0]]},
         "places[0] and objects[1].places[1] are 0.3 m apart, and their keepouts add up to 0.6 m; move one or set a"
         " smaller keepout"),
        ({"kind": "sigwalls"}, f"boundary is missing; it must be {BOUNDARY}"),
        ({"kind": "sigwalls", "boundary": [1, -1]}, f"boundary must be {BOUNDARY}, got [1, -1]"),
        ({"kind": "sigwalls", "boundary": 1}, f"boundary must be {BOUNDARY}, got 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_object_is_said_likewise(entry: dict[str, Any], sentence: str) -> None:
    assert complaint(with_objects(GOAL, entry)) == f"objects[1].{sentence}"


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=5),
    st.lists(st.one_of(st.floats(), st.integers(-3, 3), st.lists(st.floats(), max_size=3)), max_size=5),
    st.dictionaries(st.sampled_from(["kind", "count"]), st.integers(), max_size=2),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SETTINGS), JUNK)
def test_any_value_is_taken_or_refused_by_name(field: str, value: Any) -> None:
    said = complaint({**BASE, field: value})
    named = (field, "keepout") if field in ("extent", "start") else (field,)  # a keepout may be too large for them
    assert said is None or (any(name in said for name in named) and "\n" not in said)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.sampled_from(["count", "size", "keepout", "cost", "lidar", "places", "area",
                                                        "density", "boundary", "kind"]), JUNK)  # fmt: skip
def test_any_value_of_an_object_is_taken_or_refused_by_name(kind: str, field: str, value: Any) -> None:
    entry: dict[str, Any] = {"kind": kind, **({"boundary": [1]} if kind == "sigwalls" else {}), field: value}
    objective = "circle" if kind == "circle" else "goal"
    others = [{"kind": needed} for needed in NEEDS[objective] if needed != kind]  # type: ignore[index]
    said = complaint(with_objects(entry, *others, objective=objective))
    assert said is None or ("objects[0]." in said and "\n" not in said)


# ---- writing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*FAMILY, *map(spec_from_toml, EXAMPLES)], ids=lambda spec: spec.id)
def test_what_is_written_is_read_again(spec: NavigationSpec, tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_text(spec_to_toml(spec))
    assert spec_from_toml(path) == spec


NUMBER = st.floats(0.01, 0.5)
SIZED = {"size": NUMBER, "keepout": NUMBER, "lidar": st.booleans()}
MANY = {**SIZED, "count": st.integers(1, 20), "cost": st.booleans(), "area": st.just([-1, -1.5, 1, 1.5])}


def entry(kind: str, optional: dict[str, Any]) -> Any:
    return st.fixed_dictionaries({"kind": st.just(kind)}, optional=optional)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["point", "car"]),
    st.lists(
        st.one_of(*(entry(kind, MANY) for kind in ("hazards", "vases", "pillars", "buttons", "gremlins"))),
        max_size=4,
        unique_by=lambda made: made["kind"],
    ),
    entry("goal", SIZED),
    st.floats(2.1, 5),  # above every keepout, of which a gremlin's may be the largest: 4 times its size by default
)
def test_any_task_survives_writing_and_reading(robot: str, objects: list[Any], goal: Any, extent: float) -> None:
    spec = spec_from_dict(with_objects(goal, *objects, robot=robot, extent=extent))
    assert spec_from_dict(tomllib.loads(spec_to_toml(spec))) == spec


def test_what_only_code_can_say_is_not_written() -> None:
    odd = Group("cones", 3, 0.2, "cylinder", (0.1, 0.1), 0.1, "fixed")
    spec = NavigationSpec("Odd-v0", "point", "goal", (s.goal(), odd), extent=2.0)
    with pytest.raises(ValueError, match="Odd-v0 has what no settings describe"):
        spec_to_toml(spec)


def test_tables_of_kinds_and_objectives_fit_the_code() -> None:
    assert set(DEFAULTS) == set(NEEDS) == set(OBJECTIVES)
    for kind in KINDS:
        assert any(hasattr(s, name) for name in (kind, kind.removesuffix("s")))
