"""A run can be killed at any moment, and its metrics stay those of a run that never stopped."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.algorithms.base import Trial
from sbtrpo.algorithms.sb_trpo import SBTRPO
from sbtrpo.algorithms.trust_region import Proposal, TrustRegion
from sbtrpo.cli import app as cli
from sbtrpo.errors import UserError
from sbtrpo.learning.display import Display
from sbtrpo.learning.recorder import Recorder
from sbtrpo.learning.rollout import Collector
from sbtrpo.learning.trainer import Trainer, TrainingError
from sbtrpo.runs.claims import CLAIMS
from sbtrpo.runs.folder import RunFolder
from tests.processes import interrupt_after

TOY = TrainConfig(task="ToyCorridor-v0", num_envs=10, steps_per_epoch=500, total_steps=20_000, seed=3)
SMALL = TrainConfig(num_envs=4, steps_per_epoch=400, total_steps=2_000, seed=1)


def flags(config: TrainConfig) -> list[str]:
    """The command-line flags of what differs from the defaults."""
    default = TrainConfig().settings()
    return [
        part
        for name, value in config.settings().items()
        if value != default[name]
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sbtrpo", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def rows(run: Path) -> int:
    """Finished epochs, as far as the file shows."""
    path = run / "metrics.csv"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def wait_for_row(run: Path, process: subprocess.Popen[str], count: int) -> None:
    deadline = time.monotonic() + 60
    while rows(run) < count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)


@pytest.mark.slow
def test_a_run_killed_ten_times_resumes_to_the_same_metrics(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    config = TOY.replace(total_steps=60_000)  # long enough that ten kills fall within it
    sbtrpo.train(config, whole, quiet=True)
    rng = np.random.default_rng(0)
    process = start("train", *flags(config), "--out", str(killed))
    kills = 0
    while kills < 10 and rows(killed) < config.epochs:
        wait_for_row(killed, process, rows(killed) + 1)
        time.sleep(rng.uniform(0, 0.15))  # somewhere in an epoch, a write or a checkpoint
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
        process = start("resume", str(killed))
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert kills == 10
    assert (killed / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    assert_same_episodes(whole, killed)
    assert (killed / "summary.json").exists()


def assert_same_episodes(a: Path, b: Path) -> None:
    ours, theirs = RunFolder.open(a).episodes(), RunFolder.open(b).episodes()
    assert list(ours) == list(theirs)
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize("advantage", ["mc", "mc-linear", "gae-reward", "gae", "off-policy"])
@pytest.mark.parametrize("config", [TOY, SMALL], ids=["toy", "mujoco"])
def test_a_restored_trainer_continues_bit_for_bit(config: TrainConfig, advantage: Any, tmp_path: Path) -> None:
    """Through a checkpoint on disk, with critics, baselines, sleeping bodies and all."""
    from sbtrpo.runs import checkpoint

    config = config.replace(advantage=advantage, critic_passes=2, replay_updates=5)
    trainer = Trainer(config)
    for _ in range(2):
        trainer.run_epoch()
    checkpoint.save(tmp_path / "state", trainer.state_dict())
    restored = Trainer(config)
    restored.load_state_dict(checkpoint.load(tmp_path / "state"))
    for _ in range(2):
        ours, theirs = trainer.run_epoch(), restored.run_epoch()
        np.testing.assert_array_equal(list(ours.row.values()), list(theirs.row.values()))
    for ours, theirs in zip(trainer.policy.params, restored.policy.params, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_same_seed_gives_the_same_metrics_at_one_and_two_threads(tmp_path: Path) -> None:
    runs = [sbtrpo.train(SMALL.replace(threads=n), tmp_path / str(n), quiet=True) for n in (1, 2)]
    one, two = ((run / "metrics.csv").read_bytes() for run in runs)
    assert one == two
    other = sbtrpo.train(SMALL.replace(seed=2), tmp_path / "other", quiet=True)
    assert (other / "metrics.csv").read_bytes() != one


@pytest.mark.parametrize("task", ["SafetyPointGoal2-v0", "SafetyPointPush1-v0"])
def test_checkpoints_change_nothing(task: str, tmp_path: Path) -> None:
    """However often, or never; nor does a stop, saved between two of them, and a resume from there."""
    config = SMALL.replace(task=task, total_steps=2_400)

    def metrics(every: int) -> bytes:
        run = sbtrpo.train(config.replace(checkpoint_every=every), tmp_path / f"every{every}", quiet=True)
        return (run / "metrics.csv").read_bytes()

    always, seldom, never = metrics(1), metrics(4), metrics(100)
    assert always == seldom == never

    folder = RunFolder.create(tmp_path / "stopped", config.replace(checkpoint_every=4))
    trainer = Trainer(folder.config)
    recorder = Recorder(trainer, folder)
    recorder.record(trainer.run_epoch())
    recorder.record(trainer.run_epoch())
    recorder.close()
    sbtrpo.resume(folder.path, quiet=True)
    assert (folder.path / "metrics.csv").read_bytes() == always


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = TOY.replace(total_steps=3_000)
    whole = sbtrpo.train(config, tmp_path / "whole", quiet=True)
    run = sbtrpo.train(config, tmp_path / "damaged", quiet=True)
    tensors = run / "checkpoints" / "epoch-000006" / "state.safetensors"
    content = bytearray(tensors.read_bytes())
    content[len(content) // 2] ^= 1
    tensors.write_bytes(content)
    sbtrpo.resume(run)
    printed = " ".join(capsys.readouterr().out.split())
    assert "epoch-000006" in printed
    assert "resuming after epoch 5" in printed
    assert (run / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


@pytest.mark.slow
def test_ctrl_c_finishes_the_epoch_saves_and_says_how_to_resume(tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    process = start("train", *flags(TOY), "--out", str(run))
    wait_for_row(run, process, 3)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130, output
    assert f"sbtrpo resume {run}" in " ".join(output.split())
    assert 3 <= rows(run) < TOY.epochs
    resumed = start("resume", str(run))
    output, _ = resumed.communicate()
    assert resumed.returncode == 0, output
    sbtrpo.train(TOY, whole, quiet=True)
    assert (run / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Collector, "collect"),
        (Trainer, "_update"),
        (RunFolder, "log_epoch"),
        (Display, "update"),
        (Trainer, "check"),
    ],
    ids=["in the rollout", "in the update", "while the epoch is recorded", "after that", "at its end"],
)
def test_ctrl_c_at_any_moment_saves_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], owner: type, name: str
) -> None:
    config, run = TOY.replace(total_steps=4_000, checkpoint_every=5), tmp_path / "run"
    whole = sbtrpo.train(config, tmp_path / "whole", quiet=True)
    with monkeypatch.context() as interrupted:
        interrupt_after(interrupted, owner, name, call=3)
        sbtrpo.train(config, run)
    assert "stopped after epoch 3; continue with: sbtrpo resume" in " ".join(capsys.readouterr().out.split())
    assert rows(run) == 3
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["epoch-000003"]
    sbtrpo.resume(run)
    assert "resuming after epoch 3" in capsys.readouterr().out
    assert (run / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    assert_same_episodes(whole, run)


def test_ctrl_c_while_the_summary_is_written_lets_it_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after(monkeypatch, RunFolder, "flush_episodes", call=6)
    run = sbtrpo.train(TOY.replace(total_steps=2_500), tmp_path / "run", quiet=True)
    assert (run / "summary.json").exists()
    assert (run / "curves.png").exists()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("hidden = [32, 32]", r"hidden \(\[64, 64\], now \[32, 32\]\)"),
        ('task = "SafetyPointGoal1-v0"', r"task \('ToyCorridor-v0', now 'SafetyPointGoal1-v0'\)"),
        ("beta = 0.5", r"beta \(0.75, now 0.5\)"),
        ("beta_end = 0.9", r"beta_end \(None, now 0.9\)"),
        ("seed = 4", r"seed \(3, now 4\)"),
        ('algo = "trpo"', r"algo \('sb-trpo', now 'trpo'\)"),
    ],
)
def test_a_run_whose_settings_were_edited_is_not_resumed(tmp_path: Path, setting: str, sentence: str) -> None:
    run = sbtrpo.train(TOY.replace(total_steps=1_000), tmp_path / "run", quiet=True)
    edit(run / "config.toml", setting)
    before = (run / "metrics.csv").read_bytes()
    with pytest.raises(UserError, match=rf"config\.toml was edited since .*{sentence}.*; put that back, or train anew"):
        sbtrpo.resume(run, quiet=True)
    assert (run / "metrics.csv").read_bytes() == before


def test_a_run_may_be_resumed_with_more_steps_and_elsewhere(tmp_path: Path) -> None:
    run = sbtrpo.train(TOY.replace(total_steps=1_000), tmp_path / "run", quiet=True)
    for setting in ("total_steps = 1500", "threads = 1", "checkpoint_every = 2", "keep_last = 5"):
        edit(run / "config.toml", setting)
    sbtrpo.resume(run, quiet=True)
    assert rows(run) == 3


def edit(config: Path, setting: str) -> None:
    """Give a setting another value."""
    name = setting.partition(" ")[0]
    either = f"{name} =", f"# {name} is not set"
    lines = [setting if line.startswith(either) else line for line in config.read_text().splitlines()]
    assert setting in lines
    config.write_text("\n".join(lines) + "\n")


MAZE = """id = "Maze-v0"
robot = "point"
objective = "goal"
objects = [{kind = "goal", size = 0.3}]
"""


@pytest.mark.parametrize(("part", "other"), [("point", "car"), ("0.3", "0.2"), ("Maze-v0", "Labyrinth-v0")])
def test_a_task_that_was_edited_is_told(tmp_path: Path, part: str, other: str) -> None:
    task = tmp_path / "maze.toml"
    task.write_text(MAZE)
    sizes: dict[str, Any] = {"num_envs": 2, "steps_per_epoch": 40, "total_steps": 80}
    run = sbtrpo.train(TrainConfig(task=str(task), **sizes), tmp_path / "run", quiet=True)
    before = (run / "metrics.csv").read_bytes()
    (run / "task.toml").write_text(MAZE.replace(part, other))
    with pytest.raises(UserError, match=r"task\.toml was edited since the run's checkpoint; put it back"):
        sbtrpo.resume(run, quiet=True)
    (run / "task.toml").write_text(MAZE + "# with a remark\n")
    sbtrpo.resume(run, quiet=True)
    assert (run / "metrics.csv").read_bytes() == before


def test_a_method_that_was_edited_is_told(tmp_path: Path) -> None:
    file = tmp_path / "wary.py"
    file.write_text("from sbtrpo.algorithms.trpo import TRPO\n\n\nclass Wary(TRPO):\n    pass\n")
    config = TOY.replace(algo=f"{file}:Wary", total_steps=1_000)
    run = sbtrpo.train(config, tmp_path / "run", quiet=True)
    (run / "method.py").write_text(file.read_text() + "\n\nFURTHER = 1\n")
    with pytest.raises(UserError, match=r"method\.py was edited since the run's checkpoint; put it back"):
        sbtrpo.resume(run, quiet=True)


# ---- one writer ------------------------------------------------------------------------------------------------------


def test_while_a_run_is_being_written_nobody_else_writes_and_everybody_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sbtrpo.train(TOY.replace(total_steps=1_000), tmp_path / "run", quiet=True)
    with RunFolder.open(run) as folder:
        folder.hold()
        before = contents(run)
        for command in (["resume", str(run)], ["train", *flags(TOY), "--out", str(run)]):
            assert cli.main(command) == 2
            error = capsys.readouterr().err
            assert error.startswith(f"sbtrpo: {run} is being worked on by process {os.getpid()} on ")
            assert error.count("\n") == 1
        sbtrpo.load_policy(run)
        sbtrpo.evaluate(run, episodes=2)
        RunFolder.open(run).metrics()
        assert contents(run) == before
    assert not list(run.glob(CLAIMS))


def contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_run_that_fails_or_is_refused_can_be_taken_up_in_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, run = TOY.replace(total_steps=1_500), tmp_path / "run"
    with monkeypatch.context() as broken:
        broken.setattr(Trainer, "check", lambda trainer: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sbtrpo.train(config, run, quiet=True)
    with pytest.raises(FileExistsError, match="exists and is not empty"):
        sbtrpo.train(config, run, quiet=True)
    sbtrpo.resume(run, quiet=True)
    assert rows(run) == 3


def test_a_reader_leaves_a_run_as_it_is(tmp_path: Path) -> None:
    run = sbtrpo.train(TOY.replace(total_steps=1_000), tmp_path / "run", quiet=True)
    (run / "run.json").unlink()
    before = contents(run)
    sbtrpo.evaluate(run, episodes=2)
    assert contents(run) == before


def test_ten_failed_updates_in_a_row_stop_the_run_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hopeless(region: TrustRegion, theta: Tensor) -> Trial:
        return Trial(math.inf, (0.0, 0.0))

    monkeypatch.setattr(TrustRegion, "evaluate", hopeless)
    with pytest.raises(TrainingError, match=r"10 updates in a row changed nothing.*smaller target_kl"):
        sbtrpo.train(TOY, tmp_path / "run", quiet=True)
    assert rows(tmp_path / "run") == 10
    assert (tmp_path / "run" / "checkpoints" / "epoch-000010").exists()


def test_a_run_whose_steps_are_below_rounding_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps in the wrong direction, which raise the cost until they are so short that it is noise whether they do."""
    propose = SBTRPO.propose

    def reversed_step(method: SBTRPO, *arguments: Any) -> Proposal:
        proposal = propose(method, *arguments)
        return dataclasses.replace(proposal, step=-proposal.step)

    monkeypatch.setattr(SBTRPO, "propose", reversed_step)
    run = tmp_path / "run"
    with pytest.raises(TrainingError, match=r"10 updates in a row changed nothing.*no step was acceptable"):
        sbtrpo.train(TOY.replace(beta=1.0, total_steps=50_000), run, quiet=True)
    metrics = RunFolder.open(run).metrics()
    assert (metrics["line_search_failed"][-10:] == 1).all()
    assert (metrics["step_norm"][-10:] == 0).all()
    assert max(metrics["line_search_tries"]) < 100


