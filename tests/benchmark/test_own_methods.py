"""Methods in a user's file: benchmarks train them, whatever becomes of the file, and tables tell versions apart."""

from __future__ import annotations

import importlib.metadata
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.benchmark.collect import collect, final, over_tasks
from sbtrpo.benchmark.columns import VERSION, label, short_version
from sbtrpo.benchmark.command import collect_runs
from sbtrpo.benchmark.plan import Plan, run_path, with_kept_files
from sbtrpo.benchmark.schedule import Scheduler
from sbtrpo.benchmark.states import LOG, state
from sbtrpo.benchmark.worker import Job
from sbtrpo.cli import app as cli
from sbtrpo.config import catalogue
from sbtrpo.report import variants
from sbtrpo.report.runs import read_runs
from sbtrpo.runs.folder import METHOD_FILE, RunFolder
from tests.benchmark.folders import FakeLauncher, finish, toy, write_run
from tests.user_methods import write_method

ROWS = [(1.0, 2.0, 0.5, 0.5)] * 3


def write_own_run(root: Path, algo: str, **settings: object) -> Path:
    """A finished run of a method in a file, whose folder has a copy of the file."""
    config = toy(algo=algo, **settings)
    path = write_run(root, config, ROWS)
    (path / METHOD_FILE).write_bytes(Path(algo.rpartition(":")[0]).read_bytes())
    return path


