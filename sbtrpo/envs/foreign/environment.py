"""Foreign environments: made by their names, and held to the rules of docs/environments.md."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from typing import Any, Self, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sbtrpo.config.tasks import env_kwargs
from sbtrpo.errors import users_traceback

Info = dict[str, Any]
FlatAction: TypeAlias = spaces.Box | spaces.Discrete

FORMS = (
    '(obs, reward, terminated, truncated, info) with info["cost"], or (obs, reward, cost, terminated, truncated, info)'
)
"""What `step` may return."""
MOST_COMBINATIONS = 1024
"""Of choices that are made at once: each is an output of the policy."""
LEAST_SIDE = 8
"""Of an image, in pixels."""


class UnfitEnvironment(ValueError):  # noqa: N818
    """An environment that does not keep to the rules of docs/environments.md; the message says what to change."""

    def because(self, error: BaseException) -> Self:
        """With the way of what the environment raised, which would be lost between processes."""
        self.add_note(users_traceback(error))
        return self


def make_environment(task: str) -> gymnasium.Env[Any, Any]:
    """The environment "module:EnvId", without Gymnasium's wrappers, which know five values only."""
    named, kwargs = env_kwargs(task)
    module, _, name = named.partition(":")
    if not module or not name or ":" in name:
        raise UnfitEnvironment(f"{task!r} is no task; name a module and an environment, such as my_package:MyEnv-v0")
    if module == "__main__":
        raise UnfitEnvironment(f"{task} lives in a script; move it into a module, for worker processes import it")
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnfitEnvironment(
            f"{task} cannot be made: {error}; it must be installed, or lie in the working directory"
        ) from error
    except Exception as error:
        raise UnfitEnvironment(f"{task} cannot be made: `import {module}` raised {one_line(error)}").because(
            error
        ) from error
    try:
        return gymnasium.make(name, disable_env_checker=True, max_episode_steps=-1, **kwargs)
    except gymnasium.error.UnregisteredEnv as error:
        raise UnfitEnvironment(
            f"{task} cannot be made: `import {module}` does not register {name!r} with Gymnasium ({one_line(error)})"
        ) from error
    except Exception as error:
        raise UnfitEnvironment(f"{task} cannot be made: its constructor raised {one_line(error)}").because(
            error
        ) from error


def time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """The `max_episode_steps` with which an environment was registered."""
    made = env.unwrapped.spec
    registered = gymnasium.registry.get(made.id) if made is not None else None
    return None if registered is None else registered.max_episode_steps


def flat_observation_space(task: str, space: spaces.Space[Any]) -> spaces.Box:
    """As one vector of numbers: dicts and tuples in a row, discrete parts one-hot."""
    if not _is_vector(space):
        raise UnfitEnvironment(
            f"{task}: observations in {space} are no vector of fixed size; use Box, Discrete or Dict"
        )
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)
    return spaces.Box(flat.low.astype(np.float64), flat.high.astype(np.float64), dtype=np.float64)


def flattened(observations: spaces.Space[Any], actions: spaces.Space[Any]) -> list[str]:
    """What becomes of spaces that are no vectors or single choices, in words."""
    notes = []
    if not isinstance(observations, spaces.Box):
        size, parts = spaces.flatdim(observations), ", ".join(_parts(observations))
        notes.append(f"observations are flattened to {size} numbers: {parts}")
    if isinstance(actions, spaces.MultiDiscrete | spaces.MultiBinary):
        count = Combinations(actions).n
        notes.append(f"actions in {actions} are one choice among their {count} combinations")
    return notes


