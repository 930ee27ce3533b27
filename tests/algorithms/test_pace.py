"""Steps as long as successive updates agree."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sbtrpo.algorithms.pace import SHORTEST, Pace, length
from tests.algorithms.samples import altered, make_batch, start, theta_of

SIZE = 400
METRIC = torch.linspace(0.1, 3.0, SIZE, dtype=torch.float64)
"""Of a diagonal F."""


def agreements(steps: Tensor, memory: float = 0.99) -> list[float]:
    pace = Pace(steps[0], memory)
    return [pace.agreement(step, METRIC * step) for step in steps]


def test_steps_that_repeat_each_other_agree_and_those_that_take_each_other_back_do_not() -> None:
    step = torch.randn(SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert agreements(torch.stack([step] * 4)) == pytest.approx([1.0] * 4)
    assert agreements(torch.stack([step, -step, step]), memory=1e-9)[1:] == pytest.approx([-1.0] * 2)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.6])
def test_it_is_the_share_of_the_squared_length_that_steps_have_in_common(share: float) -> None:
    """Measured by F: what they have in common is one direction, and the rest is noise of equal size in all."""
    generator = torch.Generator().manual_seed(1)
    common, *noise = torch.randn((601, SIZE), generator=generator, dtype=torch.float64) / METRIC.sqrt()
    common /= (METRIC * common**2).mean().sqrt()  # as long as noise is on average
    steps = share**0.5 * common + (1 - share) ** 0.5 * torch.stack(noise)
    assert agreements(steps, 0.99)[-1] == pytest.approx(share, abs=0.01)


def test_without_a_signal_nothing_is_compared() -> None:
    step = torch.ones(SIZE, dtype=torch.float64)
    assert agreements(torch.stack([step, step, 0 * step, step, 0 * step])) == pytest.approx([1.0] * 5)


def test_lengths() -> None:
    assert [length(a, 2.0) for a in (1.0, 0.25, 0.01, 0.0, -0.5)] == [1.0, 1.0, 0.2, SHORTEST, SHORTEST]


@pytest.mark.parametrize("algo", ["sb-trpo", "cpo", "trpo_lag"])
def test_a_method_shortens_its_steps_where_batches_disagree(algo: str) -> None:
    """First two batches of one mind, then one of the opposite; the first step is half of that without a pace."""
    paced, batch = start(algo, pace=0.5, pace_memory=0.0, cost_limit=25.0, critic_passes=1)
    plain, _ = start(algo, cost_limit=25.0, critic_passes=1)
    first, full = (method.update(batch, 20.0, 0.0) for method in (paced, plain))
    assert (first["agreement"], first["step_length"]) == (1.0, 0.5)
    assert first["step_norm"] == pytest.approx(0.5 * full["step_norm"] / full["accepted_step"], rel=1e-4)
    again = make_batch(paced.policy, heads=0 if paced.critics is None else paced.critics.heads)
    second = paced.update(again, 20.0, 0.0)
    assert 0.5 < second["agreement"] <= 1
    opposed = altered(again, advantage_r=-again.advantage_r, advantage_c=-again.advantage_c)
    third = paced.update(opposed, 20.0, 0.0)
    assert third["agreement"] < 0
    assert third["step_length"] == SHORTEST
    assert third["step_norm"] < 0.1 * second["step_norm"]


def test_without_a_pace_nothing_is_reported_or_kept() -> None:
    method, batch = start("sb-trpo")
    assert "agreement" not in method.update(batch, 20.0, 0.0)
    assert "pace" not in method.state_dict()


def test_a_loaded_method_goes_on_with_its_pace() -> None:
    methods = [start("sb-trpo_paced")[0] for _ in range(2)]
    batches = [make_batch(methods[0].policy, seed) for seed in range(3)]
    for batch in batches[:2]:
        methods[0].update(batch, 20.0, 0.0)
    methods[1].policy.set(theta_of(methods[0]))
    methods[1].load_state_dict(methods[0].state_dict())
    last = [method.update(batches[2], 20.0, 0.0) for method in methods]
    assert last[0] == last[1]
    assert last[0]["agreement"] != 1.0
    assert torch.equal(*map(theta_of, methods))
