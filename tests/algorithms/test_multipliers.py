import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrpo.algorithms.multipliers import AdamMultiplier, Multiplier, PIDMultiplier

costs = st.lists(st.floats(0, 1000), min_size=1, max_size=40)
limits = st.floats(0, 50)


def pytorchs(limit: float, upper: float | None, costs: list[float]) -> list[float]:
    """The published multiplier: a parameter, torch's Adam on -λ (cost - limit), a clamp."""
    parameter = torch.nn.Parameter(torch.tensor(0.001, dtype=torch.float64))
    adam = torch.optim.Adam([parameter], lr=0.035)
    found = []
    for cost in costs:
        adam.zero_grad()
        (-parameter * (cost - limit)).backward()  # type: ignore[no-untyped-call]
        adam.step()
        parameter.data.clamp_(0.0, upper)
        found.append(float(parameter.detach()))
    return found


@settings(deadline=None, max_examples=60)
@given(costs, limits, st.none() | st.floats(0.01, 1))
def test_adam_multiplier_is_pytorchs_adam(costs: list[float], limit: float, upper: float | None) -> None:
    multiplier = AdamMultiplier(limit, 0.001, 0.035, upper)
    assert [multiplier.update(cost) for cost in costs] == pytest.approx(pytorchs(limit, upper, costs), abs=1e-12)


@given(costs)
def test_adam_multiplier_never_falls_at_limit_zero(costs: list[float]) -> None:
    multiplier = AdamMultiplier(0.0, 0.001, 0.035)
    found = [0.001, *(multiplier.update(cost) for cost in costs)]
    assert all(before <= after for before, after in itertools.pairwise(found))


@given(costs, limits, st.floats(0, 1))
def test_adam_multiplier_stays_within_its_bounds(costs: list[float], limit: float, upper: float) -> None:
    multiplier = AdamMultiplier(limit, 0.001, 0.035, upper)
    assert all(0 <= multiplier.update(cost) <= upper for cost in costs)


def test_adam_multiplier_moves_as_the_specification_says() -> None:
    multiplier = AdamMultiplier(0.0, 0.001, 0.035)
    assert multiplier.update(0.0) == 0.001  # a first cost of 0 does not move it
    steady = [multiplier.update(30.0) for _ in range(999)]
    assert steady[-1] == pytest.approx(35, rel=0.02)  # about its rate an update
    rest = [multiplier.update(0.0) for _ in range(100)]
    assert rest[-1] - steady[-1] == pytest.approx(0.3, abs=0.05)  # momentum, after the cost has gone
    with_room = AdamMultiplier(15.0, 0.001, 0.035)
    assert with_room.update(0.0) == 0.0
    assert with_room.update(15.0) == 0.0  # the negative momentum goes on


def test_pid_multiplier_by_hand() -> None:
    multiplier = PIDMultiplier(limit=5.0, init=0.001, kp=0.1, ki=0.01, kd=0.01)
    #     cost   integral  P         S        rise      λ = 0.1 P + integral + 0.01 rise
    #     10     0.051     0.25      0.5      0.5       0.025     + 0.051 + 0.005
    #     20     0.201     0.9875    1.475    1.475     0.09875   + 0.201 + 0.01475
    #      0     0.151     0.688125  1.40125  1.40125   0.0688125 + 0.151 + 0.0140125
    found = [multiplier.update(cost) for cost in (10.0, 20.0, 0.0)]
    assert found == pytest.approx([0.081, 0.3145, 0.233825], abs=1e-12)
    assert [multiplier.update(0.0) for _ in range(200)][-1] == 0.0  # neither λ nor the integral falls below 0
    assert multiplier.update(6.0) < 1.0


def test_pid_derivative_looks_ten_updates_back() -> None:
    multiplier = PIDMultiplier(limit=0.0, init=0.0, kp=0.0, ki=0.0, kd=1.0)
    smooth = [20 * (1 - 0.95**n) for n in range(1, 16)]  # the moving average of a steady cost of 20
    rises = [multiplier.update(20.0) for _ in range(15)]
    # It starts with a single 0 to look back to, which is the oldest of ten entries up to the tenth update.
    expected = smooth[:10] + [smooth[n] - smooth[n - 10] for n in range(10, 15)]
    assert rises == pytest.approx(expected)


@given(costs)
def test_pid_integral_never_falls_at_limit_zero(costs: list[float]) -> None:
    multiplier = PIDMultiplier(0.0, 0.001, kp=0.0, ki=0.01, kd=0.0)
    found = [0.001, *(multiplier.update(cost) for cost in costs)]
    assert all(before <= after for before, after in itertools.pairwise(found))
    assert found[-1] == pytest.approx(0.001 + 0.01 * sum(costs))


@settings(max_examples=30)
@given(costs, costs, st.booleans())
def test_a_loaded_state_continues_identically(before: list[float], after: list[float], pid: bool) -> None:
    def make() -> Multiplier:
        return PIDMultiplier(5.0, 0.001, 0.1, 0.01, 0.01) if pid else AdamMultiplier(5.0, 0.001, 0.035, 2.0)

    multiplier, other = make(), make()
    for cost in before:
        multiplier.update(cost)
    other.load_state_dict(multiplier.state_dict())
    assert other.value == multiplier.value
    assert [other.update(cost) for cost in after] == [multiplier.update(cost) for cost in after]
    assert math.isfinite(other.value)
