"""`sbtrpo results`: the committed tables in the terminal, each cell with the command that repeats it."""

from __future__ import annotations

import json
import re
import shlex
import types
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from sbtrpo import TrainConfig
from sbtrpo.benchmark.collect import read_table, setting_columns, write_table
from sbtrpo.benchmark.plan import Plan
from sbtrpo.cli import app as cli
from sbtrpo.report import paper, tables
from sbtrpo.report.results import RESULTS, chosen, read_results
from sbtrpo.runs.folder import default_path
from sbtrpo.runs.judgement import BELOW_ZERO
from tests.report import samples

TABLE = RESULTS / "circle_hopper.parquet"
HOPPER = "SafetyHopperVelocity-v1"
GOAL = "SafetyPointGoal2-v0"


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.main(["results", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.main(["results", *map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


def kept(path: Path, *runs: dict[str, Any]) -> Path:
    return write_table(samples.table(runs), path)


def commanded(command: str, monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """The runs that a command would train."""
    configs: list[TrainConfig] = []
    monkeypatch.setattr("sbtrpo.learning.training.train", lambda config, *_: configs.append(config))
    monkeypatch.setattr(
        "sbtrpo.runs.folder.RunFolder.open", lambda path: types.SimpleNamespace(path=path, is_finished=True)
    )
    for part in command.split(" && "):
        program, *arguments = shlex.split(part)
        assert program == "sbtrpo"
        assert cli.main(arguments) == 0
    return configs


def test_it_has_the_numbers_and_marks_of_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = told(capsys, "--results", TABLE)
    found = json.loads(told(capsys, "--results", TABLE, "--json"))
    assert len(found) == 8
    runs = read_results(TABLE)["circle_hopper"]
    safety, reward = (tables.main(runs, half).rows for half in ("safety", "reward"))
    for k, task in enumerate(runs.tasks):
        of_task = said.partition(task)[2]
        for left, right in zip(safety, reward, strict=True):
            cells = [*left[2 * k + 1 : 2 * k + 3], *right[2 * k + 1 : 2 * k + 3]]
            line = next(line for line in of_task.splitlines() if left[0].text in line)
            assert re.split(r"  +", line.strip())[3:] == ["*" * cell.bold + cell.plain for cell in cells]
            (one,) = (row for row in found if (row["task"], row["method"]) == (task, left[0].text))
            assert [(one[name]["mean"], one[name]["best"]) for name in paper.METRICS] == [
                (cell.value, cell.bold) for cell in cells
            ]
            assert one["seeds"] == [0, 1000]
            assert one["command"].startswith(f"sbtrpo train {task} --algo {one['algo']} ")


@pytest.mark.parametrize("table", sorted(RESULTS.glob("*.parquet")), ids=lambda path: path.stem)
def test_the_commands_have_the_settings_of_the_committed_runs(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = read_table(table)
    names = ["task", "seed", "total_steps", *(name for name in setting_columns(rows) if name != "total_steps")]
    committed = {tuple(row.values()) for row in rows.select(names).to_pylist()}
    meant = [name.removeprefix("config_") for name in names]
    commands = [result.command for result in chosen(read_results(table))]
    repeated = [config for command in commands for config in commanded(command or "", monkeypatch)]
    assert repeated
    assert {tuple(config.get(name) for name in meant) for config in repeated} <= committed


def test_the_commands_are_those_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [result.command for result in chosen(read_results(TABLE))]
    repeated = [default_path(config) for command in commands for config in commanded(command or "", monkeypatch)]
    assert sorted(repeated) == sorted(map(default_path, Plan.from_file("circle_hopper").runs()))


def test_settings_and_seeds_are_in_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [samples.run(GOAL, "sb-trpo", seed, 3, beta=0.6, cg_tolerance=0.0, num_envs=10) for seed in (3, 7)]
    runs += [samples.run(GOAL, "cpo", seed, 3, cost_limit=15.0) for seed in (1, 1001, 2001)]
    runs += [samples.run(GOAL, "MyMethod", 0, 3), samples.run("Mine-v0", "cpo", 0, 3)]
    found = {r.variant.algo: r for r in chosen(read_results(kept(tmp_path / "own.parquet", *runs)), GOAL)}
    first = commanded(found["sb-trpo"].command or "", monkeypatch)
    assert [(run.seed, run.get("beta"), run.get("cg_tolerance"), run.num_envs) for run in first] == [
        (3, 0.6, 0.0, 10),
        (7, 0.6, 0.0, 10),
    ]
    assert {run.total_steps for run in first} == {60_000}
    second = commanded(found["cpo"].command or "", monkeypatch)
    assert [(run.seed, run.get("cost_limit")) for run in second] == [(1, 15.0), (1001, 15.0), (2001, 15.0)]
    assert found["MyMethod"].command is None  # a table does not tell where a user's method is


def test_one_task_and_one_method(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, HOPPER, "--algo", "PPO-Lag", "--results", TABLE)
    assert "SafetyCarCircle2-v0" not in said
    assert "610 ± 217" in said
    assert said.count("sbtrpo train") == 1
    assert f"sbtrpo train {HOPPER} --algo ppo_lag --total-steps 3000000 --seed 0 --num-seeds 2\n" in said


def test_all_settings_of_a_table_compete_and_one_alone_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(safe_reward: float, **settings: object) -> dict[str, Any]:
        run = samples.run(GOAL, "sb-trpo", epochs=3, **settings)
        return run | {"safe_reward": [safe_reward] * 3, "safety_probability": [0.9] * 3}

    kept(tmp_path / "two.parquet", ends(1.0), ends(2.0, beta=0.6))
    kept(tmp_path / "one.parquet", ends(1.0))
    found = json.loads(told(capsys, "--results", tmp_path, "--json"))
    best = {(row["table"], row["safe_reward"]["mean"]): row["safe_reward"]["best"] for row in found}
    assert best == {("two", 1.0): False, ("two", 2.0): True, ("one", 1.0): False}


def test_the_papers_tables_come_first_and_each_row_has_its_command_behind_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list(read_results())[:2] == ["published", "main_2m"]
    lines = told(capsys, HOPPER, "--results", TABLE).splitlines()
    methods = [line[2:] for line in lines if line.startswith("# ")]
    commands = [line.split()[4] for line in lines if line.startswith("sbtrpo train")]
    assert methods == ["SB-TRPO", "PPO-Lag", "TRPO-Lag", "CPO"]
    assert commands == ["sb-trpo", "ppo_lag", "trpo_lag", "cpo"]


def test_it_says_what_a_policy_to_begin_with_is(capsys: pytest.CaptureFixture[str]) -> None:
    told = "the policy's file whose SHA-256"
    assert cli.main(["results", "SafetyPointPush2-v0", "--algo", "sb-trpo"]) == 0
    assert told in capsys.readouterr().out
    assert cli.main(["results", "SafetyHopperVelocity-v1", "--algo", "cpo"]) == 0
    assert told not in capsys.readouterr().out


def test_one_task_has_the_notes_that_are_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goal, hopper = samples.run(GOAL, "sb-trpo", beta=0.6), samples.run(HOPPER, "sb-trpo", epochs=10, total_epochs=30)
    table = kept(tmp_path / "table.parquet", goal | {"gamma": [0.9] * 30}, hopper | {"gamma": [0.8] * 10})
    both, one = told(capsys, "--results", table), told(capsys, GOAL, "--results", table)
    assert ("gamma = 0.9" in both, "gamma = 0.8" in both) == (True, True)
    assert ("gamma = 0.9 (SB-TRPO)" in one, "gamma = 0.8" in one) == (True, False)
    assert ("not finished: 1 of 2" in both, "not finished" in one) == (True, False)


def test_one_method_has_the_warnings_that_are_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, cpo = samples.run(GOAL, "sb-trpo", epochs=3), samples.run(GOAL, "cpo", epochs=3)
    table = kept(tmp_path / "table.parquet", ours, cpo | {"safe_reward": [-1.0] * 3})
    warned = [BELOW_ZERO in told(capsys, GOAL, *one, "--results", table) for one in ((), ("--algo", "cpo"))]
    assert warned == [True, True]
    assert BELOW_ZERO not in told(capsys, GOAL, "--algo", "sb-trpo", "--results", table)


def test_a_single_epoch_has_no_deviation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = kept(tmp_path / "table.parquet", samples.run(GOAL, "sb-trpo", epochs=1))
    (found,) = json.loads(told(capsys, "--results", table, "--json"))
    assert {found[metric]["std"] for metric in ("reward", "cost", "safety_probability")} == {None}
    assert "±" not in told(capsys, GOAL, "--results", table).split("Mean ±")[0]


@pytest.mark.parametrize("width", [30, 50, 70, 120])
def test_numbers_stay_whole_in_a_narrow_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    said = told(capsys, HOPPER, "--results", TABLE).split("# SB-TRPO")[0]  # commands are never broken
    assert all(len(line.rstrip()) <= width for line in said.splitlines())
    for words in ("SB-TRPO", "*770 ± 264", "0.96 ± 0.06", "0.014 ± 0.02", "safe reward", "1700 ± 49"):
        assert words in said


def test_unfinished_runs_say_how_far_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = kept(tmp_path / "t.parquet", samples.run(GOAL, "cpo", epochs=5, total_epochs=100))
    assert "100 k of 2 M" in told(capsys, "--results", table)


def test_what_is_in_a_table_is_shown_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    kept(tmp_path / "t.parquet", samples.run("[red]Task[/]", "[bold]x", epochs=2))
    said = told(capsys, "--results", tmp_path)
    assert "[red]Task[/]" in said
    assert "[bold]x" in said


def test_errors_are_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean SafetyHopperVelocity-v1?" in refused(capsys, "SafetyHoperVelocity-v1")
    assert "there are some of SafetyCarCircle2-v0, " in refused(capsys, "SafetyAntVelocity-v0", "--results", TABLE)
    assert "did you mean cpo?" in refused(capsys, "--algo", "cpoo")
    assert "there is no table of results in" in refused(capsys, "--results", tmp_path)
    assert "there is no file or folder" in refused(capsys, "--results", tmp_path / "none")
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes((TABLE).read_bytes()[:1000])
    assert "damaged.parquet is no Parquet table" in refused(capsys, "--results", tmp_path)
    write_table(pyarrow.table({"task": ["a"]}), damaged)
    assert "damaged.parquet: the table of runs has no column algo" in refused(capsys, "--results", damaged)
    write_table(read_table(TABLE).slice(0, 0), damaged)
    assert "holds no runs" in refused(capsys, "--results", damaged)
