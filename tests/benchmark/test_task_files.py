"""Tasks in a user's file: what the file says is the task, wherever it lies and whatever becomes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.benchmark.collect import collect, final
from sbtrpo.benchmark.plan import Plan, run_path, with_kept_files
from sbtrpo.benchmark.states import state
from sbtrpo.benchmark.worker import Job
from sbtrpo.cli import app as cli
from sbtrpo.config.file import read_config, write_config
from sbtrpo.envs import get_spec
from sbtrpo.envs.custom import spec_to_toml
from sbtrpo.report.runs import read_runs
from sbtrpo.runs.folder import TASK_FILE, RunFolder, default_path, read_run
from tests.benchmark.folders import toy, write_run

MAZE = """
id = "Maze-v0"
robot = "point"
objective = "goal"
episode_length = 25
objects = [{ kind = "goal" }, { kind = "hazards", count = COUNT }]
"""
SAME = """
# Another file that says the same: keys in another order, numbers in another form, defaults written out.
objects = [{ kind = "goal", size = 0.30 }, { count = 2, kind = "hazards", cost = true }]
objective = "goal"
robot = "point"
extent = 2
episode_length = 25
id = "Maze-v0"
"""
ROWS = [(1.0, 2.0, 0.5, 0.5)] * 3
SMALL = ("--num-envs", "2", "--steps-per-epoch", "100", "--total-steps", "200")


def write_maze(path: Path, hazards: int = 2) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MAZE.replace("COUNT", str(hazards)))
    return str(path)


def write_task_run(root: Path, task: str, **settings: object) -> Path:
    """A finished run on a task in a file, whose folder has a copy of the file."""
    path = write_run(root, toy(task=task, **settings), ROWS)
    shutil.copy(task, path / TASK_FILE)
    return path


# ---- what a run is -------------------------------------------------------------------------------------------------


def test_a_task_is_what_its_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_maze(tmp_path / "maze.toml")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "copy.toml").write_text(SAME)
    names = ["maze.toml", "./maze.toml", str(tmp_path / "maze.toml"), "elsewhere/copy.toml"]
    (path,) = {default_path(toy(task=name)) for name in names}
    assert path.parts[:3] == ("runs", "Maze-v0", "sb-trpo")
    assert len(Plan.from_settings({"tasks": names}).runs()) == 1
    write_maze(tmp_path / "maze.toml", hazards=3)
    assert len(Plan.from_settings({"tasks": names}).runs()) == 2
    assert default_path(toy(task="maze.toml")) != path
    assert default_path(toy(task="maze.toml")).parent == path.parent


def test_a_file_that_describes_a_registered_task_is_that_task(tmp_path: Path) -> None:
    file = tmp_path / "goal.toml"
    file.write_text(spec_to_toml(get_spec("SafetyPointGoal1-v0")))
    assert default_path(toy(task=str(file))) == default_path(toy(task="SafetyPointGoal1-v0"))
    assert toy(task="sbtrpo:SafetyPointGoal1-v0") == toy(task="SafetyPointGoal1-v0")


def test_a_file_that_is_missing_or_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no task file 'nowhere\.toml'"):
        sbtrpo.train(toy(task="nowhere.toml"), tmp_path / "run", quiet=True)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(MAZE.replace("COUNT", "0"))
    with pytest.raises(ValueError, match=r"wrong\.toml: objects\[1\]\.count must be at least 1, got 0$"):
        default_path(toy(task=str(wrong)))


# ---- training ------------------------------------------------------------------------------------------------------


def test_a_benchmark_trains_an_edited_task_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_maze(Path("maze.toml"))
    Path("plan.toml").write_text('tasks = ["maze.toml"]\nnum_seeds = 2\n')
    command = ["benchmark", "plan.toml", *SMALL, "--workers", "1", "--pack", "2", "--retries", "0", "--out", "runs"]
    assert cli.main(command) == 0
    assert "2 of 2 runs done, 0 failed" in capsys.readouterr().out
    before = set(Path("runs/Maze-v0/sb-trpo").iterdir())
    assert cli.main(command) == 0
    assert "2 done before" in capsys.readouterr().out

    write_maze(Path("maze.toml"), hazards=3)
    assert cli.main([*command, "--dry-run"]) == 0
    states = [line.split()[1] for line in capsys.readouterr().out.splitlines() if "seed" in line]
    assert states == ["pending", "pending"]
    assert cli.main(command) == 0
    added = set(Path("runs/Maze-v0/sb-trpo").iterdir()) - before
    assert len(before) == len(added) == 2
    assert {get_spec(read_run(run).task).group("hazards").count for run in added} == {3}
    names = sorted(set(collect("runs").table["task"].to_pylist()))
    assert len(names) == 2
    assert all(name.startswith("Maze-v0@") for name in names)


def test_training_does_not_offer_to_resume_another_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_maze(Path("maze.toml"))
    command = ["train", "maze.toml", *SMALL, "--quiet"]
    assert cli.main(command) == 0
    assert cli.main(command) == 2
    assert "resume that run" in capsys.readouterr().err
    write_maze(Path("maze.toml"), hazards=3)
    assert cli.main(command) == 0
    first, _ = Path("runs/Maze-v0/sb-trpo").iterdir()
    write_maze(Path("maze.toml"), hazards=4)
    assert cli.main([*command, "--out", str(first)]) == 2
    said = capsys.readouterr().err
    assert "is a run with other settings: task ('Maze-v0@" in said
    assert "resume that run" not in said


def test_a_run_goes_on_and_is_evaluated_when_the_file_is_gone_or_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = write_maze(tmp_path / "maze.toml")
    alone = sbtrpo.train(toy(task=task), tmp_path / "alone", quiet=True)
    for name, change in (
        ("edited", lambda: write_maze(tmp_path / "maze.toml", hazards=9)),
        ("gone", Path(task).unlink),
    ):
        write_maze(tmp_path / "maze.toml")
        with monkeypatch.context() as stopped:
            stopped.setattr(TrainConfig, "epochs", property(lambda config: 1))
            stopped.setattr(RunFolder, "finish", lambda folder, summary: folder.close())
            run = sbtrpo.train(toy(task=task), tmp_path / name, quiet=True)
        change()
        sbtrpo.resume(run, quiet=True)
        assert (run / "metrics.csv").read_bytes() == (alone / "metrics.csv").read_bytes()
        assert sbtrpo.evaluate(run, episodes=2).task == "Maze-v0"


def test_a_file_may_change_while_runs_train_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_maze(Path("maze.toml"))
    (kept,) = with_kept_files([toy(task="maze.toml")], Path("runs"))
    line, path = Job(Path("runs").resolve(), (kept,)).to_json(), default_path(toy(task="maze.toml"), "runs")
    unkept = Job(tmp_path, (toy(task="maze.toml"),))
    placed, paths = unkept.to_json(), unkept.paths()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Job.from_json(placed).paths() == paths
    Path(tmp_path / "maze.toml").unlink()
    assert Job.from_json(line).paths() == [tmp_path / path]


def test_runs_of_earlier_versions_are_found_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_maze(Path("maze.toml"))
    config = toy(task="maze.toml")
    whole = sbtrpo.train(config, tmp_path / "whole", quiet=True)
    with monkeypatch.context() as stopped:
        stopped.setattr(TrainConfig, "epochs", property(lambda config: 1))
        stopped.setattr(RunFolder, "finish", lambda folder, summary: folder.close())
        old = sbtrpo.train(config, Path("runs/maze/sb-trpo/seed0-0123abcd"), quiet=True)  # as they named folders
    assert read_config(old / "config.toml").task == "maze.toml"
    (kept,) = with_kept_files([config], Path("runs"))
    assert run_path("runs", config) == run_path("runs", kept) == old
    assert state(old, config) == "interrupted"
    sbtrpo.resume(old, quiet=True)
    assert (old / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    write_maze(Path("maze.toml"), hazards=3)
    assert run_path("runs", config) == default_path(config)
    assert set(collect("runs").table["task"].to_pylist()) == {"Maze-v0"}


# ---- the table -----------------------------------------------------------------------------------------------------


def test_files_that_say_the_same_are_one_task_in_tables(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write_task_run(runs, write_maze(tmp_path / "maze.toml"))
    (tmp_path / "copy.toml").write_text(SAME)
    write_task_run(runs, str(tmp_path / "copy.toml"), seed=1)
    for file in tmp_path.glob("*.toml"):
        file.unlink()
    table = collect(runs).table
    assert [(row["task"], row["seeds"]) for row in final(table).to_pylist()] == [("Maze-v0", 2)]
    assert read_runs(table).tasks == ["Maze-v0"]


def test_files_of_one_id_that_say_something_else_are_told_apart(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for hazards in (2, 3):
        for seed in (0, 1):
            write_task_run(runs, write_maze(tmp_path / "maze.toml", hazards), seed=seed)
    write_run(runs, toy(), ROWS)
    table = collect(runs).table
    one, other, corridor = read_runs(table).tasks
    assert one != other
    assert one.startswith("Maze-v0@")
    assert corridor == "ToyCorridor-v0"
    assert [row["seeds"] for row in final(table).to_pylist()] == [2, 2, 1]


def test_a_run_whose_task_is_damaged_is_named_and_the_others_are_there(tmp_path: Path) -> None:
    run = write_task_run(tmp_path / "runs", write_maze(tmp_path / "maze.toml"))
    (run / TASK_FILE).write_text("id = ")
    write_run(tmp_path / "runs", toy(), ROWS)
    collected = collect(tmp_path / "runs")
    (sentence,) = collected.unreadable.values()
    assert "task.toml is not TOML" in sentence
    assert set(collected.table["task"].to_pylist()) == {"ToyCorridor-v0"}


def test_the_copy_counts_only_where_the_settings_name_a_file(tmp_path: Path) -> None:
    run = write_task_run(tmp_path / "runs", write_maze(tmp_path / "maze.toml"))
    assert read_run(run).task == str(run / TASK_FILE)
    write_config(run / "config.toml", toy())
    assert read_run(run).task == "ToyCorridor-v0"
