"""Methods under several constraints."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sbtrpo.algorithms.base import Batch, Diagnostics, Method
from sbtrpo.algorithms.multipliers import AdamMultiplier, Multipliers, PIDMultiplier
from sbtrpo.config import catalogue
from sbtrpo.config.settings import declared
from sbtrpo.errors import UserError
from tests.algorithms.samples import everything, make, make_batch, make_policy, start, theta_of

LAGRANGIAN = ["ppo_lag", "trpo_lag", "cup", "cppo_pid", "focops", "rcpo"]
YARDSTICKS = ["trpo", "ppo"]
OURS = ("annealed", "paced", "growing", "hits", "late_hits", "polished")
SB_TRPO = ["sb-trpo", *(f"sb-trpo_{name}" for name in ("rcritic", "critic", *OURS))]
SEVERAL = [*SB_TRPO, *LAGRANGIAN, *YARDSTICKS]
NAMES = ("walls", "speed", "heat")
BRIEF: dict[str, Any] = {"policy_passes": 2, "critic_passes": 1, "cg_iterations": 5}
OF_MULTIPLIERS = ("multiplier_init", "multiplier_rate", "multiplier_max", "pid_kp", "pid_ki", "pid_kd")


def taking(number: int | None) -> list[str]:
    return [entry.name for entry in catalogue.entries() if entry.implementation.constraints_taken == number]


def run(method: Method[Any], costs: Sequence[Sequence[float]]) -> list[Diagnostics]:
    """Updates, each on a fresh batch of the policy as it is then."""
    rows = []
    for seed, recent in enumerate(costs):
        heads = 0 if method.critics is None else method.critics.heads
        rows.append(method.update(make_batch(method.policy, seed, heads=heads, costs=len(recent)), recent, 0.1 * seed))
    return rows


def on(batch: Batch, *costs: Tensor) -> Batch:
    """The batch with these cost advantages."""
    return dataclasses.replace(batch, advantages=torch.stack([batch.advantage_r, *costs]))


def settings_of(algo: str, names: Sequence[str]) -> dict[str, Any]:
    values = catalogue.method(algo).settings.defaults("ToyCorridor-v0", "paper")
    return {name: values[name] for name in names if values.get(name) is not None}


# ---- which methods -------------------------------------------------------------------------------------------------


def test_methods_say_how_many_constraints_they_take() -> None:
    assert sorted(taking(None)) == sorted(SEVERAL)
    assert sorted(taking(1)) == sorted(["cpo", "pcpo", "p3o", "c_trpo", "c3po", "crpo", "pcrpo", "appo"])


@pytest.mark.parametrize("algo", taking(1))
def test_a_method_that_takes_one_constraint_refuses_two(algo: str) -> None:
    expected = rf"^{algo} takes one constraint; use `--constraints sum`, .* takes several \(sb-trpo, .*ppo_lag, .*\)$"
    with pytest.raises(UserError, match=expected):
        start(algo, names=NAMES[:2])


@pytest.mark.parametrize("algo", LAGRANGIAN)
def test_limits_are_one_for_all_or_one_for_each(algo: str) -> None:
    method, _ = start(algo, names=NAMES[:2], cost_limit=(10.0, 20.0))
    assert [multiplier.limit for multiplier in method.multipliers] == [10.0, 20.0]  # type: ignore[attr-defined]
    method, _ = start(algo, names=NAMES, cost_limit=7.0)
    assert [multiplier.limit for multiplier in method.multipliers] == [7.0] * 3  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="cost_limit has 2 values, and there are 3 constraints; give one"):
        start(algo, names=NAMES, cost_limit=(10.0, 20.0))


# ---- updates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("algo", SEVERAL)
def test_an_update_moves_everything_and_reports_each_constraint(algo: str, count: int) -> None:
    names = NAMES[:count]
    method, _ = start(algo, names=names, cost_limit=10.0, **BRIEF)
    before = everything(method)
    rows = run(method, [[0.0, 20.0, 5.0][:count], [30.0, 0.0, 9.0][:count]])
    assert (everything(method) != before).mean() > 0.9
    signals = ("r", *names)
    for row in rows:
        assert row["skipped"] == 0
        assert 0 < row["accepted_step"] <= 1
        for stem in ("surrogate_{}_change", "surrogate_{}_predicted", "gradient_norm_{}", "angle_{}"):
            assert all(math.isfinite(row[stem.format(name)]) for name in signals), stem
        critics = [] if method.critics is None else signals[: method.critics.heads]
        assert [key for key in row if key.startswith("critic_loss")] == [f"critic_loss_{name}" for name in critics]
        expected = [f"multiplier_{name}" for name in names] if algo in LAGRANGIAN else []
        assert [key for key in row if key.startswith("multiplier")] == expected
        assert not {"surrogate_c_change", "gradient_norm_c", "angle_c"} & set(row)


@pytest.mark.parametrize("algo", SEVERAL)
def test_a_loaded_method_continues_to_the_last_bit(algo: str) -> None:
    method, other = (start(algo, seed, NAMES[:2], cost_limit=10.0, **BRIEF)[0] for seed in (0, 7))
    run(method, [[0.0, 0.0], [20.0, 5.0], [5.0, 20.0]])
    other.policy.load_state_dict(method.policy.state_dict())
    if method.critics is not None and other.critics is not None:
        other.critics.load_state_dict(method.critics.state_dict())
    other.orders.set_state(method.orders.get_state())
    other.load_state_dict(method.state_dict())
    rows = [repr(run(one, [[8.0, 12.0], [12.0, 8.0]])) for one in (method, other)]
    assert rows[0] == rows[1]
    assert everything(method).tobytes() == everything(other).tobytes()


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("solver", ["convex", "exact"])
def test_sb_trpos_step_minds_neither_a_copy_nor_a_constraint_without_cost(solver: str, copied: bool) -> None:
    alone, batch = start("sb-trpo", solver=solver, cg_tolerance=1e-4)
    beside, _ = start("sb-trpo", names=NAMES[:2], solver=solver, cg_tolerance=1e-4)
    before = theta_of(alone)
    cost = batch.advantage_c
    alone.update(batch, 20.0, 0.0)
    beside.update(on(batch, cost, cost if copied else torch.zeros_like(cost)), [20.0, 20.0], 0.0)
    apart, moved = theta_of(beside) - theta_of(alone), theta_of(alone) - before
    assert float(apart.norm()) < 1e-3 * float(moved.norm())


@pytest.mark.parametrize("algo", [*LAGRANGIAN, *YARDSTICKS])
def test_a_constraint_without_cost_changes_nothing(algo: str) -> None:
    one: dict[str, Any] = {"advantage": "mc", "cost_limit": 0.0, "multiplier_init": 0.0, **BRIEF}
    alone, batch = start(algo, **one)
    beside, _ = start(algo, names=NAMES[:2], **one)
    two = on(batch, batch.advantage_c, torch.zeros_like(batch.advantage_c))
    for cost in (0.0, 20.0, 15.0):
        rows = alone.update(batch, cost, 0.0), beside.update(two, [cost, 0.0], 0.0)
        assert rows[0]["step_norm"] == rows[1]["step_norm"]
        assert torch.equal(theta_of(alone), theta_of(beside))
    if algo in LAGRANGIAN:
        assert rows[1]["multiplier_walls"] == rows[0]["multiplier"] > 0
        assert rows[1]["multiplier_speed"] == 0


@pytest.mark.parametrize("algo", LAGRANGIAN)
def test_one_constraint_is_the_same_constraint_twice_with_half_the_multiplier(algo: str) -> None:
    common: dict[str, Any] = {"advantage": "mc", "cost_limit": 10.0, **BRIEF}
    half = {name: value / 2 for name, value in settings_of(algo, OF_MULTIPLIERS).items()}
    alone, batch = start(algo, **common)
    twice, _ = start(algo, names=NAMES[:2], **common, **half)
    both = on(batch, batch.advantage_c, batch.advantage_c)
    for cost in (20.0, 30.0, 5.0, 40.0):
        before = theta_of(alone)
        rows = alone.update(batch, cost, 0.0), twice.update(both, [cost, cost], 0.0)
        assert rows[1]["multiplier_walls"] == rows[1]["multiplier_speed"] == rows[0]["multiplier"] / 2 > 0
        moved, apart = theta_of(alone) - before, theta_of(twice) - theta_of(alone)
        assert float(apart.norm()) < 1e-3 * float(moved.norm())
        twice.policy.set(theta_of(alone))


@pytest.mark.parametrize("algo", SEVERAL)
def test_the_order_of_constraints_does_not_matter(algo: str) -> None:
    settings: dict[str, Any] = {"advantage": "mc", "multiplier_rate": 0.5, "pid_kp": 0.5, **BRIEF}
    policies = [make_policy(dtype=torch.float32) for _ in range(2)]
    batch = make_batch(policies[0], costs=2)
    forth = make(algo, policies[0], names=("walls", "speed"), cost_limit=(10.0, 5.0), **settings)
    back = make(algo, policies[1], names=("speed", "walls"), cost_limit=(5.0, 10.0), **settings)
    reward, walls, speed = batch.advantages
    rows = (
        forth.update(batch, [20.0, 6.0], 0.0),
        back.update(dataclasses.replace(batch, advantages=torch.stack([reward, speed, walls])), [6.0, 20.0], 0.0),
    )
    assert set(rows[0]) == set(rows[1])
    assert rows[0] == pytest.approx(rows[1], rel=1e-3, abs=1e-4, nan_ok=True)
    apart = float((theta_of(forth) - theta_of(back)).norm())
    assert apart < 1e-3 * rows[0]["step_norm"]


@pytest.mark.parametrize("algo", YARDSTICKS)
def test_the_yardsticks_do_not_know_of_costs(algo: str) -> None:
    method, batch = start(algo, names=NAMES[:2], advantage="mc", **BRIEF)
    other, _ = start(algo, names=NAMES[:2], advantage="mc", **BRIEF)
    method.update(batch, [20.0, 30.0], 0.0)
    other.update(on(batch, -5 * batch.advantages[2], 3 * batch.advantages[1]), [0.0, 0.0], 0.0)
    assert torch.equal(theta_of(method), theta_of(other))


@pytest.mark.parametrize("violated", [0, 1])
@pytest.mark.parametrize("algo", LAGRANGIAN)
def test_the_constraint_that_is_violated_is_the_one_whose_surrogate_falls(algo: str, violated: int) -> None:
    strong: dict[str, Any] = {"multiplier_init": 0.0, "multiplier_rate": 5.0, "multiplier_max": 10.0, "pid_kp": 1.0}
    method, batch = start(algo, names=NAMES[:2], cost_limit=0.0, advantage="mc", policy_passes=5, **strong)
    costs = [0.0, 0.0]
    costs[violated] = 100.0
    row = method.update(batch, costs, 0.0)
    multipliers = [row[f"multiplier_{name}"] for name in NAMES[:2]]
    changes = [row[f"surrogate_{name}_change"] for name in NAMES[:2]]
    assert multipliers[violated] > 4.9
    assert multipliers[1 - violated] == 0
    assert changes[violated] < min(0, changes[1 - violated])


# ---- multipliers ---------------------------------------------------------------------------------------------------


def pair() -> Multipliers:
    return Multipliers([AdamMultiplier(10.0, 0.001, 0.035), PIDMultiplier(5.0, 0.001, 0.1, 0.01, 0.01)])


def test_multipliers_do_not_depend_on_each_others_costs() -> None:
    generator = np.random.default_rng(0)
    first, second, other = generator.uniform(0, 40, (3, 30)).tolist()
    together, changed, alone = pair(), pair(), pair()[1]
    for a, b, c in zip(first, second, other, strict=True):
        values = together.update([a, b])
        assert values == together.values
        assert values[1] == alone.update(b)
        assert changed.update([c, b])[1] == values[1]
    assert changed.values[0] != together.values[0]


def test_multipliers_take_a_cost_each() -> None:
    with pytest.raises(ValueError, match="argument"):
        pair().update([1.0])


def test_a_single_multiplier_is_saved_as_it_always_was() -> None:
    single = Multipliers([AdamMultiplier(10.0, 0.001, 0.035)])
    single.update([20.0])
    assert single.state_dict() == {"multiplier": single[0].state_dict()}
    assert Multipliers().state_dict() == {}
    fresh = Multipliers([AdamMultiplier(10.0, 0.001, 0.035)])
    fresh.load_state_dict({"multiplier": single[0].state_dict(), "adam": "of another part"})
    assert fresh.values == single.values


def test_loaded_multipliers_continue_identically() -> None:
    saved, loaded = pair(), pair()
    saved.update([20.0, 3.0])
    state = saved.state_dict()
    assert list(state) == ["multipliers"]
    loaded.load_state_dict(state)
    assert loaded.update([5.0, 9.0]) == saved.update([5.0, 9.0])


def test_every_setting_of_multipliers_is_halved_above() -> None:
    known = {name for algo in LAGRANGIAN for name in declared(catalogue.method(algo).settings)}
    assert {name for name in known if name.startswith(("multiplier_", "pid_"))} == set(OF_MULTIPLIERS)
