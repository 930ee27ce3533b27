from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

import sbtrpo
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.envs.view.topdown import INK, UNSAFE
from sbtrpo.media.trajectories import (
    COLUMNS,
    NARROWEST,
    ROWS,
    FloorPlan,
    PlayedEpisodes,
    draw_trajectories,
    play_episodes,
    trajectories_figure,
)
from sbtrpo.runs import evaluation

GOAL, CIRCLE, HOPPER, TOY = "SafetyPointGoal2-v0", "SafetyCarCircle2-v0", "SafetyHopperVelocity-v1", "ToyCorridor-v0"
STEPS = 6


def trained(folder: Path, task: str) -> Path:
    config = sbtrpo.TrainConfig(task=task, num_envs=4, steps_per_epoch=400, total_steps=400)
    return sbtrpo.train(config, out=folder, quiet=True)


def imagined(task: str, costs: list[float]) -> PlayedEpisodes:
    """Episodes on real layouts that go straight on, and cost in their first steps."""
    pool = sbtrpo.make_pool(task, len(costs))
    pool.reset()
    assert isinstance(pool.task, Navigation)
    n = len(costs)
    start = np.array(pool.task.worlds.position)[:, :2]
    cost = (np.arange(STEPS)[:, None] < np.array(costs)).astype(float)
    return PlayedEpisodes(
        task=task,
        length=STEPS,
        returns=np.arange(n, dtype=float),
        costs=np.array(costs),
        reward=np.ones((STEPS, n)),
        cost=cost,
        reached=np.arange(STEPS * n).reshape(STEPS, n) == 0,
        plan=FloorPlan(
            spec=pool.task.spec,
            objects=np.array(pool.task.worlds.objects),
            trails=start + 0.1 * np.arange(STEPS + 1)[:, None, None],
        ),
    )


def red_points(axes: object) -> int:
    return sum(len(line.get_xdata()) for line in axes.lines if line.get_color() == UNSAFE and line.get_marker() == "o")  # type: ignore[attr-defined]


# ---- the picture -----------------------------------------------------------------------------------------------------


def test_safe_episodes_stand_left_and_unsafe_ones_right_with_their_costs() -> None:
    figure = trajectories_figure(imagined(GOAL, [0, 3, 0, 2, 0]), "a title")
    panels = sorted(figure.axes, key=lambda axes: axes.get_position().x0)
    titles = [axes.get_title() for axes in panels]
    assert len(panels) == 5
    assert [title.endswith("cost 0") for title in titles] == [True] * 3 + [False] * 2
    assert [red_points(axes) for axes in panels] == [0, 0, 0, 3, 2]
    texts = [text.get_text() for text in figure.texts]
    assert "safe: 3 of 5 episodes (60 %)" in texts
    assert "mean reward 2.00" in texts
    assert "unsafe: 2 of 5 episodes (40 %)" in texts
    assert "mean reward 2.00, mean cost 2.5" in texts


def test_panels_are_limited_and_headings_count_all() -> None:
    most = (COLUMNS - NARROWEST) * ROWS
    figure = trajectories_figure(imagined(GOAL, [0.0] * (most + 3) + [1.0] * 2), "a title")
    assert len(figure.axes) == most + 2
    assert any(text.get_text().endswith(f"first {most} shown") for text in figure.texts)
    assert any(text.get_text().startswith(f"safe: {most + 3} of {most + 5}") for text in figure.texts)


@pytest.mark.parametrize("cost", [0.0, 1.0])
def test_a_side_without_episodes_leaves_its_room_to_the_other(cost: float) -> None:
    figure = trajectories_figure(imagined(GOAL, [cost] * 5), "a title")
    assert len(figure.axes) == 5
    heights = {round(axes.get_position().y0, 3) for axes in figure.axes}
    assert len(heights) == 1  # five in a row


def test_episodes_of_a_task_with_one_layout_share_a_panel() -> None:
    figure = trajectories_figure(imagined(CIRCLE, [0, 3, 0, 2]), "a title")
    safe, unsafe = figure.axes
    assert red_points(safe) == 0
    assert red_points(unsafe) == 5
    assert len(safe.collections) == len(unsafe.collections) == 2


