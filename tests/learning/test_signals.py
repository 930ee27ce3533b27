"""Training under several constraints: from what a rollout cost to what the method reads and the row tells."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbtrpo.config import TrainConfig
from sbtrpo.envs.constraints import Constraints
from sbtrpo.envs.pool import Pool
from sbtrpo.errors import UserError
from sbtrpo.learning import training
from sbtrpo.learning.advantages import gae, normalise, returns_to_go
from sbtrpo.learning.rollout import Rollout
from sbtrpo.learning.trainer import Trainer
from sbtrpo.runs.folder import RunFolder

NAMES = ("walls", "speed")
WORLDS, STEPS = 3, 70  # of the toy task, whose episodes take 50 steps


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers have two constraints: on how far up and how far back a world is."""
    step = Pool.step

    def with_costs(pool: Pool, action: Any) -> Any:
        obs, *others, info = step(pool, action)
        costs = {"cost_walls": 1.0 * (obs[:, 1] > 0.4), "cost_speed": 1.0 * (obs[:, 0] < -0.2)}
        return obs, *others, {**info, **costs}

    monkeypatch.setattr(Pool, "step", with_costs)
    constraints = Constraints(NAMES, (("cost_walls",), ("cost_speed",)))
    monkeypatch.setattr("sbtrpo.learning.trainer.make_constraints", lambda *_: constraints)


def toy(algo: str = "ppo_lag", **settings: Any) -> Trainer:
    sizes: dict[str, Any] = {"num_envs": WORLDS, "steps_per_epoch": WORLDS * STEPS, "total_steps": 10 * WORLDS * STEPS}
    return Trainer(TrainConfig(task="ToyCorridor-v0", algo=algo, seed=2, threads=1, **sizes, **settings))


def run(trainer: Trainer, epochs: int) -> tuple[list[dict[str, float]], list[Rollout]]:
    rollouts = []
    rows = []
    for _ in range(epochs):
        rollouts.append(trainer.collector.collect(STEPS))
        rows.append(trainer.learn(rollouts[-1], 1.0).row)
    return rows, rollouts


def sums_of_episodes(signals: Any, ended: Any) -> Any:
    """Of every ended episode, (signals, episodes), in the order in which they ended, by a plain loop."""
    sums, running = [], np.zeros((len(signals), WORLDS))
    for t in range(len(ended)):
        running += signals[:, t]
        for world in np.flatnonzero(ended[t]):
            sums.append(running[:, world].copy())
            running[:, world] = 0
    return np.array(sums).T


def noted(values: Any, count: int) -> float:
    """An epoch's statistic: its `count` episodes, the last ones, each note the mean over all up to themselves."""
    means = np.cumsum(values) / np.arange(1, len(values) + 1)
    return float(means[-count:].mean())


# ---- pure functions ------------------------------------------------------------------------------------------------


def test_signals_together_give_what_each_gives_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    x, values, following = torch.randn((3, 3, 40, 5), generator=generator)
    terminated, truncated = torch.rand((2, 40, 5), generator=generator) < 0.05
    ended = terminated | truncated
    together = returns_to_go(x, ended, 0.9)
    estimates = gae(x, values, following, terminated, ended, 0.9, 0.8)
    for i in range(3):
        assert torch.equal(together[i], returns_to_go(x[i], ended, 0.9))
        assert torch.equal(estimates[i], gae(x[i], values[i], following[i], terminated, ended, 0.9, 0.8))


