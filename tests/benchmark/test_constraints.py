"""Runs with several constraints: the table and its summaries have each by itself."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.benchmark.collect import collect, final, over_tasks, setting_columns
from sbtrpo.benchmark.columns import constraint_names
from sbtrpo.benchmark.command import collect_runs
from sbtrpo.benchmark.pack import train_pack
from sbtrpo.benchmark.plan import Plan
from sbtrpo.benchmark.worker import Job
from sbtrpo.runs.folder import RunFolder
from tests.benchmark.folders import toy, write_run

PAIR = "vases_contact+vases_velocity"
EACH = toy(constraints=("each",))


def write_constraints(
    root: Path, config: TrainConfig, costs: Sequence[float], names: Sequence[str] = ("hazards", PAIR)
) -> None:
    """A finished run whose first constraint has these costs in its epochs, and whose others cost nothing."""
    path = write_run(root, config, [(1.0, cost, 0.5, 0.5) for cost in costs])
    header, *rows = (path / "metrics.csv").read_text().splitlines()
    columns = [f"{kind}_{name}" for kind in ("cost", "safety") for name in names]
    quiet = len(names) - 1
    lines = [",".join([header, *columns, "cost_statistic"])]
    for row, cost in zip(rows, costs, strict=True):
        numbers = [cost, *[0.0] * quiet, float(cost == 0), *[1.0] * quiet, cost]
        lines.append(",".join([row, *map(repr, numbers)]))
    (path / "metrics.csv").write_text("\n".join([*lines, ""]))


def test_a_constraint_is_a_name_that_has_a_cost_and_a_safety() -> None:
    columns = ["cost", "safety_probability", "cost_probability", "cost_statistic", "cost_limit", "safety_margin"]
    assert constraint_names(columns) == []
    assert constraint_names([*columns, f"cost_{PAIR}", "safety_b", "cost_b", f"safety_{PAIR}"]) == [PAIR, "b"]


def test_the_summary_has_each_constraint_and_is_empty_where_a_run_has_none(tmp_path: Path) -> None:
    for seed, costs in enumerate([(5.0, 4.0, 2.0), (5.0, 2.0, 0.0)]):
        write_constraints(tmp_path, EACH.replace(seed=seed), costs)
    write_run(tmp_path, toy(), [(1.0, 3.0, 0.5, 0.5)] * 3)
    table = collect(tmp_path).table
    assert "constraints" in setting_columns(table)
    each, total = final(table, last_epochs=2).to_pylist()
    assert (each["constraints"], total["constraints"]) == (["each"], ["sum"])
    assert (each["cost_hazards_mean"], each["cost_hazards_std"]) == (1.0, pytest.approx(math.sqrt(2)))
    assert (each["cost_hazards_pooled_mean"], each["safety_hazards_pooled_mean"]) == (2.0, 0.25)
    assert each["cost_hazards_pooled_std"] == pytest.approx(math.sqrt(2))
    assert (each["safety_hazards_mean"], each["safety_hazards_iqm"], each[f"safety_{PAIR}_mean"]) == (0.5, 0.5, 1.0)
    assert (each["cost_mean"], total["cost_mean"]) == (1.0, 3.0)
    assert {value for name, value in total.items() if "hazards" in name or PAIR in name} == {None}
    assert not any("statistic" in name for name in each)


def test_without_several_constraints_the_summary_is_as_it_was(tmp_path: Path) -> None:
    write_run(tmp_path, toy(), [(1.0, 3.0, 0.5, 0.5)] * 3)
    (row,) = final(collect(tmp_path).table).to_pylist()
    assert [name.removesuffix("_mean") for name in row if name.endswith("_mean") and "pooled" not in name] == [
        "reward",
        "cost",
        "safety_probability",
        "safe_reward",
    ]


def test_the_command_shows_each_constraint_below_its_task(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_constraints(tmp_path, EACH.replace(seed=seed), (5.0, 4.0, 2.0 * seed))
    write_constraints(tmp_path, toy(constraints=("hazards", PAIR), beta=(0.6, 0.9)), (5.0, 4.0, 9.0))
    write_run(tmp_path, toy(task="SafetyPointGoal2-v0"), [(1.0, 3.0, 0.5, 0.5)] * 3)
    output = io.StringIO()
    collect_runs([tmp_path], console=Console(file=output, width=200))
    goal, corridor = output.getvalue().split("ToyCorridor-v0, final epoch")
    assert "each constraint" not in goal
    titles, *rows = corridor.partition("each constraint")[2].partition("over ")[0].split("\n")[2:]
    assert titles.split() == ["method", "beta", "constraints", "constraint", "cost", "P(safe)"]
    assert [" ".join(row.split()) for row in rows if "sb-trpo" in row] == [
        f"sb-trpo 0.6 0.9 hazards {PAIR} hazards 9.00 0.00",
        f"sb-trpo 0.6 0.9 hazards {PAIR} {PAIR} 0.00 1.00",
        "sb-trpo 0.75 each hazards 1.00 ± 1.41 0.50 ± 0.71",
        f"sb-trpo 0.75 each {PAIR} 0.00 ± 0.00 1.00 ± 0.00",
    ]
    with (tmp_path / "results-final.csv").open() as file:
        rows_of_file = list(csv.DictReader(file))
    assert [row["cost_hazards_mean"] for row in rows_of_file] == ["", "9", "1"]
    assert [row["constraints"] for row in rows_of_file] == ["sum", f"hazards {PAIR}", "each"]


def test_other_constraints_are_other_rows_over_tasks(tmp_path: Path) -> None:
    """Also where no task has runs with both: they do not solve the same problem."""
    for task, constraints in (("ToyCorridor-v0", "each"), ("SafetyPointGoal2-v0", "sum")):
        write_run(tmp_path, toy(task=task, constraints=(constraints,)), [(1.0, 3.0, 0.5, 0.5)] * 3)
        write_run(tmp_path, toy(task=task, algo="cpo"), [(1.0, 3.0, 0.5, 0.5)] * 3)
    result = over_tasks(collect(tmp_path).table)
    methods = [*result.table.to_pylist(), *result.left_out]
    assert sorted((row["algo"], *row["constraints"]) for row in methods) == [
        ("cpo", "sum"),
        ("sb-trpo", "each"),
        ("sb-trpo", "sum"),
    ]


def test_a_worker_is_told_the_constraints_and_a_value_for_each() -> None:
    plan = Plan.from_settings(
        {"tasks": ["SafetyPointGoal2-v0"], "constraints": ["hazards", PAIR], "beta": [[0.6, 0.9]]}
    )
    (config,) = plan.runs()
    (same,) = Job.from_json(Job(Path("runs"), (config,)).to_json()).runs
    assert same == config
    assert (same.constraints, same.get("beta")) == (("hazards", PAIR), (0.6, 0.9))


def test_a_pack_gives_the_numbers_of_separate_runs_with_each_constraint(tmp_path: Path) -> None:
    configs = [
        TrainConfig(
            task="SafetyPointGoal2-v0", num_envs=2, steps_per_epoch=1200, total_steps=2400, seed=seed, threads=1,
            learner_threads=1, constraints=constraints,
        )
        for seed, constraints in ((0, ("each",)), (1, ("hazards",)))
    ]  # fmt: skip
    alone = [sbtrpo.train(config, tmp_path / f"alone{k}", quiet=True) for k, config in enumerate(configs)]
    packed = [tmp_path / f"pack{k}" for k in range(len(configs))]
    for path, config in zip(packed, configs, strict=True):
        RunFolder.create(path, config).close()
    assert train_pack(packed) == []
    for ours, theirs, names in zip(
        packed, alone, (["hazards", "vases_contact", "vases_velocity"], ["hazards"]), strict=True
    ):
        assert (ours / "metrics.csv").read_bytes() == (theirs / "metrics.csv").read_bytes()
        metrics = RunFolder.open(ours).metrics()
        assert constraint_names(metrics) == names
        assert np.isfinite(metrics["cost_hazards"][-1])  # an episode has ended