@pytest.mark.parametrize(("epochs", "every"), [(1, 1), (6, 1), (6, 50)])
def test_a_folder_without_its_checkpoints_is_left_as_it_is(tmp_path: Path, epochs: int, every: int) -> None:
    config = TOY.replace(total_steps=500 * epochs, checkpoint_every=every)
    run = sbtrpo.train(config, tmp_path / "run", quiet=True)
    if every > epochs:  # as if stopped by Ctrl-C, which saves, too
        (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoints")
    before = (run / "metrics.csv").read_bytes()
    with pytest.raises(UserError, match=rf"{epochs} epochs in metrics\.csv and no checkpoint to go on from"):
        sbtrpo.resume(run, quiet=True)
    assert (run / "metrics.csv").read_bytes() == before
    assert RunFolder.open(run).episodes()


@pytest.mark.parametrize("every", [2, 3])
def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(tmp_path: Path, every: int) -> None:
    """After the row of its epoch, or earlier."""
    config = TOY.replace(total_steps=3_000, checkpoint_every=every)
    whole = sbtrpo.train(config, tmp_path / "whole", quiet=True)
    killed = tmp_path / "killed"
    shutil.copytree(whole, killed, ignore=shutil.ignore_patterns("checkpoints", "summary.json"))
    origin = json.loads((killed / "run.json").read_text())
    assert origin.pop("saved")
    (killed / "run.json").write_text(json.dumps(origin))
    rows = (killed / "metrics.csv").read_text().splitlines(keepends=True)
    (killed / "metrics.csv").write_text("".join(rows[:3]))
    sbtrpo.resume(killed, quiet=True)
    assert (killed / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


def test_a_run_with_its_learner_on_a_gpu_goes_on_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    whole = sbtrpo.train(TOY, tmp_path / "whole", quiet=True)
    folder = RunFolder.create(tmp_path / "moved", TOY.replace(device="cuda"))
    trainer = Trainer(TOY)
    recorder = Recorder(trainer, folder)
    recorder.record(trainer.run_epoch())
    recorder.close()
    with pytest.raises(UserError, match="torch sees no GPU here, so there is no device cuda; use --device cpu"):
        sbtrpo.resume(folder.path, quiet=True)
    assert cli.main(["resume", str(folder.path), "--device", "cpu", "--quiet"]) == 0
    assert RunFolder.open(folder.path).config.device == "cpu"
    assert (folder.path / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("foo", "device must be auto, cpu or cuda, got 'foo'"),
        ("meta", "device must be auto, cpu or cuda, got 'meta'"),
        ("", "device must be auto, cpu or cuda, got ''"),
        ("cuda:-1", "device must be auto, cpu or cuda, got 'cuda:-1'"),
        ("cuda", "torch sees no GPU here"),
        ("cuda:99", "torch sees no GPU here, so there is no device cuda:99"),
        ("cpu:9", "there is no device cpu:9 here; use --device cpu, or cpu:0"),
    ],
)
def test_a_device_that_is_not_there_is_told(device: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=sentence):
        Trainer(TOY.replace(device=device))


@pytest.mark.parametrize(("count", "others"), [(1, "cuda:0"), (4, "cuda:0 to cuda:3")])
def test_a_gpu_that_is_not_there_is_told(count: int, others: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(UserError, match=f"there is no device cuda:99 here; use --device cuda, or {others}$"):
        Trainer(TOY.replace(device="cuda:99"))


def test_the_cpu_has_a_number() -> None:
    assert Trainer(TOY.replace(device="cpu:0")).run_epoch().row["epoch"] == 1
