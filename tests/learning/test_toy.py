"""Every variant of SB-TRPO learns the corridor: up to the safe optimum (5 an episode) and no further (10 is unsafe)."""

from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

import sbtrpo
from sbtrpo.config import TrainConfig
from sbtrpo.learning.trainer import Trainer

SEEDS = range(5)


def epochs_to_learn(seed: int, limit: int, **settings: Any) -> int | None:
    """Epochs until the last 50 episodes earn more than 4.0 without any cost; None if `limit` were not enough."""
    config = TrainConfig(
        task="ToyCorridor-v0", seed=seed, num_envs=20, steps_per_epoch=1000, total_steps=1000 * limit, threads=1,
        **settings,
    )  # fmt: skip
    trainer = Trainer(config)
    first = trainer.run_epoch().row
    assert first["reward"] < 1
    for epoch in range(2, limit + 1):
        row = trainer.run_epoch().row
        assert row["skipped"] == 0
        if row["reward"] > 4.0 and row["cost"] == 0.0:
            return epoch
    return None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("advantage", ["mc", "mc-linear"])
def test_monte_carlo_learns_to_be_fast_and_safe(advantage: str, seed: int) -> None:
    assert epochs_to_learn(seed, 60, advantage=advantage) is not None


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_solver_learns_to_be_fast_and_safe(seed: int) -> None:
    assert epochs_to_learn(seed, 60, advantage="mc", solver="exact") is not None


@pytest.mark.parametrize("seed", SEEDS)
def test_reward_critic_learns_to_be_fast_and_safe(seed: int) -> None:
    assert epochs_to_learn(seed, 40, advantage="gae-reward") is not None


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_both_critics_learn_to_be_fast_and_safe(seed: int) -> None:
    # Once no episode costs anything, cost advantages are the cost critic's errors alone. The update does not feel their
    # scale and gives them the share beta of every step, so learning is slow. gamma = 0.9 was found by trial: with 0.99
    # seeds 2 and 4 ended walking backwards (120 epochs), and why the shorter horizon helps has not been looked into.
    assert epochs_to_learn(seed, 150, advantage="gae", fidelity="corrected", gamma=0.9) is not None


def test_a_policy_learns_from_episodes_that_end_with_their_first_violation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training's own rates are then of shorter episodes; evaluations play them to their end."""
    config = TrainConfig(
        task="ToyCorridor-v0", num_envs=20, steps_per_epoch=1000, total_steps=40_000, threads=1, end_at_violation=True
    )
    run = sbtrpo.train(config, tmp_path / "run")
    assert "reward, cost and length are of shorter episodes" in " ".join(capsys.readouterr().out.split())
    episodes = pyarrow.parquet.read_table(run / "episodes.parquet").to_pydict()
    assert set(episodes["cost"]) == {0.0, 1.0}
    assert all((length < 50) <= (cost == 1) for length, cost in zip(episodes["length"], episodes["cost"], strict=True))
    fresh = sbtrpo.evaluate(run, episodes=50)
    assert fresh.length == 50
    assert fresh.safety_probability > 0.9
    assert fresh.reward > 3
