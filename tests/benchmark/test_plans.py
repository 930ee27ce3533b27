"""The paper's command and every plan, with few steps: they start, survive a kill in the middle, and finish."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sbtrpo import TrainConfig
from sbtrpo.benchmark.command import make_plan
from sbtrpo.benchmark.plan import PLANS, run_path
from sbtrpo.benchmark.states import progress, state

FEW = {"num_envs": 2, "steps_per_epoch": 100, "total_steps": 300, "num_seeds": 1}
PAPER = {
    "tasks": ["SafetyHopperVelocity-v1", "SafetySwimmerVelocity-v1"],
    "algo": ["ppo_lag", "trpo_lag", "cpo", "cup", "sb-trpo"],
    "workers": 25,
    "cost_limit": 0,
    "beta": 0.75,
}
"""The command of the paper's code, but for its sizes."""


def flags(settings: dict[str, object]) -> list[str]:
    found = []
    for name, value in settings.items():
        found += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return found


def start(arguments: list[str], root: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sbtrpo", "benchmark", *arguments, "--out", str(root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def killed_and_given_again(arguments: list[str], runs: list[TrainConfig], root: Path, pack: int) -> str:
    """Kill the command when runs are under way, before its end, and give it again; its output."""
    arguments = [*arguments, *flags(FEW), "--pack", str(pack)]
    first = start(arguments, root)
    deadline = time.monotonic() + 300
    while not any(progress(run_path(root, config)).epoch > 0 for config in runs):
        assert first.poll() is None, first.communicate()[0]
        assert time.monotonic() < deadline, "no run has begun"
        threading.Event().wait(0.02)
    first.kill()
    first.communicate()
    left = [config for config in runs if state(run_path(root, config), config) != "done"]
    again = start(arguments, root)
    output, _ = again.communicate()
    assert again.returncode == 0, output
    assert left  # the kill came before the end
    return output


def epochs(root: Path, config: TrainConfig) -> list[int]:
    """As its metrics have them."""
    rows = (run_path(root, config) / "metrics.csv").read_text().splitlines()[1:]
    return [int(float(row.split(",")[0])) for row in rows]


@pytest.mark.slow
def test_the_papers_command_survives_a_kill_and_finishes(tmp_path: Path) -> None:
    settings = {name: value for name, value in PAPER.items() if name != "workers"}
    runs = make_plan(None, {**settings, **FEW}).runs()
    output = killed_and_given_again(flags(PAPER), runs, tmp_path, pack=1)
    assert "10 of 10 runs done, 0 failed" in output
    assert [epochs(tmp_path, config) for config in runs] == 10 * [[1, 2, 3]]
    assert len(list(tmp_path.rglob("config.toml"))) == 10


@pytest.mark.slow
@pytest.mark.parametrize("plan", sorted(PLANS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_plan_survives_a_kill_and_finishes(plan: Path, tmp_path: Path) -> None:
    runs = make_plan(plan, FEW).runs()
    output = killed_and_given_again([str(plan)], runs, tmp_path, pack=6)  # packs: a process takes seconds to start
    assert f"{len(runs)} of {len(runs)} runs done, 0 failed" in output
    assert [epochs(tmp_path, config) for config in runs] == len(runs) * [[1, 2, 3]]
    assert len(list(tmp_path.rglob("config.toml"))) == len(runs)
