"""Choices that are made at once, observations of several parts, and worlds that draw themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

import sbtrpo
from sbtrpo import cli
from sbtrpo.envs.foreign.check import check_environment
from sbtrpo.envs.foreign.environment import Combinations, UnfitEnvironment
from sbtrpo.media.pictures import Pictures, pool_with_pictures
from sbtrpo.media.recording import record
from sbtrpo.runs.evaluation import evaluate
from sbtrpo.runs.export import export
from tests.envs.foreign.test_pool import pool_of
from tests.envs.foreign.worlds import LENGTH, name_of
from tests.runs.trained import FORMATS, trained

LEVERS = name_of("levers")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "levers", LEVERS)


# ---- several choices at once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([2, 3, 4], start=[0, -1, 5]),
        spaces.MultiDiscrete([[2, 3], [1, 2]]),
        spaces.MultiBinary(4),
        spaces.MultiBinary([2, 2]),
    ],
    ids=str,
)
def test_every_combination_is_a_choice(space: Any) -> None:
    several = Combinations(space)
    assert all(space.contains(action) for action in several.table)
    assert len({action.tobytes() for action in several.table}) == several.n
    np.testing.assert_array_equal(several.numbers(several.table), np.arange(several.n))


def test_a_pool_takes_combinations_by_their_numbers() -> None:
    with pool_of(LEVERS, 6) as pool:
        assert pool.single_action_space == spaces.Discrete(6)
        obs, _ = pool.reset()
        assert obs.shape == (6, 7)
        obs, reward, cost, *_ = pool.step(np.arange(6))
        np.testing.assert_array_equal(reward, [0, 1, 2, 10, 11, 12])
        np.testing.assert_array_equal(cost, [0, 0, 1, 0, 0, 1])
        np.testing.assert_array_equal(obs[4, :5], [0, 1, 0, 1, 0])  # one-hot: the first lever, then the second


def test_a_policy_acts_as_the_environment_takes_it_and_so_do_its_exports(run: Path) -> None:
    space = spaces.MultiDiscrete([2, 3], start=[0, 1])
    policy = sbtrpo.load_policy(run)
    actions = policy.act(np.random.default_rng(0).normal(size=(50, 7)), seed=0)
    assert actions.shape == (50, 2)
    assert all(space.contains(action) for action in actions)
    assert len(np.unique(actions, axis=0)) > 3
    ours = evaluate(run, 8, deterministic=True)
    for format in FORMATS:
        assert evaluate(export(run, format), 8, task=LEVERS).reward == ours.reward
    best = evaluate(lambda obs: np.tile([1, 2], (len(obs), 1)), 4, task=LEVERS)
    assert (best.reward, best.cost) == (11 * LENGTH, 0)
    with pytest.raises(ValueError, match="outside of"):
        evaluate(lambda obs: np.tile([1, 0], (len(obs), 1)), 4, task=LEVERS)


def test_a_matrix_of_actions_comes_back_with_the_policy(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", name_of("matrix"))
    assert sbtrpo.load_policy(run).act(np.zeros((3, 1))).shape == (3, 2, 2)


def test_what_becomes_of_spaces_is_noted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flat = "observations are flattened to 7 numbers: levers (5 one-hot), place (2)"
    choice = "are one choice among their 6 combinations"
    found = check_environment(LEVERS, seconds=0.1, isolated=False)
    assert found.ok
    notes = [finding.message for finding in found.findings if finding.severity == "note"]
    assert flat in notes
    assert any(note.endswith(choice) for note in notes)
    size = ["--num-envs", "2", "--steps-per-epoch", "16", "--total-steps", "16", "--out", str(tmp_path / "run")]
    assert cli.main(["train", LEVERS, *size, "--env-kwargs", "tilt=0.5"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert flat in shown
    assert choice in shown
    assert (tmp_path / "run" / "config.toml").read_text().count(f'task = "{LEVERS}?tilt=0.5"') == 1


# ---- worlds that draw themselves -------------------------------------------------------------------------------------


def test_worlds_draw_themselves_as_they_are() -> None:
    pool = pool_with_pictures(LEVERS, 3, seed=0)
    with Pictures(pool, 60, 80) as pictures:
        pool.reset()
        pool.step(np.array([5, 0, 4]))
        assert pictures.seconds_a_step == 0.1
        for world, colour in enumerate([(1, 1, 2), (1, 0, 0), (1, 1, 1)]):
            frame = pictures.draw(pictures.view(world))
            assert frame.shape == (80, 60, 3)
            assert (frame[20:60] == colour).all()  # in the middle, and paper above and below
            assert (frame[:20] > 200).all()


def test_a_policy_is_filmed_in_an_environment_of_ones_own(run: Path, tmp_path: Path) -> None:
    *_, gif = record(run, 2, out=tmp_path / "levers.gif", width=96, height=64, fps=10, speed=1)
    with Image.open(gif) as picture:
        assert picture.size[0] == 96
        assert picture.n_frames > 2  # type: ignore[attr-defined]
    assert (
        cli.main(["record", str(run), "--episodes", "1", "--env-kwargs", "tilt=1", "--out", str(tmp_path / "b.gif")])
        == 0
    )
    assert (tmp_path / "b.gif").exists()


def test_an_environment_that_does_not_draw_is_told_what_it_lacks(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", name_of("walk"))
    with pytest.raises(UnfitEnvironment, match="Walk-v0 cannot be filmed: let its constructor take render_mode"):
        record(run, 1)
    pool = pool_with_pictures(name_of("matrix"), 1, seed=0)
    pool.reset()
    with pytest.raises(UnfitEnvironment, match="render returned no picture"):
        pool.render(0)
