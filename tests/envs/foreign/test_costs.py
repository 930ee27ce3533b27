"""Several costs of a foreign environment: how they are read, called and summed, and what is refused."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sbtrpo.envs.constraints import make_constraints
from sbtrpo.envs.foreign import tryout
from sbtrpo.envs.foreign.check import check_environment
from sbtrpo.envs.foreign.environment import UnfitEnvironment
from sbtrpo.envs.foreign.findings import CheckReport
from sbtrpo.envs.foreign.world import FIXED, World
from tests.envs.foreign.test_pool import pool_of
from tests.envs.foreign.worlds import LENGTH, name_of

LEFT = [0.5, 0.0]
"""Cost of `left` in the first and second step."""
BOTH_IN_TURN = [[0.5, 0.25], [0.0, 0.25]]


def play(what: str, steps: int = 2) -> tuple[tuple[str, ...], Any]:
    """Names of the components, and for each step the total cost with the components."""
    world = World(name_of(what))
    costs = world.describe(0).costs
    world.reset(0)
    rows = [world.step(np.zeros(1), costs) for _ in range(steps)]
    return costs.names, [[row[FIXED.index("cost")], *row[len(FIXED) : len(FIXED) + len(costs.names)]] for row in rows]


@pytest.mark.parametrize(
    ("what", "names", "components"),
    [
        ("vector", ("cost_0", "cost_1"), BOTH_IN_TURN),
        ("six costs", ("cost_0", "cost_1"), BOTH_IN_TURN),
        ("list", ("cost_0", "cost_1"), [[0.5, 0.0], [0.0, 0.0]]),
        ("named", ("cost_left", "cost_right"), BOTH_IN_TURN),
        ("named one", ("cost_left",), [[0.5], [0.0]]),
        ("entries", ("cost_left", "cost_right"), BOTH_IN_TURN),  # and not cost_sum
        ("one entry", ("cost_left",), [[0.5], [0.0]]),
        ("beside a vector", ("cost_0", "cost_1"), [[0.5, 0.0], [0.0, 0.0]]),
    ],
)
def test_the_total_is_the_sum_of_several_costs(what: str, names: tuple[str, ...], components: Any) -> None:
    assert play(what) == (names, [[sum(values), *values] for values in components])


def test_a_vector_of_one_without_a_name_is_a_number() -> None:
    assert play("vector of one") == (("cost_left",), [[0.5, 0.5], [0.0, 0.0]])


@pytest.mark.parametrize("what", ["vector", "six costs", "named", "entries"])
def test_a_pool_knows_its_components_before_the_first_step(what: str) -> None:
    with pool_of(name_of(what), 2, threads=1) as pool:
        names = pool.task.cost_names
        each, together = make_constraints("each", pool), make_constraints(["+".join(names)], pool)
        pool.reset()
        results = [pool.step(np.zeros((2, 1))) for _ in range(LENGTH)]
    for k, (_, _, cost, _, _, info) in enumerate(results):
        expected = [LEFT[k % 2], 0.25]
        np.testing.assert_array_equal(cost, [sum(expected)] * 2)
        np.testing.assert_array_equal(each.costs(cost, info), [[value] * 2 for value in expected])
        np.testing.assert_array_equal(together.costs(cost, info), [cost])  # real numbers add up
    episode = results[-1][-1]["episode"]
    np.testing.assert_array_equal(episode["cost"], [LENGTH * 0.5] * 2)
    for name in names:
        np.testing.assert_array_equal(episode[name], [LENGTH * 0.25] * 2)


def test_a_plain_cost_leaves_nothing_to_constrain_one_by_one() -> None:
    with pool_of(name_of("rooms"), 1, threads=1) as pool:
        assert make_constraints(["sum"], pool).names == ("cost",)
        with pytest.raises(ValueError, match="'each' need cost components, and this task has none; use sum"):
            make_constraints(["each"], pool)


REFUSED = [
    ("growing", "a step's cost was a vector of 3, the first step's a vector of 2; give every cost in every step"),
    ("grown up", "a step's cost was a vector of 2, the first step's a number"),
    ("shrinking", "a step's cost was a number, the first step's a vector of 2"),
    ("deep", r"a step's cost was an array of shape \(2, 2\), the first step's a vector of 2"),
    ("misnamed", r"cost_names has 3 names \(left, middle, right\), but the cost is a vector of 2; give a name to each"),
    ("one word", "cost_names must be a list or tuple of strings, got 'ab'"),
    ("twins", "cost_names must be different words other than 'sum', which is the total, got left, cost_left"),
    ("total", "cost_names must be different words other than 'sum', which is the total, got left, sum"),
    ("empty", "the cost is an empty vector"),
    ("text in a vector", r"the cost must be a number or a vector of numbers, got \[0.0, 'much'\]"),
    ("lost entry", "a step gave cost_left, the first step cost_left, cost_right; give every cost in every step"),
    ("new entry", "a step gave cost_left, cost_right, the first step cost_left; give every cost in every step"),
    ("late cost", r'a step gave info\["cost"\] and the first step did not; give it in every step, or in none'),
    ("array entry", r'info\["cost_right"\] is no number, and without info\["cost"\] all info\["cost_..."\] are summed'),
]


@pytest.mark.parametrize(("what", "sentence"), REFUSED)
def test_costs_that_change_their_meaning_are_refused(what: str, sentence: str) -> None:
    with pytest.raises(UnfitEnvironment, match=sentence):
        play(what)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("negative in a vector", "a step cost -1 in cost_1; costs must be >= 0"),
        ("negative entry", "a step cost -1 in cost_right; costs must be >= 0"),
        ("vanishing", r'a step gave no cost; put info\["cost"\] into every step'),
    ],
)
def test_no_cost_makes_up_for_another_one(what: str, sentence: str) -> None:
    with pytest.raises(UnfitEnvironment, match=sentence):
        play(what)


@pytest.mark.parametrize("what", ["nan in a vector", "nan entry", "nan component"])
def test_a_component_that_is_not_finite_is_a_fault(what: str) -> None:
    with pool_of(name_of(what), 1, threads=1) as pool:
        pool.reset()
        for _ in range(2):
            pool.step(np.zeros((1, 1)))
        with pytest.warns(RuntimeWarning, match="an observation, reward or cost was not finite"):
            _, _, cost, _, truncated, info = pool.step(np.zeros((1, 1)))
    assert truncated.all()
    assert info["fault"].all()
    assert [cost[0], *(info[name][0] for name in pool.task.cost_names)] == [0.0] * (1 + len(pool.task.cost_names))


# ---- sbtrpo check ----------------------------------------------------------------------------------------------------


@pytest.fixture
def _slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a millisecond, however busy the machine is."""
    ticks = itertools.count()
    monkeypatch.setattr(tryout, "time", SimpleNamespace(perf_counter=lambda: next(ticks) / 1000))


