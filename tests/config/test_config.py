"""Settings that are left out have the values of the published code, and explicit ones win."""

from __future__ import annotations

from typing import Any

import pytest

from sbtrpo.config import TrainConfig, catalogue
from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import declared

# The specification's table of hyperparameters, written out: nothing here is read from the methods.
ALL = {
    "gae_lambda": 0.95, "baseline_ridge": 1e-3, "replay_steps": 1_000_000, "replay_updates": 2_000, "pessimism": 0.0,
    "critic_l2": 1e-3, "max_grad_norm": 40.0,
}  # fmt: skip
LINE_SEARCH = {
    "step_decay": 0.0, "step_decay_from": 0.0, "pace": 0.0, "pace_memory": 0.98, "line_search_fraction": 0.8,
    "line_search_first": 1.0,
}  # fmt: skip
TRPO_TYPE = {
    **ALL, **LINE_SEARCH, "critic_minibatches": 0,
    "advantage": "gae", "target_kl": 0.01, "cg_iterations": 15, "cg_damping": 0.1, "cg_tolerance": 0.0,
    "line_search_tries": 15, "critic_batch": 128, "critic_learning_rate": 1e-3, "critic_passes": 10,
    "kl_reduction": "mean_over_dims", "cg_epsilon": 1e-6, "bootstrap_raw_observation": True,
}  # fmt: skip
PPO_TYPE = {
    **ALL, "policy_minibatches": 0,
    "advantage": "gae", "target_kl": 0.02, "learning_rate": 3e-4, "policy_batch": 64, "policy_passes": 40, "clip": 0.2,
    "critic_learning_rate": 3e-4, "bootstrap_raw_observation": True,
}  # fmt: skip
SB_TRPO = {
    **ALL, **LINE_SEARCH, "critic_minibatches": 0,
    "target_kl": 0.01, "cg_iterations": 50, "cg_damping": 0.02, "cg_tolerance": 0.05, "cg_epsilon": 0.0,
    "line_search_tries": 100, "beta": 0.75, "beta_end": None, "beta_from": 0.0, "solver": "convex", "cost_to_go": "sum",
    "first_hit_from": 0.0, "critic_batch": 128, "critic_learning_rate": 1e-3, "critic_passes": 10,
    "kl_reduction": "mean_over_dims", "bootstrap_raw_observation": True,
}  # fmt: skip
COSTLY = {"cost_limit": 0.0, "first_cost_zero": True}
ADAM = {"multiplier_init": 0.001, "multiplier_rate": 0.035, "multiplier_max": None}
PUBLISHED: dict[str, dict[str, Any]] = {
    "sb-trpo": {**SB_TRPO, "advantage": "mc"},
    "sb-trpo_rcritic": {**SB_TRPO, "advantage": "gae-reward"},
    "sb-trpo_critic": {**SB_TRPO, "advantage": "gae"},
    "sb-trpo_annealed": {**SB_TRPO, "advantage": "mc", "step_decay": 1.0, "step_decay_from": 0.5},
    "sb-trpo_paced": {**SB_TRPO, "advantage": "mc", "pace": 2.0},
    "sb-trpo_growing": {**SB_TRPO, "advantage": "mc"},
    "sb-trpo_hits": {**SB_TRPO, "advantage": "mc", "cost_to_go": "first-hit"},
    "sb-trpo_late_hits": {**SB_TRPO, "advantage": "mc", "cost_to_go": "first-hit", "first_hit_from": 0.75},
    "sb-trpo_polished": {**SB_TRPO, "advantage": "mc", "cost_to_go": "first-hit"},
    "ppo_lag": {**PPO_TYPE, **COSTLY, **ADAM},
    "cppo_pid": {**PPO_TYPE, **COSTLY, "multiplier_init": 0.001, "pid_kp": 0.1, "pid_ki": 0.01, "pid_kd": 0.01},
    "focops": {
        **{name: value for name, value in PPO_TYPE.items() if name != "clip"}, **COSTLY, **ADAM,
        "multiplier_max": 2.0, "temperature": 1.5, "focops_broadcast": True,
    },
    "cup": {**PPO_TYPE, **COSTLY, **ADAM, "multiplier_max": 0.2, "cup_lambda": 0.95},
    "trpo_lag": {**TRPO_TYPE, **COSTLY, **ADAM},
    "rcpo": {**TRPO_TYPE, **COSTLY, **ADAM, "line_search_tries": 1},
    "cpo": {**TRPO_TYPE, **COSTLY, "cpo_as_published": True},
    "pcpo": {**TRPO_TYPE, **COSTLY, "line_search_tries": 200, "pcpo_plain_gradient": True},
    "p3o": {**PPO_TYPE, **COSTLY, "penalty": 10.0},
    "c_trpo": {**TRPO_TYPE, **COSTLY, "critic_batch": 256, "barrier": 1.0, "hysteresis": 1.0},
    "c3po": {
        **PPO_TYPE, **COSTLY, "target_kl": 0.01, "policy_batch": 128, "policy_passes": 10, "critic_batch": 128,
        "critic_passes": 10, "critic_minibatches": 0, "penalty": 50.0, "penalty_start": 0.1,
        "omega": 0.05, "stale_critic_clip": True,
    },
    "crpo": {**TRPO_TYPE, **COSTLY, "tolerance": 0.0},
    "pcrpo": {**TRPO_TYPE, **COSTLY, "slack_above": 5.0, "slack_below": -5.0},
    "appo": {**PPO_TYPE, **COSTLY, **ADAM, "multiplier_rate": 0.2, "sigma": 0.1},
    "trpo": TRPO_TYPE,
    "ppo": PPO_TYPE,
}  # fmt: skip
CORRECTED = {
    "kl_reduction": "sum_over_dims", "cg_epsilon": 0.0, "bootstrap_raw_observation": False, "first_cost_zero": False,
    "cpo_as_published": False, "pcpo_plain_gradient": False, "focops_broadcast": False, "stale_critic_clip": False,
}  # fmt: skip


