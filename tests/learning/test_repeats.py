"""The same seed gives the same numbers, whatever else the machine does and however many cores a run sees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.envs.physics.cpu import available_cores

BUSY = "import sys, threading as t; t.Thread(target=sys.stdin.read).start()\nwhile t.active_count() > 1: pass"
"""Until its standard input closes, as it does when whoever started it is gone."""
RUN = ("--steps-per-epoch", "20000", "--total-steps", "40000", "--advantage", "mc-linear")
"""Epochs whose sums are long enough to be split among threads."""


def metrics(out: Path, cores: set[int]) -> bytes:
    """Of a run in a process of its own that sees these cores."""
    visible = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    hide = f"import os; os.sched_setaffinity(0, {cores}); "
    if not hasattr(os, "sched_setaffinity"):  # where cores cannot be hidden, threads can
        hide, visible["OMP_NUM_THREADS"] = "", str(len(cores))
    code = f"{hide}from sbtrpo.cli.app import main; raise SystemExit(main())"
    command = [sys.executable, "-c", code, "train", "SafetyPointGoal2-v0", *RUN, "--out", str(out)]
    subprocess.run(command, check=True, env=visible, capture_output=True)
    return (out / "metrics.csv").read_bytes()


@pytest.mark.slow
def test_one_core_and_other_work_change_nothing(tmp_path: Path) -> None:
    cores = set(range(available_cores())) if not hasattr(os, "sched_getaffinity") else os.sched_getaffinity(0)
    quiet = metrics(tmp_path / "quiet", cores)
    others = [subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE) for _ in cores]
    try:
        busy = metrics(tmp_path / "busy", cores)
        alone = metrics(tmp_path / "alone", {min(cores)})
    finally:
        for other in others:
            other.communicate()
    assert quiet == busy == alone


def test_training_leaves_the_process_its_threads(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        config = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=400)
        assert config.update_threads == 1
        run = sbtrpo.train(config, tmp_path / "run", quiet=True)
        assert torch.get_num_threads() == 2
        sbtrpo.resume(run, quiet=True)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
