"""Every method can be stopped and resumed, and goes on where an epoch has no episode or no acceptable step."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.algorithms.base import Batch, Trial
from sbtrpo.algorithms.trust_region import TrustRegion
from sbtrpo.config import catalogue
from sbtrpo.learning.trainer import Trainer, TrainingError
from sbtrpo.runs import checkpoint
from sbtrpo.runs.folder import RunFolder
from tests.algorithms.samples import COMMON
from tests.settings import config_of, quirks_of

METHODS = list(catalogue.BUILT_IN)
TRUST_REGION = [name for name in METHODS if catalogue.method(name).family == "trust region"]

pytestmark = pytest.mark.usefixtures("one_thread")


def toy(algo: str, steps_per_world: int = 50, **settings: Any) -> TrainConfig:
    """Four worlds, episodes of 50 steps; with seed 3 every method knows cost from the start."""
    small: dict[str, Any] = {"hidden": (8, 8), "threads": 1, "policy_passes": 3, "critic_passes": 2, "cost_limit": 5.0}
    epoch = 4 * steps_per_world
    return config_of(
        algo, task="ToyCorridor-v0", seed=3, num_envs=4, steps_per_epoch=epoch, total_steps=20 * epoch,
        **small | settings,
    )  # fmt: skip


# ---- resuming ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", METHODS)
def test_a_restored_method_continues_byte_for_byte(algo: str, tmp_path: Path) -> None:
    # Epochs of 30 steps: the checkpoint falls into the middle of episodes.
    config = toy(algo, 30)
    trainer = Trainer(config)
    for _ in range(4):
        trainer.run_epoch()
    checkpoint.save(tmp_path / "state", trainer.state_dict())
    restored = Trainer(config)
    restored.load_state_dict(checkpoint.load(tmp_path / "state"))
    for _ in range(4):
        assert repr(trainer.run_epoch().row) == repr(restored.run_epoch().row)
    assert trainer.policy.normaliser.count == restored.policy.normaliser.count
    for ours, theirs in zip(trainer.policy.params, restored.policy.params, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("algo", ["c3po", "cppo_pid", "c_trpo"])  # each with a state of its own kind
def test_a_run_stopped_in_the_middle_resumes_to_the_same_metrics(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy(algo, cost_limit=15.0).replace(total_steps=800)
    whole = sbtrpo.train(config, tmp_path / "whole", quiet=True)
    check = Trainer.check

    def stop(trainer: Trainer) -> None:
        check(trainer)
        if trainer.epoch == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "check", stop)
    with pytest.raises(KeyboardInterrupt):
        sbtrpo.train(config, tmp_path / "stopped", quiet=True)
    monkeypatch.undo()
    sbtrpo.resume(tmp_path / "stopped", quiet=True)
    assert (tmp_path / "stopped" / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


# ---- updates that fail ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", TRUST_REGION)
def test_a_line_search_without_success_stops_the_methods_for_which_it_is_no_part_of_life(
    algo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hopeless(region: TrustRegion, theta: Tensor) -> Trial:
        return Trial(math.inf, (0.0, 0.0))

    monkeypatch.setattr(TrustRegion, "evaluate", hopeless)
    trainer = Trainer(toy(algo))
    for epoch in range(1, 13):
        row = trainer.run_epoch().row
        assert (row["skipped"], row["accepted_step"], row["skipped_updates"]) == (0.0, 0.0, epoch)
        if algo.startswith("sb-trpo") and epoch >= 10:
            with pytest.raises(TrainingError, match=f"{epoch} updates in a row changed nothing"):
                trainer.check()
        else:
            trainer.check()


@pytest.mark.parametrize("algo", METHODS)
def test_advantages_that_are_not_numbers_stop_every_method(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Trainer._batch

    def spoiled(trainer: Trainer, *parts: Any) -> Batch:
        batch = make(trainer, *parts)
        return dataclasses.replace(batch, advantages=batch.advantages * math.nan)

    monkeypatch.setattr(Trainer, "_batch", spoiled)
    trainer = Trainer(toy(algo, statistics="running"))  # steady ones write the same policy down in other numbers
    before = [tensor.clone() for tensor in trainer.policy.params]
    for _ in range(9):
        assert trainer.run_epoch().row["skipped"] == 1.0
        trainer.check()
    trainer.run_epoch()
    with pytest.raises(TrainingError, match="10 updates in a row changed nothing"):
        trainer.check()
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.policy.params, strict=True))


# ---- epochs without an episode -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fidelity", ["paper", "corrected"])
@pytest.mark.parametrize("algo", METHODS)
def test_an_epoch_without_a_finished_episode_reads_the_last_statistic(algo: str, fidelity: str) -> None:
    trainer = Trainer(toy(algo, 20, fidelity=fidelity))  # episodes end in the third epoch, the fifth, the eighth, ...
    rows = [trainer.run_epoch().row for _ in range(6)]
    assert [row["episodes"] for row in rows] == [0, 0, 4, 0, 4, 0]
    read = [row["cost_statistic"] for row in rows]
    assert read[:2] == [0.0, 0.0]
    unread = fidelity == "paper" and "first_cost_zero" in quirks_of(algo)
    assert rows[2]["cost"] > 0
    assert read[2] == (0.0 if unread else rows[2]["cost"])
    assert read[3] == rows[3]["cost"] == rows[2]["cost"]
    assert read[4] == rows[4]["cost"] != read[3]
    assert read[5] == read[4]
    for row in rows:
        assert row["skipped"] == 0
        assert all(math.isfinite(row[name]) for name in COMMON if not name.startswith("angle"))
    assert all(bool(torch.isfinite(tensor).all()) for tensor in trainer.policy.params)


def test_a_run_whose_first_epochs_have_no_episode_is_logged_and_finished(tmp_path: Path) -> None:
    config = toy("ppo_lag", 20).replace(total_steps=400)
    folder = RunFolder.open(sbtrpo.train(config, tmp_path / "run", quiet=True))
    metrics = folder.metrics()
    assert np.isnan(metrics["cost"]).tolist() == [True, True, False, False, False]
    assert np.isfinite(metrics["multiplier"]).all()
    assert (folder.path / "summary.json").exists()
