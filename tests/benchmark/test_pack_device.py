"""Learners that act and learn together on a device give the numbers of separate runs.

On Warp's CPU device, and with a number of worlds that vector instructions do not cut differently in a larger pool, all
that they learn is the same to the bit: only what a trial step gave is summed in another order. On a GPU
(SBTRPO_TEST_DEVICE=cuda) products of several learners round otherwise, and early statistics of observations magnify it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.benchmark import pack_device
from sbtrpo.benchmark.pack import pack_key, train_pack
from sbtrpo.benchmark.states import LOG
from sbtrpo.envs.faults import EnvironmentFailure
from sbtrpo.learning.rollout import Rollout
from sbtrpo.learning.trainer import Epoch, Trainer
from sbtrpo.runs.folder import RunFolder
from tests.benchmark.folders import break_learner
from tests.devices import DEVICE

ENGINE = "gpu" if DEVICE == "cuda" else "gpu-on-cpu"
TOLERANCE = {"rel": 5e-2, "abs": 1e-3} if DEVICE == "cuda" else {"rel": 1e-4, "abs": 1e-6}
GROWN = TOLERANCE | {"rel": max(1e-3, TOLERANCE["rel"])}
"""With more worlds, which vector instructions do cut differently."""
TASK = """
id = "Short-v0"
robot = "point"
objective = "goal"
episode_length = 6
substeps = 2
objects = [{kind = "goal"}, {kind = "hazards", count = 12, keepout = 0.2, cost = true}]
"""
WORLDS, STEPS = 16, 8
MIXED = ({"seed": 0}, {"seed": 1, "algo": "trpo_lag"}, {"seed": 2, "algo": "cpo"}, {"seed": 3, "algo": "ppo_lag"})


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("task") / "short.toml"
    path.write_text(TASK)
    return str(path)


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunFolder, "draw_curves", lambda folder: folder.path)


def config(task: str, steps: int = STEPS, **own: Any) -> TrainConfig:
    shape = {"num_envs": WORLDS, "steps_per_epoch": WORLDS * steps, "total_steps": 2 * WORLDS * steps}
    return TrainConfig(task=task, engine=ENGINE, **shape, **own)


@pytest.fixture(scope="module")
def alone(task: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The runs of `MIXED`, by themselves."""
    root = tmp_path_factory.mktemp("alone")
    return [sbtrpo.train(config(task, **own), root / f"{k}", quiet=True) for k, own in enumerate(MIXED)]


def folders(root: Path, configs: Sequence[TrainConfig]) -> list[Path]:
    paths = [root / f"pack{k}" for k in range(len(configs))]
    for path, chosen in zip(paths, configs, strict=True):
        RunFolder.create(path, chosen).close()
    return paths


def metrics(run: Path) -> list[dict[str, float]]:
    with (run / "metrics.csv").open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def assert_alike(ours: Path, theirs: Path, tolerance: Mapping[str, float] = TOLERANCE) -> None:
    one, other = metrics(ours), metrics(theirs)
    assert len(one) == len(other) > 0
    assert one == [pytest.approx(row, nan_ok=True, **tolerance) for row in other]


