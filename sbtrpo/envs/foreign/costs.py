"""How a foreign environment tells its costs: as a number, as a vector, or as several entries of `info`.

The first step shows which form it is and how the components are called. Later steps must keep to it, because the total
cost would mean something else otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np

from sbtrpo.envs.constraints import PREFIX, TOTAL
from sbtrpo.envs.foreign.environment import UnfitEnvironment, number

CostForm = Literal["number", "vector", "entries"]
EVERY_STEP = "give every cost in every step, 0.0 where nothing is violated"


@dataclass(frozen=True)
class CostReader:
    """Reads the costs of an environment's steps.

    `number`: the cost is a number, and components, which are recorded beside it, may be left out where they are 0.
    `vector`: the cost is a vector, and its entries are the components.
    `entries`: there is no cost but `info["cost_<component>"]`.
    In the last two forms the total cost is the sum of the components.
    """

    form: CostForm
    names: tuple[str, ...]
    """The keys of the components in `info`."""

    def read(self, task: str, cost: Any, info: Mapping[str, Any]) -> tuple[float, list[float]]:
        """The total cost of a step, and its components."""
        if self.form == "entries":
            components = self._entries(task, cost, info)
            return sum(components), components
        if cost is None:
            raise _no_cost(task)
        if self.form == "vector":
            components = self._vector(task, cost)
            return sum(components), components
        if type(cost) is not float and _ndim(cost) == 1 and np.size(cost) != 1:
            raise UnfitEnvironment(f"{task}: a step's cost was {_form(cost)}, the first step's a number; {EVERY_STEP}")
        total = number(task, "the cost", cost)
        return total, [number(task, name, info.get(name, 0.0)) for name in self.names]

    def _entries(self, task: str, cost: Any, info: Mapping[str, Any]) -> list[float]:
        if cost is not None:
            raise UnfitEnvironment(
                f'{task}: a step gave info["cost"] and the first step did not; give it in every step, or in none'
            )
        if (keys := cost_keys(info)) != self.names:
            raise UnfitEnvironment(
                f"{task}: a step gave {', '.join(keys) or 'no cost'}, the first step {', '.join(self.names)};"
                f" {EVERY_STEP}"
            )
        return [number(task, name, info[name]) for name in self.names]

    def _vector(self, task: str, cost: Any) -> list[float]:
        values = _numbers(task, cost)
        if values.shape != (len(self.names),):
            raise UnfitEnvironment(
                f"{task}: a step's cost was {_form(cost)}, the first step's a vector of {len(self.names)}; {EVERY_STEP}"
            )
        return [float(value) for value in values]

    def counted(self, total: float, components: Sequence[float]) -> dict[str, float]:
        """The costs that decide on safety, by name: the cost itself, or the components that add up to it."""
        return {"cost": total} if self.form == "number" else dict(zip(self.names, components, strict=True))

    def refuse_negative(self, task: str, total: float, components: Sequence[float]) -> None:
        """Stop at a cost below 0: it would make up for others."""
        for name, value in self.counted(total, components).items():
            if value < 0:
                where = "" if self.form == "number" else f" in {name}"
                raise UnfitEnvironment(
                    f"{task}: a step cost {value:g}{where}; costs must be >= 0, what is good is reward"
                )


def cost_keys(info: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of `info` that name cost components, in alphabetical order."""
    return tuple(sorted(key for key in info if key.startswith(PREFIX) and key != TOTAL))


def cost_reader(task: str, env: gymnasium.Env[Any, Any], cost: Any, info: Mapping[str, Any]) -> CostReader:
    """A reader for costs in the form of the first step; `cost` is None if that step gave none."""
    declared = getattr(env.unwrapped, "cost_names", None)
    if cost is None:
        if not (keys := cost_keys(info)):
            raise _no_cost(task)
        for key in keys:
            if _ndim(info[key]) != 0:
                raise UnfitEnvironment(
                    f'{task}: info["{key}"] is no number, and without info["cost"] all info["cost_..."] are summed;'
                    ' make it a number, or give info["cost"]'
                )
        return CostReader("entries", keys)
    if _ndim(cost) == 1 and (np.size(cost) != 1 or declared is not None):
        return CostReader("vector", _vector_names(task, declared, _numbers(task, cost).size))
    numbers = [key for key, value in info.items() if key.startswith(PREFIX) and np.ndim(value) == 0]
    return CostReader("number", tuple(sorted(numbers)))


def _vector_names(task: str, declared: Any, count: int) -> tuple[str, ...]:
    """Keys for the entries of a vector: `cost_0`, `cost_1` and so on, unless the environment names them."""
    if count == 0:
        raise UnfitEnvironment(f"{task}: the cost is an empty vector; give at least one number")
    if declared is None:
        return tuple(f"{PREFIX}{k}" for k in range(count))
    if (
        isinstance(declared, str)
        or not isinstance(declared, Sequence)
        or not all(isinstance(name, str) for name in declared)
    ):
        raise UnfitEnvironment(f"{task}: cost_names must be a list or tuple of strings, got {declared!r}")
    if len(declared) != count:
        raise UnfitEnvironment(
            f"{task}: cost_names has {len(declared)} names ({', '.join(declared)}), but the cost is a vector of"
            f" {count}; give a name to each entry"
        )
    keys = tuple(PREFIX + name.removeprefix(PREFIX) for name in declared)
    if len(set(keys)) != count or PREFIX in keys or TOTAL in keys:
        raise UnfitEnvironment(
            f"{task}: cost_names must be different words other than 'sum', which is the total, got"
            f" {', '.join(declared)}"
        )
    return keys


def _no_cost(task: str) -> UnfitEnvironment:
    return UnfitEnvironment(
        f'{task}: a step gave no cost; put info["cost"] into every step (0.0 where nothing is violated), or return six'
        " values (obs, reward, cost, terminated, truncated, info)"
    )


def _ndim(value: Any) -> int:
    """The number of axes. What is no array at all has 0, and is refused as a number later."""
    try:
        return np.ndim(value)
    except ValueError:
        return 0


def _form(cost: Any) -> str:
    shape = np.shape(cost)
    return "a number" if not shape else f"a vector of {shape[0]}" if len(shape) == 1 else f"an array of shape {shape}"


def _numbers(task: str, cost: Any) -> Any:
    try:
        return np.asarray(cost, np.float64)
    except (TypeError, ValueError) as error:
        raise UnfitEnvironment(f"{task}: the cost must be a number or a vector of numbers, got {cost!r}") from error
