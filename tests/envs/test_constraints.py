"""Constraints: which costs a selection means, and what each of them is in a step."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import sbtrpo
from sbtrpo.envs.constraints import Constraints, make_constraints
from sbtrpo.envs.spec import cost_names

NAMES = ("cost_hazards", "cost_vases_contact", "cost_vases_velocity")
COMPONENTS = {
    "cost_hazards": [0.0, 1.0, 0.0, 0.0],
    "cost_vases_contact": [0.0, 1.0, 1.0, 0.0],
    "cost_vases_velocity": [0.0, 0.0, 1.0, 1.0],
}
TOTAL = [0.0, 1.0, 1.0, 1.0]


def as_arrays(make: Any) -> tuple[Any, dict[str, Any]]:
    return make(TOTAL), {name: make(values) for name, values in COMPONENTS.items()}


# ---- names and costs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "names", "costs"),
    [
        ("sum", ("cost",), [TOTAL]),
        ("each", ("hazards", "vases_contact", "vases_velocity"), list(COMPONENTS.values())),
        ("vases_velocity", ("vases_velocity",), [COMPONENTS["cost_vases_velocity"]]),
        (
            "hazards vases_contact+vases_velocity",
            ("hazards", "vases_contact+vases_velocity"),
            [COMPONENTS["cost_hazards"], [0.0, 1.0, 1.0, 1.0]],
        ),
        ("vases_velocity+cost_hazards", ("vases_velocity+hazards",), [[0.0, 1.0, 1.0, 1.0]]),
        ("cost_hazards", ("hazards",), [COMPONENTS["cost_hazards"]]),
    ],
)
@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_a_selection_gives_names_and_costs(selection: str, names: tuple[str, ...], costs: Any, make: Any) -> None:
    cost, info = as_arrays(make)
    for words in (selection, selection.split()):
        constraints = make_constraints(words, NAMES)
        assert constraints.names == names
        given = constraints.costs(cost, info)
        assert [array.tolist() for array in given] == costs
        assert all(type(array) is type(cost) for array in given)


def test_sum_is_the_cost_itself() -> None:
    cost, info = as_arrays(np.asarray)
    assert make_constraints(["sum"], NAMES).costs(cost, info)[0] is cost
    assert make_constraints(["sum"], ()).costs(cost, {})[0] is cost


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_costs_that_are_real_numbers_add_up(make: Any) -> None:
    info = {"cost_a": make([0.5, 0.0]), "cost_b": make([0.25, 3.0])}
    constraints = make_constraints(["a+b"], ["cost_a", "cost_b"], binary=False)
    assert constraints.costs(make([9.0, 9.0]), info)[0].tolist() == [0.75, 3.0]


def test_a_name_may_have_a_plus() -> None:
    assert make_constraints(["a+b", "a"], ["cost_a", "cost_a+b"]).components == (("cost_a+b",), ("cost_a",))


def test_the_total_under_safety_gymnasiums_name_is_no_component() -> None:
    names = ["cost_hazards", "cost_sum"]
    assert make_constraints(["each"], names) == Constraints(("hazards",), (("cost_hazards",),))
    assert make_constraints(["sum"], names).names == ("cost",)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        ([], "constraints must not be empty; use sum (the total cost), each, or names of cost components"),
        ("", "constraints must not be empty"),
        (
            ["hazrds"],
            "constraints must be sum, each, or names of this task's cost components (hazards, vases_contact,"
            " vases_velocity), got 'hazrds'; did you mean hazards?",
        ),
        (["hazards", "vases_contact+vase_velocity"], "got 'vase_velocity'; did you mean vases_velocity?"),
        (["hazards", "vases_contact+hazards"], "'hazards' is named twice, in hazards and in vases_contact+hazards"),
        (["hazards", "hazards"], "'hazards' is named twice, in hazards; name it once"),
        (["hazards", "cost_hazards"], "'hazards' is named twice, in hazards; name it once"),
        (["hazards+hazards"], "'hazards' is named twice, in hazards+hazards; name it once"),
        (["sum", "hazards"], "'sum' cannot be combined with others, got 'sum hazards'; use it alone"),
        (["hazards", "each"], "'each' cannot be combined with others, got 'hazards each'"),
        (["each", "sum"], "'each' cannot be combined with others, got 'each sum'"),
        (["hazards+"], "'hazards+' lacks a name; join components as in hazards+vases_contact"),
        (["+"], "'+' lacks a name"),
    ],
)
def test_a_selection_that_cannot_be_meant_is_refused_in_one_sentence(selection: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        make_constraints(selection, NAMES)
    assert "\n" not in str(error.value)


def test_a_name_like_no_other_is_answered_with_the_list_alone() -> None:
    with pytest.raises(ValueError, match=r"\(hazards, vases_contact, vases_velocity\), got 'xyz'$"):
        make_constraints(["xyz"], NAMES)


@pytest.mark.parametrize("selection", ["each", "hazards"])
def test_a_task_without_components_has_but_its_sum(selection: str) -> None:
    with pytest.raises(ValueError, match=f"'{selection}' need cost components, and this task has none; use sum"):
        make_constraints(selection, ())


# ---- pools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["SafetyPointGoal2-v0", "SafetyHopperVelocity-v1", "ToyCorridor-v0"])
def test_constraints_of_a_pool_are_known_before_its_first_step(task: str) -> None:
    pool = sbtrpo.make_pool(task, num_worlds=2)
    constraints = make_constraints(["each"], pool)
    assert tuple(f"cost_{name}" for name in constraints.names) == pool.task.cost_names == cost_names(pool.spec)
    assert constraints == make_constraints(["each"], cost_names(pool.spec))


def test_a_group_of_all_components_costs_what_a_step_costs() -> None:
    pool = sbtrpo.make_pool("SafetyPointGoal2-v0", num_worlds=20, seed=0)
    every = make_constraints(["hazards+vases_contact+vases_velocity"], pool)
    pool.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    actions[:, 0] = 1.0  # straight on, into whatever is there
    several, costly = 0, 0
    for _ in range(100):
        _, _, cost, _, _, info = pool.step(actions)
        np.testing.assert_array_equal(every.costs(cost, info), [cost])
        costly += int(cost.sum())
        several += int((sum(info[name] for name in pool.task.cost_names) > 1).sum())
    assert costly > several > 0  # so that a sum would not do
