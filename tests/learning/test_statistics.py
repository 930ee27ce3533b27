"""Steady statistics of observations: they grow, and policy and critics stay what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.algorithms.base import Batch, Costs, Diagnostics, Method
from sbtrpo.benchmark.pack import train_pack
from sbtrpo.learning.trainer import Trainer
from sbtrpo.nets.normaliser import Normaliser
from sbtrpo.runs.folder import RunFolder
from tests.settings import config_of

pytestmark = pytest.mark.usefixtures("one_thread")


def steady(algo: str = "sb-trpo", **settings: Any) -> TrainConfig:
    small: dict[str, Any] = {"hidden": (8, 8), "threads": 1, "policy_passes": 3, "critic_passes": 2, "cost_limit": 5.0}
    shape = {"seed": 3, "num_envs": 4, "steps_per_epoch": 200, "total_steps": 1000, "statistics": "steady"}
    return config_of(algo, task="ToyCorridor-v0", **shape | small | settings)


def decisions(trainer: Trainer, raw: NDArray[np.float64]) -> tuple[NDArray[Any], torch.Tensor | None]:
    """What the policy would do and the critics think of raw observations."""
    policy, critics = trainer.policy, trainer.critics
    normalised = torch.as_tensor(np.asarray(policy.normaliser(raw)), dtype=torch.float32)  # type: ignore[arg-type]
    return policy.act(raw, deterministic=True), None if critics is None else critics(normalised)


def without_update(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(method: Method[Any], batch: Batch, costs: Costs, progress: float) -> Diagnostics:
        return {"accepted_step": 1.0, "skipped": 0.0}

    monkeypatch.setattr(type(trainer.method), "update", nothing)


@pytest.mark.parametrize("algo", ["sb-trpo", "ppo_lag", "sb-trpo_critic"])
def test_networks_stay_the_functions_they_are(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(steady(algo))
    without_update(trainer, monkeypatch)
    trainer.run_epoch()
    raw = np.random.default_rng(0).normal(1.0, 3.0, (50, trainer.policy.observation_size))
    actions, values = decisions(trainer, raw)
    statistics = trainer.policy.normaliser.state_dict()
    weights = [tensor.clone() for tensor in trainer.policy.params]
    trainer.run_epoch()
    assert trainer.policy.normaliser.state_dict()["count"] == pytest.approx(statistics["count"] + 200)
    assert not np.allclose(trainer.policy.normaliser.state_dict()["mean"], statistics["mean"], rtol=1e-3)
    assert not torch.allclose(trainer.policy.params[1], weights[1], rtol=1e-4)
    after, thought = decisions(trainer, raw)
    np.testing.assert_allclose(after, actions, atol=1e-5)
    if values is not None:
        assert thought is not None
        torch.testing.assert_close(thought, values, atol=1e-5, rtol=1e-4)


def test_running_statistics_move_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(steady(statistics="running"))
    without_update(trainer, monkeypatch)
    trainer.run_epoch()
    raw = np.random.default_rng(0).normal(1.0, 3.0, (50, trainer.policy.observation_size))
    actions, _ = decisions(trainer, raw)
    trainer.run_epoch()
    assert np.abs(decisions(trainer, raw)[0] - actions).max() > 1e-3


def test_they_stand_still_during_an_epoch_and_grow_by_all_of_it() -> None:
    trainer = Trainer(steady())
    trainer.run_epoch()
    before, seen = trainer.policy.normaliser.state_dict(), list[NDArray[np.float64]]()
    expected = Normaliser(trainer.policy.observation_size)
    expected.load_state_dict(before)

    def listen(hook: str, *what: Any) -> None:
        if hook == "on_rollout":
            np.testing.assert_array_equal(trainer.policy.normaliser.state_dict()["mean"], before["mean"])
            scale = np.sqrt(before["var"] + Normaliser.EPSILON)
            seen.append(what[0].obs.flatten(0, 1).double().numpy() * scale + before["mean"])

    trainer.tell = listen
    trainer.run_epoch()
    expected.update(seen[0])
    for name, values in trainer.policy.normaliser.state_dict().items():
        np.testing.assert_allclose(values, getattr(expected, name), rtol=1e-9)


def test_the_last_observation_is_shown_in_the_new_units() -> None:
    trainer = Trainer(steady())
    for _ in range(3):
        trainer.run_epoch()
    collector = trainer.collector
    raw = np.asarray(collector.pool.last_obs, np.float64)
    np.testing.assert_allclose(collector._obs, trainer.policy.normaliser(raw), atol=1e-5)


@pytest.mark.parametrize("algo", ["sb-trpo", "sb-trpo_critic"])
def test_a_run_goes_on_as_if_it_had_never_stopped(algo: str, tmp_path: Path) -> None:
    whole = sbtrpo.train(steady(algo, total_steps=1000), tmp_path / "whole", quiet=True)
    half = sbtrpo.train(steady(algo, total_steps=400), tmp_path / "half", quiet=True)
    sbtrpo.resume(half, quiet=True, total_steps=1000)
    assert (half / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


def test_a_pack_gives_the_numbers_of_separate_runs(tmp_path: Path) -> None:
    alone = [sbtrpo.train(steady(seed=k), tmp_path / f"alone{k}", quiet=True) for k in range(2)]
    packed = [tmp_path / f"packed{k}" for k in range(2)]
    for k, path in enumerate(packed):
        RunFolder.create(path, steady(seed=k)).close()
    assert not train_pack(packed)
    for one, other in zip(alone, packed, strict=True):
        assert (one / "metrics.csv").read_bytes() == (other / "metrics.csv").read_bytes()


def test_a_start_brings_statistics_that_stand_still_from_the_first_epoch(tmp_path: Path) -> None:
    first = sbtrpo.train(steady(), tmp_path / "first", quiet=True)
    assert not Trainer(steady(init_from=str(first))).policy.normaliser.learns
    assert Trainer(steady()).policy.normaliser.learns


def test_without_normalisation_there_is_nothing_to_hold() -> None:
    trainer = Trainer(steady(normalise_observations=False))
    trainer.run_epoch()
    trainer.run_epoch()
    np.testing.assert_array_equal(trainer.policy.normaliser.state_dict()["mean"], 0)