def _parts(space: spaces.Space[Any], name: str = "") -> Iterator[str]:
    """The parts of a flattened observation in their order."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in space.items() if isinstance(space, spaces.Dict) else enumerate(space):
            yield from _parts(part, f"{name}.{key}" if name else str(key))
        return
    one_hot = " one-hot" if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else ""
    yield f"{name or 'all'} ({spaces.flatdim(space)}{one_hot})"


def image_shape(space: spaces.Space[Any]) -> tuple[int, ...] | None:
    """The shape of observations that are images of at least 8 x 8 pixels, with channels first, last or none; or None.

    >>> image_shape(spaces.Box(0, 255, (64, 64, 3), np.uint8)), image_shape(spaces.Box(-1, 1, (9, 9)))
    ((64, 64, 3), None)
    """
    if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3):
        return None
    if len(space.shape) == 2:  # of other numbers than bytes it may be any matrix
        return space.shape if space.dtype == np.uint8 and min(space.shape) >= LEAST_SIDE else None
    first, second, third = space.shape
    return space.shape if second >= LEAST_SIDE and max(first, third) >= LEAST_SIDE else None


def _is_vector(space: spaces.Space[Any]) -> bool:
    """Whether flattening gives numbers that mean something to a network; Gymnasium flattens text, too."""
    if isinstance(space, spaces.Dict):
        return all(map(_is_vector, space.values()))
    if isinstance(space, spaces.Tuple):
        return all(map(_is_vector, space))
    return isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


class Combinations(spaces.Discrete):
    """Several choices at once, MultiDiscrete or MultiBinary, as one choice among their combinations.

    >>> several = Combinations(spaces.MultiDiscrete([2, 3]))
    >>> int(several.n), several.table[4].tolist(), several.numbers(np.array([[1, 1], [0, 2]])).tolist()
    (6, [1, 1], [4, 2])
    """

    def __init__(self, space: spaces.MultiDiscrete | spaces.MultiBinary) -> None:
        counts = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(space.shape, 2)
        self.counts = tuple(int(count) for count in counts.ravel())
        super().__init__(math.prod(self.counts))
        rows = np.stack(np.unravel_index(np.arange(self.n), self.counts), axis=-1).reshape(-1, *counts.shape)
        self.table = (rows + getattr(space, "start", 0)).astype(space.dtype)
        """(n, *shape) what the environment is given for each."""

    def numbers(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Which combinations these are, (N, *shape) -> (N,)."""
        places = (actions - self.table[0]).reshape(len(actions), -1)
        numbers: NDArray[Any] = np.ravel_multi_index(tuple(places.T), self.counts)
        return numbers


def env_action_space(task: str, space: spaces.Space[Any]) -> FlatAction:
    """What an environment takes: numbers of any shape, a choice that counts from anywhere, or combinations of such."""
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        counts = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(space.shape, 2)
        if (count := math.prod(counts.ravel().tolist())) > MOST_COMBINATIONS:
            raise UnfitEnvironment(
                f"{task}: actions in {space} are {count:,} combinations, and {MOST_COMBINATIONS:,} are the most; use a"
                " Box of floats, or fewer choices"
            )
        return Combinations(space)
    if isinstance(space, spaces.Discrete):
        return space
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return space
    raise UnfitEnvironment(
        f"{task}: actions in {space} are not supported; use a Box of floats, Discrete, MultiDiscrete or MultiBinary"
    )


def flat_action_space(task: str, space: spaces.Space[Any]) -> FlatAction:
    """Bounded numbers as one vector, or a choice that counts from 0."""
    space = env_action_space(task, space)
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if not space.is_bounded():
        raise UnfitEnvironment(f"{task}: the action space has infinite bounds; give it the range that makes sense")
    return spaces.Box(space.low.ravel().astype(np.float64), space.high.ravel().astype(np.float64), dtype=np.float64)


def split_step(task: str, result: Any) -> tuple[Any, Any, Any, Any, Any, Info]:
    """(obs, reward, cost, terminated, truncated, info) of a `step` in either form; cost is None if there is none."""
    if not isinstance(result, tuple) or len(result) not in (5, 6):
        form = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise UnfitEnvironment(f"{task}: step returned {form}; it must return {FORMS}")
    if len(result) == 6:
        return result
    obs, reward, terminated, truncated, info = result
    return obs, reward, info.get("cost"), terminated, truncated, info


def number(task: str, name: str, value: Any) -> float:
    """A scalar of any numeric kind as a float."""
    if type(value) is float:
        return value
    try:
        return float(np.asarray(value, np.float64).item())
    except (TypeError, ValueError) as error:
        raise UnfitEnvironment(f"{task}: {name} must be a number, got {value!r}") from error


def one_line(error: BaseException) -> str:
    """An error's type and message on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
