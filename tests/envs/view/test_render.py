from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sbtrpo
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.envs.view import graphics
from sbtrpo.envs.view.graphics import NoGraphicsError, graphics_library
from sbtrpo.envs.view.render import ROBOT, Renderer, probe
from tests.drawing import can_draw

GOAL, BUTTON, CIRCLE = "SafetyPointGoal2-v0", "SafetyPointButton2-v0", "SafetyCarCircle2-v0"
SHOWN = [CIRCLE, "SafetyHopperVelocity-v1", "SafetySwimmerVelocity-v1"]
SIZE = 96, 72


def pool_of(task: str, worlds: int = 1, seed: int = 0) -> sbtrpo.Pool:
    pool = sbtrpo.make_pool(task, worlds, seed)
    pool.reset()
    return pool


def drawn(pool: sbtrpo.Pool, **options: Any) -> Renderer | None:
    """A renderer; None where there is no OpenGL, after a look at the sentence that says what to install."""
    if can_draw():
        return Renderer(pool, *SIZE, **options)
    with pytest.raises(NoGraphicsError, match=r"apt-get install libegl1.*MUJOCO_GL"):
        Renderer(pool, *SIZE, **options)
    return None


def share(picture: np.ndarray, colour: str) -> float:
    """Share of the pixels in which a channel stands out, or two."""
    red, green, blue = (picture[..., k].astype(int) for k in range(3))
    stands_out = {
        "red": (red > green + 60) & (red > blue + 60),
        "green": (green > red + 40) & (green > blue + 40),
        "blue": (blue > red + 40) & (blue > green + 40),
        "teal": (green > red + 60) & (blue > red + 60),
    }
    return float(stands_out[colour].mean())


@pytest.mark.parametrize("task", SHOWN)
def test_every_kind_of_task_has_its_picture(task: str) -> None:
    pool = pool_of(task)
    renderer = drawn(pool)
    if renderer is not None:
        with renderer:
            picture = renderer.frame()
        assert picture.shape == (72, 96, 3)
        assert picture.dtype == np.uint8
        assert picture.std() > 5


def test_the_colours_are_those_of_the_objects_and_red_is_what_costs() -> None:
    pool = pool_of(GOAL)
    renderer = drawn(pool)
    if renderer is not None:
        with renderer:
            calm, costly = renderer.frame(), renderer.frame(violated=["cost_vases_contact"])
        for colour in ("green", "blue", "teal"):
            assert share(calm, colour) > 0.001
        assert share(calm, "red") == 0
        assert share(costly, "red") > 0.001


def test_a_picture_follows_its_world_and_tells_worlds_apart() -> None:
    pool = pool_of(GOAL, worlds=2)
    renderer = drawn(pool)
    if renderer is not None:
        with renderer:
            first, other = renderer.frame(0), renderer.frame(1)
            np.testing.assert_array_equal(renderer.frame(0), first)
            for _ in range(40):
                pool.step(np.ones((2, 2)))
            later = renderer.frame(0)
        assert np.abs(first.astype(int) - other).mean() > 1
        assert (first != later).any()


def test_drawing_changes_nothing_in_the_pool() -> None:
    plain, watched = pool_of(BUTTON, seed=3), pool_of(BUTTON, seed=3)
    renderer = drawn(watched)
    action = np.random.default_rng(0).uniform(-1, 1, (10, 1, 2))
    for step in range(10):
        expected = plain.step(action[step])[0]
        np.testing.assert_array_equal(watched.step(action[step])[0], expected)
        if renderer is not None:
            renderer.frame()
    if renderer is not None:
        renderer.close()


def test_cameras_see_different_pictures() -> None:
    pool = pool_of(GOAL)
    above, beside = drawn(pool, camera="top"), drawn(pool, camera="follow")
    if above is not None and beside is not None:
        with above, beside:
            assert np.abs(above.frame().astype(int) - beside.frame()).mean() > 1


def test_a_robot_that_leaves_the_arena_stays_in_the_picture() -> None:
    pool = pool_of("SafetyCarPush2-v0")
    renderer = drawn(pool)
    if renderer is not None:
        pool.physics.qpos[0, :2] = 30.0, -20.0
        with renderer:
            assert share(renderer.frame(violated=["cost_pillars"]), "red") > 1e-4


def test_a_view_can_be_drawn_later() -> None:
    pool = pool_of(BUTTON)
    renderer = drawn(pool)
    if renderer is not None:
        with renderer:
            now, view = renderer.frame(), renderer.view()
            for _ in range(30):
                pool.step(np.ones((1, 2)))
            np.testing.assert_array_equal(renderer.draw(view), now)
            trail = np.array([[-1.0, -1.0], [1.0, 1.0]])
            assert (renderer.draw(view, trail=trail) != now).any()


