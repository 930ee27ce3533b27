"""Settings as a file: a run's config.toml."""

from __future__ import annotations

import dataclasses
import json
import tomllib
import typing
from pathlib import Path
from typing import Any

from sbtrpo.checkpoint import write_atomically
from sbtrpo.config import TrainConfig


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
        return TrainConfig(**{name: _as_hinted(value, hints[name]) for name, value in settings.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # TOML's basic strings escape as JSON's do
    return repr(value)


def _as_hinted(value: Any, hint: Any) -> Any:
    """Undo what TOML changes: tuples become arrays, and people write 1 for 1.0."""
    if isinstance(value, list):
        return tuple(value)
    wanted = (hint, *typing.get_args(hint))
    if type(value) is int and float in wanted and int not in wanted:
        return float(value)
    return value
