"""The same plan on a Ray cluster: a node may die, and every run finishes once."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sbtrpo.benchmark import ray as launching
from sbtrpo.benchmark.command import benchmark, make_plan
from sbtrpo.benchmark.plan import run_path
from sbtrpo.benchmark.ray import RayLauncher, train_on_node
from sbtrpo.benchmark.schedule import Scheduler
from sbtrpo.benchmark.states import LOG, progress, state
from sbtrpo.benchmark.worker import Job
from tests.benchmark.folders import toy

SETTINGS = {"tasks": ["ToyCorridor-v0"], "num_envs": 2, "steps_per_epoch": 100, "total_steps": 4000, "num_seeds": 4}
SMALL = {"object_store_memory": 80_000_000}


def test_without_ray_one_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(launching.importlib, "import_module", missing)
    with pytest.raises(ValueError, match=r"the launcher 'ray' needs the package ray: pip install 'sbtrpo\[ray\]'"):
        benchmark(None, SETTINGS, tmp_path, launcher="ray")


def test_a_node_that_does_not_see_the_runs_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="put the runs on storage that all nodes share"):
        train_on_node(Job(tmp_path / "elsewhere", (toy(),)).to_json())


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head without cores, so that all tasks are on nodes that may be removed."""
    pytest.importorskip("ray")
    utils = importlib.import_module("ray.cluster_utils")
    ray = importlib.import_module("ray")
    made = utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **SMALL}, shutdown_at_exit=True
    )
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_node_dies_in_the_middle_and_every_run_finishes_once(cluster: Any, tmp_path: Path) -> None:
    doomed, _ = (cluster.add_node(num_cpus=2, **SMALL) for _ in range(2))
    cluster.wait_for_nodes()
    launcher = RayLauncher(cluster.address)
    configs = make_plan(None, SETTINGS).runs()
    scheduler = Scheduler(configs, tmp_path, launcher)
    paths = [run_path(tmp_path, config) for config in configs]
    killed = threading.Event()

    def kill() -> None:
        while min(progress(path).epoch for path in paths) < 3:  # all four are under way, two on each node
            threading.Event().wait(0.05)
        cluster.remove_node(doomed, allow_graceful=False)
        killed.set()

    threading.Thread(target=kill, daemon=True).start()
    result = scheduler.run()
    launcher.close()
    assert killed.is_set()
    assert result.exit_status == 0, [(run.name, run.status, run.error) for run in result.runs]
    assert [run.attempts for run in result.runs] == [0] * 4
    sessions = []
    for config, path in zip(configs, paths, strict=True):
        assert state(path, config) == "done"
        rows = (path / "metrics.csv").read_text().splitlines()[1:]
        assert [int(float(row.split(",")[0])) for row in rows] == list(range(1, config.epochs + 1))
        sessions.append((path / LOG).read_text().count("resuming after epoch"))
    assert sorted(sessions) == [1, 1, 2, 2]  # two runs went on from their checkpoints
    assert sum("resuming after epoch 0" not in (path / LOG).read_text() for path in paths) == 0
    assert len(list(tmp_path.rglob("config.toml"))) == 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_there_is_no_cluster_and_one_is_told_so(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(ConnectionError, match=r"docs/cluster.md"):
        RayLauncher("auto")
