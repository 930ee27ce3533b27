"""Whole benchmarks in worker processes: nothing is lost, nothing is done twice, whatever is killed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from sbtrpo import TrainConfig
from sbtrpo.benchmark.collect import collect
from sbtrpo.benchmark.command import benchmark, make_plan
from sbtrpo.benchmark.local import start_worker
from sbtrpo.benchmark.pack import pack_key
from sbtrpo.benchmark.plan import run_path
from sbtrpo.benchmark.states import LOG, progress, state
from sbtrpo.benchmark.worker import Job, environment
from tests.processes import alive

TINY = {"tasks": ["ToyCorridor-v0"], "num_envs": 2, "steps_per_epoch": 100, "total_steps": 200}
LONG = {"tasks": ["ToyCorridor-v0"], "algo": ["sb-trpo", "trpo"], "num_envs": 2, "steps_per_epoch": 100,
        "total_steps": 4000, "num_seeds": 2}  # fmt: skip


def test_a_benchmark_trains_skips_and_lists_what_failed(tmp_path: Path) -> None:
    settings = {**TINY, "seeds": [0, 7]}
    good, bad = (run_path(tmp_path, config) for config in make_plan(None, settings).runs())
    bad.mkdir(parents=True)
    (bad / "config.toml").write_text("nonsense = 1")
    output = io.StringIO()
    console = Console(file=output, width=300)
    assert benchmark(None, settings, tmp_path, workers=2, retries=1, console=console) == 1
    assert json.loads((good / "summary.json").read_text())["epochs"] == 2
    assert "epoch 2/2" in (good / LOG).read_text()
    said = output.getvalue()
    assert f"failed after 2 attempts: {bad}" in said
    assert "does not know: nonsense" in said
    assert f"log: {bad / LOG}" in said
    assert (bad / LOG).read_text().count("Traceback") == 2

    before = (good / "metrics.csv").stat().st_mtime_ns
    (bad / "config.toml").unlink()
    assert benchmark(None, settings, tmp_path, workers=2, console=console) == 0
    assert (good / "metrics.csv").stat().st_mtime_ns == before
    assert not (bad / "failed.json").exists()
    assert set(collect(tmp_path).states.values()) == {"done"}


def test_a_dry_run_lists_the_runs_and_starts_none(tmp_path: Path) -> None:
    output = io.StringIO()
    assert benchmark(None, TINY, tmp_path / "runs", dry_run=True, console=Console(file=output, width=200)) == 0
    assert "1 runs" in output.getvalue()
    assert "pending" in output.getvalue()
    assert not (tmp_path / "runs").exists()


def test_environments_of_other_packages_are_tasks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have processes of their own, and share no simulator even in a pack."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    settings = {**TINY, "tasks": ["tests.envs.foreign.worlds:Walk-v0"], "num_seeds": 2}
    configs = make_plan(None, settings).runs()
    assert {pack_key(config) for config in configs} == {None}
    assert benchmark(None, settings, tmp_path, workers=2, pack=2, quiet=True) == 0
    assert [progress(run_path(tmp_path, config)).epoch for config in configs] == [2, 2]
    assert set(collect(tmp_path).table["task"].to_pylist()) == {"tests.envs.foreign.worlds:Walk-v0"}


# ---- kills -------------------------------------------------------------------------------------------------------


def start(root: Path, pack: int = 1) -> subprocess.Popen[str]:
    """A benchmark command in a process of its own."""
    code = (
        "import json, sys, pathlib\n"
        "from sbtrpo.benchmark.command import benchmark\n"
        "settings, root, pack = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])\n"
        "sys.exit(benchmark(None, settings, root, workers=2, pack=pack))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(LONG), str(root), str(pack)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def runs() -> list[TrainConfig]:
    return make_plan(None, LONG).runs()


def epochs(root: Path) -> list[int]:
    return [progress(run_path(root, config)).epoch for config in runs()]


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        threading.Event().wait(0.02)


def workers(root: Path) -> list[int]:
    """Processes that hold claims on runs."""
    found = []
    for path in root.rglob("claim-*.json"):
        try:
            found.append(int(json.loads(path.read_text())["pid"]))
        except (FileNotFoundError, ValueError):
            continue
    return sorted(set(found))


def assert_whole(root: Path, reference: Path) -> None:
    """Every run is done, once, with the numbers of an undisturbed one."""
    for config in runs():
        path = run_path(root, config)
        assert state(path, config) == "done"
        rows = (path / "metrics.csv").read_text().splitlines()[1:]
        assert [int(float(row.split(",")[0])) for row in rows] == list(range(1, config.epochs + 1))
        assert (path / "metrics.csv").read_bytes() == (run_path(reference, config) / "metrics.csv").read_bytes()
        assert not list(path.glob("claim-*"))
    assert len(list(root.rglob("config.toml"))) == len(runs())


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same runs, trained one after the other without a benchmark."""
    root = tmp_path_factory.mktemp("reference")
    code = (
        "import sys, sbtrpo\n"
        "from sbtrpo.benchmark.worker import Job\n"
        "job = Job.from_json(sys.argv[1])\n"
        "for config, path in zip(job.runs, job.paths()): sbtrpo.train(config, path, quiet=True)\n"
    )
    job = Job(root, tuple(runs())).to_json()
    subprocess.run([sys.executable, "-c", code, job], check=True, env=environment())  # sums depend on their threads
    return root


