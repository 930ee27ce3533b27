"""Which methods are compared on which tasks: the largest table without a gap."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrpo.benchmark import statistics
from sbtrpo.benchmark.statistics import common_tasks

Tasks = dict[str, list[str]]


def brute_force(tasks: Tasks) -> tuple[list[str], list[str]]:
    """The best of the tables of all sets of methods: the largest, then the one with most tasks, then the first."""
    methods = [method for method in tasks if tasks[method]]
    tables = []
    for count in range(min(2, len(methods)), len(methods) + 1):
        for chosen in itertools.combinations(range(len(methods)), count):
            shared = set.intersection(*(set(tasks[methods[k]]) for k in chosen)) if chosen else set()
            if shared:
                tables.append((-count * len(shared), -len(shared), chosen, sorted(shared)))
    if not tables:
        return [], []
    _, _, chosen, shared = min(tables)
    return [methods[k] for k in chosen], shared


@given(st.lists(st.sets(st.sampled_from("rstuvwx")), max_size=7))
@settings(max_examples=400, deadline=None)
def test_it_is_the_largest_that_all_sets_of_methods_give(sets: list[set[str]]) -> None:
    tasks = {f"m{k}": sorted(names) for k, names in enumerate(sets)}
    assert common_tasks(tasks) == brute_force(tasks)


def test_three_methods_that_share_four_tasks_come_before_two_that_share_five() -> None:
    four = ["a", "b", "c", "d"]
    tasks = {"one": [*four, "e", "f"], "two": [*four, "e", "g"], "three": [*four, "f", "g"]}
    assert common_tasks(tasks) == (["one", "two", "three"], four)


@pytest.mark.parametrize("size", [8, 10])
def test_of_equal_tables_the_one_whose_methods_are_named_first_counts(size: int) -> None:
    everything = [f"t{k:02}" for k in range(size)]
    tasks = {f"m{k:02}": [name for name in everything if name != f"t{k:02}"] for k in range(size)}
    methods, shared = common_tasks(tasks)
    assert methods == sorted(tasks)[: size // 2]
    assert shared == everything[size // 2 :]


def test_a_search_that_has_to_be_cut_short_still_gives_a_table_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    tasks = {f"m{k}": [f"t{j}" for j in range(20) if draw.random() < 0.7] for k in range(20)}
    whole = common_tasks(tasks)
    monkeypatch.setattr(statistics, "MOST_SETS", 20)
    methods, shared = common_tasks(tasks)
    assert len(methods) > 1
    assert all(name in tasks[method] for method in methods for name in shared)
    assert 0.8 * len(whole[0]) * len(whole[1]) <= len(methods) * len(shared) <= len(whole[0]) * len(whole[1])
