"""Foreign environments: made by their names, and held to the rules of docs/environments.md."""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

Info = dict[str, Any]
FlatAction: TypeAlias = spaces.Box | spaces.Discrete

FORMS = (
    '(obs, reward, terminated, truncated, info) with info["cost"], or (obs, reward, cost, terminated, truncated, info)'
)
"""What `step` may return."""
LEAST_SIDE = 8
"""Of an image, in pixels."""


class UnfitEnvironment(ValueError):  # noqa: N818
    """An environment that does not keep to the rules of docs/environments.md; the message says what to change."""


def is_foreign(task: str) -> bool:
    """Whether a task is somebody else's environment, named "module:EnvId".

    >>> is_foreign("my_package:MyEnv-v0"), is_foreign("SafetyPointGoal2-v0"), is_foreign("sbtrpo:SafetyPointGoal2-v0")
    (True, False, False)
    """
    return ":" in task and not task.startswith("sbtrpo:") and not task.endswith(".toml")  # C:/my/task.toml is a file


def make_environment(task: str) -> gymnasium.Env[Any, Any]:
    """The environment "module:EnvId", without Gymnasium's wrappers, which know five values only."""
    module, _, name = task.partition(":")
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
        raise UnfitEnvironment(f"{task} cannot be made: `import {module}` raised {one_line(error)}") from error
    try:
        return gymnasium.make(name, disable_env_checker=True, max_episode_steps=-1)
    except gymnasium.error.UnregisteredEnv as error:
        raise UnfitEnvironment(
            f"{task} cannot be made: `import {module}` does not register {name!r} with Gymnasium ({one_line(error)})"
        ) from error
    except Exception as error:
        raise UnfitEnvironment(f"{task} cannot be made: its constructor raised {one_line(error)}") from error


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


def flat_action_space(task: str, space: spaces.Space[Any]) -> FlatAction:
    """Bounded numbers as one vector, or a choice that counts from 0."""
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise UnfitEnvironment(f"{task}: actions in {space} are not supported; use a Box of floats or Discrete")
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
