from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sbtrpo
from sbtrpo.cli import app as cli
from sbtrpo.config import catalogue
from sbtrpo.envs.layout import LayoutError
from sbtrpo.runs.folder import RunFolder


def test_demo_takes_its_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "circle.png"
    code = cli.main(["look", "--task", "SafetyCarCircle2-v0", "--worlds", "2", "--seed", "3", "--out", str(out)])
    assert code == 0
    assert out.stat().st_size > 0
    text = capsys.readouterr().out
    assert "SafetyCarCircle2-v0: a random policy in 2 worlds" in text
    assert "safety probability" in text


def test_unknown_task_is_one_line_with_the_nearest_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["look", "--task", "SafetyPointGaol2-v0", "--out", str(tmp_path / "demo.png")])
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "unknown task 'SafetyPointGaol2-v0'; did you mean SafetyPointGoal2-v0" in captured.err


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        (["--worlds", "0"], "must be at least 1, got 0"),
        (["--seed", "-1"], "must be at least 0, got -1"),
        (["--out", "demo.txt"], "end in .png"),
    ],
)
def test_wrong_values_are_one_line(flags: list[str], advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["look", *flags]) == 2
    error = capsys.readouterr().err
    assert advice in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("error", [LayoutError("no room\nfor the goal"), PermissionError(13, "not allowed")])
def test_errors_of_ours_and_of_files_are_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("sbtrpo.tools.demo.run_demo", fails)
    assert cli.main(["look"]) == 2
    assert capsys.readouterr().err in ("sbtrpo: no room for the goal\n", "sbtrpo: [Errno 13] not allowed\n")


def test_an_interrupt_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def waits(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sbtrpo.tools.demo.run_demo", waits)
    assert cli.main(["look"]) == cli.INTERRUPTED
    assert capsys.readouterr().err == "sbtrpo: interrupted\n"


def test_tasks_lists_every_task_with_its_sizes_and_what_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main(["tasks"]) == 0
    text = capsys.readouterr().out
    rows = {words[0]: words[1:] for line in text.splitlines() if (words := line.split())}
    assert [name for name in rows if name in sbtrpo.task_ids()] == sbtrpo.task_ids()
    assert rows["SafetyPointGoal2-v0"] == ["60", "2", "1000", "goal,", "10", "hazards*,", "10", "vases*"]
    assert rows["SafetyCarCircle2-v0"][:3] == ["40", "2", "500"]
    assert "0.7402" in rows["SafetyHopperVelocity-v1"]


def test_algorithms_lists_every_method_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "250")  # no line is broken
    assert cli.main(["algorithms"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    shown = [line for line in lines if line.split(" ")[0] in catalogue.BUILT_IN]
    assert [line.split(" ")[0] for line in shown] == list(catalogue.BUILT_IN)
    for line, method in zip(shown, catalogue.entries(), strict=True):
        assert method.summary in line
        assert method.source in line


@pytest.mark.parametrize("name", ["c_trpo", "C-TRPO"])
def test_algorithms_shows_one_with_its_settings_and_quirks(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    assert cli.main(["algorithms", name]) == 0
    text = capsys.readouterr().out
    method = catalogue.method("c_trpo")
    for part in (method.title, method.summary, method.source):
        assert part in text
    rows = [line.split() for line in text.splitlines() if line.strip()]
    assert ["critic_batch", "256"] in [row[:2] for row in rows]
    assert "On SafetyHopperVelocity-v1: 128." in text
    assert ["kl_reduction", "mean_over_dims", "sum_over_dims", "The"] in [row[:4] for row in rows]
    assert {"gamma", "barrier", "line_search_fraction"} <= {row[0] for row in rows}


def test_algorithms_shows_where_the_papers_table_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    assert cli.main(["algorithms", "cup"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["policy_batch", "64", "20000"] in [row[:3] for row in rows]
    assert ["clip", "0.2", "Ratios"] in [row[:3] for row in rows]


def test_unknown_algorithm_is_one_line_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["algorithms", "ppo-lagg"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("sbtrpo: there is no algorithm 'ppo-lagg'; did you mean ppo_lag")


def test_settings_that_change_nothing_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--num-envs", "2", "--steps-per-epoch", "200", "--total-steps", "200", "--quiet"]
    idle = ["--critic-passes", "3", "--critic-l2", "0.1", "--first-hit-from", "0.5", "--beta-from", "0.5"]
    assert cli.main(["train", "ToyCorridor-v0", *idle, *size, "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "sbtrpo: critic_l2, critic_passes change nothing with advantage mc",
        "sbtrpo: beta_from changes nothing with beta_end None",
        "sbtrpo: first_hit_from changes nothing with cost_to_go sum",
    ]
    assert RunFolder.open(tmp_path / "run").config.get("critic_passes") == 3


@pytest.mark.parametrize(("total", "told"), [(500, True), (400, False)])
def test_steps_that_make_no_whole_epoch_are_told(
    total: int, told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--num-envs", "2", "--steps-per-epoch", "200", "--total-steps", str(total)]
    note = "of total_steps, 500, the run takes 400: 2 whole epochs of 200"
    assert cli.main(["train", "ToyCorridor-v0", *size, "--out", str(tmp_path / "run")]) == 0
    assert (note in capsys.readouterr().out) == told


def test_module_runs_as_a_command() -> None:
    command = [sys.executable, "-m", "sbtrpo", "look", "--task", "SafetyPointGoal"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.startswith("sbtrpo: unknown task 'SafetyPointGoal'")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", [["--help"], ["tasks"], ["check", "SafetyPointGoal0-v0", "--seconds", "0.1"]])
def test_a_reader_who_leaves_ends_the_command_quietly(command: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "sbtrpo", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()  # as `head` does, only sooner
        _, errors = process.communicate()
    assert errors == ""
    assert process.returncode == cli.NOBODY_READS