def test_rewards_are_standardised_and_costs_only_centred() -> None:
    advantages = 3 + 7 * torch.randn((3, 40, 5), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    reward, *costs = normalise(advantages)
    assert reward.mean().item() == pytest.approx(0, abs=1e-12)
    assert reward.std().item() == pytest.approx(1)
    for before, cost in zip(advantages[1:], costs, strict=True):
        assert cost.mean().item() == pytest.approx(0, abs=1e-12)
        torch.testing.assert_close(cost, (before - before.mean()).flatten())


# ---- the trainer ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("two")
def test_the_row_tells_each_constraint_by_name() -> None:
    trainer = toy(policy_passes=2, cost_limit=(1.0, 2.0))
    rows, _ = run(trainer, 3)
    assert len({tuple(row) for row in rows}) == 1
    for name in NAMES:
        stems = ("cost_{}", "safety_{}", "cost_statistic_{}", "multiplier_{}", "critic_loss_{}", "surrogate_{}_change")
        assert {stem.format(name) for stem in stems} <= set(rows[0])
        assert [row[f"cost_statistic_{name}"] for row in rows] == [0.0, *(row[f"cost_{name}"] for row in rows[1:])]
    assert not {"cost_statistic", "multiplier", "critic_loss_c", "surrogate_c_change"} & set(rows[0])


@pytest.mark.usefixtures("two")
def test_an_episode_is_safe_if_it_violates_no_constraint() -> None:
    trainer = toy("trpo", advantage="mc")
    rows, rollouts = run(trainer, 4)
    signals = torch.cat([rollout.signals for rollout in rollouts], dim=1)
    ended = torch.cat([rollout.terminated | rollout.truncated for rollout in rollouts])
    returns, *costs = sums_of_episodes(signals.numpy(), ended.numpy())
    assert len(returns) == sum(row["episodes"] for row in rows) < 50  # one window holds them all
    safe = (costs[0] == 0) & (costs[1] == 0)
    assert 0 < safe.sum() < min((cost == 0).sum() for cost in costs)
    count = int(rows[-1]["episodes"])
    for name, cost in zip(NAMES, costs, strict=True):
        assert rows[-1][f"cost_{name}"] == pytest.approx(noted(cost, count))
        assert rows[-1][f"safety_{name}"] == pytest.approx(noted(cost == 0, count))
    assert rows[-1]["safety_probability"] == pytest.approx(noted(safe, count))
    assert rows[-1]["safe_reward"] == pytest.approx(noted(np.where(safe, returns, 0), count), rel=1e-4)


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("advantage", ["mc", "mc-linear", "gae-reward", "gae", "off-policy-cost", "off-policy"])
def test_every_kind_of_advantage_has_a_row_for_each_signal(advantage: str) -> None:
    trainer = toy("trpo_lag", advantage=advantage, critic_passes=1, replay_updates=5)
    heads = {"gae": 3, "gae-reward": 1}.get(advantage, 0)
    for epoch in range(2):
        rollout = trainer.collector.collect(STEPS)
        signals, ended = rollout.signals, rollout.terminated | rollout.truncated
        baseline = trainer.baseline
        advantages = trainer._advantages(rollout)
        returns = returns_to_go(signals, ended, 0.99)
        assert advantages.estimates.shape == signals.shape
        if advantage == "mc-linear" and epoch:
            assert baseline is not None
            assert baseline.shape[1] == 3
            assert all(not torch.equal(a, b) for a, b in zip(advantages.estimates, returns, strict=True))
        elif advantage.startswith("off-policy"):
            same = [torch.equal(a, b) for a, b in zip(advantages.estimates, returns, strict=True)]
            assert same == [advantage == "off-policy-cost", False, False]
        else:
            assert torch.equal(advantages.estimates[heads:], returns[heads:])
        assert (advantages.targets is None) == (heads == 0)
        if advantages.targets is not None:
            assert len(advantages.targets) == heads
    assert trainer._batch(rollout, advantages).advantages.shape == (3, STEPS * WORLDS)


@pytest.mark.usefixtures("two")
def test_a_loaded_trainer_continues_to_the_last_bit() -> None:
    trainer, other = toy(policy_passes=2), toy(policy_passes=2)
    run(trainer, 2)
    other.load_state_dict(trainer.state_dict())
    assert repr(run(trainer, 2)[0]) == repr(run(other, 2)[0])


def test_one_constraint_is_told_as_it_always_was() -> None:
    row = toy(policy_passes=2).run_epoch().row
    assert {"cost_statistic", "multiplier", "critic_loss_c", "surrogate_c_change"} <= set(row)
    told = [name for name in row if name.startswith(("cost", "safety"))]
    assert told == ["cost", "safety_probability", "cost_statistic"]


def test_a_trainer_refuses_more_constraints_than_its_method_takes() -> None:
    with pytest.raises(UserError, match="cpo takes one constraint; use `--constraints sum`"):
        Trainer(TrainConfig(algo="cpo", constraints=("each",), num_envs=1, steps_per_epoch=10, total_steps=10))


@pytest.mark.parametrize("algo", ["sb-trpo", "ppo_lag"])
def test_each_cost_of_a_task_can_be_a_constraint(algo: str) -> None:
    sizes: dict[str, Any] = {"num_envs": 4, "steps_per_epoch": 4000, "total_steps": 8000, "threads": 1}
    passes = {"policy_passes": 1} if algo == "ppo_lag" else {}
    trainer = Trainer(TrainConfig(task="SafetyPointGoal2-v0", algo=algo, constraints=("each",), **sizes, **passes))
    names = trainer.constraints.names
    assert len(names) > 1
    epoch = trainer.run_epoch()  # an episode of each world
    assert epoch.row["skipped"] == 0
    for name in names:
        costs = epoch.episodes[f"cost_{name}"]
        assert epoch.row[f"cost_{name}"] == pytest.approx(noted(costs, 4))
        assert epoch.row[f"safety_{name}"] == pytest.approx(noted(costs == 0, 4))
    assert sum(epoch.row[f"cost_{name}"] for name in names) >= epoch.row["cost"] > 0


@pytest.mark.parametrize("advantage", ["mc", "mc-linear", "gae-reward", "gae"])
def test_first_hits_are_what_sb_trpo_learns_from(two: None, advantage: str) -> None:
    """Each constraint by its own next violation; reward, and what the row tells of costs, stay as they are."""
    plain, hits = (toy("sb-trpo", advantage=advantage, cost_to_go=kind) for kind in ("sum", "first-hit"))
    rollouts = [trainer.collector.collect(STEPS) for trainer in (plain, hits)]
    sums, chances = (
        trainer._advantages(rollout).estimates for trainer, rollout in zip((plain, hits), rollouts, strict=True)
    )
    assert torch.equal(sums[0], chances[0])
    if advantage != "gae":  # the baseline is not fitted yet
        assert float(chances[1:].max()) == 1.0 < float(sums[1:].max())
        assert torch.equal(chances[1:] == 1, rollouts[0].signals[1:] > 0)
    rows = [trainer.learn(rollout, 1.0).row for trainer, rollout in zip((plain, hits), rollouts, strict=True)]
    assert rows[0]["cost"] == rows[1]["cost"]
    assert rows[0]["gradient_norm_walls"] != rows[1]["gradient_norm_walls"]


def test_late_hits_are_growing_batches_until_they_begin(tmp_path: Path) -> None:
    rows = []
    for algo in ("sb-trpo_growing", "sb-trpo_late_hits"):
        shape: dict[str, Any] = {"num_envs": 4, "steps_per_epoch": 400, "total_steps": 3_200}
        config = TrainConfig(task="ToyCorridor-v0", algo=algo, beta=0.0, **shape)  # so that it violates to the end
        run = RunFolder.open(training.train(config, tmp_path / algo, quiet=True))
        rows.append(run.metrics()["gradient_norm_c"])
    alike = rows[0] == rows[1]
    assert len(alike) == 8
    assert alike[:6].all()
    assert not alike[6:].any()


def test_first_hits_may_come_late_in_the_run(two: None) -> None:
    trainer = toy("sb-trpo", cost_to_go="first-hit", first_hit_from=0.5)
    rollout = trainer.collector.collect(STEPS)
    trainer.config = trainer.config.replace(total_steps=100 * trainer.config.steps_per_epoch)
    greatest = []
    for trainer.epoch in (0, 49, 50, 99):
        greatest.append(float(trainer._advantages(rollout).estimates[1:].max()))
    assert greatest[0] == greatest[1] > 1.0 == greatest[2] == greatest[3]