def report_on(what: str) -> CheckReport:
    return check_environment(name_of(what), 0.05, isolated=False)


@pytest.mark.usefixtures("_slow_clock")
@pytest.mark.parametrize(
    ("what", "names"),
    [("vector", "01"), ("six costs", "01"), ("named", ("left", "right")), ("entries", ("left", "right"))],
)
def test_check_tells_what_the_cost_is_the_sum_of(what: str, names: tuple[str, ...]) -> None:
    report = report_on(what)
    assert report.ok
    notes = [finding.message for finding in report.findings if finding.severity == "note"]
    first, second = (f"cost_{name} (above 0 in" for name in names)
    assert f"the cost is the sum of {first} 52.2% of the steps), {second} 100.0% of the steps)" in notes


@pytest.mark.usefixtures("_slow_clock")
def test_check_says_nothing_of_sums_where_there_are_none() -> None:
    assert not any("sum" in finding.message for finding in report_on("vector of one").findings)


@pytest.mark.usefixtures("_slow_clock")
@pytest.mark.parametrize(("what", "sentence"), REFUSED)
def test_check_refuses_what_training_refuses(what: str, sentence: str) -> None:
    findings = report_on(what).findings
    assert findings[0].severity == "error"
    with pytest.raises(UnfitEnvironment, match=sentence):
        raise UnfitEnvironment(findings[0].message)


@pytest.mark.usefixtures("_slow_clock")
@pytest.mark.parametrize(
    ("what", "severity", "said", "remedy"),
    [
        ("nan in a vector", "error", "cost_1 was nan in step 3 of an episode", "find what divides by 0"),
        ("nan entry", "error", "cost_right was nan in step 3 of an episode", "find what divides by 0"),
        ("nan component", "error", "cost_left was nan in step 3 of an episode", "find what divides by 0"),
        ("negative in a vector", "error", "cost_1 was -1 in step 2 of an episode", "costs are >= 0"),
        ("negative entry", "error", "cost_right was -1 in step 2 of an episode", "costs are >= 0"),
        ("vanishing", "error", 'no cost in step 2 of an episode: info has no "cost"', 'put info["cost"] into'),
        ("negative component", "warning", "cost_left was -1 in step 3", "make it >= 0 if it is to be a constraint"),
        ("late component", "warning", 'info["cost_left"] came first in step 3', "give every cost component in every"),
        ("beside a vector", "warning", 'info["cost_left"] is not read, because the cost', "make it an entry of the"),
    ],
)
def test_check_names_the_component(what: str, severity: str, said: str, remedy: str) -> None:
    worst = report_on(what).findings[0]
    assert worst.severity == severity
    assert said in worst.message
    assert remedy in worst.remedy
