"""A plan is exactly the runs that it says, each once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sbtrpo import TrainConfig
from sbtrpo.benchmark.command import make_plan
from sbtrpo.benchmark.plan import PLANS, Plan, run_path
from sbtrpo.cli.settings import given, grid_settings
from sbtrpo.config import catalogue
from sbtrpo.errors import UserError
from sbtrpo.runs.folder import default_path

PAPER_COMMAND = grid_settings([])(
    tasks=("SafetyHopperVelocity-v1", "SafetySwimmerVelocity-v1"),
    algo=("ppo_lag", "trpo_lag", "cpo", "cup", "sb-trpo"),
    num_envs=(20,),
    steps_per_epoch=(20_000,),
    total_steps=(20_000_000,),
    num_seeds=5,
    cost_limit=(0.0,),
    beta=(0.75,),
)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return path


def test_the_papers_command_is_fifty_runs() -> None:
    runs = make_plan(None, given(PAPER_COMMAND)).runs()
    assert len(runs) == 50
    assert {run.seed for run in runs} == {0, 1000, 2000, 3000, 4000}
    assert Counter(run.task for run in runs) == {"SafetyHopperVelocity-v1": 25, "SafetySwimmerVelocity-v1": 25}
    assert {run.get("beta") for run in runs if run.algo == "sb-trpo"} == {0.75}
    assert {run.epochs for run in runs} == {1000}


def test_a_setting_that_does_not_concern_an_algorithm_is_not_part_of_its_runs() -> None:
    runs = {run.algo: run for run in make_plan(None, given(PAPER_COMMAND)).runs()}
    plain = TrainConfig(task="SafetySwimmerVelocity-v1", algo="cpo", seed=4000)
    assert run_path("runs", runs["cpo"]) == default_path(plain)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("main", 12 * 8 * 5),
        ("cost_limit_15", (5 * 2 + 1) * 4 * 5),
        ("beta", (7 + 11) * 2 * 5),
        ("advantage", 3 * 4 * 5),
        ("long_button", 5),
        ("smoke", (3 + 2 + 4) * 2),
        ("circle_hopper", 4 * 2 * 2),
        ("frontier", 3 * 2 * 2),
        ("published", 8 * 3),
        ("annealed", 8 * 3),
        ("growing", 8 * 3),
        ("batches", 2 * 2 + 5 * 2 * 2),
        ("large_batches", 8 * 3),
        ("first_hits", 8 * 3),
        ("late_hits", 8 * 3),
        ("late_hits_100m", 8 * 3),
        ("betas", 8 * 3 * (2 + 1)),
        ("polished", 6 + 1),
        ("budget", 4 + 2 + 1),
        ("main_2m", 8 * 12 * 2),
        ("variants_2m", 2 * 2 * (5 + 2 + 2)),
        ("cpo_hopper", 2 * 2),
        ("far_cells", 2 * 2 + 1 + 2),
        ("ending", 2 * 2 * 2),
    ],
)
def test_the_plans_have_their_runs(name: str, count: int) -> None:
    runs = Plan.from_file(PLANS / f"{name}.toml").runs()
    assert len(runs) == count
    assert len({run_path("runs", run) for run in runs}) == count


def test_the_page_on_benchmarks_lists_all_plans_with_their_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmark.md").read_text("utf-8")
    told = {name: int(count) for name, count in re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.MULTILINE)}
    assert told == {path.stem: len(Plan.from_file(path).runs()) for path in PLANS.glob("*.toml")}


def test_a_plan_of_this_package_has_a_name_and_a_file_of_that_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("main").mkdir()  # a folder is no plan
    assert Plan.from_file("main") == Plan.from_file(PLANS / "main.toml")
    Path("smoke").write_text('tasks = ["ToyCorridor-v0"]')
    assert len(Plan.from_file("smoke").runs()) == 1


def test_the_plans_of_the_paper_share_the_runs_that_they_have_in_common() -> None:
    runs = {name: {run_path("", run) for run in Plan.from_file(PLANS / f"{name}.toml").runs()}
            for name in ("main", "cost_limit_15", "beta", "advantage")}  # fmt: skip
    assert len(runs["cost_limit_15"] & runs["main"]) == 6 * 4 * 5
    assert len(runs["beta"] & runs["main"]) == 12 * 2 * 5
    assert len(runs["advantage"] & runs["main"]) == 4 * 5


def test_the_long_run_is_two_and_a_quarter_times_the_usual_one() -> None:
    assert {run.total_steps for run in Plan.from_file(PLANS / "long_button.toml").runs()} == {45_000_000}


def test_groups_have_axes_of_their_own(tmp_path: Path) -> None:
    plan = Plan.from_file(
        write(
            tmp_path,
            'tasks = ["ToyCorridor-v0"]\nseeds = [0, 7]\n'
            '[[group]]\nalgo = "cpo"\ncost_limit = [0, 15]\n'
            '[[group]]\nalgo = "sb-trpo"\nbeta = [0.6, 0.9]\nsolver = ["convex", "exact"]\n',
        )
    )
    found = [(run.algo, *map(run.get, ("cost_limit", "beta", "solver", "seed"))) for run in plan.runs()]
    assert len(found) == 2 * (2 + 4)
    assert ("cpo", 15.0, None, None, 7) in found
    assert ("sb-trpo", None, 0.9, "exact", 0) in found


def test_runs_that_compute_the_same_are_one() -> None:
    plan = Plan.from_settings(
        {"task": "ToyCorridor-v0", "algo": ["sb-trpo", "sb_trpo", "trpo"], "baseline_ridge": [0, 1], "beta": 0.75}
    )
    assert [run.algo for run in plan.runs()] == ["sb-trpo", "trpo"]


@pytest.mark.parametrize(
    ("settings", "concerned"),
    [
        ({"algo": "ppo_lag", "multiplier_max": 5.0}, True),
        ({"algo": "cpo", "multiplier_max": 5.0}, False),
        ({"algo": "sb-trpo", "critic_passes": 3}, False),
        ({"algo": "sb-trpo", "advantage": "gae", "critic_passes": 3}, True),
        ({"algo": "sb-trpo", "advantage": "mc-linear", "baseline_ridge": 0.1}, True),
        ({"algo": "sb-trpo", "baseline_ridge": 0.1}, False),
        ({"algo": "ppo", "line_search_first": 0.8}, False),
        ({"algo": "trpo", "line_search_first": 0.8}, True),
    ],
)
def test_what_concerns_a_method_makes_another_run(settings: dict[str, Any], concerned: bool) -> None:
    *others, changed = settings
    algos = [settings["algo"], catalogue.owners(changed)[0]]  # in a plan with a method that has the setting
    run, *_ = Plan.from_settings({**settings, "algo": algos}).runs()
    without = TrainConfig(**{name: settings[name] for name in others})
    assert run.algo == settings["algo"]
    assert (run.digest() != without.digest()) is concerned


def test_a_setting_of_one_method_is_left_out_of_the_runs_of_the_others() -> None:
    plan = Plan.from_settings(
        {"algo": ["cpo", "sb-trpo", "ppo_lag"], "beta": [0.6, 0.9], "cost_limit": 15, "clip": 0.1}
    )
    assert [(run.algo, *map(run.get, ("beta", "cost_limit", "clip"))) for run in plan.runs()] == [
        ("cpo", None, 15.0, None),
        ("sb-trpo", 0.6, None, None),
        ("sb-trpo", 0.9, None, None),
        ("ppo_lag", None, 15.0, 0.1),
    ]
    assert all(run.given.keys() <= run.settings().keys() for run in plan.runs())


@pytest.mark.parametrize(
    "settings",
    [
        {"algo": ["cpo", "ppo_lag"], "beta": 0.6},
        {"algos": ["cpo"], "group": [{"cost_limit": 15}, {"beta": 0.6}]},
        {"algo": "sb-trpo", "group": [{"algos": ["cpo"], "beta": 0.6}]},
    ],
)
def test_a_setting_of_no_method_of_the_plan_is_refused(settings: dict[str, Any]) -> None:
    owners = ", ".join(name for name in catalogue.BUILT_IN if name.startswith("sb-trpo"))
    sentence = f"no algorithm of this plan has a setting beta, as {owners} would; leave it out"
    with pytest.raises(ValueError, match=sentence):
        Plan.from_settings(settings)


def test_a_group_that_names_no_algorithm_runs_the_default_one() -> None:
    plan = Plan.from_settings({"group": [{"beta": [0.6, 0.9]}, {"algo": "cpo", "cost_limit": 15}]})
    assert [run.algo for run in plan.runs()] == ["sb-trpo", "sb-trpo", "cpo"]


@pytest.mark.parametrize("name", ["algo", "algos"])
def test_algorithms_given_beside_a_plan_decide_which_settings_there_are(name: str) -> None:
    plan = Plan.from_settings({"algo": "sb-trpo", "beta": [0.6, 0.9]})
    assert [run.get("clip") for run in plan.replaced({name: ("ppo",), "clip": (0.1,)}).runs()] == [0.1]
    with pytest.raises(ValueError, match="no algorithm of this plan has a setting beta"):
        plan.replaced({name: ("ppo",), "beta": (0.7,)})


def test_lists_within_a_list_are_a_value_for_each_constraint() -> None:
    def betas(value: Any) -> list[Any]:
        settings = {"beta": value, "constraints": ["hazards", "vases_contact"]}
        return [run.get("beta") for run in Plan.from_settings(settings).runs()]

    assert betas([0.6, 0.9]) == [0.6, 0.9]
    assert betas([[0.6, 0.9]]) == [(0.6, 0.9)]
    assert betas([0.75, [0.6, 0.9]]) == [0.75, (0.6, 0.9)]


def test_constraints_are_one_value_and_lists_of_them_an_axis() -> None:
    def constraints(value: Any) -> list[Any]:
        return [run.constraints for run in Plan.from_settings({"constraints": value}).runs()]

    assert constraints("each") == [("each",)]
    assert constraints(["hazards", "vases_contact"]) == [("hazards", "vases_contact")]
    assert constraints([["sum"], ["hazards", "vases_contact"]]) == [("sum",), ("hazards", "vases_contact")]


def test_settings_given_beside_a_file_replace_its_own(tmp_path: Path) -> None:
    path = write(tmp_path, 'task = "ToyCorridor-v0"\nnum_seeds = 5\n[[group]]\nalgo = "sb-trpo"\nbeta = [0.6, 0.9]\n')
    plan = make_plan(path, {"num_seeds": 2, "beta": (0.7,)})
    assert [(run.get("beta"), run.seed) for run in plan.runs()] == [(0.7, 0), (0.7, 1000)]
    plan = make_plan(path, {"seeds": (3, 4)})
    assert {run.seed for run in plan.runs()} == {3, 4}
    assert {run.seed for run in make_plan(path, {"seeds": (3,)}).runs()} == {3}
    assert {run.seed for run in make_plan(path, {"seeds": (3,), "num_seeds": 2}).runs()} == {3, 1003}


def test_widths_of_layers_are_one_value_and_lists_of_them_an_axis() -> None:
    assert [run.hidden for run in Plan.from_settings({"hidden": [32, 32]}).runs()] == [(32, 32)]
    assert [run.hidden for run in Plan.from_settings({"hidden": [[32], [64, 64]]}).runs()] == [(32,), (64, 64)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bata": 0.7}, r"no setting 'bata'; did you mean beta"),
        ({"advantage": ["mc", "mcc"]}, r"advantage must be one of mc, .* got 'mcc'; did you mean mc\?"),
        ({"beta": "high"}, r"beta must be a number or a list of numbers, got 'high'"),
        ({"beta": [0.7, 2]}, r"beta must be between 0 .* got 2.0"),
        ({"algo": "cpo", "cost_limit": -1}, r"cost_limit must be >= 0, got -1.0; use 0"),
        ({"task": "SafetyPointGola2-v0"}, r"unknown task 'SafetyPointGola2-v0'; did you mean SafetyPointGoal2-v0"),
        ({"task": "sbtrpo:SafetyPointGola2-v0"}, r"unknown task 'SafetyPointGola2-v0'; did you mean"),
        ({"task": "C:/mine/task.toml"}, r"no task file 'C:/mine/task.toml'"),
        ({"algo": "cop"}, r"no algorithm 'cop'; did you mean"),
        ({"beta": []}, r"beta is an empty list"),
        ({"num_seeds": 0}, r"num_seeds must be one number, at least 1"),
        ({"seeds": [1, 2], "num_seeds": 2}, r"give seeds or num_seeds, not both"),
        (
            {"task": "SafetyPointGoal2-v0", "constraints": ["bogus"]},
            r"constraints must be sum, each, or names .*'bogus'",
        ),
        ({"task": "a", "tasks": ["b"]}, r"tasks is given twice"),
        ({"group": {"algo": "cpo"}}, r"write \[\[group\]\]"),
        ({"seed": 1.5}, r"seed must be a whole number, got 1.5"),
        ({"hidden": "64"}, r"hidden must be a list of whole numbers"),
    ],
)
def test_what_cannot_be_meant_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan.from_settings(settings)


def test_a_file_that_is_no_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"plan.toml is not TOML"):
        Plan.from_file(write(tmp_path, "beta = "))
    with pytest.raises(ValueError, match=r"plan.toml: there is no setting 'workers_'"):
        Plan.from_file(write(tmp_path, "workers_ = 3"))
    with pytest.raises(FileNotFoundError, match="there is no plan"):
        Plan.from_file(tmp_path / "none.toml")
    with pytest.raises(
        FileNotFoundError, match=r"there is no plan mian; .* or one of advantage, annealed, batches, beta, .*, main, "
    ):
        Plan.from_file("mian")
    with pytest.raises(ValueError, match="name a plan, such as main"):
        make_plan(None, {})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"beta": [[0.6, 0.9]]}, "beta has 2 values, and there is 1 constraint"),
        ({"beta": [[0.6, 0.9]], "constraints": "each"}, "beta has 2 values, and there are 3 constraints"),
        ({"algo": "cpo", "constraints": "each"}, "cpo takes one constraint; use `--constraints sum`"),
    ],
)
def test_constraints_that_a_run_cannot_have_are_told_before_it_begins(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, UserError), match=sentence):
        Plan.from_settings({"task": "SafetyPointGoal2-v0", **settings})
