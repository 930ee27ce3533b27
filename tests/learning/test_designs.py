"""Runs with other networks than the published one: they learn, go on where they stopped, and are used as any other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from sbtrpo import TrainConfig, evaluate, load_policy, resume, train
from sbtrpo.errors import UserError
from sbtrpo.learning.trainer import Trainer
from sbtrpo.runs.checkpoint import CheckpointStore
from sbtrpo.runs.export import export
from sbtrpo.runs.folder import RunFolder
from tests.envs.foreign.worlds import name_of

CORRIDOR: dict[str, Any] = {"task": "ToyCorridor-v0", "num_envs": 4, "steps_per_epoch": 200, "total_steps": 600}
LAMP: dict[str, Any] = {
    "task": name_of("lamp"), "network": "cnn", "num_envs": 4, "threads": 1, "steps_per_epoch": 400, "total_steps": 2400,
}  # fmt: skip
FORMATS: list[Literal["onnx", "torchscript"]] = ["onnx", "torchscript"]
OTHERS: list[dict[str, Any]] = [
    {"activation": "relu", "initialisation": "orthogonal"},
    {"activation": "elu", "normalise_observations": False, "algo": "ppo_lag"},
    {"initial_log_std": -0.5, "normalise_observations": False, "algo": "cpo", "advantage": "gae"},
]


@pytest.mark.filterwarnings("ignore:.torch.jit")
@pytest.mark.parametrize("settings", OTHERS)
def test_a_run_of_another_design_goes_on_exactly_and_is_used_as_any_other(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    config = TrainConfig(**CORRIDOR | settings)
    whole = train(config, tmp_path / "whole", quiet=True)
    stopped = shutil.copytree(whole, tmp_path / "stopped")
    shutil.rmtree(stopped / "checkpoints" / "epoch-000003")
    resume(stopped, quiet=True)
    assert (stopped / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    states = [CheckpointStore(run / "checkpoints").load()[1]["policy"]["params"] for run in (whole, stopped)]
    assert all(torch.equal(*pair) for pair in zip(*states, strict=True))
    policy, trainer = load_policy(whole), Trainer(config)
    assert policy.design == trainer.policy.design
    assert policy.normaliser.learns is config.normalise_observations
    assert evaluate(whole, episodes=4, threads=1).episodes == 4
    with torch.no_grad():
        obs = np.random.default_rng(0).uniform(-1, 1, (5, 2))
        loaded = torch.jit.load(str(export(whole, "torchscript")))  # type: ignore[no-untyped-call]
        np.testing.assert_allclose(loaded(torch.as_tensor(obs)), policy.act(obs, deterministic=True), atol=1e-5)


def test_settings_reach_the_networks() -> None:
    trainer = Trainer(TrainConfig(**CORRIDOR, initial_log_std=-1.5, normalise_observations=False, advantage="gae"))
    assert trainer.policy.log_std.tolist() == [-1.5, -1.5]
    rollout = trainer.collector.collect(60)
    assert not trainer.policy.normaliser.mean.any()
    torch.testing.assert_close(rollout.final_obs, rollout.final_obs_raw, rtol=0, atol=0)
    published = Trainer(TrainConfig(**CORRIDOR))
    published.collector.collect(60)
    assert published.policy.normaliser.mean.any()


@pytest.mark.parametrize(
    ("algo", "settings"),
    [("sb-trpo", {"advantage": "mc"}), ("ppo_lag", {"policy_passes": 4, "cost_limit": 1e6})],
)
def test_a_cnn_learns_from_pictures(algo: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """The lamp stands anywhere in its half; a guess is right in 4 of an episode's 8 steps."""
    beta = {"beta": 0.0} if algo == "sb-trpo" else {}
    more = {"gamma": 0.1, "hidden": (32,), "target_kl": 0.05, "learner_threads": 1}
    run = train(TrainConfig(**LAMP, algo=algo, **more, **settings, **beta), tmp_path / "run", quiet=True)
    reward = RunFolder.open(run).metrics()["reward"]
    assert reward[-1] > reward[0] + 1
    policy = load_policy(run)
    picture = np.zeros((2, 8, 8, 1), np.uint8)
    assert policy.act(picture).shape == (2,)
    assert evaluate(run, episodes=4, threads=1).reward > 4.5
    shutil.rmtree(run / "checkpoints" / "epoch-000006")
    resume(run, quiet=True)
    assert len(RunFolder.open(run).metrics()["reward"]) == 6


@pytest.mark.filterwarnings("ignore:.torch.jit")
@pytest.mark.parametrize(
    "settings",
    [
        {**LAMP, "total_steps": 800, "hidden": (8,), "advantage": "mc"},
        {
            **LAMP,
            "total_steps": 800,
            "task": name_of("levers"),
            "network": "mlp",
            "env_kwargs": {"tilt": 0.5},
            **OTHERS[0],
        },
        *(CORRIDOR | other for other in OTHERS),
    ],
    ids=["cnn", "levers", "relu", "elu", "narrow"],
)
def test_whatever_the_design_evaluations_and_exported_files_do_what_the_policy_does(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    config = TrainConfig(**settings)
    plain = train(config, tmp_path / "plain", quiet=True)
    run = train(config.replace(evaluate_every=1, evaluate_episodes=4), tmp_path / "run", quiet=True)
    assert (run / "metrics.csv").read_bytes() == (plain / "metrics.csv").read_bytes()
    rows = RunFolder.open(run).evaluations()
    seed = int(np.random.SeedSequence(config.seed, spawn_key=(1,)).generate_state(1)[0])
    last = evaluate(run, episodes=4, seed=seed, threads=1).numbers()
    assert {name: values[-1] for name, values in rows.items() if name in last} == last
    ours = evaluate(run, episodes=4, deterministic=True, threads=1)
    for format in FORMATS:
        theirs = evaluate(export(run, format), episodes=4, threads=1, task=config.task)
        np.testing.assert_allclose([theirs.reward, theirs.cost], [ours.reward, ours.cost], rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (CORRIDOR | {"network": "cnn"}, "network cnn is for images, and observations of ToyCorridor-v0 are vectors"),
        (LAMP | {"task": name_of("lamp within")}, "are vectors; leave network at mlp"),
        (LAMP | {"task": name_of("lamp unbounded")}, "reads the bounds of pixels, and those of .* are infinite"),
    ],
)
def test_a_cnn_is_refused_where_there_are_no_pictures(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Trainer(TrainConfig(**settings))


@pytest.mark.parametrize("advantage", ["mc-linear", "off-policy-cost", "off-policy"])
def test_what_knows_no_images_is_refused(advantage: str) -> None:
    with pytest.raises(ValueError, match=f"{advantage} gives every pixel weights of its own; with network cnn use mc"):
        TrainConfig(**LAMP, advantage=advantage)