@pytest.mark.parametrize("task", [GOAL, CIRCLE])
def test_a_robot_that_leaves_the_view_is_marked_at_its_edge_with_what_it_cost(task: str) -> None:
    episodes = imagined(task, [0, 2, 0])
    assert episodes.plan is not None
    episodes.plan.trails[1:, 1] = [[0.0, -40.0 - k] for k in range(STEPS)]
    episodes.plan.trails[3:, 2] = np.nan
    figure = trajectories_figure(episodes, "a title")
    arrows = [(axes, text) for axes in figure.axes for text in axes.texts if text.get_visible()]
    ((axes, arrow),) = arrows
    assert arrow.get_text() == "45.0 m"
    bottom = axes.get_ylim()[0]
    assert arrow.xy == pytest.approx((0.0, bottom))  # type: ignore[attr-defined]
    (events,) = (line for line in axes.lines if line.get_color() == UNSAFE and len(line.get_xdata()) == 2)
    np.testing.assert_allclose(events.get_ydata(), bottom)
    assert "beyond the view" in [text.get_text() for text in figure.legends[0].get_texts()]
    inside = trajectories_figure(imagined(task, [0, 2, 0]), "a title")
    assert "beyond the view" not in [text.get_text() for text in inside.legends[0].get_texts()]


def test_what_costs_is_in_the_legend() -> None:
    figure = trajectories_figure(imagined(GOAL, [0, 3]), "a title")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"hazards (cost)", "goal reached", "a step that cost"} <= set(labels)


@pytest.mark.parametrize("with_speed", [True, False])
def test_a_mean_course_goes_from_the_first_step_to_the_last(with_speed: bool) -> None:
    many = imagined(GOAL, [0, 0, 3])
    values = np.arange(1.0, STEPS + 1)[:, None] * [1.0, 3.0, 0.0]
    episodes = replace(many, plan=None, reward=np.diff(values, axis=0, prepend=0), speed=values if with_speed else None)
    figure = trajectories_figure(episodes, "a title")
    (mean,) = (line for line in figure.axes[0].lines if line.get_color() == INK)
    assert [*mean.get_xdata()] == [*range(1, STEPS + 1)]  # type: ignore[arg-type]
    if not with_speed:  # sums are smooth already
        np.testing.assert_allclose(mean.get_ydata(), values[:, :2].mean(axis=1))
    assert red_points(figure.axes[1]) == 3
    assert "end before its time" not in [text.get_text() for text in figure.legends[0].get_texts()]


# ---- runs ------------------------------------------------------------------------------------------------------------


def test_a_velocity_task_shows_its_speeds_and_the_limit(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", HOPPER)
    path = draw_trajectories(run, episodes=6, out=tmp_path / "new" / "hopper.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert (imread(path)[..., :3].min(axis=-1) < 0.9).sum() > 1000
    played = play_episodes(sbtrpo.load_policy(run), HOPPER, 6, 7, False)
    assert played.threshold == pytest.approx(0.7402)
    assert played.speed is not None
    running = np.isfinite(played.speed)
    np.testing.assert_array_equal((played.speed > 0.7402)[running], (played.cost > 0)[running])
    ends = running.sum(axis=0)
    assert (ends < played.length).all()  # an untrained hopper falls
    crosses = [line for axes in trajectories_figure(played, "").axes for line in axes.lines if line.get_marker() == "x"]
    assert sorted(int(cross.get_xdata()[0]) for cross in crosses) == sorted(ends)


def test_any_other_task_shows_its_reward(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", TOY)
    assert draw_trajectories(run, episodes=5) == run / "trajectories.png"
    played = play_episodes(sbtrpo.load_policy(run), TOY, 5, 7, True)
    expected, _ = evaluation.play(sbtrpo.load_policy(run), TOY, 5, 7, True)
    np.testing.assert_allclose(played.returns, expected["return"])
    np.testing.assert_array_equal(played.costs, expected["cost"])
    figure = trajectories_figure(played, "")
    assert figure.axes[0].get_ylabel() == "reward so far"


def test_trails_begin_at_the_start_and_never_jump_into_the_next_episode(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", CIRCLE)
    played = play_episodes(sbtrpo.load_policy(run), CIRCLE, 2, 3, False)
    assert played.plan is not None
    trails = played.plan.trails
    assert trails.shape == (501, 2, 2)
    assert np.isfinite(trails).all()
    pool = sbtrpo.make_pool(CIRCLE, 2, seed=3)
    pool.reset()
    assert isinstance(pool.task, Navigation)
    np.testing.assert_array_equal(trails[0], np.array(pool.task.worlds.position)[:, :2])
    assert np.abs(np.diff(trails, axis=0)).max() < 0.2


@pytest.mark.parametrize(("options", "said"), [({"episodes": 0}, "at least 1"), ({"out": "a.jpg"}, r"end in \.png")])
def test_wrong_options_are_named(options: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        draw_trajectories(tmp_path, **options)  # type: ignore[arg-type]
