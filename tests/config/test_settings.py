"""Every setting says what it means and what it may be, and a run's digest is that of the settings in effect."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from sbtrpo.algorithms import FirstOrderSettings, TrustRegionSettings
from sbtrpo.config import TrainConfig, catalogue
from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import Declared, declared, for_each, members, setting
from sbtrpo.config.train import all_settings

METHODS = list(catalogue.BUILT_IN)
CLASSES = {"RunSettings": RunSettings} | {name: catalogue.method(name).settings for name in METHODS}

every_method = pytest.mark.parametrize("algo", METHODS)
every_class = pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)


def another(item: Declared, value: Any) -> Any:
    """A value that is not this one, and within the bounds."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        words = (
            "corrected",
            "gae",
            "mc",
            "exact",
            "first-hit",
            "sum",
            "sum_over_dims",
            "apart",
            "cpu",
            "relu",
            "cnn",
            "orthogonal",
            "best",
            "steady",
            "running",
            "worlds",
        )
        return next(word for word in words if word != value and _allowed(item, word))
    if isinstance(value, tuple):
        return (*value, value[0])
    return next(other for other in ((value or 0) + 1, (value or 0) / 2 + 1e-3) if _allowed(item, other))


def _allowed(item: Declared, value: Any) -> bool:
    try:
        return item.checked(value) == value
    except ValueError:
        return False


# ---- what is declared ----------------------------------------------------------------------------------------------


@every_class
def test_defaults_satisfy_their_own_bounds(kind: Any) -> None:
    for item in declared(kind).values():
        values = [item.default, item.rule.corrected] if item.is_quirk else [item.default]
        for value in values:
            assert (value is None and type(None) in members(item.hint)) or item.checked(value) == value
    for settings in getattr(kind, "per_task", {}).values():
        for name, value in settings.items():
            assert declared(kind)[name].checked(value) == value


@every_class
def test_every_setting_says_what_it_means(kind: Any) -> None:
    for name, item in declared(kind).items():
        if name in ("seed", "total_steps"):
            continue
        assert item.meaning.endswith("."), name
        assert not item.is_quirk or item.rule.quirk.endswith("."), name


@every_method
def test_no_method_declares_a_setting_of_the_run_or_of_the_commands(algo: str) -> None:
    names = set(declared(catalogue.method(algo).settings))
    assert not names & {*declared(RunSettings), *catalogue.RESERVED}


def test_a_setting_is_of_one_kind_and_has_the_same_bounds_in_all_methods() -> None:
    kinds: dict[str, set[str]] = {}
    for algo in METHODS:
        for name, item in declared(catalogue.method(algo).settings).items():
            rule = item.rule
            bounds = rule.least, rule.most, rule.above, rule.below
            kinds.setdefault(name, set()).add(repr((item.hint, bounds)))
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}


def test_another_default_keeps_rule_and_meaning_and_another_rule_replaces_it() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mine(TrustRegionSettings):
        """Of a method of one's own."""

        target_kl: float = 0.05
        cg_damping: float = setting(0.2, least=0.1)
        reach: float = setting(1.0, above=0, below=2, span="in (0, 2)", advice="1 is plain")

    items, usual = declared(Mine), declared(TrustRegionSettings)
    assert items["target_kl"].rule == usual["target_kl"].rule
    assert items["target_kl"].meaning == usual["target_kl"].meaning
    assert items["cg_damping"].meaning == usual["cg_damping"].meaning
    with pytest.raises(ValueError, match=r"cg_damping must be at least 0\.1, got 0\.05"):
        items["cg_damping"].checked(0.05)
    with pytest.raises(ValueError, match=r"reach must be in \(0, 2\), got 2\.0; 1 is plain"):
        items["reach"].checked(2)
    assert list(items)[-1] == "reach"


def test_families_differ_in_what_they_have() -> None:
    trust_region, first_order = declared(TrustRegionSettings), declared(FirstOrderSettings)
    assert "cg_damping" in trust_region
    assert "cg_damping" not in first_order
    assert (trust_region["max_grad_norm"].rule.needs, first_order["max_grad_norm"].rule.needs) == ("critics", None)