def of_the_method(**settings: Any) -> dict[str, Any]:
    """The settings of a run that are not every run's."""
    return {k: v for k, v in TrainConfig(**settings).settings().items() if k not in declared(RunSettings)}


def test_every_method_is_in_the_table() -> None:
    assert set(PUBLISHED) == set(catalogue.BUILT_IN)


@pytest.mark.parametrize("algo", PUBLISHED)
def test_a_method_has_these_settings_with_the_published_values_and_no_others(algo: str) -> None:
    assert of_the_method(algo=algo) == PUBLISHED[algo]


@pytest.mark.parametrize("algo", PUBLISHED)
def test_corrected_settings_differ_in_the_quirks_alone(algo: str) -> None:
    expected = {name: CORRECTED.get(name, value) for name, value in PUBLISHED[algo].items()}
    if algo == "cup":
        expected["multiplier_max"] = 2.0
    assert of_the_method(algo=algo, fidelity="corrected") == expected


def test_settings_common_to_all_are_the_published_ones() -> None:
    config = TrainConfig()
    assert (config.gamma, config.hidden, config.fidelity) == (0.99, (64, 64), "paper")
    assert (config.num_envs, config.steps_per_epoch, config.epochs) == (20, 20_000, 1000)


def test_c_trpos_critics_have_other_minibatches_on_the_hopper() -> None:
    batches = [
        TrainConfig(algo="c_trpo", task=task, fidelity=fidelity).get("critic_batch")
        for task in ("SafetySwimmerVelocity-v1", "SafetyHopperVelocity-v1")
        for fidelity in ("paper", "corrected")
    ]
    assert batches == [256, 256, 128, 128]


@pytest.mark.parametrize("name", sorted({name for settings in PUBLISHED.values() for name in settings}))
def test_explicit_settings_win_over_a_methods_own(name: str) -> None:
    owner = max((algo for algo in PUBLISHED if name in PUBLISHED[algo]), key=lambda a: PUBLISHED[a][name] is not None)
    own = PUBLISHED[owner][name]
    if isinstance(own, bool):
        other: Any = not own
    elif isinstance(own, str):
        other = {"mc": "gae", "convex": "exact", "mean_over_dims": "sum_over_dims", "sum": "first-hit"}[own]
    else:
        other = own + 1 if isinstance(own, int) else own / 2 if own else 1e-3
    for fidelity in ("paper", "corrected"):
        given = of_the_method(algo=owner, fidelity=fidelity, **{name: other})
        assert given[name] == other
        assert given == of_the_method(algo=owner, fidelity=fidelity) | {name: other}


