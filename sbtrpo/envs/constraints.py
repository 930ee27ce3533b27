"""Cost constraints: one on the total cost, one on each cost component, or one on each group of components.

A selection is a list of words:

- `sum`: one constraint, on the total cost of a step.
- `each`: every cost component of the task is a constraint.
- names, such as `hazards vases_contact+vases_velocity`: each word is a constraint; `+` joins components to a group.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Protocol

from array_api_compat import array_namespace

from sbtrpo.envs.arrays import Array

SUM = "sum"
EACH = "each"
PREFIX = "cost_"
"""What the keys of cost components in `info` begin with."""
TOTAL = "cost_sum"
"""Safety Gymnasium's key for the total cost, which is no component."""


class HasCostNames(Protocol):
    """A task."""

    @property
    def cost_names(self) -> tuple[str, ...]:
        """The keys of its cost components in `info`."""


class HasCosts(Protocol):
    """A pool of worlds, of this package or of another one."""

    @property
    def task(self) -> HasCostNames:
        """What its worlds play."""

    @property
    def binary_costs(self) -> bool:
        """Whether every cost of a step is 0 or 1."""


@dataclass(frozen=True)
class Constraints:
    """Which costs are constrained.

    A component of this package's tasks is 0 or 1, and the total is 1 where any of them is 1. A group follows the same
    rule: it costs 1 where any of its components does. Costs of other packages are real numbers, and a group costs the
    sum of its components.

    >>> import numpy as np
    >>> constraints = make_constraints(["hazards", "pillars+vases"], ["cost_hazards", "cost_pillars", "cost_vases"])
    >>> info = {"cost_hazards": np.zeros(2), "cost_pillars": np.ones(2), "cost_vases": np.ones(2)}
    >>> dict(zip(constraints.names, constraints.costs(np.ones(2), info)))
    {'hazards': array([0., 0.]), 'pillars+vases': array([1., 1.])}
    """

    names: tuple[str, ...]
    components: tuple[tuple[str, ...], ...]
    """For each constraint the keys in `info` of its components; an empty tuple stands for the total cost."""
    binary: bool = True
    """Whether costs are 0 or 1."""

    def costs(self, cost: Array, info: Mapping[str, Any]) -> list[Array]:
        """Each constraint's cost of a step, (N,), from the `cost` and `info` that `Pool.step` returns."""
        return [self._cost(keys, cost, info) for keys in self.components]

    def _cost(self, keys: tuple[str, ...], cost: Array, info: Mapping[str, Any]) -> Array:
        if not keys:
            return cost
        values = [info[key] for key in keys]
        if len(values) == 1:
            return values[0]
        return reduce(array_namespace(*values).maximum if self.binary else add, values)


def make_constraints(
    selection: Sequence[str], pool_or_names: HasCosts | Sequence[str], binary: bool = True
) -> Constraints:
    """The constraints that a selection asks for.

    Args:
        selection: the words, or one string of them.
        pool_or_names: a pool, or the names of a task's cost components, with or without `cost_`.
        binary: whether costs are 0 or 1; a pool says so itself.

    Raises:
        ValueError: for a selection that the task cannot satisfy; its message says what to change.

    >>> make_constraints("each", ["cost_hazards", "cost_vases"]).names
    ('hazards', 'vases')
    """
    if isinstance(pool_or_names, Sequence):
        keys = tuple(pool_or_names)
    else:
        keys, binary = pool_or_names.task.cost_names, pool_or_names.binary_costs
    available = [key.removeprefix(PREFIX) for key in keys if key != TOTAL]
    words = selection.split() if isinstance(selection, str) else list(selection)
    _check_words(words, available)
    if words == [SUM]:
        return Constraints(("cost",), ((),), binary)
    groups = [[name] for name in available] if words == [EACH] else [_group(word, available) for word in words]
    _check_disjoint(groups)
    return Constraints(
        names=tuple("+".join(group) for group in groups),
        components=tuple(tuple(PREFIX + name for name in group) for group in groups),
        binary=binary,
    )


def _check_words(words: list[str], available: list[str]) -> None:
    if not words:
        raise ValueError("constraints must not be empty; use sum (the total cost), each, or names of cost components")
    keyword = next((word for word in words if word in (SUM, EACH)), None)
    if keyword is not None and len(words) > 1:
        raise ValueError(
            f"constraints: {keyword!r} cannot be combined with others, got {' '.join(words)!r}; use it alone, or leave"
            " it out"
        )
    if keyword != SUM and not available:
        raise ValueError(f"constraints {' '.join(words)!r} need cost components, and this task has none; use sum")


def _group(word: str, available: list[str]) -> list[str]:
    """The names of a group's components, without `cost_`."""
    whole = word.removeprefix(PREFIX)
    if whole in available:  # also a name with a + in it
        return [whole]
    names = [name.strip().removeprefix(PREFIX) for name in word.split("+")]
    if "" in names:
        raise ValueError(f"constraints: {word!r} lacks a name; join components as in hazards+vases_contact")
    for name in names:
        if name not in available:
            near = difflib.get_close_matches(name, available, n=1, cutoff=0.4)
            raise ValueError(
                f"constraints must be sum, each, or names of this task's cost components ({', '.join(available)}),"
                f" got {name!r}{f'; did you mean {near[0]}?' if near else ''}"
            )
    return names


def _check_disjoint(groups: list[list[str]]) -> None:
    taken: dict[str, str] = {}
    for group in groups:
        constraint = "+".join(group)
        for name in group:
            if name in taken:
                where = " and in ".join(dict.fromkeys([taken[name], constraint]))
                raise ValueError(f"constraints: the cost component {name!r} is named twice, in {where}; name it once")
            taken[name] = constraint
