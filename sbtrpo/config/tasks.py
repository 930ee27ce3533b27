"""What a run's task is called, and what tells it from others.

A task in a TOML file is what the file says: it has one name wherever the file lies, and is another task once the file
says something else. Comments, the order of keys, and defaults that are written out say nothing. What a registered id or
`module:Env` stands for is code, and known by its name alone. Keyword arguments of an environment are part of its name,
`module:Env?difficulty=2`, and so tell runs apart.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

ENV_KWARGS = "env_kwargs"
"""What settings call the keyword arguments of an environment."""


@dataclass(frozen=True)
class TaskEntry:
    """A task as runs know it."""

    label: str
    """What titles, tables and folders call it."""
    version: str = ""
    """What tells a task in a file from others with its id."""

    @property
    def identity(self) -> str:
        """The same wherever a task's file lies, and another when it says something else."""
        return f"{self.label}@{self.version}" if self.version else self.label


def is_task_file(task: str) -> bool:
    """Whether a task is given as a TOML file."""
    return task.endswith(".toml") and not is_foreign(task)


def is_foreign(task: str) -> bool:
    """Whether a task is somebody else's environment, named "module:EnvId".

    >>> is_foreign("my_package:MyEnv-v0"), is_foreign("SafetyPointGoal2-v0"), is_foreign("sbtrpo:SafetyPointGoal2-v0")
    (True, False, False)
    """
    name, _, _ = task.partition("?")
    return ":" in name and not name.startswith("sbtrpo:") and not name.endswith(".toml")  # C:/my/task.toml is a file


def task_entry(task: str) -> TaskEntry:
    """The task of an id or of a file; a file that is gone is known by its path.

    >>> task_entry("SafetyPointGoal2-v0").identity
    'SafetyPointGoal2-v0'
    """
    if not is_task_file(task):
        return TaskEntry(task)
    if not Path(task).exists():
        return TaskEntry(Path(task).stem, task)
    registry = importlib.import_module("sbtrpo.envs.registry")  # here: worlds know settings, and not the reverse
    return TaskEntry(*registry.id_and_version(task))


# ---- keyword arguments of environments -----------------------------------------------------------------------------


def env_kwargs(task: str) -> tuple[str, dict[str, Any]]:
    """A task without its keyword arguments, and these.

    >>> env_kwargs("my_package:MyEnv-v0?difficulty=2&map=maze")
    ('my_package:MyEnv-v0', {'difficulty': 2, 'map': 'maze'})
    """
    if not is_foreign(task):
        return task, {}
    name, _, words = task.partition("?")
    return name, {key: _value(word) for key, word in parse_qsl(words, keep_blank_values=True)}


def with_env_kwargs(task: str, given: Mapping[str, Any] | Iterable[str]) -> str:
    """A task with these keyword arguments for its environment, which stand in for those that it names itself.

    >>> with_env_kwargs("my_package:MyEnv-v0?map=maze", ["difficulty=2", "hard=true"])
    'my_package:MyEnv-v0?difficulty=2&hard=true&map=maze'
    """
    name, kwargs = env_kwargs(task)
    kwargs |= _pairs(given)
    if not kwargs:
        return task
    if not is_foreign(name):
        raise ValueError(f"env_kwargs are for an environment of your own, my_package:MyEnv-v0, and not for {name}")
    words = {key: _word(key, value) for key, value in sorted(kwargs.items())}
    return f"{name}?{urlencode(words, safe=',.:', quote_via=quote)}"


def env_kwargs_axis(given: Any) -> list[dict[str, Any]]:
    """The keyword arguments of a grid's runs: every combination of the values that each argument is given.

    >>> env_kwargs_axis({"difficulty": [1, 2], "map": "maze"})
    [{'difficulty': 1, 'map': 'maze'}, {'difficulty': 2, 'map': 'maze'}]
    >>> env_kwargs_axis(["difficulty=1", "difficulty=2"])
    [{'difficulty': 1}, {'difficulty': 2}]
    """
    if isinstance(given, list | tuple) and all(isinstance(item, Mapping) for item in given):
        return [kwargs for item in given for kwargs in env_kwargs_axis(item)]
    values: dict[str, list[Any]] = {}
    for key, value in _pairs(given):
        values.setdefault(key, []).extend(value if isinstance(given, Mapping) and isinstance(value, list) else [value])
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def _pairs(given: Any) -> list[tuple[str, Any]]:
    """Names and values, of a table or of words."""
    if isinstance(given, Mapping):
        return list(given.items())
    words = [given] if isinstance(given, str) or not isinstance(given, Iterable) else given
    return list(map(_split, words))


def _split(argument: Any) -> tuple[str, Any]:
    key, equals, word = str(argument).partition("=")
    if not key.isidentifier() or not equals:
        raise ValueError(f"env_kwargs are written name=value, such as difficulty=2, got {argument!r}")
    return key, _value(word)


def _value(word: str) -> Any:
    """What a word means: a number, true, false, null, a list or a table in JSON; or else the word itself."""
    python: dict[str, Any] = {"True": True, "False": False, "None": None}
    with contextlib.suppress(ValueError, RecursionError):
        return python[word] if word in python else json.loads(word)
    return word


def _word(key: str, value: Any) -> str:
    """The word that means a value."""
    if isinstance(value, str) and _value(value) == value:
        return value
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise ValueError(f"env_kwargs are numbers, texts, true, false and lists; {key} is {value!r}") from error
