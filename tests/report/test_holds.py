"""How much of what updates promise holds in other worlds: in the table of runs, in figures and on the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.benchmark.collect import collect, read_table, write_table
from sbtrpo.report import build, figures, page
from sbtrpo.report.runs import Runs, _now_and_then, read_runs
from sbtrpo.report.tables import Missing
from tests.report import samples

GOAL, CIRCLE = "SafetyPointGoal2-v0", "SafetyCarCircle2-v0"
BATCHES = (20, 100, 400)


def measuring(task: str, algo: str, seed: int, worlds: int, epochs: int = 60) -> dict[str, Any]:
    """A run that measures in one of ten epochs; the more worlds, the more holds."""
    one = samples.run(task, algo, seed, epochs, num_envs=worlds)
    noise = np.random.default_rng([worlds, seed, len(algo)]).standard_normal((2, epochs))
    share = {20: 0.1, 100: 0.5, 400: 0.8}[worlds]
    unmeasured = np.where(np.arange(epochs) % 10, np.nan, 0.0)
    return {**one, "holds_r": share + 0.05 * noise[0] + unmeasured, "holds_c": share / 4 + 0.05 * noise[1] + unmeasured}


@pytest.fixture(scope="module")
def table() -> pyarrow.Table:
    measured = [measuring(GOAL, algo, seed, n) for algo in ("sb-trpo", "cpo") for seed in (0, 1) for n in BATCHES]
    return samples.table([*measured, samples.run(GOAL, "ppo_lag", 0, 60), samples.run(CIRCLE, "ppo_lag", 0, 60)])


@pytest.fixture(scope="module")
def runs(table: pyarrow.Table) -> Runs:
    return read_runs(table)


def test_runs_bring_their_measurements_into_the_table_and_the_report(tmp_path: Path) -> None:
    small = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=1000, halves_every=2)
    run = sbtrpo.train(small, tmp_path / "runs" / "one", quiet=True)
    found = read_table(write_table(collect(run.parent).table, tmp_path / "runs.parquet"))
    columns = {name: found[name].to_numpy() for name in ("epoch", "holds_r", "holds_c")}
    for name in ("holds_r", "holds_c"):
        assert columns["epoch"][np.isfinite(columns[name])].tolist() == [1, 3, 5]
    report = build(found, tmp_path / "report")
    assert any(path.name == "holds_toycorridor_v0.png" for path in report.written)
    assert "share that holds: cost" in report.index.read_text("utf-8")


def test_a_curve_of_few_measurements_shows_each_until_the_next(runs: Runs) -> None:
    variant = next(v for v in runs.variants if v.algo == "cpo" and dict(v.settings).get("num_envs") == 400)
    curve = runs.curve(GOAL, variant, "holds_r")
    assert curve is not None
    measured = np.array([run.column("holds_r")[::10] for run in runs.of(GOAL, variant)])
    assert measured.shape == (2, 6)
    first, second, *_, last = measured.mean(axis=0)
    np.testing.assert_allclose(curve.mean[[0, 9, 10, 59]], [first, first, second, last])


def test_a_curve_of_many_measurements_is_the_mean_of_the_last_tenth() -> None:
    values = np.where(np.arange(500) % 10, np.nan, np.arange(500) / 10)  # 50 measurements: 0, 1, ..., 49
    smooth = _now_and_then(values)
    np.testing.assert_allclose(smooth[[0, 10, 19, 20, 100, 499]], [0, 0.5, 0.5, 1, 8, 47])


def test_the_figure_has_a_line_for_each_variant_from_pale_to_its_methods_colour(runs: Runs) -> None:
    figure = figures.what_holds(runs, GOAL)
    reward, cost = figure.axes
    assert [axis.get_title("left") for axis in (reward, cost)] == ["share that holds: reward", "share that holds: cost"]
    lines = {str(line.get_label()): line for line in reward.lines if not str(line.get_label()).startswith("_")}
    assert len(lines) == 2 * len(BATCHES)  # and none of PPO-Lag, which does not measure
    ours = [line for title, line in lines.items() if title.startswith("SB-TRPO")]
    colours = [str(line.get_color()) for line in ours]
    assert colours[-1] == "#D55E00"
    blue = [int(colour[5:], 16) for colour in colours]
    assert blue == sorted(blue, reverse=True)
    assert len(set(blue)) == len(BATCHES)
    figure.draw_without_rendering()
    heading = figure._suptitle.get_window_extent()  # type: ignore[attr-defined]
    assert 0 <= heading.x0 < heading.x1 <= figure.bbox.width
    ends = [float(np.asarray(line.get_ydata())[-1]) for line in ours]
    assert ends == sorted(ends)


def test_each_constraint_has_a_panel() -> None:
    one = measuring(GOAL, "sb-trpo", 0, 20)
    share = one.pop("holds_c")
    for name in ("hazards", "vases"):
        one |= {f"cost_{name}": one["cost"], f"safety_{name}": one["safety_probability"], f"holds_{name}": share}
    titles = [axis.get_title("left") for axis in figures.what_holds(read_runs(samples.table([one])), GOAL).axes]
    assert titles == [f"share that holds: {name}" for name in ("reward", "hazards", "vases")]


def test_where_nobody_has_measured_nothing_is_shown(table: pyarrow.Table, runs: Runs, tmp_path: Path) -> None:
    report = build(table, tmp_path / "some")
    assert [path.name for path in report.written if re.match("holds_.*png", path.name)] == [
        "holds_safetypointgoal2_v0.png"
    ]
    with pytest.raises(Missing):
        figures.what_holds(runs, CIRCLE)
    none = build(samples.table([samples.run(GOAL, "ppo_lag")]), tmp_path / "none")
    assert not any("holds" in path.name for path in none.written)
    assert not any("hold" in gap.part for gap in none.skipped)
    assert not any("holds" in name for name in page.metric_titles(read_runs(samples.table([samples.run(GOAL, "cpo")]))))