@pytest.mark.slow
@pytest.mark.parametrize("pack", [1, 2])
def test_killed_workers_are_replaced_and_every_run_finishes_once(tmp_path: Path, reference: Path, pack: int) -> None:
    process = start(tmp_path, pack)
    wait_until(lambda: max(epochs(tmp_path)) >= 3)
    os.kill(workers(tmp_path)[0], signal.SIGKILL)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "ended by SIGKILL" in output
    assert_whole(tmp_path, reference)


@pytest.mark.slow
def test_a_killed_benchmark_leaves_no_process_behind_and_is_taken_up(tmp_path: Path, reference: Path) -> None:
    process = start(tmp_path)
    wait_until(lambda: max(epochs(tmp_path)) >= 3 and len(workers(tmp_path)) == 2)
    left = workers(tmp_path)
    process.kill()
    process.communicate()
    again = start(tmp_path)  # at once, while the workers of the first one may still be saving
    output, _ = again.communicate()
    assert again.returncode == 0, output
    assert not any(alive(pid) for pid in left)
    assert_whole(tmp_path, reference)


@pytest.mark.slow
def test_everything_killed_at_once_is_taken_up(tmp_path: Path, reference: Path) -> None:
    process = start(tmp_path)
    wait_until(lambda: sum(epoch >= 2 for epoch in epochs(tmp_path)) == 2)
    left = workers(tmp_path)
    process.kill()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    again = start(tmp_path)
    output, _ = again.communicate()
    assert again.returncode == 0, output
    assert "2 to resume" in output
    assert_whole(tmp_path, reference)


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path: Path, reference: Path) -> None:
    process = start(tmp_path)
    wait_until(lambda: max(epochs(tmp_path)) >= 3)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130, output
    assert "left to resume: give the same command again" in output
    assert not workers(tmp_path)
    again = start(tmp_path)
    output, _ = again.communicate()
    assert again.returncode == 0, output
    assert_whole(tmp_path, reference)


@pytest.mark.slow
@pytest.mark.parametrize("told", ["by a signal", "by its parent's end"])
def test_a_worker_stops_when_told_even_if_it_was_started_where_signals_are_blocked(tmp_path: Path, told: str) -> None:
    """As on the nodes of Ray, which block SIGINT."""
    config = runs()[0]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = start_worker(Job(tmp_path, (config,)))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert process.stdin is not None
    wait_until(lambda: progress(run_path(tmp_path, config)).epoch >= 2)
    if told == "by a signal":
        process.send_signal(signal.SIGINT)
    else:
        process.stdin.close()
    process.wait()
    process.stdin.close()
    assert state(run_path(tmp_path, config), config) == "interrupted"


@pytest.mark.slow
def test_two_commands_on_one_folder_share_the_work(tmp_path: Path, reference: Path) -> None:
    both = [start(tmp_path), start(tmp_path)]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert_whole(tmp_path, reference)
    sessions = [(run_path(tmp_path, config) / LOG).read_text().count("resuming after epoch") for config in runs()]
    assert sessions == [1] * len(runs())
