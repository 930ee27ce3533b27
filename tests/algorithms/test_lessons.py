"""Lessons of several learners at once are those of each alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sbtrpo.algorithms.base import Method
from sbtrpo.algorithms.first_order import Fixed
from sbtrpo.algorithms.lessons import Together
from sbtrpo.errors import Alarm
from sbtrpo.nets import forms
from sbtrpo.nets.replayed import Replayed
from tests.algorithms.test_together import assert_alike, methods, update, updates
from tests.devices import DEVICE

WITH_CRITICS = ("ppo_lag", "cup", "cppo_pid", "focops", "p3o")
"""First-order methods whose critics learn from the same minibatches."""
CLOSE = 1e-6 if DEVICE == "cpu" else 1e-5


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minibatches are recorded on a GPU; here they are told that they were."""
    monkeypatch.setattr(forms.TorchForm, "replayed", lambda form, work, rows: Replayed(work, rows, form.device))
    monkeypatch.setattr(forms, "MANY_ROWS", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


@pytest.fixture
def companies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many learners passed together, pass by pass."""
    sizes: list[int] = []
    store = Together.store

    def noting(self: Together) -> None:
        sizes.append(len(self.lessons))
        store(self)

    monkeypatch.setattr(Together, "store", noting)
    return sizes


def state(method: Method) -> list[Any]:
    """Everything that the next update goes on from."""
    assert method.critics is not None
    saved, of_critics = method.state_dict()["adam"], method.critics.state_dict()
    return [*saved.values(), *of_critics.values()]


def assert_same_states(ours: Sequence[Method], alone: Sequence[Method]) -> None:
    for mine, other in zip(ours, alone, strict=True):
        for one, two in zip(state(mine), state(other), strict=True):
            torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(two), rtol=100 * CLOSE, atol=CLOSE)


def test_methods_of_all_kinds_learn_together(companies: list[int]) -> None:
    """Of the second update Adam has counted steps already, of each learner its own."""
    algos = [*WITH_CRITICS, "c3po"] * 2
    ours, alone = methods(algos), methods(algos)
    for _ in range(2):
        assert_alike(alone, ours)
        assert_same_states(ours, alone)
    assert max(companies) == 10  # all but C3PO, whose clipping is its own
    assert min(companies) == 2  # of CUP's second stage, which has no critics


@pytest.mark.parametrize(("constraints", "discrete"), [(3, False), (1, True)])
def test_so_do_those_with_several_constraints_or_choices(
    companies: list[int], constraints: int, discrete: bool
) -> None:
    algos = ["ppo_lag", "focops", "cup"]
    ours, alone = methods(algos, discrete, constraints), methods(algos, discrete, constraints)
    assert_alike(alone, ours, constraints)
    assert max(companies) == 3


def test_who_has_moved_far_enough_leaves_the_others(companies: list[int]) -> None:
    targets = [{"target_kl": target} for target in (1e-4, 5e-3, 1.0)]
    ours, alone = (methods(["ppo_lag"] * 3, settings=targets) for _ in range(2))
    assert_alike(alone, ours)
    assert_same_states(ours, alone)
    assert sorted(set(companies), reverse=True) == [3, 2]
    assert companies == sorted(companies, reverse=True)


def test_gradients_are_clipped_by_each(companies: list[int]) -> None:
    """Far below their norms, which differ; Adam's moments tell, where the steps do not."""
    tight = [{"max_grad_norm": 0.05}] * 2
    ours, alone, loose = (methods(["ppo_lag"] * 2, settings=chosen) for chosen in (tight, tight, ()))
    assert_alike(alone, ours)
    assert_same_states(ours, alone)
    assert set(companies) == {2}
    updates(loose)
    for one, other in zip(ours, loose, strict=True):
        before, after = (method.state_dict()["adam"]["mean"] for method in (other, one))
        assert abs(after).max() < 0.5 * abs(before).max()


def test_steps_are_counted_by_each(companies: list[int]) -> None:
    ours, alone = methods(["ppo_lag", "p3o"]), methods(["ppo_lag", "p3o"])
    for chosen in (ours, alone):
        update(chosen[1], 7)
    assert_alike(alone, ours)
    assert_same_states(ours, alone)
    counts = [method.state_dict()["adam"]["steps"] for method in ours]
    assert counts[0] < counts[1]
    assert set(companies) == {2}


@pytest.mark.parametrize(
    "settings", [{"learning_rate": 1e-3}, {"policy_batch": 32}, {"max_grad_norm": 1.0}, {"critic_l2": 0.0}]
)
def test_lessons_that_are_unlike_are_had_apart(companies: list[int], settings: dict[str, Any]) -> None:
    ours, alone = (methods(["ppo_lag"] * 2, settings=[settings]) for _ in range(2))
    assert_alike(alone, ours)
    assert companies == []


def test_slopes_are_shared_by_those_alike_in_them(companies: list[int]) -> None:
    """Wherever they stand among the others, and with numbers of their own, as a hinge has."""
    algos = ["p3o", "ppo_lag", "p3o", "cppo_pid", "p3o", "appo", "appo"]
    chosen = [{"clip": 0.05 if k % 4 == 2 else 0.2, "cost_limit": 5.0 * k} for k in range(7)]
    ours, alone = (methods(algos, settings=chosen) for _ in range(2))
    assert_alike(alone, ours)
    assert_same_states(ours, alone)
    assert max(companies) == 7


def test_further_seeds_take_no_further_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is what a GPU's time goes by. Counted are operations that are no mere views."""
    counts: list[int] = []
    one = Replayed._one

    def counted(self: Replayed, rows: torch.Tensor) -> None:
        with Operations() as operations:
            one(self, rows)
        counts.append(operations.count)

    monkeypatch.setattr(Replayed, "_one", counted)
    algos = ("ppo_lag", "cppo_pid", "focops", "p3o")

    def of_a_minibatch(algos: Sequence[str]) -> int:
        counts.clear()
        updates(methods(algos))
        return counts[0]  # the first one is nowhere a recording

    alone = sum(of_a_minibatch([algo]) for algo in algos)
    of_four = of_a_minibatch(algos)
    assert of_four < alone / 2
    assert of_a_minibatch(algos * 3) == of_four


class Operations(TorchDispatchMode):
    """Counts those that do not share their result's memory with what they are given."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not function.is_view
        return function(*args, **(kwargs or {}))


def test_who_fails_leaves_the_others_alone(companies: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    algos = ["ppo_lag", "p3o", "focops"]
    ours, alone = methods(algos), methods(algos)
    monkeypatch.setattr(ours[1], "prepare", lambda *_: Fixed())  # without the hinge that its slopes need
    with pytest.warns(Alarm, match="each goes by itself: AttributeError"):
        facts = updates(ours)
    assert isinstance(facts[1], AttributeError)
    for k in (0, 2):
        update(alone[k], k)
    assert_same_states([ours[0], ours[2]], [alone[0], alone[2]])
    assert set(companies) == {2}


def test_what_is_no_number_stays_with_its_learner() -> None:
    ours, alone = methods(["ppo_lag"] * 3), methods(["ppo_lag"] * 3)
    ours[1].policy.params[1].fill_(torch.nan)
    facts = updates(ours)
    assert isinstance(facts[1], dict)
    assert facts[1]["skipped"] == 1.0
    for k in (0, 2):
        update(alone[k], k)
    assert_same_states([ours[0], ours[2]], [alone[0], alone[2]])