# ---- what a setting may be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1, got 0"),
        ({"keep_last": 0}, "keep_last must be at least 1, got 0"),
        ({"keep_every": -1}, "keep_every must be at least 0, got -1"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"line_search_first": -1}, "line_search_first must be above 0, got -1.0"),
        ({"line_search_first": 0}, "line_search_first must be above 0, got 0.0"),
        ({"line_search_fraction": 1}, "line_search_fraction must be in (0, 1), got 1.0"),
        ({"critic_l2": -1}, "critic_l2 must be at least 0, got -1.0"),
        ({"gamma": 0}, "gamma must be in (0, 1], got 0.0"),
        ({"gamma": 1.01}, "gamma must be in (0, 1], got 1.01"),
        ({"epoch_growth": -0.1}, "epoch_growth must be between 0 and 1, got -0.1"),
        ({"epoch_growth": 2}, "epoch_growth must be between 0 and 1, got 2.0"),
        ({"epoch_growth": math.nan}, "epoch_growth must be a number, got nan"),
        ({"hidden": (64, 0)}, "hidden must be at least 1, got (64, 0)"),
        ({"beta": (0.5, 1.5)}, "beta must be between 0 (reward only) and 1 (cost only), got (0.5, 1.5)"),
        ({"beta_end": 1.5}, "beta_end must be between 0 and 1, got 1.5"),
        ({"beta_end": (0.5, -1)}, "beta_end must be between 0 and 1, got (0.5, -1.0)"),
        ({"beta_end": "high"}, "beta_end must be a number or a list of numbers, got 'high'"),
        ({"beta_end": ()}, "beta_end must name at least one value, got ()"),
        ({"beta_end": 0.9, "beta_from": 1}, "beta_from must be in [0, 1), got 1.0"),
        ({"critic_l2": math.nan}, "critic_l2 must be a number, got nan"),
        ({"beta": math.nan}, "beta must be a number or a list of numbers, got nan"),
        ({"beta": (0.5, math.nan)}, "beta must be a number or a list of numbers, got (0.5, nan)"),
        ({"algo": "pcrpo", "slack_above": math.nan}, "slack_above must be a number, got nan"),
        ({"beta": ()}, "beta must name at least one value, got ()"),
        ({"constraints": []}, "constraints must name at least one value, got ()"),
        ({"constraints": [3]}, "constraints must be a list of texts, got [3]"),
        ({"num_envs": "four"}, "num_envs must be a whole number, got 'four'"),
        ({"num_envs": 4.0}, "num_envs must be a whole number, got 4.0"),
        ({"num_envs": True}, "num_envs must be a whole number, got True"),
        ({"task": {"robot": "point"}}, "task must be a text, got {'robot': 'point'}"),
        ({"algo": ["cpo"]}, "algo must be a text, got ['cpo']"),
        ({"fidelity": "corected"}, "fidelity must be one of paper, corrected, got 'corected'; did you mean corrected?"),
        ({"algo": "cpo", "cpo_as_published": 1}, "cpo_as_published must be true or false, got 1"),
        ({"hidden": 64}, "hidden must be a list of whole numbers, got 64"),
        ({"hidden": None}, "hidden must be a list of whole numbers, got None"),
        ({"task": None}, "task must be a text, got None"),
        ({"algo": None}, "algo must be a text, got None"),
        ({"seed": None}, "seed must be a whole number, got None"),
        ({"beta": None}, "beta must be a number or a list of numbers, got None"),
        ({"algo": "focops", "multiplier_max": None}, "multiplier_max must be a number, got None"),
        ({"fidelity": None}, "fidelity must be one of paper, corrected, got None"),
        (
            {"algo": "cpo", "beta": 0.5},
            "cpo has no setting beta; sb-trpo, sb-trpo_rcritic, sb-trpo_critic, sb-trpo_annealed, sb-trpo_paced,"
            " sb-trpo_growing, sb-trpo_hits, sb-trpo_late_hits and sb-trpo_polished have it",
        ),
        ({"init_which": "x"}, "init_which must be one of last, best or a whole number, got 'x'"),
        ({"init_which": -1}, "init_which must be at least 0, got -1"),
        ({"init_which": 3}, "init_which names a checkpoint of the run in init_from; give that, too"),
        ({"algo": "cpo", "sigma": 0.5}, "cpo has no setting sigma; appo has it"),
    ],
)  # fmt: skip
def test_what_a_setting_cannot_be_is_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        TrainConfig(**settings)
    assert str(caught.value) == sentence


def test_an_unknown_setting_is_named_with_the_nearest_ones() -> None:
    with pytest.raises(ValueError, match=r"there is no setting 'bata'; did you mean beta.*`sbtrpo train --help` lists"):
        TrainConfig(bata=0.5)


