"""The settings of a grid as the command line takes them."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from sbtrpo.config import TrainConfig

_OWN_OPTIONS = {"task", "algo", "seed", "threads"}


def _axis_type(name: str, hint: Any) -> Any:
    """How the command line takes a setting: any number of values."""
    if name == "hidden":
        return tuple[int, ...]
    plain = [option for option in typing.get_args(hint) if option is not type(None)]
    kind = plain[0] if type(None) in typing.get_args(hint) else hint
    return types.GenericAlias(tuple, (kind, ...))


def _grid_settings() -> type:
    """A dataclass with `tasks`, `algo`, `num_seeds`, `seeds`, and every other setting as an axis; empty: not given."""
    hints = typing.get_type_hints(TrainConfig)
    names = [field.name for field in dataclasses.fields(TrainConfig) if field.name not in _OWN_OPTIONS]
    fields: list[tuple[str, Any, Any]] = [
        ("tasks", tuple[str, ...], dataclasses.field(default=())),
        ("algo", tuple[str, ...], dataclasses.field(default=())),
        ("num_seeds", int | None, dataclasses.field(default=None)),
        ("seeds", tuple[int, ...], dataclasses.field(default=())),
        *((name, _axis_type(name, hints[name]), dataclasses.field(default=())) for name in names),
    ]
    made = dataclasses.make_dataclass("GridSettings", fields, frozen=True)
    made.__doc__ = "Settings of the runs; several values of one are an axis. `sbtrpo train --help` says what they mean."
    made.__module__ = __name__
    return made


GridSettings: Any = _grid_settings()


def given(settings: Any) -> dict[str, Any]:
    """The settings of a `GridSettings` that were given."""
    return {name: value for name, value in vars(settings).items() if value not in (None, ())}
