"""Learners that share a pool give the numbers of separate runs, byte for byte."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.benchmark import worker
from sbtrpo.benchmark.pack import SharedPool, pack_key, train_pack
from sbtrpo.benchmark.states import LOG, last_words
from sbtrpo.envs import Pool
from sbtrpo.learning import training
from sbtrpo.learning.display import Display
from sbtrpo.learning.rollout import Rollout
from sbtrpo.learning.trainer import Trainer
from sbtrpo.runs.claims import holder
from sbtrpo.runs.folder import RunFolder
from tests.benchmark.folders import break_learner, toy
from tests.processes import interrupt_after

TOY = [toy(seed=0), toy(seed=1000), toy(seed=0, algo="cpo", critic_passes=1), toy(seed=0, beta=0.9)]
GOAL = [
    TrainConfig(num_envs=2, steps_per_epoch=240, total_steps=480, critic_passes=1, **own)
    for own in ({"seed": 0}, {"seed": 1000, "checkpoint_every": 2}, {"seed": 0, "algo": "cpo"})
]
HOPPER = [
    TrainConfig(task="SafetyHopperVelocity-v1", num_envs=2, steps_per_epoch=200, total_steps=400, seed=seed)
    for seed in (0, 1000)
]


def separately(root: Path, configs: Sequence[TrainConfig]) -> list[Path]:
    return [sbtrpo.train(config, root / f"alone{k}", quiet=True) for k, config in enumerate(configs)]


def folders(root: Path, configs: Sequence[TrainConfig]) -> list[Path]:
    paths = [root / f"pack{k}" for k in range(len(configs))]
    for path, config in zip(paths, configs, strict=True):
        RunFolder.create(path, config).close()
    return paths


def assert_same(ours: Path, theirs: Path) -> None:
    assert contents(ours) == contents(theirs)


def contents(run: Path) -> dict[str, bytes]:
    """The bytes of metrics.csv and of all parts of episodes.parquet."""
    paths = [run / "metrics.csv", *run.glob("episodes.parquet/*")]
    return {path.name: path.read_bytes() for path in paths if path.exists()}


ENDING = [toy(seed=seed, end_at_violation=True) for seed in (0, 1000)]


@pytest.mark.parametrize("configs", [TOY, GOAL, ENDING], ids=["toy", "goal", "ending"])
def test_a_pack_gives_the_numbers_of_separate_runs(configs: list[TrainConfig], tmp_path: Path) -> None:
    alone, packed = separately(tmp_path, configs), folders(tmp_path, configs)
    assert train_pack(packed) == []
    for ours, theirs in zip(packed, alone, strict=True):
        assert_same(ours, theirs)
        assert (ours / "summary.json").exists()
        assert "epoch 2/" in (ours / LOG).read_text()


def test_a_pack_gives_the_numbers_of_separate_runs_where_episodes_end_at_any_time() -> None:
    alone, trainers = [Trainer(config) for config in HOPPER], [Trainer(config) for config in HOPPER]
    shared = SharedPool(trainers)
    for _ in range(2):
        for trainer, rollout, other in zip(trainers, shared.collect(trainers, 100), alone, strict=True):
            assert isinstance(rollout, Rollout)
            assert rollout.episodes
            np.testing.assert_array_equal(
                list(trainer.learn(rollout, 1.0).row.values()), list(other.run_epoch().row.values())
            )


def test_a_run_leaves_a_pack_and_goes_on_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the other way round, with runs that stopped at different epochs."""
    configs = GOAL[:2]
    alone, packed = separately(tmp_path, configs), folders(tmp_path, configs)
    with monkeypatch.context() as stopped:
        stopped.setattr(TrainConfig, "epochs", property(lambda config: 1))
        stopped.setattr(RunFolder, "finish", lambda folder, summary: folder.close())
        train_pack(packed)
    sbtrpo.resume(packed[0], quiet=True)
    assert_same(packed[0], alone[0])
    late = tmp_path / "late"
    RunFolder.create(late, configs[1]).close()
    assert train_pack([packed[1], late]) == []
    assert_same(packed[1], alone[1])
    assert_same(late, alone[1])