# ---- training ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", ["1", "2"])
def test_a_benchmark_trains_a_users_method_once_and_its_edited_file_anew(
    pack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_method(Path("mine.py"))
    command = [
        "benchmark", "--algo", "mine.py:MyMethod", "sb-trpo", "--tasks", "ToyCorridor-v0", "--num-envs", "2",
        "--steps-per-epoch", "100", "--total-steps", "200", "--workers", "2", "--pack", pack, "--out", "runs",
    ]  # fmt: skip
    assert cli.main(command) == 0
    assert "2 of 2 runs done, 0 failed" in capsys.readouterr().out
    (run,) = Path("runs/ToyCorridor-v0/MyMethod").iterdir()
    assert json.loads((run / "summary.json").read_text())["epochs"] == 2
    if pack == "2":
        assert "MyMethod on ToyCorridor-v0, seed 0, in a pack" in (run / LOG).read_text()

    before = (run / "metrics.csv").stat().st_mtime_ns
    assert cli.main(command) == 0
    assert "2 done before" in capsys.readouterr().out
    assert (run / "metrics.csv").stat().st_mtime_ns == before

    write_method(Path("mine.py"), caution=0.7)
    assert cli.main([*command, "--dry-run"]) == 0
    states = [line.split() for line in capsys.readouterr().out.splitlines() if "seed0" in line]
    assert [(name.split("/")[1], word) for name, word in states] == [("MyMethod", "pending"), ("sb-trpo", "done")]


def test_a_run_goes_on_and_is_evaluated_when_the_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy(algo=write_method(tmp_path / "mine.py"))
    alone = sbtrpo.train(config, tmp_path / "alone", quiet=True)
    with monkeypatch.context() as stopped:
        stopped.setattr(TrainConfig, "epochs", property(lambda config: 1))
        stopped.setattr(RunFolder, "finish", lambda folder, summary: folder.close())
        run = sbtrpo.train(config, tmp_path / "stopped", quiet=True)
    (tmp_path / "mine.py").unlink()
    sbtrpo.resume(run, quiet=True)
    assert (run / "metrics.csv").read_bytes() == (alone / "metrics.csv").read_bytes()
    assert sbtrpo.evaluate(run, episodes=4).episodes == 4


def test_an_edited_file_is_not_taken_for_the_run_of_what_it_was(tmp_path: Path) -> None:
    algo = write_method(tmp_path / "mine.py")
    run = write_own_run(tmp_path / "runs", algo)
    assert state(run_path(tmp_path / "runs", toy(algo=algo)), toy(algo=algo)) == "done"
    with (tmp_path / "mine.py").open("a") as file:
        file.write("# the settings are what they were, and the code may not be\n")
    edited = toy(algo=algo)
    assert run_path(tmp_path / "runs", edited) != run
    assert state(run_path(tmp_path / "runs", edited), edited) == "pending"


@pytest.mark.parametrize("change", ["edit", "delete"])
def test_a_file_may_change_while_runs_train_with_it(change: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    algo = write_method(file)
    configs = with_kept_files([toy(algo=algo, seed=seed) for seed in (0, 1)], tmp_path / "runs")

    def behaviour(job: Job) -> int:
        file.unlink(missing_ok=True)
        if change == "edit":
            write_method(file, caution=0.7)
        for config in Job.from_json(job.to_json()).runs:
            finish(tmp_path / "runs", config)
        return 0

    result = Scheduler(configs, tmp_path / "runs", FakeLauncher(behaviour, slots=1)).run()
    assert result.exit_status == 0
    assert len(list((tmp_path / "runs" / "methods").iterdir())) == 1
    assert len(list((tmp_path / "runs" / "ToyCorridor-v0" / "MyMethod").iterdir())) == 2


def test_a_kept_copy_is_made_once_and_other_methods_need_none(tmp_path: Path) -> None:
    algo = write_method(tmp_path / "mine.py")
    (kept,) = with_kept_files([toy(algo=algo)], tmp_path / "runs")
    copy = Path(kept.algo.rpartition(":")[0])
    before = copy.stat().st_mtime_ns
    assert with_kept_files([kept, toy(algo=algo), toy()], tmp_path / "runs") == [kept, kept, toy()]
    assert copy.stat().st_mtime_ns == before
    assert kept.digest() == toy(algo=algo).digest()
    with (tmp_path / "mine.py").open("a") as file:
        file.write("Alias = MyMethod\ndel MyMethod\n")
    (alias,) = with_kept_files([toy(algo=algo.replace("MyMethod", "Alias"))], tmp_path / "runs")
    assert label(alias) == "MyMethod"


def test_a_job_means_the_same_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_method(Path("mine.py"))
    job = Job(tmp_path, (toy(algo="mine.py:MyMethod"),))
    line, paths = job.to_json(), job.paths()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Job.from_json(line).paths() == paths


def test_one_file_by_two_paths_is_one_run(tmp_path: Path) -> None:
    algo = write_method(tmp_path / "mine.py")
    twice = [algo, algo.replace("mine.py", "./mine.py"), write_method(tmp_path / "copy.py")]
    assert len(Plan.from_settings({"tasks": ["ToyCorridor-v0"], "algo": twice}).runs()) == 1


# ---- the table -----------------------------------------------------------------------------------------------------


def test_a_method_in_a_file_has_the_name_of_its_class_and_its_settings_are_columns(tmp_path: Path) -> None:
    algo = write_method(tmp_path / "mine.py")
    write_own_run(tmp_path / "runs", algo)
    write_own_run(tmp_path / "runs", algo, caution=0.9)
    (tmp_path / "mine.py").unlink()
    table = collect(tmp_path / "runs").table
    assert VERSION not in table.column_names
    assert {(row["algo"], row["caution"], row["advantage"]) for row in table.to_pylist()} == {
        ("MyMethod", 0.5, "mc"),
        ("MyMethod", 0.9, "mc"),
    }


def test_versions_of_a_file_and_classes_of_one_name_are_not_mixed(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for place, caution in (("a/mine.py", 0.5), ("b/mine.py", 0.7)):
        algo = write_method(tmp_path / place, caution=caution)
        for seed in (0, 1):
            write_own_run(runs, algo, seed=seed)
    write_own_run(runs, write_method(tmp_path / "other.py", "Other"))
    write_run(runs, toy(), ROWS)
    table = collect(runs).table
    rows = final(table).to_pylist()
    assert [(row["algo"], row["seeds"]) for row in rows] == [("MyMethod", 2)] * 2 + [("Other", 1), ("sb-trpo", 1)]
    versions = [row[VERSION] for row in rows]
    assert versions[2:] == [None, None]
    assert len({short_version(version) for version in versions[:2]}) == 2
    assert len(over_tasks(table).table) == 4
    output = io.StringIO()
    collect_runs([runs], console=Console(file=output, width=80))
    assert all(short_version(version) in output.getvalue() for version in versions[:2])


def test_versions_that_never_met_on_a_task_are_not_mixed_over_tasks(tmp_path: Path) -> None:
    for task, caution in (("ToyCorridor-v0", 0.5), ("SafetyPointGoal2-v0", 0.7)):
        write_own_run(tmp_path / "runs", write_method(tmp_path / "mine.py", caution=caution), task=task)
    result = over_tasks(collect(tmp_path / "runs").table)
    assert result.tasks == []  # two methods, and no task that both have


def test_a_class_that_is_named_like_a_listed_method_is_not_taken_for_it(tmp_path: Path) -> None:
    algo = write_method(tmp_path / "mine.py", "PPO")
    assert label(toy(algo=algo)) == "PPO (mine.py)"
    write_own_run(tmp_path / "runs", algo)
    write_run(tmp_path / "runs", toy(algo="ppo"), ROWS)
    assert sorted(set(collect(tmp_path / "runs").table["algo"].to_pylist())) == ["PPO (method.py)", "ppo"]


def test_a_method_whose_copy_no_longer_loads_is_named_and_the_others_are_there(tmp_path: Path) -> None:
    run = write_own_run(tmp_path / "runs", write_method(tmp_path / "mine.py"))
    (run / METHOD_FILE).write_text("import nowhere_to_be_seen")
    write_run(tmp_path / "runs", toy(), ROWS)
    collected = collect(tmp_path / "runs")
    (sentence,) = collected.unreadable.values()
    assert "nowhere_to_be_seen" in sentence
    assert set(collected.table["algo"].to_pylist()) == {"sb-trpo"}


# ---- methods that packages announce --------------------------------------------------------------------------------


@pytest.fixture
def announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a method that an installed package announces."""
    write_method(tmp_path / "package" / "announced_methods.py", "Cautious")
    monkeypatch.syspath_prepend(tmp_path / "package")
    point = importlib.metadata.EntryPoint("cautious-trpo", "announced_methods:Cautious", catalogue.GROUP)
    usual = importlib.metadata.entry_points

    def entry_points(**parameters: Any) -> Any:
        return [point] if parameters == {"group": catalogue.GROUP} else usual(**parameters)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    caches = (catalogue._announced, catalogue._named, variants.setting_names, variants.usual_settings)
    for cache in caches:
        cache.cache_clear()
    yield point.name
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


def test_a_method_that_a_package_announces_is_benchmarked_by_its_name(announced: str, tmp_path: Path) -> None:
    plan = Plan.from_settings({"tasks": ["ToyCorridor-v0"], "algo": [announced, "cpo"], "caution": [0.5, 0.9]})
    assert [(run.algo, run.get("caution")) for run in plan.runs()] == [
        (announced, 0.5),
        (announced, 0.9),
        ("cpo", None),
    ]
    for caution in (0.5, 0.9):
        write_run(tmp_path / "runs", toy(algo="Cautious_TRPO", caution=caution), ROWS)
    table = collect(tmp_path / "runs").table
    assert set(table["algo"].to_pylist()) == {announced}
    # Its class is at hand, and so are its defaults and its title.
    assert [variant.title for variant in read_runs(table).variants] == ["Cautious", "Cautious, caution = 0.9"]


def test_a_method_that_a_package_announces_trains(announced: str, tmp_path: Path) -> None:
    run = sbtrpo.train(toy(algo=announced, total_steps=100), tmp_path / "run", quiet=True)
    assert sbtrpo.evaluate(run, episodes=2).episodes == 2
    assert not (run / METHOD_FILE).exists()


def test_a_number_that_bears_the_name_of_a_setting_does_not_take_its_place(tmp_path: Path) -> None:
    path = write_run(tmp_path, toy(algo="sb-trpo", beta=0.6), ROWS)
    header, *rows = (path / "metrics.csv").read_text().splitlines()
    (path / "metrics.csv").write_text(
        "\n".join([f"{header},beta", *(f"{row},0.{k}" for k, row in enumerate(rows))]) + "\n"
    )
    table = collect(tmp_path).table
    assert set(table["beta"].to_pylist()) == {0.6}
    assert table["metric_beta"].to_pylist() == [0.0, 0.1, 0.2]
    assert final(table)["beta"].to_pylist() == [0.6]
