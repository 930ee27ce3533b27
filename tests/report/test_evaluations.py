"""Evaluations on fresh worlds in the table of runs and in the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.benchmark.collect import collect
from sbtrpo.cli.app import main
from sbtrpo.report import figures, page
from sbtrpo.report.evaluations import evaluation_table
from sbtrpo.report.runs import read_runs
from sbtrpo.report.tables import Missing
from sbtrpo.runs.folder import RunFolder
from tests.report import samples

TOY = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=1_000, hidden=(8,))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was evaluated twice, one that stopped after its first evaluation, and one that never was."""

    class Stop(sbtrpo.Callback):
        def on_evaluation(self, run: object, evaluation: object) -> None:
            run.stop("after the first")  # type: ignore[attr-defined]

    root = tmp_path_factory.mktemp("evaluated")
    evaluated = TOY.replace(evaluate_every=2, evaluate_episodes=5)
    sbtrpo.train(evaluated, root / "whole", quiet=True)
    sbtrpo.train(evaluated.replace(seed=1000), root / "early", quiet=True, callbacks=[Stop()])
    sbtrpo.train(TOY.replace(algo="trpo"), root / "never", quiet=True)
    return root


def test_evaluations_are_columns_in_the_rows_of_their_epochs(root: Path) -> None:
    collected = collect(root)
    assert set(collected.states.values()) == {"done"}
    assert not collected.unreadable
    rows = collected.table.to_pylist()
    found = {(row["run"], row["epoch"]): row["fresh_reward"] for row in rows if row["fresh_reward"] is not None}
    assert list(found) == [("early", 2), ("whole", 2), ("whole", 4)]
    assert found["whole", 4] == RunFolder.open(root / "whole").evaluations()["reward"][-1]


def test_lost_evaluations_are_told(root: Path, tmp_path: Path) -> None:
    run = sbtrpo.train(TOY.replace(evaluate_every=2, evaluate_episodes=2), tmp_path / "run", quiet=True)
    assert collect(tmp_path).damaged == []
    (run / "evaluations.csv").unlink()
    assert collect(tmp_path).damaged == ["run: evaluations.csv is missing"]


def test_the_report_has_the_last_evaluation_of_each_run(root: Path) -> None:
    runs = read_runs(collect(root).table)
    table = evaluation_table(runs)
    assert [[cell.text for cell in row[:2]] for row in table.rows] == [["ToyCorridor-v0", "SB-TRPO"]]
    last = [RunFolder.open(root / name).evaluations()["safe_reward"][-1] for name in ("whole", "early")]
    assert table.rows[0][2].value == pytest.approx(np.mean(last))
    assert "fresh_safe_reward" in page.metric_titles(runs)
    curve = runs.curve("ToyCorridor-v0", runs.variants[0], "fresh_cost")
    assert curve is not None
    assert np.isnan(curve.mean[0])
    whole = next(run.column("fresh_cost") for run in runs.usual if run.identity == "whole")
    assert whole[1] == whole[2] == curve.mean[2]  # it holds until the next, and the other run is over
    assert figures.training_curves(runs, "ToyCorridor-v0", "fresh_").axes[0].lines


def test_a_report_of_such_runs_is_built(root: Path, tmp_path: Path) -> None:
    assert main(["report", str(root), "--out", str(tmp_path)]) == 0
    assert "| ToyCorridor-v0 | SB-TRPO |" in (tmp_path / "tables" / "fresh_worlds.md").read_text()
    assert any((tmp_path / "figures").glob("fresh_*.png"))


def test_a_report_without_evaluations_says_nothing_of_them() -> None:
    runs = read_runs(samples.table([samples.run("SafetyPointGoal2-v0", "cpo", epochs=3)]))
    assert not runs.evaluated
    assert not any(name.startswith("fresh_") for name in page.metric_titles(runs))
    with pytest.raises(Missing):
        evaluation_table(runs)