def test_a_closed_renderer_says_so() -> None:
    renderer = drawn(pool_of(GOAL))
    if renderer is not None:
        renderer.close()
        renderer.close()
        with pytest.raises(RuntimeError, match="closed"):
            renderer.frame()


# ---- who is concerned ------------------------------------------------------------------------------------------------


def concerned(pool: sbtrpo.Pool, *names: str) -> set[int]:
    """`Renderer.concerned`, which needs no OpenGL."""
    task = pool.task if isinstance(pool.task, Navigation) else None
    return set(Renderer.concerned(SimpleNamespace(_task=task), 0, names))  # type: ignore[arg-type]


def put(pool: sbtrpo.Pool, kind: str, k: int, offset: float = 0.0) -> int:
    """Put an object beside the robot; returns its number."""
    assert isinstance(pool.task, Navigation)
    number = int(pool.task.slices[kind].start) + k
    pool.task.worlds.objects[0, number, :2] = pool.task.worlds.position[0, :2] + [offset, 0.0]
    pool.task.refresh()
    return number


def test_nobody_is_concerned_while_nothing_costs() -> None:
    assert concerned(pool_of(GOAL)) == set()


def test_the_hazards_that_the_robot_is_in_are_concerned() -> None:
    pool = pool_of(GOAL)
    inside = {ROBOT, put(pool, "hazards", 2), put(pool, "hazards", 5, offset=0.15)}
    put(pool, "hazards", 7, offset=0.25)
    assert concerned(pool, "cost_hazards") == inside


def test_the_nearest_wrong_button_is_concerned_and_not_the_target() -> None:
    pool = pool_of(BUTTON)
    assert isinstance(pool.task, Navigation)
    pool.task.worlds.target[0] = 1
    put(pool, "buttons", 1)
    wrong = put(pool, "buttons", 3, offset=0.2)
    assert concerned(pool, "cost_buttons") == {ROBOT, wrong}


def test_vases_that_move_are_concerned() -> None:
    pool = pool_of(GOAL)
    assert isinstance(pool.task, Navigation)
    pool.task.worlds.free_velocity[:] = 0
    pool.task.worlds.free_velocity[0, [3, 6], 0] = 0.1
    first = int(pool.task.slices["vases"].start)
    assert concerned(pool, "cost_vases_velocity") == {ROBOT, first + 3, first + 6}


def test_the_crossed_boundary_is_concerned() -> None:
    pool = pool_of(CIRCLE)
    assert isinstance(pool.task, Navigation)
    pool.physics.qpos[0, :2] = -2.0, 0.3
    pool.physics.forward()
    pool.task.refresh()
    walls = pool.task.slices["sigwalls"]
    left = int(np.argmin(pool.task.worlds.objects[0, walls, 0]))
    assert concerned(pool, "cost_out_of_boundary") == {ROBOT, walls.start + left}


def test_a_robot_without_objects_is_concerned_itself() -> None:
    assert concerned(pool_of("SafetyHopperVelocity-v1"), "cost_velocity") == {ROBOT}


# ---- what is said when it cannot draw --------------------------------------------------------------------------------


def test_a_task_without_a_scene_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="ToyCorridor-v0 has no scene to draw"):
        Renderer(pool_of("ToyCorridor-v0"))


@pytest.mark.parametrize(
    ("options", "said"), [({"camera": "side"}, "camera must be one of"), ({"width": 8}, "at least")]
)
def test_wrong_options_are_named(options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Renderer(pool_of(GOAL), **options)


def test_without_a_library_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr(graphics, "_loads", lambda library: None)
    with pytest.raises(NoGraphicsError, match=r"apt-get install libegl1 libgl1.*MUJOCO_GL=osmesa") as caught:
        Renderer(pool_of(GOAL))
    assert "\n" not in str(caught.value)


def test_osmesa_is_taken_where_there_is_no_egl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(graphics, "_loads", lambda library: "OSMesa" in library or None)
    assert graphics_library() == "osmesa"


def test_a_library_that_fails_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(width: int, height: int) -> None:
        raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")

    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setitem(sys.modules, "mujoco.egl", SimpleNamespace(GLContext=fail))
    with pytest.raises(NoGraphicsError, match=r"by egl does not work here \('NoneType'.*install libegl1"):
        Renderer(pool_of(GOAL))


def test_the_users_choice_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "OSMesa")
    assert graphics_library() == "osmesa"
    monkeypatch.setenv("MUJOCO_GL", "off")
    with pytest.raises(NoGraphicsError, match="unset it"):
        graphics_library()


def test_a_window_needs_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(NoGraphicsError, match="no screen to open a window on"):
        Renderer(pool_of(GOAL), window=True)


def test_the_probe_names_the_library_that_draws() -> None:
    if can_draw():
        assert probe() == graphics_library()
    else:
        with pytest.raises(NoGraphicsError, match="install"):
            probe()
