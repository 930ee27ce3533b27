"""Settings as a file: a run's config.toml."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sbtrpo.config import catalogue
from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import declared
from sbtrpo.config.tasks import ENV_KWARGS, is_task_file
from sbtrpo.config.toml import read_toml
from sbtrpo.config.train import LATER, TrainConfig, all_settings
from sbtrpo.errors import sentence
from sbtrpo.files import write_atomically

RETIRED = frozenset({"deterministic"})
"""Settings of earlier versions that changed nothing of what a run computes, and are no more."""


def write_config(path: Path, config: TrainConfig) -> None:
    """Write every setting."""
    lines = ["# Every setting of this run; `sbtrpo train --help` says what they mean.", ""]
    lines += toml_lines(config.settings())
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def edit_config(path: Path, settings: Mapping[str, Any]) -> None:
    """Give some settings of a config.toml other values, and leave its other lines as they are."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line.partition("=")[0].strip() not in settings]
    lines += [f"{name} = {_toml(value)}" for name, value in settings.items()]
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def read_config(
    path: Path,
    method_file: Path | None = None,
    task_file: Path | None = None,
    start_file: Path | None = None,
    *,
    whole: bool = False,
) -> TrainConfig:
    """The settings of a config.toml; what it leaves out has its default.

    Earlier versions also wrote settings of other methods there, without effect; like retired ones they are left out.

    Args:
        path: of the file.
        method_file: where the method is, in place of the Python file that the settings name.
        task_file: likewise the task, in place of a TOML file.
        start_file: likewise the policy that the run begins with.
        whole: whether a run wrote all of its settings there: what is left out then came later than that run.
    """
    earlier = {name: value for name, value in LATER if name in declared(RunSettings) and value is not None}
    content = {**(earlier if whole else {}), **read_toml(path)}
    try:
        if method_file is not None and ".py:" in str(content.get("algo")):
            content["algo"] = f"{method_file}:{str(content.get('algo')).rpartition(':')[2]}"
        if task_file is not None and is_task_file(str(content.get("task"))):
            content["task"] = str(task_file)
        if start_file is not None and "init_from" in content:
            content |= {"init_from": str(start_file), "init_which": "last"}
        known = {*all_settings(catalogue.method(content.get("algo", RunSettings.algo))), ENV_KWARGS}
        unknown = [name for name in content if name not in known | RETIRED and not catalogue.owners(name)]
        if not unknown:
            return TrainConfig(**{name: value for name, value in content.items() if name in known})
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {sentence(error)}") from error
    raise ValueError(f"{path} has a setting that sbtrpo does not know: {sentence(unknown[0])}; correct or remove it")


def toml_lines(table: Mapping[str, Any]) -> list[str]:
    """Names and values; TOML has no null, so what is None is a comment.

    >>> toml_lines({"beta": 0.75, "hidden": (64, 64), "a+b": None})
    ['beta = 0.75', 'hidden = [64, 64]', '# "a+b" is not set']
    """
    keys = {name: name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name) for name in table}
    return [f"# {keys[n]} is not set" if v is None else f"{keys[n]} = {_toml(v)}" for n, v in table.items()]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # TOML's basic strings escape as JSON's do
    return repr(value)
