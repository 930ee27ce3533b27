"""A picture of several policies, with two episodes each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

import sbtrpo
from sbtrpo.cli import main
from sbtrpo.media.side_by_side import median_episode, side_by_side_figure
from sbtrpo.media.trajectories import PlayedEpisodes
from tests.media.test_trajectories import GOAL, HOPPER, TOY, imagined, red_points

STEPS = 8


def courses(costs: list[float]) -> PlayedEpisodes:
    """Episodes of a velocity task."""
    n = len(costs)
    cost = (np.arange(STEPS)[:, None] < np.array(costs)).astype(float)
    returns, ones = np.arange(n, dtype=float), np.ones((STEPS, n))
    return PlayedEpisodes(HOPPER, STEPS, returns, np.array(costs), ones, cost, ones > 1, speed=ones, threshold=1.5)


def test_each_policy_has_a_safe_episode_above_an_unsafe_one() -> None:
    policies = [imagined(GOAL, [0, 3, 0, 2, 0]), courses([0, 2]), courses([0, 0, 0])]
    figure = side_by_side_figure(policies, ["one", "two", "three"])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:5] == [
        "return 2.00   cost 0",  # of 0, 2 and 4
        "return 1.00   cost 3",  # the lower of 1 and 3
        "return 0.00   cost 0",
        "return 1.00   cost 2",
        "return 1.00   cost 0",
    ]
    assert [red_points(axes) for axes in figure.axes] == [0, 3, 0, 2, 0, 0]
    assert [text.get_text() for text in figure.axes[5].texts] == ["no unsafe one"]
    assert [text.get_text() for text in figure.texts][:4] == [GOAL, "one", "safe in 3 of 5 episodes", HOPPER]
    above, below = figure.axes[0].get_position(), figure.axes[1].get_position()
    assert (above.x0, above.y0 > below.y1) == (below.x0, True)


def test_more_policies_than_columns_make_a_second_band() -> None:
    figure = side_by_side_figure([courses([0, 1])] * 5, list("abcde"))
    corners = {(round(axes.get_position().x0, 3), round(axes.get_position().y0, 3)) for axes in figure.axes}
    assert len(corners) == 10
    assert len({y for _, y in corners}) == 4


def test_no_episode_of_a_side_is_none() -> None:
    assert median_episode(courses([1, 1]), safe=True) is None


def test_the_command_draws_several_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for seed in (0, 1):
        config = sbtrpo.TrainConfig(task=TOY, num_envs=4, steps_per_epoch=400, total_steps=400, seed=seed)
        runs.append(str(sbtrpo.train(config, out=tmp_path / str(seed), quiet=True)))
    monkeypatch.chdir(tmp_path)
    assert main(["trajectories", *runs, "--episodes", "4"]) == 0
    assert capsys.readouterr().out.strip() == "trajectories.png"
    assert imread(tmp_path / "trajectories.png").shape[2] == 4
    for words, sentence in (([], "give the folder"), ([*runs, "--out", "x.svg"], "end in .png"),
                            ([*runs, "--episodes", "0"], "at least 1")):  # fmt: skip
        assert main(["trajectories", *words]) == 2
        assert sentence in capsys.readouterr().err
