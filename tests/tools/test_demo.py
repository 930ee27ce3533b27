from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

import sbtrpo
from sbtrpo.config import TrainConfig
from sbtrpo.envs import get_spec
from sbtrpo.envs.spec import NavigationSpec
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.envs.view.topdown import MAX_PANELS, STYLES, UNSAFE, draw_worlds, worlds_figure
from sbtrpo.errors import UserError
from sbtrpo.runs.claims import Busy
from sbtrpo.runs.folder import RunFolder
from sbtrpo.tools import demo
from sbtrpo.tools.demo import FirstEpisodes, roll_out, run_demo, run_training_demo

GOAL, CIRCLE, HOPPER = "SafetyPointGoal2-v0", "SafetyCarCircle2-v0", "SafetyHopperVelocity-v1"
NAVIGATION = [task for task in sbtrpo.task_ids() if isinstance(get_spec(task), NavigationSpec)]
LAYOUT_COLOURS = 1000
"""A picture has at least so many pixels that are not white."""


def printed(task: str, worlds: int, out: Path, seed: int = 0, terminal: bool = False) -> tuple[str, FirstEpisodes]:
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    rollout = run_demo(task, worlds, seed, out, console)
    return console.file.getvalue(), rollout  # type: ignore[attr-defined]


def uniform(seed: int) -> Callable[[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    return lambda obs: rng.uniform(-1, 1, (len(obs), 2))


def table_number(text: str, name: str) -> float:
    match = re.search(rf"{name}\D*?(-?[\d.]+)", text)
    assert match, f"{name!r} is not in:\n{text}"
    return float(match[1])


def random_episodes(task: str, worlds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns and costs of the first episodes, summed from the rewards and costs of the steps."""
    pool = sbtrpo.make_pool(task, worlds, seed)
    pool.reset()
    rng = np.random.default_rng(seed)
    low, high = pool.single_action_space.low, pool.single_action_space.high
    returns, costs, running = np.zeros(worlds), np.zeros(worlds), np.ones(worlds)
    while running.any():
        _, reward, cost, terminated, truncated, _ = pool.step(rng.uniform(low, high, (worlds, len(low))))
        returns += running * reward
        costs += running * cost
        running *= ~(terminated | truncated)
    return returns, costs


def layout(task: str, worlds: int) -> tuple[NavigationSpec, np.ndarray]:
    pool = sbtrpo.make_pool(task, worlds)
    pool.reset()
    assert isinstance(pool.task, Navigation)
    return pool.task.spec, np.array(pool.task.worlds.objects)


def coloured_pixels(path: Path) -> int:
    return int(np.sum(np.any(imread(path)[..., :3] < 0.95, axis=-1)))


# ---- the rollout -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [CIRCLE, HOPPER])  # one that ends all episodes at once, one that ends them apart
def test_table_shows_the_numbers_of_the_first_episodes(task: str, tmp_path: Path) -> None:
    returns, costs = random_episodes(task, worlds=3, seed=5)
    text, rollout = printed(task, 3, tmp_path / "demo.png", seed=5)
    np.testing.assert_allclose(rollout.returns, returns, atol=1e-9)
    np.testing.assert_array_equal(rollout.costs, costs)
    assert table_number(text, "mean return") == pytest.approx(returns.mean(), abs=0.00501)
    assert table_number(text, "mean cost") == pytest.approx(costs.mean(), abs=0.00501)
    assert table_number(text, "safety probability") == pytest.approx(np.mean(costs == 0), abs=0.00501)
    assert table_number(text, "steps per second") > 0


def test_trails_begin_at_the_start_and_stay_within_the_episode() -> None:
    pool = sbtrpo.make_pool(CIRCLE, 2, seed=1)
    pool.reset()
    assert isinstance(pool.task, Navigation)
    start = np.array(pool.task.worlds.position[:, :2])
    tracks = roll_out(pool, 1, uniform(1)).tracks
    assert tracks is not None
    assert tracks.trails.shape == (500, 2, 2)
    np.testing.assert_array_equal(tracks.trails[0], start)
    assert np.isfinite(tracks.trails).all()
    # A place of the next episode among these would be a jump.
    assert np.abs(np.diff(tracks.trails, axis=0)).max() < 0.2


def test_objects_are_those_of_the_start_although_they_move() -> None:
    pool = sbtrpo.make_pool("SafetyPointButton2-v0", 1, seed=0)
    pool.reset()
    assert isinstance(pool.task, Navigation)
    start = np.array(pool.task.worlds.objects)
    tracks = roll_out(pool, 0, uniform(0)).tracks
    assert tracks is not None
    np.testing.assert_array_equal(tracks.objects, start)
    assert not np.array_equal(start, pool.task.worlds.objects)


def test_velocity_tasks_say_in_one_sentence_that_they_have_no_picture(tmp_path: Path) -> None:
    text, rollout = printed(HOPPER, 2, tmp_path / "demo.png")
    assert f"There is no picture from above for {HOPPER}" in text
    assert rollout.tracks is None
    assert not (tmp_path / "demo.png").exists()


def test_a_choice_among_actions_is_made_at_random_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    text, rollout = printed("own_environment:LavaGrid-v0", 4, tmp_path / "demo.png")
    assert "There is no picture from above for own_environment:LavaGrid-v0: it has no layout." in text
    assert len(set(rollout.costs)) > 1


def test_piped_output_has_no_progress_bar_and_a_terminal_has_one(tmp_path: Path) -> None:
    assert "stepping" not in printed(CIRCLE, 1, tmp_path / "a.png")[0]
    assert "stepping" in printed(CIRCLE, 1, tmp_path / "b.png", terminal=True)[0]


# ---- the picture -------------------------------------------------------------------------------------------------


def test_demo_saves_a_picture_and_says_where(tmp_path: Path) -> None:
    out = tmp_path / "new folder" / "worlds.png"
    text, _ = printed(CIRCLE, 2, out)
    assert "Saved the worlds from above as" in text
    assert "worlds.png" in text
    assert out.read_bytes().startswith(b"\x89PNG")
    assert coloured_pixels(out) > LAYOUT_COLOURS


def test_a_name_that_is_no_png_is_refused_before_the_episode(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"end in \.png"):
        run_demo(CIRCLE, 1, 0, tmp_path / "demo.jpg")


@pytest.mark.parametrize("task", NAVIGATION)
def test_every_navigation_task_has_its_objects_in_the_picture(task: str, tmp_path: Path) -> None:
    spec, objects = layout(task, 2)
    trails = np.zeros((3, 2, 2))
    draw_worlds(spec, objects, trails, np.zeros(2), np.zeros(2), tmp_path / "some.png")
    assert coloured_pixels(tmp_path / "some.png") > LAYOUT_COLOURS
    figure = worlds_figure(spec, objects, trails, np.zeros(2), np.zeros(2))
    for axes in figure.axes:
        assert len(axes.patches) >= spec.num_objects
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    for group in spec.groups:
        assert group.kind in STYLES
        assert group.kind.replace("_", " ") + (" (cost)" if group.cost else "") in labels


@pytest.mark.parametrize("worlds", [1, 7, 20, MAX_PANELS + 3])
def test_any_number_of_worlds_has_a_panel_each_up_to_the_most(worlds: int) -> None:
    spec, objects = layout(CIRCLE, worlds)
    figure = worlds_figure(spec, objects, np.zeros((2, worlds, 2)), np.zeros(worlds), np.zeros(worlds))
    panels = [axes for axes in figure.axes if axes.axison]
    assert len(panels) == min(worlds, MAX_PANELS)
    assert (f"of {worlds} worlds" in figure.get_suptitle()) == (worlds > MAX_PANELS)


def test_unsafe_episodes_are_red_and_safe_ones_are_not() -> None:
    spec, objects = layout(GOAL, 2)
    figure = worlds_figure(spec, objects, np.zeros((2, 2, 2)), np.array([-1.5, 2.0]), np.array([0.0, 12.0]))
    safe, unsafe = figure.axes
    assert safe.get_title() == "return −1.50   cost 0"
    assert unsafe.get_title() == "return 2.00   cost 12"
    assert unsafe.title.get_color() == UNSAFE
    assert safe.title.get_color() != UNSAFE


def test_a_runaway_robot_does_not_shrink_the_panels() -> None:
    spec, objects = layout(GOAL, 1)
    trails = np.array([[[0.0, 0.0]], [[50.0, 0.0]]])
    figure = worlds_figure(spec, objects, trails, np.zeros(1), np.zeros(1))
    assert spec.extent < figure.axes[0].get_xlim()[1] < 2 * spec.extent


def test_a_trail_ends_where_its_episode_ended() -> None:
    spec, objects = layout(GOAL, 1)
    trails = np.array([[[0.0, 0.0]], [[1.0, 0.0]], [[np.nan, np.nan]]])
    figure = worlds_figure(spec, objects, trails, np.zeros(1), np.zeros(1))
    start, end = figure.axes[0].lines
    assert start.get_xydata().tolist() == [[0.0, 0.0]]
    assert end.get_xydata().tolist() == [[1.0, 0.0]]
    assert len(figure.axes[0].collections[0].get_paths()) == 1


def test_wrong_shapes_are_named() -> None:
    spec, objects = layout(GOAL, 2)
    with pytest.raises(ValueError, match=r"trails must have shape \(5, 2, 2\).*got \(5, 3, 2\)"):
        worlds_figure(spec, objects, np.zeros((5, 3, 2)), np.zeros(2), np.zeros(2))


# ---- the README --------------------------------------------------------------------------------------------------


def test_examples_of_the_readme_and_of_the_page_on_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for page, count in (("README.md", 3), ("docs/runs.md", 1)):
        text = (Path(__file__).parents[2] / page).read_text()
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        names: dict[str, object] = {}
        for block in blocks:  # each goes on from those before it, its assertions included
            exec(block, names)
        assert len(blocks) == count
    assert "share of safe episodes: 0." in capsys.readouterr().out


@pytest.mark.usefixtures("own_curves")
def test_training_demo_leaves_curves_pictures_and_a_run(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=100)
    run = run_training_demo(CIRCLE, epochs=1, seed=0, out=tmp_path, console=console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for name in ("random.png", "trained.png", "curves.png"):
        assert coloured_pixels(tmp_path / name) > LAYOUT_COLOURS
    assert (run / "summary.json").exists()
    assert "Now 1 epoch of sb-trpo_late_hits" in text
    assert re.search(r"about \d+ minutes? on this machine", text)
    line = re.search(
        r"safety probability (\S+) \((\S+) to (\S+)\) -> (\S+) \((\S+) to (\S+)\).*safe reward \S+ -> ", text
    )
    assert line is not None
    share, low, high, trained, trained_low, trained_high = map(float, line.groups())
    _, costs = random_episodes(CIRCLE, worlds=100, seed=2)
    assert low <= np.mean(costs == 0) <= high
    assert low < share < high
    assert trained_low <= trained <= trained_high


def test_a_demo_without_an_epoch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="epochs must be at least 1, got 0"):
        run_training_demo(CIRCLE, epochs=0, out=tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_demo_leaves_another_one_that_is_at_work_alone(tmp_path: Path) -> None:
    config = TrainConfig(task="ToyCorridor-v0", num_envs=2, steps_per_epoch=100, total_steps=100)
    with RunFolder.create(tmp_path / "run", config), pytest.raises(Busy):
        run_training_demo("ToyCorridor-v0", epochs=1, out=tmp_path, console=Console(file=io.StringIO()))
    assert (tmp_path / "run" / "config.toml").exists()


def test_a_demo_that_is_interrupted_before_its_first_epoch_has_nothing_to_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "train", lambda config, out: out)
    with pytest.raises(KeyboardInterrupt):
        run_training_demo("ToyCorridor-v0", epochs=1, out=tmp_path, console=Console(file=io.StringIO()))
