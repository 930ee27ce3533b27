"""What is better, whatever the sign of returns: the best checkpoint, and what users are told."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.cli import app as cli
from sbtrpo.learning.recorder import Recorder
from sbtrpo.learning.trainer import Epoch, Trainer
from sbtrpo.runs.checkpoint import CheckpointStore
from sbtrpo.runs.evaluations import kept
from sbtrpo.runs.folder import RunFolder
from sbtrpo.runs.judgement import BELOW_ZERO, NONE_SAFE, STEP, merit, misleading
from tests.envs.foreign.worlds import name_of

RETURNS = st.floats(-1e6, 1e6)
SHARES = st.floats(STEP, 1)


@given(SHARES, SHARES, st.floats(-1e6, -1e-3), st.floats(-1e6, -1e-3))
def test_below_zero_safety_comes_first(safe: float, safer: float, one: float, other: float) -> None:
    if safer > safe + STEP:
        assert merit(safer, safer * other) > merit(safe, safe * one)


@given(SHARES, RETURNS, RETURNS)
def test_of_results_alike_in_safety_the_one_whose_safe_episodes_earn_more_is_better(
    safety: float, one: float, other: float
) -> None:
    worse, better = sorted([one, other])
    assert merit(safety, safety * better) >= merit(safety, safety * worse)


@given(SHARES, SHARES, RETURNS)
def test_more_safety_at_the_same_reward_of_safe_episodes_is_never_worse(
    one: float, other: float, reward: float
) -> None:
    safe, safer = sorted([one, other])
    if safer > safe + STEP:
        assert merit(safer, safer * reward) > merit(safe, safe * reward) or reward == 0 or safer * reward == 0


@given(st.floats(0.5, 1), st.floats(0.5, 1), st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_above_zero_the_papers_safe_reward_decides(one: float, other: float, first: float, second: float) -> None:
    assert (merit(one, first) > merit(other, second)) == (first > second)


def record(run: Path, *results: tuple[float, float]) -> CheckpointStore:
    """A run whose epochs have these safety probabilities and safe rewards; one checkpoint is kept beside the best."""
    config = TrainConfig(task="ToyCorridor-v0", num_envs=2, steps_per_epoch=100, total_steps=10_000, keep_last=1)
    trainer = SimpleNamespace(epoch=0, config=config, state_dict=lambda: {"epoch": trainer.epoch})
    recorder = Recorder(cast(Trainer, trainer), RunFolder.create(run, config))
    for trainer.epoch, (safety, safe_reward) in enumerate(results, start=1):
        row = {"reward": -200.0, "cost": 1.0, "safety_probability": safety, "safe_reward": safe_reward}
        recorder.record(Epoch({"epoch": float(trainer.epoch), "steps": 1.0, **row}, {}, {}))
    recorder.folder.close()
    return CheckpointStore(run / "checkpoints", keep_last=1)


@pytest.mark.parametrize(
    ("results", "best"),
    [
        ([(0.53, -39.0), (0.90, -143.0), (0.40, -2.0)], 2),
        ([(0.19, -39.0), (0.64, -143.0)], 2),
        ([(0.0, 0.0), (0.3, -60.0)], 2),  # no safe episode at all earns nothing
        ([(0.90, -100.0), (0.91, -80.0), (0.92, -120.0)], 2),  # alike in safety
        ([(0.6, 9.0), (0.9, 8.0), (0.95, -0.1)], 1),  # as ever, where returns are above zero
        ([(0.3, 9.0), (0.9, 0.5), (0.2, 30.0)], 2),
        ([(math.nan, math.nan), (0.1, -1.0)], 2),  # no episode had ended
    ],
)
def test_the_best_checkpoint_is_safe_whatever_the_sign(
    results: list[tuple[float, float]], best: int, tmp_path: Path
) -> None:
    store = record(tmp_path / "run", *results)
    assert store.best == best
    assert store.load("best")[0] == best
    assert store.epochs() == sorted({best, len(results)})


def test_scores_of_earlier_versions_are_safe_rewards(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep_last=9)
    for epoch, score in enumerate([3.0, 5.0, -1.0], start=1):
        store.save(epoch, {"epoch": epoch}, score)
    assert CheckpointStore(tmp_path).best == 2
    store.save(4, {"epoch": 4}, merit(0.9, 4.0))
    assert CheckpointStore(tmp_path).best == 2
    store.save(5, {"epoch": 5}, merit(0.9, 6.0))
    assert CheckpointStore(tmp_path).best == 5
    debts = CheckpointStore(tmp_path / "debts", keep_last=9)
    debts.save(1, {"epoch": 1}, -39.0)
    debts.save(2, {"epoch": 2}, merit(0.9, -143.0))
    assert debts.best == 2


def test_where_returns_are_below_zero_training_and_evaluation_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small: dict[str, Any] = {"num_envs": 2, "steps_per_epoch": 64, "total_steps": 64}
    run = sbtrpo.train(TrainConfig(task=name_of("debts"), **small), tmp_path / "debts")
    assert BELOW_ZERO in capsys.readouterr().out
    assert cli.main(["evaluate", str(run), "--episodes", "6"]) == 0
    out = capsys.readouterr().out
    assert BELOW_ZERO in out
    assert "reward of safe episodes" in out
    ((_, result),) = kept(run)
    assert result["safe_reward"] == pytest.approx(result["safety_probability"] * result["safe_episodes_reward"])
    assert result["safe_episodes_reward"] < 0
    sbtrpo.train(TrainConfig(task=name_of("walk"), **small), tmp_path / "walk")
    assert BELOW_ZERO not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reward", "safety", "safe_reward", "words"),
    [
        (-5.0, 0.5, -2.0, BELOW_ZERO),
        (5.0, 0.5, -2.0, BELOW_ZERO),
        (-5.0, 0.0, 0.0, NONE_SAFE),  # there is no safe episode whose return one could speak of
        (-5.0, 0.5, 0.0, ""),  # safe episodes return 0
        (-5.0, 0.5, 1.0, ""),
        (0.0, 0.0, 0.0, ""),
        (math.nan, math.nan, math.nan, ""),
    ],
)
def test_what_is_said_of_a_safe_reward_holds(reward: float, safety: float, safe_reward: float, words: str) -> None:
    assert misleading(reward, safety, safe_reward) == words
    assert "safe episodes return" not in NONE_SAFE
