"""Settings as a file: a run's config.toml."""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, Literal

from sbtrpo.config import TrainConfig
from sbtrpo.files import write_atomically


def write_config(path: Path, config: TrainConfig) -> None:
    """Write every setting; TOML has no null, so a setting that is None is a comment."""
    lines = ["# Every setting of this run; `sbtrpo train --help` says what they mean.", ""]
    for name, value in dataclasses.asdict(config).items():
        lines.append(f"# {name} is not set" if value is None else f"{name} = {_toml(value)}")
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def read_config(path: Path) -> TrainConfig:
    """The settings of a config.toml; what it leaves out has its default."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    hints = typing.get_type_hints(TrainConfig)
    for name in settings:
        if name not in hints:
            raise ValueError(f"{path} has a setting that sbtrpo does not know: {name}; correct or remove it")
    try:
        return TrainConfig(**{name: checked(name, value, hints[name]) for name, value in settings.items()})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # TOML's basic strings escape as JSON's do
    return repr(value)


def checked(name: str, value: Any, hint: Any) -> Any:
    """The value as a setting of this type has it: 1.0 for 1, a tuple for a list.

    Raises:
        ValueError: one that the setting cannot have.
    """
    options = [option for option in _flat(hint) if option is not type(None)]
    choices = [typing.get_args(option) for option in options if typing.get_origin(option) is Literal]
    literals = [choice for group in choices for choice in group]
    if literals:
        if value in literals:
            return value
        near = difflib.get_close_matches(str(value), literals, n=1)
        hint_text = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{name} must be one of {', '.join(literals)}, got {value!r}{hint_text}")
    if any(typing.get_origin(option) is tuple for option in options):
        if isinstance(value, list | tuple) and all(type(item) is int for item in value):
            return tuple(value)
        raise ValueError(f"{name} must be a list of whole numbers, got {value!r}")
    if float in options and type(value) in (int, float):
        return float(value)
    if type(value) in options:
        return value
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    raise ValueError(f"{name} must be {words[options[0]]}, got {value!r}")


def _flat(hint: Any) -> tuple[Any, ...]:
    """The members of a union; the hint alone if it is none."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
