"""The tidy table has every run's numbers, and its summaries are what one computes by hand."""

from __future__ import annotations

import dataclasses
import io
import math
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from rich.console import Console

from sbtrpo.benchmark.collect import collect, final, overall, setting_columns, write_table
from sbtrpo.benchmark.command import collect_runs
from sbtrpo.benchmark.plan import run_path
from sbtrpo.benchmark.schedule import write_manifest
from sbtrpo.benchmark.states import progress
from sbtrpo.benchmark.statistics import bootstrap_interval, interquartile_mean
from tests.benchmark.folders import HEADER, toy, write_run

SB, CPO = toy(), toy(algo="cpo")


def seeds(root: Path, config: object, rewards: list[list[float]], cost: float = 0.0) -> None:
    """Runs with seeds 0, 1, ... and these rewards by epoch."""
    for seed, course in enumerate(rewards):
        rows = [(reward, cost, float(cost == 0), reward * (cost == 0)) for reward in course]
        write_run(root, dataclasses.replace(config, seed=seed), rows)  # type: ignore[type-var]


def test_the_table_has_a_row_for_each_run_and_epoch(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[1.0, 2.0, 3.0], [4.0, 5.0]])
    seeds(tmp_path, CPO, [[7.0, 8.0, 9.0]], cost=2.0)
    found = collect(tmp_path)
    rows = found.table.to_pylist()
    assert len(rows) == 8
    last = next(row for row in rows if row["algo"] == "cpo" and row["epoch"] == 3)
    assert last["run"] == run_path("", CPO).as_posix()
    assert (last["task"], last["seed"], last["steps"], last["total_steps"]) == ("ToyCorridor-v0", 0, 300, 300)
    assert (last["reward"], last["cost"], last["safe_reward"]) == (9.0, 2.0, 0.0)
    assert (last["beta"], last["advantage"], last["cost_limit"]) == (None, "gae", 0.0)
    assert (last["update_seconds"], last["complete"]) == (1.5, True)
    assert [row["complete"] for row in rows if row["algo"] == "sb-trpo"] == [True] * 3 + [False] * 2
    assert {row["beta"] for row in rows if row["algo"] == "sb-trpo"} == {0.75}
    assert found.sentence() == "3 runs: 2 done, 0 running, 1 interrupted, 0 failed, 0 pending"
    path = write_table(found.table, tmp_path / "out" / "table.parquet")
    assert pyarrow.parquet.read_table(path).equals(found.table)


def test_settings_that_are_not_a_methods_own_are_columns(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[1.0] * 3])
    seeds(tmp_path, toy(beta=0.9, target_kl=0.02, hidden=(32,)), [[2.0] * 3])
    table = collect(tmp_path).table
    assert {"target_kl", "hidden", "num_envs"} <= set(setting_columns(table))
    assert "gamma" not in table.column_names
    by_beta = {row["beta"]: row for row in table.to_pylist()}
    assert by_beta[0.9]["target_kl"] == 0.02
    assert by_beta[0.9]["hidden"] == [32]
    assert by_beta[0.75]["target_kl"] == 0.01
    assert len(final(table)) == 2


def test_a_setting_that_is_also_a_metric_keeps_apart_from_it(tmp_path: Path) -> None:
    path = write_run(tmp_path, toy(cg_iterations=7), [(1.0, 0.0, 1.0, 1.0)] * 3)
    lines = (path / "metrics.csv").read_text().splitlines()
    (path / "metrics.csv").write_text("\n".join([f"{lines[0]},cg_iterations", *(f"{x},5.0" for x in lines[1:]), ""]))
    table = collect(tmp_path).table
    assert set(table["cg_iterations"].to_pylist()) == {5.0}
    assert set(table["config_cg_iterations"].to_pylist()) == {7}
    assert "config_cg_iterations" in setting_columns(table)
    assert "cg_iterations" not in setting_columns(table)


