"""The tidy table has every run's numbers, and its summaries are what one computes by hand."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from rich.console import Console

from sbtrpo import TrainConfig
from sbtrpo.benchmark.collect import collect, final, over_tasks, overall, setting_columns, write_table
from sbtrpo.benchmark.command import benchmark, collect_runs
from sbtrpo.benchmark.plan import run_path
from sbtrpo.benchmark.schedule import write_manifest
from sbtrpo.benchmark.states import progress
from sbtrpo.benchmark.statistics import aggregate, bootstrap_interval, interquartile_mean
from sbtrpo.benchmark.statistics import overall as over_all_tasks
from tests.benchmark.folders import HEADER, toy, write_run

SB, CPO = toy(), toy(algo="cpo")


def seeds(root: Path, config: TrainConfig, rewards: list[list[float]], cost: float = 0.0) -> None:
    """Runs with seeds 0, 1, ... and these rewards by epoch."""
    for seed, course in enumerate(rewards):
        rows = [(reward, cost, float(cost == 0), reward * (cost == 0)) for reward in course]
        write_run(root, config.replace(seed=seed), rows)


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
    path = collect_runs([tmp_path], console=Console(file=output, width=200))
    assert pyarrow.parquet.read_metadata(path).row_group(0).column(0).compression == "ZSTD"
    assert len(pyarrow.parquet.read_table(path)) == 9
    assert (tmp_path / "results-final.csv").read_text().count("\n") == 3
    assert "3.50 ± 0.71" in output.getvalue()
    assert "beta" in output.getvalue()
    assert "3 runs: 3 done" in output.getvalue()
    assert len(collect(tmp_path).table) == 9  # its own files are no runs
    with pytest.raises(ValueError, match=r"must end in \.parquet"):
        collect_runs([tmp_path], tmp_path / "table.csv")


def test_runs_in_which_no_episode_ended_have_no_numbers(tmp_path: Path) -> None:
    settings = {"tasks": ["ToyCorridor-v0"], "num_envs": 2, "steps_per_epoch": 20, "total_steps": 20}
    output = io.StringIO()
    console = Console(file=output, width=200)
    assert benchmark(settings=settings, out=tmp_path, workers=1, console=console) == 0
    collect_runs([tmp_path], console=console)
    assert re.search(r"done: ToyCorridor-v0/sb-trpo/.*, no episode ended\n", output.getvalue())
    assert re.search(r"sb-trpo +1( +-){4} ", output.getvalue())
    assert "nan" not in output.getvalue()


def test_the_command_writes_lists_as_text(tmp_path: Path) -> None:
    seeds(tmp_path, toy(hidden=(32, 16)), [[1.0] * 3])
    collect_runs([tmp_path], quiet=True)
    for kind in ("final", "overall"):
        assert '"32 16"' in (tmp_path / f"results-{kind}.csv").read_text()


# ---- over several tasks ------------------------------------------------------------------------------------------

GOAL = "SafetyPointGoal2-v0"


def on_goal(config: TrainConfig) -> TrainConfig:
    return config.replace(task=GOAL)


def two_methods_on_two_tasks(root: Path) -> None:
    """Scaled safe rewards: SB-TRPO's are 1, 0.6 and 1, 1/3, CPO's 0.2, 0 and 0, 0."""
    seeds(root, SB, [[-50.0, 9.0, 11.0], [0.0, 6.0, 6.0]])
    seeds(root, CPO, [[0.0, 2.0, 2.0], [0.0] * 3])
    seeds(root, on_goal(SB), [[3.0] * 3, [1.0] * 3])
    seeds(root, on_goal(CPO), [[7.0] * 3, [8.0] * 3], cost=1.0)


@pytest.mark.parametrize("width", [70, 80, 200])
def test_labels_stay_whole_in_a_narrow_terminal(width: int, tmp_path: Path) -> None:
    for more in ({"beta": 0.6}, {"beta": 0.9, "target_kl": 0.02}, {"beta": 0.9, "advantage": "gae", "hidden": (32,)}):
        seeds(tmp_path, toy(**more), [[-1234.5] * 3, [2345.6] * 3])
    output = io.StringIO()
    collect_runs([tmp_path], console=Console(file=output, width=width))
    tables = output.getvalue().split(" runs: ")[0]
    assert "\N{HORIZONTAL ELLIPSIS}" not in tables
    assert all(len(line.rstrip()) <= width for line in tables.splitlines())
    for words in ("sb-trpo", "advantage", "target_kl", "0.02", "64 64", "555.55 ± 2531.51", "safe reward"):
        assert words in tables
    if width == 80:
        assert "sb-trpo, beta 0.9, advantage mc, hidden 64 64, target_kl 0.02\n" in tables.replace(" " * 8, "")


def test_methods_over_all_tasks_equal_values_by_hand(tmp_path: Path) -> None:
    two_methods_on_two_tasks(tmp_path)
    table = collect(tmp_path).table
    cpo, sb = overall(table, last_epochs=2).to_pylist()
    assert [(row["algo"], row["tasks"], row["runs"]) for row in (cpo, sb)] == [("cpo", 2, 4), ("sb-trpo", 2, 4)]
    safety, reward = (
        [f"{name}_iqm{end}" for end in ("", "_low", "_high")]
        for name in ("safety_probability", "normalised_safe_reward")
    )
    assert [sb[name] for name in safety] == [1.0, 1.0, 1.0]
    assert [cpo[name] for name in safety] == [0.5, 0.5, 0.5]  # within a task its runs agree
    # Without the least and the largest: 0.6 and 1. The worst that resampling makes of it is 0.6, 0.6, 1/3, 1/3, or
    # 0.6, 1, 1/3, 1/3, together in 3 of 16 cases; the best is 1.
    assert [sb[name] for name in reward] == pytest.approx([0.8, (0.6 + 1 / 3) / 2, 1.0])
    assert [cpo[name] for name in reward] == pytest.approx([0.0, 0.0, 0.1])
    assert overall(table, last_epochs=2).equals(overall(table, last_epochs=2))


def test_the_order_of_runs_makes_no_difference() -> None:
    strata = [np.array([3.0, 1.0, 2.0]), np.array([0.0, 5.0])]
    assert aggregate(strata) == aggregate([scores[::-1] for scores in strata])


def test_a_setting_that_differs_between_tasks_alone_makes_no_row(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[1.0] * 3])
    seeds(tmp_path, toy(beta=0.9), [[1.0] * 3])
    for beta in (0.75, 0.9):
        longer = on_goal(SB).replace(total_steps=400, hidden=(32,), beta=beta)
        seeds(tmp_path, longer, [[2.0] * 4])
    first, second = overall(collect(tmp_path).table).to_pylist()
    assert [(row["beta"], row["tasks"], row["runs"]) for row in (first, second)] == [(0.75, 2, 2), (0.9, 2, 2)]
    assert (first["total_steps"], first["hidden"], first["num_envs"]) == (None, None, 2)


def test_methods_that_ran_elsewhere_are_named_with_the_tasks_that_count(tmp_path: Path) -> None:
    two_methods_on_two_tasks(tmp_path)
    seeds(tmp_path, toy(beta=0.9), [[1.0] * 3])
    seeds(tmp_path, toy(algo="ppo_lag"), [[1.0] * 3])
    seeds(tmp_path, on_goal(toy(algo="ppo_lag")), [[1.0]])  # not complete
    seeds(tmp_path, CPO.replace(task="SafetyCarGoal2-v0"), [[1.0] * 3])
    output = io.StringIO()
    collect_runs([tmp_path], console=Console(file=output, width=200))
    said = output.getvalue()
    assert "over 2 tasks: interquartile mean and its 95 % bootstrap interval" in said
    assert "Tasks that count there: SafetyPointGoal2-v0, ToyCorridor-v0\n" in said
    assert "since not all its methods have complete runs: SafetyCarGoal2-v0\n" in said
    assert "Without complete runs on all tasks that count: ppo_lag, sb-trpo beta=0.9\n" in said
    lines = (tmp_path / "results-overall.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ['"cpo"', '"sb-trpo"']


def test_where_all_ran_on_the_same_tasks_the_numbers_speak_for_themselves(tmp_path: Path) -> None:
    two_methods_on_two_tasks(tmp_path)
    output = io.StringIO()
    collect_runs([tmp_path], console=Console(file=output, width=200))
    assert "0.50 (0.50 to 0.50)" in output.getvalue()
    assert "that count" not in output.getvalue()


def test_without_a_common_task_there_is_no_table_over_tasks(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[1.0] * 3])
    seeds(tmp_path, on_goal(CPO), [[1.0] * 3])
    (tmp_path / "results-overall.csv").write_text("an earlier one")
    output = io.StringIO()
    collect_runs([tmp_path], console=Console(file=output, width=200))
    assert not (tmp_path / "results-overall.csv").exists()
    assert "interquartile" not in output.getvalue()
    assert over_tasks(collect(tmp_path).table).tasks == []


def test_without_a_complete_run_there_is_no_table_over_tasks(tmp_path: Path) -> None:
    seeds(tmp_path, SB, [[1.0]])
    collect_runs([tmp_path], quiet=True)
    assert not (tmp_path / "results-overall.csv").exists()
    assert len(overall(collect(tmp_path).table.slice(0, 0))) == 0


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
    other = SB.replace(task="SafetyPointGoal2-v0")
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


@pytest.mark.filterwarnings("ignore")
def test_methods_over_all_tasks_are_those_of_rliable() -> None:
    pytest.importorskip("rliable")
    from rliable import library, metrics

    rng = np.random.default_rng(0)
    safety, reward = ({name: rng.random((5, 4)) * [1, 1, 1, high] for name in ("a", "b")} for high in (1, 900))
    low = np.min([scores.min(axis=0) for scores in reward.values()], axis=0)
    high = np.max([scores.max(axis=0) for scores in reward.values()], axis=0)
    normalised = {name: (scores - low) / (high - low) for name, scores in reward.items()}
    by_task = [
        {name: {f"task {k}": column for k, column in enumerate(scores.T)} for name, scores in given.items()}
        for given in (safety, reward)
    ]
    ours = over_all_tasks(*by_task)
    for metric, scores in (("safety_probability", safety), ("safe_reward", normalised)):
        points, intervals = library.get_interval_estimates(
            scores,
            lambda x: np.array([metrics.aggregate_iqm(x)]),
            reps=5_000,
            random_state=np.random.RandomState(0),
        )
        for name in scores:
            found = getattr(ours.methods[name], metric)
            assert found.iqm == pytest.approx(points[name][0])
            np.testing.assert_allclose([found.low, found.high], intervals[name][:, 0], atol=0.02)  # both are random
