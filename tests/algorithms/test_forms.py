"""Whole updates of the first-order methods in both forms, and over samples in chunks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sbtrpo.algorithms.base import Batch
from sbtrpo.algorithms.first_order import FirstOrderMethod, Minibatch, Slopes
from sbtrpo.algorithms.ppo import PPO, PPOSettings
from sbtrpo.config import catalogue
from sbtrpo.nets import forms
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.forms import Form, NumpyForm, TorchForm
from sbtrpo.nets.replayed import Replayed
from tests.algorithms.samples import make, make_batch, make_policy, start, theta_of
from tests.devices import DEVICE, assert_close, double_forms

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{entry.name: (entry.name, {}) for entry in catalogue.entries() if entry.family == "first order"},
    "focops, by sample": ("focops", {"focops_broadcast": False}),
    "c3po, without the critics' gradient": ("c3po", {"stale_critic_clip": False}),
}


def method_in(form: Form, algo: str, **settings: Any) -> tuple[FirstOrderMethod[Any], Batch]:
    """A method before its first update, in the form's place and in double precision, and a batch for it."""
    policy = make_policy()
    batch = make_batch(policy, heads=2)
    policy.device = form.device
    policy.params = [tensor.to(form.device) for tensor in policy.params]
    method = make(algo, policy, **settings)
    assert isinstance(method, FirstOrderMethod)
    if method.critics is not None:
        method.critics.device = form.device
    method.use(form)
    assert batch.targets is not None
    moved = (batch.obs, batch.action, batch.log_prob, batch.advantages, batch.targets.double())
    return method, Batch(*(tensor.to(form.device) for tensor in moved))


def parameters(method: FirstOrderMethod[Any]) -> list[Any]:
    assert method.critics is not None
    return [theta_of(method), method.critics.state_dict()["params"]]


@pytest.mark.parametrize("name", CASES)
def test_updates_agree(name: str) -> None:
    algo, settings = CASES[name]
    reports, results, states = [], [], []
    for form in double_forms():
        method, batch = method_in(
            form, algo, policy_passes=3, critic_passes=2, cost_limit=5.0, max_grad_norm=1.0, **settings
        )
        reports.append([method.update(batch, cost, progress) for cost, progress in ((20.0, 0.0), (3.0, 0.5))])
        results.append(parameters(method))
        states.append(method.state_dict())
    for one, other in zip(*results, strict=True):
        assert_close(one, other)
    for one, other in zip(*reports, strict=True):
        assert one.keys() == other.keys()
        assert one["step_norm"] > 1e-4
        assert one == pytest.approx(other, rel=1e-6, abs=1e-9)
    assert states[0].keys() == states[1].keys()
    assert_close(states[0]["adam"]["mean"], states[1]["adam"]["mean"])


class ByNumbers(TorchForm):
    """Minibatches by the numbers of their rows, as where they are recorded."""

    def replayed(self, work: Callable[[Any], None], rows: int) -> Replayed:
        return Replayed(work, rows, self.device)


@pytest.mark.parametrize("name", CASES)
def test_minibatches_by_the_numbers_of_their_rows(name: str) -> None:
    """What is recorded on a GPU is what is done without."""
    algo, settings = CASES[name]
    results = []
    for form in (TorchForm("cpu", torch.float64), ByNumbers("cpu", torch.float64)):
        method, batch = method_in(form, algo, policy_passes=3, critic_passes=2, policy_batch=48, **settings)
        method.update(batch, 20.0, 0.0)
        results.append(parameters(method))
    for one, other in zip(*results, strict=True):
        assert_close(one, other)


def test_minibatches_of_own_methods_are_not_recorded() -> None:
    """Their code may do something else every time."""

    class Mine(PPO[PPOSettings]):
        def slopes(self, batch: Minibatch) -> Slopes:
            return super().slopes(batch)

    ours = make("ppo", make_policy())
    assert isinstance(ours, PPO)
    mine = Mine(ours.policy, ours.critics, ours.config, ours.orders)
    assert ours._repeats(ours.objective)
    assert not mine._repeats(mine.objective)