def test_both_ways_across_seeds_equal_values_by_hand(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[0.0, 1.0, 2.0], [0.0, 3.0, 6.0], [5.0]])
    (row,) = final(collect(tmp_path).table, last_epochs=2).to_pylist()
    assert (row["seeds"], row["incomplete"]) == (2, 1)
    assert row["reward_mean"] == 4.0  # of 2 and 6
    assert row["reward_std"] == pytest.approx(math.sqrt(8))
    assert row["reward_pooled_mean"] == 3.0  # of 1, 2, 3 and 6
    assert row["reward_pooled_std"] == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 4))
    assert row["safety_probability_mean"] == 1.0
    assert row["reward_iqm"] == 4.0
    assert row["reward_iqm_low"] == 2.0
    assert row["reward_iqm_high"] == 6.0


def test_one_seed_has_no_deviation_and_no_complete_run_no_values(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[1.0, 2.0, 3.0]])
    seeds(tmp_path, CPO, [[1.0]])
    cpo, sb = final(collect(tmp_path).table).to_pylist()
    assert (sb["reward_mean"], sb["reward_std"]) == (3.0, None)
    assert (cpo["seeds"], cpo["incomplete"], cpo["reward_mean"], cpo["reward_iqm_low"]) == (0, 1, None, None)


def test_runs_that_never_began_are_missed(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[1.0, 2.0, 3.0]])
    write_manifest("plan", [SB, toy(seed=1)], tmp_path)
    found = collect(tmp_path)
    assert found.states[run_path("", toy(seed=1)).as_posix()] == "pending"
    assert found.sentence().startswith("2 runs: 1 done")


def test_runs_that_cannot_be_read_are_named_and_the_others_are_there(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[1.0, 2.0, 3.0]])
    (write_run(tmp_path, CPO) / "config.toml").write_text("algo = 3")
    damaged = {
        b"epoch,reward\n1,what\n": r"metrics\.csv is damaged \(.*what",
        b"epoch,\xff\xfe\n1,2\n": r"metrics\.csv is damaged",
        b"epoch,reward,cost\n1,2\n": r"metrics\.csv is damaged \(.*Expected 3 columns",
        b"epoch,reward\n1,2.5\n": r"metrics\.csv has no column cost",
        b"\0" * 64 + b"\n" + b"\0" * 64 + b"\n": r"metrics\.csv",
    }
    paths = [write_run(tmp_path, toy(seed=seed)) for seed in range(5, 5 + len(damaged))]
    for path, content in zip(paths, damaged, strict=True):
        (path / "metrics.csv").write_bytes(content)
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "torn.json").write_text('{"runs": [')
    found = collect(tmp_path)
    assert len(found.table) == 3
    assert len(found.unreadable) == 2 + len(damaged)
    assert f"{2 + len(damaged)} unreadable" in found.sentence()
    said = found.unreadable
    name = run_path("", CPO).as_posix()
    assert said[name] == f"{name}: config.toml: algo must be a text, got 3"
    assert "a list of planned runs, cannot be read" in said["plans/torn.json"]
    for path, sentence in zip(paths, damaged.values(), strict=True):
        name = path.relative_to(tmp_path).as_posix()
        assert re.search(rf"^{name}: .*{sentence}", said[name])
        assert "\n" not in said[name]
    for path in paths:
        assert progress(path).epoch in (0, 1)  # the benchmark that looks at it goes on


def test_a_finished_run_that_has_lost_epochs_counts_for_nothing_and_is_named(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[1.0, 2.0, 3.0]])
    for seed, count in ((5, 2), (6, 0)):
        write_run(tmp_path, toy(seed=seed), [(1.0, 0.0, 1.0, 1.0)] * count, done=True)
    found = collect(tmp_path)
    assert len(found.table) == 3
    reasons = [sentence.split(": ", 1)[1] for sentence in found.unreadable.values()]
    assert reasons == [f"the run is done, but metrics.csv is damaged: it holds {k} of 3 epochs" for k in (2, 0)]
    assert found.sentence().startswith("3 runs: 1 done")


def test_a_run_that_has_no_epoch_yet_has_no_rows(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[1.0, 2.0, 3.0]])
    for seed, content in ((5, ""), (6, HEADER), (7, f"{HEADER}\n"), (8, f"{HEADER}\n1,100,1.0")):
        (write_run(tmp_path, toy(seed=seed)) / "metrics.csv").write_text(content)
    found = collect(tmp_path)
    assert len(found.table) == 3
    assert not found.unreadable