def test_numbers_lists_and_words_become_what_the_setting_has() -> None:
    config = TrainConfig(beta=1, hidden=[8, 4], constraints="each", seed=np.int64(3), target_kl=np.float32(0.5))
    assert (config.get("beta"), config.hidden, config.constraints) == (1.0, (8, 4), ("each",))
    assert [type(config.get(name)) for name in ("beta", "seed", "target_kl")] == [float, int, float]


def test_a_value_for_each_constraint_fits_their_number() -> None:
    assert for_each("beta", 0.5, 3) == (0.5, 0.5, 0.5)
    assert for_each("beta", (0.6, 0.9), 2) == (0.6, 0.9)
    with pytest.raises(ValueError, match="beta has 2 values, and there is 1 constraint; give one value, or one for"):
        for_each("beta", (0.6, 0.9), 1)


def test_other_values_replace_some_and_none_takes_one_back() -> None:
    config = TrainConfig(algo="cpo", seed=3, cg_damping=0.5)
    assert config.replace(seed=4).settings() == {**config.settings(), "seed": 4}
    assert config.replace(cg_damping=None) == TrainConfig(algo="cpo", seed=3)
    assert config.replace(fidelity="corrected").get("cpo_as_published") is False
    with pytest.raises(ValueError, match="ppo has no setting cg_damping"):
        config.replace(algo="ppo")
    with pytest.raises(ValueError, match="no setting 'method'"):  # it would lose the method's settings
        dataclasses.replace(config, seed=4)


# ---- digests -------------------------------------------------------------------------------------------------------


@every_method
def test_every_setting_in_effect_makes_another_digest_and_no_other(algo: str) -> None:
    """A default that is written out, what does not shape the run and what has no effect all leave it as it is."""
    config = TrainConfig(algo=algo, num_envs=1, evaluate_every=1, init_from="gone.safetensors")
    for name, item in all_settings(catalogue.method(algo)).items():
        value = config.get(name)
        assert config.replace(**{name: value}).digest() == config.digest()
        if name != "algo":
            fit = {"advantage": "mc"} if name == "network" else {}  # the linear baseline is none of images
            changed = config.replace(**{name: another(item, value)}, **fit)
            assert (changed.digest() != config.replace(**fit).digest()) is (name in config.in_effect()), name


def test_the_settings_of_where_and_how_a_run_runs_are_not_in_effect() -> None:
    left_out = set(declared(RunSettings)) - set(TrainConfig().in_effect())
    where = {"engine", "device", "threads", "learner_threads"}
    operational = {*where, "env_timeout", "keep_last", "keep_every", "checkpoint_every", "halves_every"}
    evaluations = {"evaluate_every", "evaluate_episodes"}  # unless the run is to stop by them
    idle = {"grow_by"}  # unless epochs grow
    assert left_out == {
        "seed",
        "init_which",
        *operational,
        *evaluations,
        *idle,
    }  # the policy itself counts, not its name


@pytest.mark.parametrize(
    ("advantage", "needs"),
    [
        ("mc", ""),
        ("mc-linear", "baseline"),
        ("gae-reward", "critics"),
        ("gae", "critics"),
        ("off-policy-cost", "off-policy"),
        ("off-policy", "off-policy"),
    ],
)
@every_method
def test_settings_of_an_estimate_of_advantages_count_where_there_is_such(algo: str, advantage: str, needs: str) -> None:
    config = TrainConfig(algo=algo, advantage=advantage)
    for name, item in declared(catalogue.method(algo).settings).items():
        hits = algo in ("sb-trpo_hits", "sb-trpo_late_hits", "sb-trpo_polished")
        counts = {"first-hit": hits, "beta-end": False, None: True}.get(item.rule.needs, item.rule.needs == needs)
        assert (name in config.in_effect()) is counts
        if item.rule.needs:
            given = config.replace(**{name: another(item, config.get(name))})
            assert list(given.without_effect()) == ([] if counts else [name])
            assert (given.digest() != config.digest()) is counts


def test_folders_of_runs_whose_bias_stays_keep_their_names() -> None:
    assert TrainConfig(beta_end=None, beta_from=0.5).digest() == TrainConfig().digest() == "c1727b58"
    moving = [TrainConfig(beta_end=0.9), TrainConfig(beta_end=0.8), TrainConfig(beta_end=0.9, beta_from=0.5)]
    assert len({config.digest() for config in [TrainConfig(), *moving]}) == 4
    assert [list(config.without_effect()) for config in moving] == [[], [], []]
    assert TrainConfig(beta_from=0.5).without_effect() == {"beta_from": "beta_end"}