@pytest.mark.parametrize("algo", ["ppo_lag", "c3po"])
def test_a_method_goes_on_in_the_other_form(algo: str) -> None:
    numpy, torches = double_forms()
    staying, batch = method_in(numpy, algo, policy_passes=2, critic_passes=2)
    moving, _ = method_in(numpy, algo, policy_passes=2, critic_passes=2)
    for form in (numpy, torches, numpy):
        moving.use(form)
        for method in (staying, moving):
            method.update(batch, 20.0, 0.0)
    for one, other in zip(parameters(staying), parameters(moving), strict=True):
        assert_close(one, other)


def test_a_state_of_one_form_is_a_state_of_the_other() -> None:
    numpy, torches = double_forms()
    one, batch = method_in(numpy, "cppo_pid", policy_passes=2)
    other, moved = method_in(torches, "cppo_pid", policy_passes=2)
    one.update(batch, 20.0, 0.0)
    assert one.critics is not None
    assert other.critics is not None
    other.policy.set(theta_of(one).to(DEVICE))
    other.load_state_dict(one.state_dict())
    other.critics.load_state_dict(one.critics.state_dict())
    other.orders.set_state(one.orders.get_state())
    for method, samples in ((one, batch), (other, moved)):
        method.update(samples, 30.0, 0.1)
    for ours, theirs in zip(parameters(one), parameters(other), strict=True):
        assert_close(ours, theirs)


def test_an_update_that_is_not_finite_is_taken_back_in_both_forms() -> None:
    for form in (NumpyForm(), TorchForm(DEVICE)):
        method, batch = method_in(form, "ppo", policy_passes=2)
        before, state = parameters(method), method.state_dict()
        batch.advantages[0, 3] = torch.nan
        report = method.update(batch, 0.0, 0.0)
        assert report["skipped"] == 1.0
        for one, other in zip(parameters(method), before, strict=True):
            np.testing.assert_array_equal(np.asarray(forms.to_numpy(one)), forms.to_numpy(other))
        assert method.state_dict()["adam"]["steps"] == state["adam"]["steps"] == 0


@pytest.mark.parametrize("form", double_forms(), ids=["numpy", "torch"])
@pytest.mark.parametrize("algo", ["ppo", "cup"])
def test_samples_in_chunks_give_what_they_give_together(form: Form, algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together, batch = method_in(form, algo, policy_passes=2)
    in_chunks, _ = method_in(form, algo, policy_passes=2)
    expected = together.update(batch, 20.0, 0.0)
    monkeypatch.setattr(forms, "CHUNK", 77)
    passed: list[int] = []
    forward = in_chunks.actor.stack.forward

    def watched(x: Any) -> Any:
        passed.append(len(x))
        return forward(x)

    monkeypatch.setattr(in_chunks.actor.stack, "forward", watched)
    report = in_chunks.update(batch, 20.0, 0.0)
    assert report == pytest.approx(expected, rel=1e-7, abs=1e-10)
    assert_close(theta_of(in_chunks), theta_of(together))
    assert max(passed) == 77


# ---- which form, and how many rows ---------------------------------------------------------------------------------


def test_methods_choose_their_form_by_the_rows_of_a_minibatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    small, _ = start("ppo_lag")
    large, _ = start("ppo_lag", policy_batch=forms.MANY_ROWS)
    cut, _ = start("ppo_lag", policy_minibatches=2, steps_per_epoch=20_000)
    for method, form in ((small, NumpyForm), (large, TorchForm), (cut, TorchForm)):
        assert isinstance(method, FirstOrderMethod)
        assert isinstance(method.form, form)
        assert isinstance(method.critics, Critics)
        assert method.critics.form is method.form


def test_minibatches_may_be_given_as_a_count() -> None:
    steps = []
    for settings in ({"policy_batch": 50}, {"policy_minibatches": 4}, {"policy_minibatches": 3}):
        method, batch = start("ppo", policy_passes=1, **settings)
        method.update(batch, 0.0, 0.0)
        steps.append(method.state_dict()["adam"]["steps"])
    assert steps == [4, 4, 3]  # of 200 samples


def test_critics_of_their_own_passes_take_a_count_too() -> None:
    for algo in ("c3po", "trpo"):
        method, batch = start(algo, critic_passes=2, critic_minibatches=5, policy_passes=1)
        method.update(batch, 0.0, 0.0)
        assert method.critics is not None
        assert method.critics.state_dict()["steps"] == 10