def test_two_learners_see_and_learn_what_each_does_alone() -> None:
    """The only one that is quick: a step or two of each."""
    configs = [config("SafetyPointGoal1-v0", steps=2, seed=seed) for seed in (0, 1000)]
    alone, trainers = [Trainer(each) for each in configs], [Trainer(each) for each in configs]
    pack = pack_device.DevicePack(trainers)
    outcomes = pack.collect(trainers, 2)
    for other, epoch in zip(alone, pack.learn(trainers, outcomes, 1.0), strict=True):
        assert isinstance(epoch, Epoch)
        assert epoch.row == pytest.approx(other.run_epoch().row, nan_ok=True, **TOLERANCE)
    ours, theirs = (trainer.state_dict() for trainer in (trainers[1], alone[1]))
    assert _shapes(ours) == _shapes(theirs)
    np.testing.assert_allclose(ours["collector"]["obs"], theirs["collector"]["obs"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("grow_by", ["steps", "worlds"])
def test_learners_whose_epochs_grow_see_and_learn_what_each_does_alone(grow_by: str) -> None:
    """What is recorded is recorded anew for every length, and when statistics no longer move in it."""
    growing = {"epoch_growth": 1.0, "grow_by": grow_by, "statistics": "steady", "hidden": (8, 8)}
    fixed = {"cg_iterations": 5, "cg_tolerance": 0.0}  # where a tolerance ends them, rounding may decide
    configs = [config("SafetyPointGoal1-v0", steps=1, seed=seed, **growing, **fixed) for seed in (0, 1000)]
    alone, trainers = [Trainer(each) for each in configs], [Trainer(each) for each in configs]
    pack = pack_device.DevicePack(trainers)
    contacts, rows = pack.pool.room
    pack.pool.make_room(larger := (contacts + 1, rows + 2))
    for steps in (1, 1, 2):
        if {trainer.grow() for trainer in trainers} == {True}:
            pack.dissolve()
            pack = pack_device.DevicePack(trainers)
            assert pack.pool.room == larger  # what worlds have needed before is not forgotten
        outcomes = pack.collect(trainers, trainers[0].steps_per_world)
        for other, epoch in zip(alone, pack.learn(trainers, outcomes, 1.0), strict=True):
            assert isinstance(epoch, Epoch)
            assert epoch.row == pytest.approx(other.run_epoch().row, nan_ok=True, **GROWN)
            assert epoch.timing["rollout_steps_per_second"] == WORLDS * steps
    for ours, theirs in zip(trainers, alone, strict=True):
        one, other = (each.policy.normaliser.state_dict() for each in (ours, theirs))
        assert one["count"] == other["count"]
        np.testing.assert_allclose(one["mean"], other["mean"], rtol=1e-3, atol=1e-3)


def _shapes(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _shapes(value) for key, value in state.items()}
    return [_shapes(entry) for entry in state] if isinstance(state, list) else np.shape(state)


@pytest.mark.slow
def test_a_pack_gives_the_numbers_of_separate_runs(task: str, alone: list[Path], tmp_path: Path) -> None:
    packed = folders(tmp_path, [config(task, **own) for own in MIXED])
    assert train_pack(packed) == []
    for ours, theirs in zip(packed, alone, strict=True):
        assert_alike(ours, theirs)
        assert metrics(ours)[-1]["episodes"] > 0
        assert (ours / "summary.json").exists()
        names = [path.name for path in theirs.glob("episodes.parquet/*")]
        assert names == [path.name for path in ours.glob("episodes.parquet/*")]


@pytest.mark.slow
def test_the_last_learner_goes_on_as_worlds_join(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = {"epoch_growth": 1.0, "grow_by": "worlds", "hidden": (8, 8)}
    configs = [
        config(task, **own, **growing).replace(total_steps=8 * WORLDS * STEPS) for own in ({"seed": 0}, {"seed": 1})
    ]
    alone, *packed = folders(tmp_path, [configs[0], *configs])
    assert train_pack([alone]) == []
    break_learner(monkeypatch, seed=1)
    assert train_pack(packed) == [packed[1]]
    assert_alike(packed[0], alone, GROWN)
    assert [row["steps"] for row in metrics(packed[0])] == [WORLDS * STEPS * n for n in (1, 2, 4, 8)]


@pytest.mark.slow
def test_a_learner_that_fails_leaves_the_pack(
    task: str, alone: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And goes on alone, from where it was."""
    packed = folders(tmp_path, [config(task, **own) for own in MIXED[:3]])
    with monkeypatch.context() as broken:
        break_learner(broken, seed=1)
        assert train_pack(packed) == [packed[1]]
    assert "RuntimeError: this one breaks" in (packed[1] / LOG).read_text()
    assert_alike(packed[0], alone[0])
    assert_alike(packed[2], alone[2])
    assert len(metrics(packed[1])) == 1
    sbtrpo.resume(packed[1], quiet=True)
    assert_alike(packed[1], alone[1])


@pytest.mark.slow
def test_runs_leave_a_pack_and_come_back(
    task: str, alone: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = folders(tmp_path, [config(task, **own) for own in MIXED[:3]])
    with monkeypatch.context() as stopped:
        stopped.setattr(TrainConfig, "epochs", property(lambda config: 1))
        stopped.setattr(RunFolder, "finish", lambda folder, summary: folder.close())
        train_pack(packed)
    sbtrpo.resume(packed[0], quiet=True)
    assert train_pack(packed[1:]) == []
    for ours, theirs in zip(packed, alone, strict=False):
        assert_alike(ours, theirs)


@pytest.mark.slow
def test_faults_and_failures_are_those_of_the_learner_whose_worlds_failed(task: str) -> None:
    configs = [config(task, seed=seed, faulted="apart") for seed in (0, 1, 2)]
    trainers, alone = [Trainer(each) for each in configs], Trainer(configs[0])
    pack = pack_device.DevicePack(trainers)
    pack.pool.physics.qpos[WORLDS + 3] = float("nan")  # a world of the second learner
    trainers[2].collector._tolerance.debt = 1e6  # as if its worlds had failed all the time
    first, second, third = pack.collect(trainers, 30)
    expected = alone.collector.collect(30)
    assert isinstance(first, Rollout)
    assert isinstance(second, Rollout)
    assert isinstance(third, EnvironmentFailure)
    assert (first.faults, second.faults) == (0, 1)
    assert [int(share.state_dict()["faults"]) for share in pack.shares][:2] == [0, 1]
    np.testing.assert_allclose(first.obs.cpu(), expected.obs.cpu(), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(first.episodes["world"], expected.episodes["world"])
    np.testing.assert_allclose(first.episodes["return"], expected.episodes["return"], rtol=1e-3, atol=1e-5)
    assert pack.collect([*trainers[:2], None], 2)[2] is None
    assert not trainers[2].policy.log_std.any()  # its worlds rest


def test_only_runs_whose_networks_and_costs_are_alike_share_a_device(task: str) -> None:
    key = pack_key(config(task))
    assert key == pack_key(config(task, seed=1, algo="cpo", cost_limit=3.0))
    others: tuple[dict[str, Any], ...] = (
        {"hidden": (32,)}, {"activation": "relu"}, {"normalise_observations": False}, {"statistics": "steady"},
        {"constraints": ("each",)}, {"faulted": "apart"},
    )  # fmt: skip
    assert all(pack_key(config(task, **own)) != key for own in others)
    assert pack_key(config(task, init_from="policy.safetensors")) == key
    steady, begun = (config(task, statistics="steady", **own) for own in ({}, {"init_from": "policy.safetensors"}))
    assert pack_key(steady) != pack_key(begun)  # whose statistics stand still in the first epoch, too
    assert pack_key(config(task).replace(engine="cpu")) != key
