"""Updates of several learners at once are those of each alone."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import pytest
import torch

from sbtrpo import TrainConfig
from sbtrpo.algorithms import make_method
from sbtrpo.algorithms import together as module
from sbtrpo.algorithms.base import Batch, Diagnostics, Method
from sbtrpo.algorithms.together import Request, SharedRegion, Solve, Strand, Try, ask, together
from sbtrpo.algorithms.trust_region import TrustRegionMethod
from sbtrpo.nets import forms, linearised
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.network import flatten
from sbtrpo.nets.policy import Policy
from sbtrpo.nets.replayed import Replayed
from tests.devices import DEVICE

SIZE, ACTIONS, SAMPLES = 6, 2, 96
TOLERANCE = 2e-3 if DEVICE == "cuda" else 1e-4
"""Of residuals, on a GPU, where products of several round otherwise."""
METHODS = ("sb-trpo", "sb-trpo_paced", "trpo_lag", "cpo", "c_trpo", "pcpo", "ppo_lag")


def methods(
    algos: Sequence[str] = METHODS,
    discrete: bool = False,
    constraints: int = 1,
    settings: Sequence[dict[str, Any]] = (),
) -> list[Method]:
    """One of each, the first ones with these settings."""
    made = []
    for seed, (algo, chosen) in enumerate(zip_longest(algos, settings, fillvalue={})):
        size = {"num_envs": 2, "steps_per_epoch": SAMPLES, "total_steps": 2 * SAMPLES}
        config = TrainConfig(algo=algo, device=DEVICE, **size, **chosen)
        if algo == "c_trpo":
            config = config.replace(cost_limit=9.0)  # within which its barrier is at work
        generator = torch.Generator().manual_seed(seed)
        policy = Policy(SIZE, ACTIONS, (8, 8), generator, DEVICE, discrete)
        heads = config.method.heads(constraints)
        critics = Critics(heads, SIZE, (8, 8), 1e-3, generator, DEVICE) if heads else None
        names = ("c",) if constraints == 1 else tuple("abc"[:constraints])
        made.append(make_method(policy, critics, config, generator, names))
    return made


def batch_for(method: Method, seed: int, constraints: int = 1) -> Batch:
    generator, policy = torch.Generator().manual_seed(100 + seed), method.policy
    obs = torch.randn((SAMPLES, SIZE), generator=generator).to(DEVICE)
    outputs = policy.mean(obs)
    noise = policy.head.noise(torch, (SAMPLES,), generator).to(DEVICE)
    action = policy.head.sample(torch, outputs, policy.log_std, noise)
    advantages = torch.randn((1 + constraints, SAMPLES), generator=generator).to(DEVICE)
    heads = 0 if method.critics is None else method.critics.heads
    targets = torch.randn((heads, SAMPLES), generator=generator).to(DEVICE)
    log_prob = policy.head.log_prob(torch, outputs, policy.log_std, action)
    return Batch(obs, action, log_prob, advantages, targets if heads else None)


def update(method: Method, number: int, constraints: int = 1) -> Diagnostics:
    return method.update(batch_for(method, number, constraints), [1.0] * constraints, 0.8)


def updates(chosen: Sequence[Method], constraints: int = 1) -> list[Diagnostics | Exception]:
    for method in chosen:
        if isinstance(method, TrustRegionMethod):
            method.region = SharedRegion
    return together([functools.partial(update, method, k, constraints) for k, method in enumerate(chosen)])


def assert_alike(alone: Sequence[Method], ours: Sequence[Method], constraints: int = 1) -> None:
    for k, (facts, other, method) in enumerate(zip(updates(ours, constraints), alone, ours, strict=True)):
        assert not isinstance(facts, Exception), facts
        expected = update(other, k, constraints)
        assert facts == pytest.approx(expected, rel=TOLERANCE, abs=1e-6, nan_ok=True), type(method).__name__
        torch.testing.assert_close(
            flatten(method.policy.params),
            flatten(other.policy.params),
            rtol=1e-5,
            atol=1e-6 if DEVICE == "cpu" else 1e-5,
        )


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Kinds of requests, and how many were answered at once."""
    seen: list[tuple[str, int]] = []
    answers = module._answers

    def noting(kind: type[Request], asked: Sequence[Request]) -> Sequence[object]:
        seen.append((kind.__name__, len(asked)))
        return answers(kind, asked)

    monkeypatch.setattr(module, "_answers", noting)
    return seen


def test_updates_are_those_of_each_learner_alone(answered: list[tuple[str, int]]) -> None:
    assert_alike(methods(), methods())
    assert [count for kind, count in answered if kind == "Solve"] == [6]  # all but PPO-Lag, at once


