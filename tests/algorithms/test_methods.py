"""What holds for every method of the catalogue, and what each quirk changes."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from sbtrpo.algorithms.base import Diagnostics, Method
from sbtrpo.algorithms.first_order import FirstOrderMethod
from sbtrpo.algorithms.trust_region import TrustRegionMethod
from sbtrpo.config import catalogue
from sbtrpo.learning.trainer import Trainer
from tests.algorithms.samples import COMMON, altered, everything, make_batch, start, theta_of
from tests.settings import config_of, quirks_of

METHODS = list(catalogue.BUILT_IN)
TRUST_REGION = [name for name in METHODS if issubclass(catalogue.method(name).implementation, TrustRegionMethod)]
QUIRKS = {quirk for name in METHODS for quirk in quirks_of(name)}
BRIEF: dict[str, Any] = {"policy_passes": 2, "critic_passes": 1, "cg_iterations": 5}
SITUATIONS = {  # factor of the cost advantages, cost of the episodes
    "no cost at all": (0.0, 0.0),
    "a window without cost": (1.0, 0.0),
    "cost near the limit": (1.0, 25.01),
    "huge cost": (1e4, 1e6),
}


def run(
    method: Method[Any], costs: Sequence[float], cost_scale: float = 1.0, target_scale: float = 1.0
) -> list[Diagnostics]:
    """Updates, each on a fresh batch of the policy as it is then."""
    found = []
    for seed, cost in enumerate(costs):
        batch = make_batch(method.policy, seed, heads=0 if method.critics is None else method.critics.heads)
        targets = None if batch.targets is None else target_scale * batch.targets
        batch = altered(batch, advantage_c=cost_scale * batch.advantage_c, targets=targets)
        found.append(method.update(batch, cost, 0.1 * seed))
    return found


def test_the_catalogue_and_the_implementations_agree() -> None:
    for entry in map(catalogue.method, METHODS):
        base = FirstOrderMethod if entry.family == "first order" else TrustRegionMethod
        assert issubclass(entry.implementation, base)
        assert issubclass(entry.settings, base.Settings)


@pytest.mark.parametrize("fidelity", ["paper", "corrected"])
@pytest.mark.parametrize("limit", [0.0, 25.0])
@pytest.mark.parametrize("algo", METHODS)
def test_no_situation_breaks_a_method(algo: str, limit: float, fidelity: str) -> None:
    keys = set()
    for situation, (factor, cost) in SITUATIONS.items():
        method, _ = start(algo, cost_limit=limit, fidelity=fidelity, **BRIEF)
        for found in run(method, [0.0, cost], factor):
            keys.add(tuple(found))
            # As published PCPO divides 0 by 0 there.
            hopeless = (algo, limit, fidelity, situation) == ("pcpo", 0.0, "paper", "no cost at all")
            assert found["skipped"] == hopeless, situation
            assert all(math.isfinite(found[name]) for name in COMMON if not name.startswith("angle")), situation
        assert np.isfinite(everything(method)).all(), situation
    assert len(keys) == 1  # the same columns in the same order, whatever happens
    assert set(keys.pop()) >= {*COMMON, "skipped", "accepted_step"}


@pytest.mark.parametrize("algo", METHODS)
def test_an_update_moves_the_policy_and_the_critics(algo: str) -> None:
    method, batch = start(algo, cost_limit=25.0, **BRIEF)
    before, critics = theta_of(method), None if method.critics is None else method.critics.stack.theta.copy()
    found = method.update(batch, 20.0, 0.0)
    assert 0 < found["accepted_step"] <= 1
    assert found["step_norm"] == pytest.approx(float((theta_of(method) - before).norm()), rel=1e-5)
    assert found["step_norm"] > 0
    assert critics is None or (method.critics is not None and (method.critics.stack.theta != critics).any())
    heads = 0 if method.critics is None else method.critics.heads
    assert [name for name in found if name.startswith("critic_loss")] == ["critic_loss_r", "critic_loss_c"][:heads]


@pytest.mark.parametrize("algo", TRUST_REGION)
def test_steps_that_decay_are_those_of_a_smaller_radius(algo: str) -> None:
    """Half of the length, a quarter of the radius, where half of the run is over; settings stay as they were."""
    decaying, batch = start(algo, cost_limit=25.0, step_decay=1.0, step_decay_from=0.0, **BRIEF)
    smaller, _ = start(algo, cost_limit=25.0, target_kl=decaying.settings.target_kl / 4, step_decay=0.0, **BRIEF)
    settings = decaying.settings
    found = decaying.update(batch, 20.0, 0.5)
    assert found.pop("radius") == settings.target_kl / 4
    assert found == pytest.approx(smaller.update(batch, 20.0, 0.5), rel=1e-6, nan_ok=True)
    assert torch.equal(theta_of(decaying), theta_of(smaller))
    assert decaying.settings is settings
    assert settings.scheduled(0.5) == {"target_kl": settings.target_kl / 4}


@pytest.mark.parametrize(("progress", "same"), [(0.0, True), (0.499, True), (0.51, False)])
def test_the_first_half_of_an_annealed_run_is_the_published_one(progress: float, same: bool) -> None:
    annealed, batch = start("sb-trpo_annealed")
    published, _ = start("sb-trpo")
    for method in (annealed, published):
        method.update(batch, 20.0, progress)
    assert torch.equal(theta_of(annealed), theta_of(published)) == same


def test_steps_decay_from_where_they_are_to() -> None:
    settings = config_of("sb-trpo", target_kl=0.04, step_decay=0.5, step_decay_from=0.6).method
    radius = [settings.scheduled(progress)["target_kl"] for progress in (0.0, 0.3, 0.6, 0.8, 1.0)]
    assert radius == pytest.approx([0.04, 0.04, 0.04, 0.04 * 0.75**2, 0.01])


@pytest.mark.parametrize("algo", METHODS)
def test_the_same_seed_gives_the_same_updates_to_the_last_bit(algo: str) -> None:
    results = []
    for seed in (0, 0, 1):
        method, _ = start(algo, seed, cost_limit=10.0, **BRIEF)
        rows = run(method, [0.0, 20.0, 5.0])
        results.append((everything(method).tobytes(), repr(rows)))
    assert results[0] == results[1]
    assert results[0] != results[2]


@pytest.mark.parametrize("limit", [0.0, 10.0])
@pytest.mark.parametrize("algo", METHODS)
def test_a_loaded_method_continues_to_the_last_bit(algo: str, limit: float) -> None:
    method, _ = start(algo, cost_limit=limit, **BRIEF)
    run(method, [0.0, 20.0, 5.0])
    other, _ = start(algo, seed=7, cost_limit=limit, **BRIEF)
    other.policy.load_state_dict(method.policy.state_dict())
    if method.critics is not None and other.critics is not None:
        other.critics.load_state_dict(method.critics.state_dict())
    other.orders.set_state(method.orders.get_state())
    other.load_state_dict(method.state_dict())
    rows = [repr(run(one, [8.0, 12.0])) for one in (method, other)]
    assert rows[0] == rows[1]
    assert everything(method).tobytes() == everything(other).tobytes()


@pytest.mark.parametrize("algo", METHODS)
def test_a_saved_state_does_not_change_with_the_method(algo: str) -> None:
    method, _ = start(algo, cost_limit=10.0, **BRIEF)
    run(method, [20.0])
    state = method.state_dict()
    before = repr(state)
    run(method, [20.0, 30.0])
    assert repr(state) == before


@pytest.mark.parametrize("spoilt", ["advantage_r", "advantage_c", "targets"])
@pytest.mark.parametrize("algo", METHODS)
def test_what_is_not_a_number_changes_nothing_and_the_next_update_succeeds(algo: str, spoilt: str) -> None:
    method, batch = start(algo, cost_limit=10.0, **BRIEF)
    numbers = getattr(batch, spoilt)
    if numbers is None:
        assert method.critics is None
        return
    method.update(batch, 20.0, 0.0)
    before = everything(method)
    numbers = numbers.clone()
    numbers[..., 3] = math.nan
    found = method.update(altered(batch, **{spoilt: numbers}), 20.0, 0.0)
    assert (found["skipped"], found["accepted_step"]) == (1, 0)
    assert everything(method).tobytes() == before.tobytes()
    assert method.update(batch, 20.0, 0.0)["skipped"] == 0
    assert np.isfinite(everything(method)).all()


# ---- quirks --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Circumstances:
    algo: str
    costs: Sequence[float]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    cost_scale: float = 1.0
    target_scale: float = 1.0


CIRCUMSTANCES = {
    "kl_reduction": Circumstances("trpo", [0.0]),
    "cg_epsilon": Circumstances("c_trpo", [1.0], {"cg_damping": 1e-3}, cost_scale=1e-3),
    "cpo_as_published": Circumstances("cpo", [9.99], {"cost_limit": 10.0}),
    "pcpo_plain_gradient": Circumstances("pcpo", [5.0], {"cost_limit": 10.0}),
    "focops_broadcast": Circumstances("focops", [20.0], {"cost_limit": 10.0, "learning_rate": 0.01}),
    "multiplier_max": Circumstances("cup", [30.0] * 9, {"policy_passes": 2}),
    "stale_critic_clip": Circumstances("c3po", [5.0] * 2, {"policy_batch": 200, "policy_passes": 1}, target_scale=1e4),
}
OF_THE_TRAINER = {"first_cost_zero", "bootstrap_raw_observation"}


def test_every_quirk_is_put_to_the_test_and_concerns_some_method() -> None:
    assert set(CIRCUMSTANCES) | OF_THE_TRAINER == QUIRKS
    for quirk, where in CIRCUMSTANCES.items():
        assert quirk in quirks_of(where.algo)


@pytest.mark.parametrize("quirk", CIRCUMSTANCES)
def test_a_quirk_makes_a_difference_where_it_matters(quirk: str) -> None:
    where, steps = CIRCUMSTANCES[quirk], []
    declared = quirks_of(where.algo)[quirk]
    for value in (declared.default, declared.rule.corrected):
        method, _ = start(where.algo, **where.settings, **{quirk: value})
        before = theta_of(method)
        run(method, where.costs, where.cost_scale, where.target_scale)
        steps.append(theta_of(method) - before)
    published, corrected = steps
    assert float((published - corrected).norm()) > 0.01 * float(corrected.norm()) > 0


@pytest.mark.parametrize("algo", METHODS)
def test_fidelity_sets_the_quirks_that_concern_a_method_and_no_others(algo: str) -> None:
    published, corrected = (config_of(algo, fidelity=fidelity).settings() for fidelity in ("paper", "corrected"))
    quirks = quirks_of(algo)
    assert {name: published[name] for name in quirks} == {name: item.default for name, item in quirks.items()}
    assert {name: corrected[name] for name in quirks} == {name: item.rule.corrected for name, item in quirks.items()}
    differing = {name for name in published if published[name] != corrected[name]}
    assert differing == {*quirks, "fidelity"}


@pytest.mark.parametrize("algo", [name for name in METHODS if set(quirks_of(name)) & set(CIRCUMSTANCES)])
def test_corrected_updates_differ_from_published_ones(algo: str) -> None:
    results = []
    for fidelity in ("paper", "corrected"):
        method, _ = start(algo, cost_limit=10.0, fidelity=fidelity, learning_rate=0.01, **BRIEF)
        run(method, [9.99] + [20.0] * 10, target_scale=1e4)
        results.append(theta_of(method))
    assert not torch.equal(*results)


def toy(algo: str, **settings: Any) -> Trainer:
    sizes: dict[str, Any] = {"num_envs": 4, "steps_per_epoch": 200, "total_steps": 1000}
    return Trainer(config_of(algo, task="ToyCorridor-v0", seed=2, **sizes, **settings))


@pytest.mark.parametrize("algo", [name for name in METHODS if "first_cost_zero" in quirks_of(name)])
def test_published_methods_read_a_cost_of_zero_in_their_first_update(algo: str) -> None:
    published, corrected = (toy(algo=algo, first_cost_zero=zero, **BRIEF).run_epoch().row for zero in (True, False))
    assert published["cost"] == corrected["cost"] == corrected["cost_statistic"] > 0
    assert published["cost_statistic"] == 0.0


def test_the_second_update_reads_what_there_is() -> None:
    trainer = toy(algo="ppo_lag", **BRIEF)
    rows = [trainer.run_epoch().row for _ in range(3)]
    assert [row["cost_statistic"] for row in rows] == [0.0, rows[1]["cost"], rows[2]["cost"]]


def test_time_outs_are_judged_on_the_raw_or_on_the_normalised_observation() -> None:
    targets = []
    for raw in (True, False):
        trainer = toy(algo="trpo", bootstrap_raw_observation=raw)
        rollout = trainer.collector.collect(50)  # one whole episode of each world
        found = trainer._advantages(rollout).targets
        assert found is not None
        assert trainer.critics is not None
        last = rollout.final_obs_raw if raw else rollout.final_obs
        expected = torch.stack([rollout.reward[-1], rollout.cost[-1]]) + 0.99 * trainer.critics(last)
        torch.testing.assert_close(found[:, -1], expected, rtol=1e-5, atol=1e-6)
        targets.append(found)
    assert not torch.equal(*targets)
