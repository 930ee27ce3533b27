"""Critics of state and action in training: what they are told, what is kept for them, and what becomes of it."""

from typing import Any

import numpy as np
import pytest
import torch

from sbtrpo.config import TrainConfig
from sbtrpo.errors import UserError
from sbtrpo.learning.off_policy import EPOCHS_KEPT, FEW_STEPS, Piece, Spans, together
from sbtrpo.learning.rollout import Rollout
from sbtrpo.learning.statistics import settle
from sbtrpo.learning.trainer import Trainer
from sbtrpo.nets import action_critics
from sbtrpo.nets.action_critics import ENSEMBLE, ActionCritics, encoded
from sbtrpo.nets.policy import Policy

GAMMA = 0.9
TOY: dict[str, Any] = {
    "task": "ToyCorridor-v0", "advantage": "off-policy", "num_envs": 4, "steps_per_epoch": 400, "total_steps": 8000,
    "replay_updates": 20, "threads": 1, "gamma": GAMMA,
}  # fmt: skip


COST = slice(1, 2)
ALIKE = torch.ones(1)


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minibatches that take no time."""
    monkeypatch.setattr(action_critics, "ROWS", 256)


def played(trainer: Trainer, steps: int) -> Rollout:
    with torch.no_grad():
        return trainer.collector.collect(steps)


def by_a_plain_loop(rollout: Rollout, first_hit: bool) -> dict[tuple[int, int], tuple[float, float, int]]:
    """Of each sample, by step and world: what a few steps brought, what counts after them, and where that is."""
    cost, ended = rollout.signals[1].numpy(), (rollout.terminated | rollout.truncated).numpy()
    timed_out = (rollout.truncated & ~rollout.terminated).numpy()
    found = {}
    steps, worlds = cost.shape
    for t in range(steps):
        for n in range(worlds):
            gain, k = 0.0, 0
            while k < FEW_STEPS and t + k < steps:
                hit = first_hit and cost[t + k, n] > 0
                gain += GAMMA**k * (1.0 if hit else float(cost[t + k, n]))
                k += 1
                if hit or ended[t + k - 1, n]:
                    if t + FEW_STEPS < steps or timed_out[t:, n].any():
                        found[t, n] = gain, 0.0, min(t + FEW_STEPS, steps - 1)
                    break
            else:
                if t + FEW_STEPS < steps:
                    found[t, n] = gain, GAMMA**FEW_STEPS, t + FEW_STEPS
    return found


@pytest.mark.parametrize("first_hit", [False, True])
def test_samples_are_what_a_few_steps_brought(first_hit: bool) -> None:
    trainer = Trainer(TrainConfig(**TOY))
    rollout = played(trainer, 73)  # the last episode is cut
    spans = Spans.of(COST, ALIKE, first_hit)
    samples = Piece.of(rollout).samples(trainer.policy, GAMMA, COST, first_hit, spans)
    expected = by_a_plain_loop(rollout, first_hit)
    assert len(expected) == (73 - FEW_STEPS) * 4  # of the last episode, whether it violates or not, none that is cut
    assert len(samples.now) == len(expected)
    ends = 0
    for row, gain, weight, after in zip(samples.now, samples.gains[0], samples.weight[0], samples.after, strict=True):
        wanted = expected[int(row) // 4, int(row) % 4]
        assert (float(gain), float(weight)) == pytest.approx(wanted[:2], rel=1e-5)
        if wanted[1]:
            assert (int(after) // 4, int(after) % 4) == (wanted[2], int(row) % 4)
        ends += not wanted[1]
    assert ends > 20
    torch.testing.assert_close(samples.inputs[:, :-1], rollout.obs.flatten(0, 1))
    torch.testing.assert_close(samples.action, rollout.action.flatten(0, 1)[samples.now])


def test_pieces_keep_apart() -> None:
    trainer = Trainer(TrainConfig(**TOY))
    spans = Spans.of(COST, ALIKE, True)
    pieces = [Piece.of(played(trainer, n)).samples(trainer.policy, GAMMA, COST, True, spans) for n in (60, 30)]
    whole = together(pieces)
    first = len(pieces[0].now)
    for at, piece in ((slice(0, first), pieces[0]), (slice(first, None), pieces[1])):
        for rows in ("now", "after"):
            expected = piece.inputs[getattr(piece, rows)]
            torch.testing.assert_close(whole.inputs[getattr(whole, rows)[at]], expected)
        torch.testing.assert_close(whole.gains[:, at], piece.gains)
    assert len(whole.action) == len(whole.now)


def test_critics_find_what_two_costs_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a chain without choice its values are known; each cost has networks of its own."""
    for name, quick in {"WIDTHS": (32, 32), "LEARNING_RATE": 1e-2, "FOLLOWING": 0.05}.items():
        monkeypatch.setattr(action_critics, name, quick)
    policy = Trainer(TrainConfig(**TOY)).policy
    length, count = 40, 50
    time = torch.arange(length)[:, None].expand(length, count) / length
    obs = torch.stack([time, torch.zeros_like(time)], -1)
    over = torch.zeros(length, count, dtype=torch.bool)
    over[-1] = True
    signals = torch.zeros(3, length, count)
    signals[1, -1], signals[2] = 1, 1 - GAMMA
    action = torch.randn(length, count, 2, generator=torch.Generator().manual_seed(0))
    piece = Piece(obs, time, action, signals, torch.zeros_like(over), over)
    critics = ActionCritics(2, policy, torch.Generator().manual_seed(1))
    drawing, costs = torch.Generator().manual_seed(2), slice(1, 3)
    spans = Spans.of(costs, torch.ones(2), False)
    samples = piece.samples(policy, GAMMA, costs, False, spans)
    error = critics.fit(samples, policy, 1000, spans.least, spans.most, drawing)
    assert error.shape == (2,)
    assert float(error.max()) < 3e-3
    inputs = torch.cat([obs, time[..., None]], -1)[:, 0].expand(2 * ENSEMBLE, -1, -1)
    values = critics.stack.forward(torch.cat([inputs, torch.zeros(2 * ENSEMBLE, length, 2)], -1))[-1][..., 0]
    left = length - np.arange(length)
    for own, expected in zip(
        values.view(2, ENSEMBLE, length).mean(dim=1), (GAMMA ** (left - 1), 1 - GAMMA**left), strict=True
    ):
        np.testing.assert_allclose(own[1:-1].numpy(), expected[1:-1], atol=0.08)
    drift = critics.advantages(inputs[0], torch.zeros(length, 2), policy, drawing)
    assert float(drift.abs().max()) < 0.1  # no action is better than another
    pessimistic = critics.advantages(inputs[0], torch.full((length, 2), 30.0), policy, drawing, 5.0)
    unsure = critics.advantages(inputs[0], torch.full((length, 2), 30.0), policy, drawing)
    assert float((pessimistic - unsure).mean()) > 0  # what was never done