def test_passes_of_minibatches_go_side_by_side(
    answered: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are recorded; here they are told that they were."""
    monkeypatch.setattr(forms.TorchForm, "replayed", lambda form, work, rows: Replayed(work, rows, form.device))
    monkeypatch.setattr(forms, "MANY_ROWS", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    algos = ["ppo_lag", "cup", "trpo_lag", "sb-trpo"]
    assert_alike(methods(algos), methods(algos))
    assert max(count for kind, count in answered if kind == "Pass") == 3  # all but SB-TRPO, which has no critics


@pytest.mark.parametrize("algo", ["sb-trpo", "trpo_lag"])
def test_so_are_those_with_several_constraints_or_choices(algo: str) -> None:
    assert_alike(methods([algo] * 2, constraints=3), methods([algo] * 2, constraints=3), constraints=3)
    assert_alike(methods([algo] * 2, discrete=True), methods([algo] * 2, discrete=True))


@pytest.mark.parametrize("budget", [2**30, 0], ids=["kept", "too large to be kept"])
def test_so_are_those_of_batches_in_chunks(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    monkeypatch.setattr(linearised, "CHUNK", 40)
    monkeypatch.setattr(linearised, "BUDGET", budget)
    assert_alike(methods(), methods())


def test_sums_in_pieces_are_the_same_sums() -> None:
    members = [linearised.Linearised(_mlp(method), batch_for(method, 0).obs) for method in methods()[:2]]
    maps = linearised.LinearisedTogether(members)
    cotangent = torch.randn((ACTIONS, 3, 2, SAMPLES), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    maps._pieces = 1
    whole = maps.pullback(cotangent)
    maps._pieces = 32
    torch.testing.assert_close(maps.pullback(cotangent), whole)


def _mlp(method: Method) -> linearised.MLP:
    return linearised.MLP(method.policy.params[1:])


@pytest.mark.parametrize("others", [("cpo", "trpo_lag"), ("pcpo", "sb-trpo"), ("ppo_lag", "sb-trpo")])
def test_an_update_does_not_depend_on_its_neighbours(others: tuple[str, str]) -> None:
    """To the bit, where as many are solved together; otherwise products may round in another way."""
    chosen = methods(["sb-trpo", *others])
    first = updates(chosen)[0]
    torch.testing.assert_close(
        flatten(chosen[0].policy.params), flatten(_after_update("sb-trpo").policy.params), rtol=1e-5, atol=1e-6
    )
    assert not isinstance(first, Exception)
    again = methods(["sb-trpo", *others])
    for k in (1, 2):  # other networks and other data, with the same methods
        again[k].policy.set(0.5 * flatten(again[k].policy.params))
    assert updates(again)[0] == first
    assert (flatten(again[0].policy.params) == flatten(chosen[0].policy.params)).all()


def _after_update(algo: str) -> Method:
    (method,) = methods([algo])
    update(method, 0)
    return method


def test_an_update_that_fails_leaves_the_others_alone() -> None:
    ours, alone = methods(["sb-trpo"] * 3), methods(["sb-trpo"] * 3)
    ours[1].propose = lambda *_: 1 / 0  # type: ignore[attr-defined]
    results = updates(ours)
    assert isinstance(results[1], ZeroDivisionError)
    for k in (0, 2):
        assert results[k] == pytest.approx(update(alone[k], k), rel=1e-4, abs=1e-6, nan_ok=True)


def test_a_batch_that_is_not_finite_leaves_the_others_alone() -> None:
    ours, alone = methods(["sb-trpo"] * 2), methods(["sb-trpo"] * 2)
    for tensor in ours[1].policy.params[1:]:
        tensor.fill_(float("nan"))
    good, bad = updates(ours)
    assert good == pytest.approx(update(alone[0], 0), rel=1e-4, abs=1e-6, nan_ok=True)
    assert isinstance(bad, dict)
    assert bad["skipped"] == 1.0


def test_what_goes_wrong_in_an_answer_is_told_to_all_who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(asked: object) -> None:
        raise MemoryError("too many")

    monkeypatch.setattr(Solve, "answer", refuse)
    results = updates(methods(["sb-trpo", "ppo_lag", "cpo"]))
    assert [type(result) for result in results] == [MemoryError, dict, MemoryError]


def test_trials_come_before_solutions_and_strands_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def answer(kind: type[Request], asked: Sequence[Request]) -> list[int]:
        said.append(f"{kind.__name__} {len(asked)}")
        return list(range(len(asked)))

    def work(name: str, kinds: Sequence[type[Request]]) -> list[int]:
        return [ask(kind.__new__(kind)) for kind in kinds]

    monkeypatch.setattr(module, "_answers", answer)
    works = {"a": [Solve, Try], "b": [Try, Solve], "c": [], "d": [Try, Try, Solve]}
    results = together([functools.partial(work, name, kinds) for name, kinds in works.items()])
    assert said == ["Try 2", "Try 1", "Solve 3", "Try 1"]
    assert results == [[0, 0], [0, 1], [], [1, 0, 2]]


def test_a_strand_works_only_while_others_wait() -> None:
    seen = []

    def work() -> str:
        seen.append(1)
        seen.append(ask(Solve.__new__(Solve)))
        return "done"

    strand = Strand(work)
    assert seen == []
    assert isinstance(strand.proceed(), Solve)
    assert seen == [1]
    assert strand.proceed(2) is None
    assert seen == [1, 2]
    assert strand.result == "done"