@pytest.mark.parametrize(
    ("owner", "name"),
    [(SharedPool, "collect"), (Trainer, "learn"), (RunFolder, "log_epoch"), (Display, "update")],
    ids=["in the rollout", "in an update", "while an epoch is recorded", "after that"],
)
@pytest.mark.parametrize("seed", [0, 1000])
def test_ctrl_c_at_any_moment_saves_all_runs_of_a_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, seed: int
) -> None:
    """Of both learners' calls, in the first one's or in the last one's."""
    configs = [toy(seed=seed, total_steps=700, checkpoint_every=5) for seed in (0, 1000)]
    alone, packed = separately(tmp_path, configs), folders(tmp_path, configs)
    with monkeypatch.context() as interrupted:
        interrupt_after(interrupted, owner, name, call=2 if owner is SharedPool else 3 if seed == 0 else 4)
        assert train_pack(packed) == []
    for run in packed:
        assert (run / LOG).read_text().splitlines()[-1] == "stopped after epoch 2"
        assert RunFolder.open(run).last_epoch == 2
        assert (run / "checkpoints" / "epoch-000002").exists()
    for run, whole in zip(packed, alone, strict=True):
        training.resume(run, quiet=True)
        assert (run / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


def test_a_learner_that_fails_does_not_disturb_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, packed = separately(tmp_path, TOY[:3]), folders(tmp_path, TOY[:3])
    with monkeypatch.context() as broken:
        break_learner(broken, seed=1000)
        assert train_pack(packed) == [packed[1]]
    assert "RuntimeError: this one breaks" in (packed[1] / LOG).read_text()
    assert not (packed[1] / "summary.json").exists()
    assert_same(packed[0], alone[0])
    assert_same(packed[2], alone[2])
    training.resume(packed[1], quiet=True)
    assert_same(packed[1], alone[1])


def test_what_breaks_a_whole_pack_is_told_to_every_run_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that are at another epoch go on."""
    configs = [toy(seed=seed, total_steps=700) for seed in (0, 1000, 2000)]
    alone, packed = separately(tmp_path, configs), folders(tmp_path, configs)
    with monkeypatch.context() as stopped:
        stopped.setattr(TrainConfig, "epochs", property(lambda config: 1))
        stopped.setattr(RunFolder, "finish", lambda folder, summary: folder.close())
        sbtrpo.resume(packed[2], quiet=True)

    def breaking(shared: SharedPool, trainers: Any, steps: int) -> Any:
        raise MemoryError("no room for so many worlds")

    with monkeypatch.context() as broken:
        broken.setattr(SharedPool, "collect", breaking)
        assert train_pack(packed) == packed[:2]
    for run in packed[:2]:
        assert last_words(run / LOG) == "MemoryError: no room for so many worlds"
        assert holder(run) is None
    assert_same(packed[2], alone[2])
    assert train_pack(packed[:2]) == []
    assert_same(packed[1], alone[1])


def test_what_ends_a_worker_is_told_to_every_run_of_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = worker.Job(tmp_path, tuple(TOY[:2]))
    for path in job.paths():
        path.mkdir(parents=True)
    (job.paths()[0] / "config.toml").write_text("task = 1")  # of the first one's, which ends them all
    monkeypatch.setattr("sys.stdin", io.StringIO(job.to_json()))
    monkeypatch.setattr(worker, "_stop_with_parent", lambda: None)  # it would read the standard input to its end
    assert worker.main() == 1
    assert last_words(job.paths()[1] / LOG).endswith("config.toml: task must be a text, got 1")


def test_a_learner_whose_actions_are_not_finite_fails_alone() -> None:
    trainers = [Trainer(toy(seed=seed)) for seed in (0, 1)]
    shared = SharedPool(trainers)
    trainers[1].policy.log_std.fill_(float("nan"))
    good, bad = shared.collect(trainers, 5)
    assert isinstance(bad, ValueError)
    assert isinstance(good, Rollout)
    assert shared.collect([trainers[0], None], 5)[1] is None


def test_faults_are_counted_for_the_learner_whose_world_failed() -> None:
    configs = [TrainConfig(num_envs=2, steps_per_epoch=20, total_steps=40, seed=seed) for seed in (0, 1)]
    trainers = [Trainer(config) for config in configs]
    shared = SharedPool(trainers)
    shared.pool.physics.qpos[3] = np.nan  # a world of the second learner
    first, second = shared.collect(trainers, 5)
    assert isinstance(first, Rollout)
    assert isinstance(second, Rollout)
    assert (first.faults, second.faults) == (0, 1)
    assert [int(share.state_dict()["faults"]) for share in shared.shares] == [0, 1]


def test_a_share_has_the_state_of_a_pool_of_its_own() -> None:
    trainers, alone = [Trainer(config) for config in GOAL[:2]], Trainer(GOAL[1])
    SharedPool(trainers)
    ours, theirs = trainers[1].collector.pool.state_dict(), alone.collector.pool.state_dict()

    def compare(a: dict[str, Any], b: dict[str, Any]) -> None:
        assert list(a) == list(b)
        for key, value in a.items():
            if isinstance(value, dict):
                compare(value, b[key])
            else:
                assert value.dtype == b[key].dtype
                np.testing.assert_array_equal(value, b[key])

    compare(ours, theirs)


def test_the_state_of_all_worlds_is_taken_once_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    state_dict = Pool.state_dict

    def counted(pool: Pool) -> Any:
        taken.append(pool.num_worlds)
        return state_dict(pool)

    monkeypatch.setattr(Pool, "state_dict", counted)
    configs = [toy(seed=seed) for seed in (0, 1000, 2000)]
    assert train_pack(folders(tmp_path, configs)) == []
    assert taken.count(3 * configs[0].num_envs) == 1 + configs[0].epochs  # when they meet, and after every epoch


def test_only_alike_runs_share_a_pool() -> None:
    assert pack_key(toy(seed=0)) == pack_key(toy(seed=1, algo="cpo"))
    assert pack_key(toy()) == pack_key(toy(checkpoint_every=3))
    assert pack_key(toy()) != pack_key(toy(num_envs=4))
    assert pack_key(toy()) != pack_key(toy(end_at_violation=True))
    assert pack_key(toy(task="package:Env-v0")) is None
    with pytest.raises(ValueError, match="share a pool only on one task"):
        SharedPool([Trainer(toy()), Trainer(toy(num_envs=4))])


@pytest.mark.parametrize("own", [{"learner_threads": 2}, {"threads": 2}, {"device": "cuda"}])
def test_what_holds_for_a_whole_process_keeps_runs_out_of_a_pack(own: dict[str, Any]) -> None:
    assert pack_key(toy(**own)) != pack_key(toy())
    assert pack_key(toy(**own)) == pack_key(toy(**own, seed=1000))
    assert pack_key(toy(learner_threads=1)) == pack_key(toy())  # which an epoch of this size has anyway