def test_a_few_epochs_are_kept_and_no_more_than_so_many_steps() -> None:
    trainer = Trainer(TrainConfig(**TOY, replay_steps=EPOCHS_KEPT * 250))
    assert trainer.off_policy is not None
    for epoch in range(EPOCHS_KEPT + 2):
        trainer.run_epoch()
        pieces = trainer.off_policy._pieces
        assert len(pieces) == min(epoch + 1, EPOCHS_KEPT)
        assert all(piece.time.shape == (100, 2) for piece in pieces)
    none = Trainer(TrainConfig(**TOY, replay_steps=0))
    none.run_epoch()
    assert none.off_policy is not None
    assert none.off_policy._pieces == []


def test_what_is_kept_stays_what_was_seen_where_statistics_move() -> None:
    trainer = Trainer(TrainConfig(**TOY, statistics="steady"))
    assert trainer.off_policy is not None
    trainer.run_epoch()
    trainer.run_epoch()

    def told() -> tuple[torch.Tensor, torch.Tensor]:
        assert trainer.off_policy is not None
        piece, normaliser = trainer.off_policy._pieces[0], trainer.policy.normaliser
        raw = piece.obs.double() * torch.as_tensor(normaliser.var + 1e-8).sqrt() + torch.as_tensor(normaliser.mean)
        networks = 2 * ENSEMBLE  # of reward and cost
        inputs = torch.cat([piece.obs, piece.time[..., None]], -1).flatten(0, 1).expand(networks, -1, -1)
        action = encoded(trainer.policy, piece.action).flatten(0, 1).expand(networks, -1, -1)
        values = trainer.off_policy.critics.stack.forward(torch.cat([inputs, action], -1))[-1]
        return raw, values.clone()

    before, units = told(), trainer.policy.normaliser.mean.copy()
    rollout = played(trainer, 100)
    settle(trainer.collector, [trainer.off_policy], rollout)
    assert np.abs(trainer.policy.normaliser.mean - units).max() > 1e-4
    for now, then in zip(told(), before, strict=True):
        torch.testing.assert_close(now, then, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("statistics", ["running", "steady"])
def test_what_is_kept_is_in_the_units_of_today(statistics: str) -> None:
    trainer = Trainer(TrainConfig(**TOY, statistics=statistics))
    assert trainer.off_policy is not None
    seen = []
    for _ in range(3):
        trainer.run_epoch()
        piece, normaliser = trainer.off_policy._pieces[0], trainer.policy.normaliser
        if statistics == "running":
            mean, scale = trainer.off_policy._seen_in
            seen.append(piece.obs.double() * torch.as_tensor(scale) + torch.as_tensor(mean))
        else:
            scale = np.sqrt(normaliser.var + normaliser.EPSILON)
            seen.append(piece.obs.double() * torch.as_tensor(scale) + torch.as_tensor(normaliser.mean))
    torch.testing.assert_close(seen[1], seen[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(seen[2], seen[0], rtol=1e-4, atol=1e-5)
    if statistics == "running":
        np.testing.assert_array_equal(trainer.off_policy._seen_in[0], trainer.policy.normaliser.mean)


def test_epochs_that_outgrow_what_is_kept_leave_nothing_old() -> None:
    trainer = Trainer(TrainConfig(**TOY, replay_steps=EPOCHS_KEPT * 100))
    kept = trainer.off_policy
    assert kept is not None
    trainer.run_epoch()
    assert len(kept._pieces) == 1
    kept._keep = EPOCHS_KEPT * 99
    trainer.run_epoch()
    assert kept._pieces == []


def test_pessimism_is_about_networks_that_differ_not_about_actions() -> None:
    trainer = Trainer(TrainConfig(**TOY))
    critics = ActionCritics(1, trainer.policy, torch.Generator().manual_seed(0))
    for param in critics.stack.params:
        param.copy_(param[:1].expand_as(param))
    inputs, action = torch.randn(50, 3), torch.randn(50, 2)
    found = [
        critics.advantages(inputs, action, trainer.policy, torch.Generator().manual_seed(1), pessimism)
        for pessimism in (0.0, 3.0)
    ]
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5)
    assert float(found[0].std()) > 0


def test_what_is_not_a_number_skips_the_update_and_is_not_learnt() -> None:
    trainer = Trainer(TrainConfig(**TOY))
    assert trainer.off_policy is not None
    rollout = played(trainer, 100)
    rollout.signals[0, 3, 1] = float("nan")
    theta = trainer.off_policy.critics.stack.theta.clone()
    assert trainer.learn(rollout, 1.0).row["skipped"] == 1
    torch.testing.assert_close(trainer.off_policy.critics.stack.theta, theta, rtol=0, atol=0)
    assert trainer.off_policy._pieces == []
    assert trainer.learn(played(trainer, 100), 1.0).row["skipped"] == 0


def test_epochs_shorter_than_what_is_looked_ahead_are_refused() -> None:
    with pytest.raises(UserError, match="looks 10 steps ahead, and an epoch has 10 steps of each world; give more"):
        Trainer(TrainConfig(**TOY | {"num_envs": 40}))


def test_without_a_violation_the_whole_step_is_rewards() -> None:
    trainer = Trainer(TrainConfig(**TOY))
    rollout = played(trainer, 100)
    rollout.signals[1] = 0
    row = trainer.learn(rollout, 1.0).row
    assert row["mu"] == row["gradient_norm_c"] == row["action_critic_error_c"] == 0
    assert row["accepted_step"] > 0


def test_choices_are_told_apart_and_not_counted() -> None:
    policy = Policy(2, 3, (4,), torch.Generator().manual_seed(0), discrete=True)
    actions = torch.tensor([[2.0], [0.0]])
    assert encoded(policy, actions).tolist() == [[0, 0, 1], [1, 0, 0]]
    critics = ActionCritics(1, policy, torch.Generator().manual_seed(1))
    found = critics.advantages(torch.zeros(2, 3), encoded(policy, actions), policy, torch.Generator().manual_seed(2))
    assert found.shape == (1, 2)
    assert float(found[0, 0]) != float(found[0, 1])