def test_a_row_that_is_being_written_does_not_count(tmp_path: Path) -> None:
    path = write_run(tmp_path, SB, [(1.0, 0.0, 1.0, 1.0)] * 2)
    with (path / "metrics.csv").open("a") as file:
        file.write("3,300,1.0,0.0")
    assert len(collect(tmp_path).table) == 2


def test_where_there_is_no_run_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no run below"):
        collect(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        collect(tmp_path / "none")


def test_the_command_writes_the_table_and_its_summary(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[1.0, 2.0, 3.0], [1.0, 2.0, 4.0]])
    seeds(tmp_path, toy(beta=0.9), [[0.5] * 3])
    output = io.StringIO()
    path = collect_runs(tmp_path, console=Console(file=output, width=200))
    assert pyarrow.parquet.read_metadata(path).row_group(0).column(0).compression == "ZSTD"
    assert len(pyarrow.parquet.read_table(path)) == 9
    assert (tmp_path / "results-final.csv").read_text().count("\n") == 3
    assert "3.50 ± 0.71" in output.getvalue()
    assert "beta" in output.getvalue()
    assert "3 runs: 3 done" in output.getvalue()
    assert len(collect(tmp_path).table) == 9  # its own files are no runs
    with pytest.raises(ValueError, match=r"must end in \.parquet"):
        collect_runs(tmp_path, tmp_path / "table.csv")


# ---- statistics --------------------------------------------------------------------------------------------------


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end() -> None:
    assert interquartile_mean(np.arange(8.0)) == 3.5
    assert interquartile_mean(np.array([10.0, 0.0, 1.0, 2.0, -50.0])) == 1.0
    assert interquartile_mean(np.array([1.0, 3.0])) == 2.0
    np.testing.assert_array_equal(interquartile_mean(np.array([[4.0, 0, 1, 2, 9], [1, 1, 1, 1, 1]])), [7 / 3, 1])


def test_an_interval_resamples_every_task_by_itself() -> None:
    """Two tasks whose runs agree among themselves have no spread, however far apart the tasks are."""
    assert bootstrap_interval([np.zeros(5), np.ones(5)]) == (0.5, 0.5)
    low, high = bootstrap_interval([np.array([0.0, 0, 0, 0, 0, 1, 1, 1, 1, 1])])
    assert (low, high) == (0.0, 1.0)
    assert bootstrap_interval([np.arange(5.0)]) == bootstrap_interval([np.arange(5.0)])
    with pytest.raises(ValueError, match="at least one score"):
        bootstrap_interval([np.zeros(0)])


def test_safety_over_all_tasks_has_an_interval_stratified_by_task(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[1.0] * 3] * 2)
    other = dataclasses.replace(SB, task="SafetyPointGoal2-v0")
    seeds(tmp_path, other, [[1.0] * 3] * 2, cost=1.0)
    (row,) = overall(collect(tmp_path).table).to_pylist()
    assert (row["tasks"], row["runs"]) == (2, 4)
    assert row["safety_probability_iqm"] == 0.5
    assert (row["safety_probability_iqm_low"], row["safety_probability_iqm_high"]) == (0.5, 0.5)


@pytest.mark.filterwarnings("ignore")
def test_interquartile_means_and_intervals_are_those_of_rliable() -> None:
    pytest.importorskip("rliable")
    from rliable import library, metrics

    scores = np.random.default_rng(0).normal(size=(5, 4))
    points, intervals = library.get_interval_estimates(
        {"method": scores},
        lambda x: np.array([metrics.aggregate_iqm(x)]),
        reps=20_000,
        random_state=np.random.RandomState(0),
    )
    assert interquartile_mean(scores.reshape(-1)) == pytest.approx(points["method"][0])
    ours = bootstrap_interval(list(scores.T), resamples=20_000)
    np.testing.assert_allclose(ours, intervals["method"][:, 0], atol=0.02)  # both are random