def test_a_config_made_of_all_its_settings_is_the_same() -> None:
    for algo in PUBLISHED:
        once = TrainConfig(algo=algo, fidelity="corrected")
        assert TrainConfig(**once.settings()) == once


# ---- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", PUBLISHED)
def test_hyphens_underscores_and_capitals_are_alike(algo: str) -> None:
    spellings = {algo, algo.replace("_", "-"), algo.replace("-", "_"), algo.upper()}
    assert {TrainConfig(algo=spelling).algo for spelling in spellings} == {algo}
    assert len({TrainConfig(algo=spelling).digest() for spelling in spellings}) == 1


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("ppolag", "there is no algorithm 'ppolag'; did you mean ppo_lag or .*`sbtrpo algorithms` lists all of them"),
        ("c-trop", "there is no algorithm 'c-trop'; did you mean c_trpo"),
        ("xyzzy", "there is no algorithm 'xyzzy'; `sbtrpo algorithms` lists all of them"),
    ],
)
def test_an_unknown_algorithm_is_named_with_the_nearest_ones(wrong: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(algo=wrong)


# ---- digests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", PUBLISHED)
def test_a_default_that_is_written_out_has_the_digest_of_one_left_open(algo: str) -> None:
    assert TrainConfig(algo=algo, **PUBLISHED[algo]).digest() == TrainConfig(algo=algo).digest()
    assert TrainConfig(algo=algo, fidelity="paper").digest() == TrainConfig(algo=algo).digest()


def test_digests_tell_settings_apart_but_not_what_does_not_change_a_run() -> None:
    base = TrainConfig(algo="cup")
    same: list[dict[str, Any]] = [{"seed": 5}, {"threads": 2}, {"keep_last": 9}, {"checkpoint_every": 3}]
    other: list[dict[str, Any]] = [
        {"algo": "ppo_lag"}, {"multiplier_max": 2.0}, {"cost_limit": 25.0}, {"fidelity": "corrected"}, {"gamma": 0.9},
    ]  # fmt: skip
    digests = {base.replace(**change).digest() for change in other}
    assert {base.replace(**change).digest() for change in same} == {base.digest()}
    assert len(digests | {base.digest()}) == len(other) + 1


# ---- what cannot be meant ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"algo": "cpo", "cost_limit": -1.0}, "cost_limit must be >= 0, got -1.0; use 0 for a hard constraint"),
        ({"algo": "ppo", "clip": 1.5}, "clip must be between 0 and 1, got 1.5"),
        ({"algo": "ppo", "policy_batch": 0}, "policy_batch must be at least 1, got 0"),
        ({"algo": "ppo_lag", "multiplier_rate": -0.1}, "multiplier_rate must be at least 0, got -0.1"),
        ({"algo": "ppo", "learning_rate": 0.0}, "learning_rate must be above 0, got 0.0"),
        ({"beta": 1.1}, "beta must be between 0"),
        ({"algo": "pcrpo", "slack_above": -1.0, "slack_below": 1.0}, "slack_below .* must not lie above slack_above"),
        ({"slack_above": -6.0, "algo": "pcrpo"}, "slack_below .* must not lie above slack_above"),
        ({"steps_per_epoch": 999}, "steps_per_epoch must be a multiple of num_envs"),
        ({"total_steps": 100}, "must hold at least one epoch"),
        ({"hidden": ()}, "hidden must name at least one layer"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_in_a_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(**settings)


@pytest.mark.parametrize("algo", ["cup", "c_trpo"])
def test_methods_that_divide_by_one_minus_gamma_refuse_a_gamma_of_one(algo: str) -> None:
    with pytest.raises(ValueError, match="gamma"):
        TrainConfig(algo=algo, gamma=1.0)
    assert TrainConfig(algo="p3o", gamma=1.0).gamma == 1.0
