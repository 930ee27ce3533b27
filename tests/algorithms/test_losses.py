"""First-order methods that give their loss to autograd, beside those whose slopes are written by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor

from sbtrpo.algorithms.first_order import ByLoss, BySlopes, FirstOrderMethod, Fixed, Minibatch, Slopes
from sbtrpo.algorithms.ppo import PPO
from sbtrpo.learning.trainer import Trainer
from sbtrpo.nets.forms import TorchForm, copy_of
from tests.algorithms.losses import PPOByLoss
from tests.algorithms.samples import make, make_batch, make_policy, start, theta_of
from tests.devices import DEVICE, assert_close
from tests.settings import config_of

CLASSES = {"ppo": "PPOByLoss", "focops": "FOCOPSByLoss", "p3o": "P3OByLoss"}
LOSSES = {algo: f"tests.algorithms.losses:{name}" for algo, name in CLASSES.items()}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("ppo", {}), "focops": ("focops", {}), "focops, by sample": ("focops", {"focops_broadcast": False}),
    "p3o": ("p3o", {}), "p3o, inactive": ("p3o", {"cost_limit": 1000.0}),
}  # fmt: skip


def gradient(algo: str, settings: dict[str, Any]) -> Any:
    """Of one minibatch in double precision, some way from the rollout policy."""
    form = TorchForm(DEVICE, torch.float64)
    policy = make_policy()
    batch = make_batch(policy, size=40)
    method = make(algo, policy, **settings)
    assert isinstance(method, FirstOrderMethod)
    method.lagrange([60.0] * len(method.multipliers))
    method.use(form)
    samples, log_std = method.start(batch).samples, copy_of(method.actor.log_std)
    fixed = method.prepare(samples, [20.0], 0.0)
    noise = torch.randn(len(method.actor.stack.theta), generator=torch.Generator().manual_seed(0))
    method.actor.stack.theta += 0.08 * noise.to(method.actor.stack.theta)
    method.objective(method.actor, samples, log_std, fixed)
    return method.actor.flat_gradient()


def toy(algo: str, **settings: Any) -> Trainer:
    small: dict[str, Any] = {"num_envs": 4, "steps_per_epoch": 200, "total_steps": 1000, "hidden": (8, 8)}
    return Trainer(config_of(algo, task="ToyCorridor-v0", seed=3, threads=1, device=DEVICE, **small, **settings))


@pytest.mark.parametrize("name", CASES)
def test_a_loss_has_the_gradient_of_the_slopes(name: str) -> None:
    algo, settings = CASES[name]
    by_slopes, by_autograd = gradient(algo, settings), gradient(LOSSES[algo], settings)
    assert float(by_slopes.abs().max()) > 1e-3
    assert_close(by_autograd, by_slopes)


@pytest.mark.parametrize("name", CASES)
def test_training_by_loss_is_training_by_slopes(name: str) -> None:
    algo, settings = CASES[name]
    by_slopes, by_autograd = (toy(kind, policy_passes=3, **settings) for kind in (algo, LOSSES[algo]))
    assert isinstance(by_slopes.method, FirstOrderMethod)
    assert isinstance(by_autograd.method, FirstOrderMethod)
    assert isinstance(by_slopes.method.objective, BySlopes)
    assert isinstance(by_autograd.method.objective, ByLoss)
    for _ in range(3):
        expected, row = by_slopes.run_epoch().row, by_autograd.run_epoch().row
        assert row == pytest.approx(expected, rel=2e-3, abs=1e-5, nan_ok=True)
    assert_close(theta_of(by_autograd.method), theta_of(by_slopes.method), 1e-4)


def test_a_method_with_a_loss_resumes_to_the_same_numbers() -> None:
    trainer, other = toy(LOSSES["p3o"]), toy(LOSSES["p3o"])
    trainer.run_epoch()
    other.load_state_dict(trainer.state_dict())
    assert repr(trainer.run_epoch().row) == repr(other.run_epoch().row)


def test_a_loss_that_is_not_finite_leaves_everything_as_it_was() -> None:
    method, batch = start(LOSSES["ppo"])
    before, steps = theta_of(method), method.state_dict()["adam"]["steps"]
    assert isinstance(method, PPOByLoss)
    method.objective = ByLoss(lambda minibatch: (minibatch.ratio * torch.inf).mean())
    assert method.update(batch, 0.0, 0.0)["skipped"] == 1.0
    assert torch.equal(theta_of(method), before)
    assert method.state_dict()["adam"]["steps"] == steps


def test_a_minibatch_offers_what_losses_are_made_of() -> None:
    seen: list[Minibatch] = []

    class Watching(PPO[Any]):
        def prepare(self, samples: Any, costs: Any, progress: float) -> Fixed:
            return Fixed(report={"seen": 1.0})

        def loss(self, batch: Minibatch) -> Tensor:
            seen.append(batch)
            return (batch.kl + batch.log_prob + batch.ratio * (batch.advantages.sum(0) + batch.advantage_c)).mean()

    policy = make_policy(dtype=torch.float32)
    slopes = make("ppo", policy, policy_passes=1)
    method = Watching(policy, slopes.critics, slopes.config, slopes.orders)
    report = method.update(make_batch(policy, heads=2), 0.0, 0.0)
    assert report["seen"] == 1.0
    batch = seen[0]
    rows = len(batch.obs)
    shapes = {"obs": (rows, 5), "action": (rows, 2), "advantages": (2, rows), "ratio": (rows,), "kl": (rows,)}
    for name, shape in {**shapes, "log_prob": (rows,), "advantage_r": (rows,), "advantage_c": (rows,)}.items():
        assert tuple(getattr(batch, name).shape) == shape, name
    for name in ("ratio", "log_prob", "kl"):
        assert getattr(batch, name).requires_grad
    assert_close(batch.ratio, torch.ones_like(batch.ratio), 1e-5)  # before the first step
    assert batch.fixed.report == {"seen": 1.0}


# ---- one of the two ------------------------------------------------------------------------------------------------


def construct(kind: type[FirstOrderMethod[Any]]) -> FirstOrderMethod[Any]:
    policy = make_policy(dtype=torch.float32)
    plain = make("ppo", policy)
    return kind(policy, None, plain.config, plain.orders)


def test_a_class_that_defines_both_is_refused() -> None:
    with pytest.raises(TypeError, match="Both defines both loss and slopes"):

        class Both(FirstOrderMethod[Any]):
            def loss(self, batch: Minibatch) -> Tensor:
                return torch.zeros(())

            def slopes(self, batch: Minibatch) -> Slopes:
                return Slopes(batch.ratio)


def test_a_class_that_defines_neither_is_refused() -> None:
    class Neither(FirstOrderMethod[Any]):
        pass

    with pytest.raises(TypeError, match="Neither defines neither loss nor slopes"):
        construct(Neither)


def test_the_nearest_definition_counts() -> None:
    class Again(PPOByLoss):
        def slopes(self, batch: Minibatch) -> Slopes:
            return Slopes(batch.ratio)

    assert isinstance(construct(PPOByLoss).objective, ByLoss)
    assert not isinstance(construct(Again).objective, ByLoss)


@pytest.mark.parametrize("wrong", [lambda batch: batch.ratio, lambda batch: batch.advantage_r.mean()])
def test_a_loss_that_is_no_number_of_the_policy_is_refused(wrong: Any) -> None:
    class Wrong(PPO[Any]):
        def loss(self, batch: Minibatch) -> Tensor:
            loss: Tensor = wrong(batch)
            return loss

    method = construct(Wrong)
    with pytest.raises(ValueError, match="loss must return one number that depends on the policy"):
        method.update(make_batch(method.policy), 0.0, 0.0)
