"""Settings on the command line: of the run, and of the methods that the command line itself names."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import Declared, is_listed, members
from sbtrpo.config.tasks import ENV_KWARGS
from sbtrpo.config.toml import read_toml

if TYPE_CHECKING:
    from sbtrpo.config import TrainConfig

KWARGS: tuple[Any, str, Any] = (
    tuple[str, ...], "Keyword arguments of your own environment, name=value each: difficulty=2 map=maze.", ()
)  # fmt: skip


@dataclass(frozen=True)
class NoSettings:
    """What a command takes as long as nobody asks for it."""


def words_after(arguments: Sequence[str], flag: str) -> list[str]:
    """The values that a command line gives to a flag.

    >>> words_after(["--algo", "cpo", "ppo", "--seed", "3", "--algo=pcpo"], "--algo")
    ['cpo', 'ppo', 'pcpo']
    """
    words: list[str] = []
    taking = False
    for argument in arguments:
        if argument.startswith("--"):
            name, joined, value = argument.partition("=")
            taking = name.replace("_", "-") == flag
            words += [value] if taking and joined else []
        elif taking:
            words.append(argument)
    return words


def train_settings(arguments: Sequence[str]) -> type:
    """A dataclass of the run's settings and those of the method that `arguments` name, with its defaults there.

    Its `base` is the run that the arguments' file of settings, task, method and fidelity make, whose settings are the
    defaults.
    """
    from sbtrpo.config import catalogue
    from sbtrpo.config.train import all_settings, no_such_setting

    chosen = {
        name: words[-1] for name in ("algo", "task", "fidelity") if (words := words_after(arguments, f"--{name}"))
    }
    if chosen.get("fidelity") not in (None, "paper", "corrected"):
        del chosen["fidelity"]  # refused below, with the others
    flags = [flag.partition("=")[0].removeprefix("--").replace("-", "_") for flag in arguments if flag[:2] == "--"]
    kwargs = words_after(arguments, f"--{ENV_KWARGS.replace('_', '-')}")
    base = base_config(arguments, chosen | ({ENV_KWARGS: kwargs} if kwargs else {}))
    entry = catalogue.method(base.algo)
    known, usual = all_settings(entry), base.settings()
    for name in flags:
        if name not in known and catalogue.owners(name):
            raise ValueError(no_such_setting(name, entry))
    fields = {name: (item.hint, item.meaning, usual[name]) for name, item in known.items()}
    return _dataclass("Settings", fields | {ENV_KWARGS: KWARGS}, base=base)


def base_config(arguments: Sequence[str], chosen: Mapping[str, Any]) -> TrainConfig:
    """The run of the arguments' file of settings, or the default one, with what is chosen beside it.

    Of another task, method or fidelity the defaults are others: what the file has by default is not kept.

    Args:
        arguments: of the command line; the last file counts, and other settings pick a plan's run.
        chosen: task, method and fidelity, and keyword arguments of an environment.
    """
    from sbtrpo.benchmark.plan import Plan, algorithms_in, is_plan, known_settings, plan_file, read_plan
    from sbtrpo.config import TrainConfig
    from sbtrpo.config.file import read_config
    from sbtrpo.config.train import concerning
    from sbtrpo.runs.folder import read_run

    files = words_after(arguments, "--config")
    if not files:
        return TrainConfig(**chosen)
    path = Path(files[-1])
    path = path / "config.toml" if path.is_dir() else plan_file(path)
    if is_plan(read_plan(path)):
        plan = Plan.from_file(path)
        known = known_settings([*algorithms_in(plan.blocks), chosen.get("algo", RunSettings.algo)])
        try:
            return plan.only_run({**_values(arguments, known), **chosen})
        except SystemExit:  # no value of that setting, as is told where all flags are read
            return TrainConfig(**chosen)
        except ValueError:
            if {"-h", "--help"}.isdisjoint(arguments):
                raise
            return TrainConfig(**chosen)
    config = read_run(path.parent) if path.name == "config.toml" else read_config(path)
    usual = TrainConfig(task=config.task, algo=config.algo, fidelity=config.fidelity).settings()
    kept = {name: value for name, value in config.settings().items() if value != usual[name]}
    return concerning({**kept, "task": config.task, "algo": config.algo, "fidelity": config.fidelity, **chosen})


def _values(arguments: Sequence[str], known: Mapping[str, Declared]) -> dict[str, Any]:
    """What the command line says of these settings."""
    found: dict[str, Any] = {}
    for name, item in known.items():
        if words := words_after(arguments, f"--{name.replace('_', '-')}"):
            several = any(typing.get_origin(option) is tuple for option in members(item.hint))
            with contextlib.redirect_stderr(io.StringIO()):  # which a word that is no value is told on even so
                found[name] = tyro.cli(_flag(item.hint), args=words if several else words[-1:], console_outputs=False)
    return found


def grid_settings(arguments: Sequence[str]) -> type:
    """A dataclass of axes: `tasks`, `algo`, `seeds`, and the settings of all listed methods and those in `arguments`.

    What is empty was not given.
    """
    from sbtrpo.benchmark.plan import known_settings
    from sbtrpo.config import catalogue

    planned = [name for word in arguments if word.endswith(".toml") for name in _algorithms_in(Path(word))]
    named = dict.fromkeys([*catalogue.names(), *planned, *words_after(arguments, "--algo")])
    known = known_settings(named)
    fields: dict[str, tuple[Any, str, Any]] = {
        "tasks": (tuple[str, ...], "Task ids.", ()),
        "algo": (tuple[str, ...], known["algo"].meaning, ()),
        "num_seeds": (int | None, "Seeds 0, 1000, ... of every run.", None),
        "seeds": (tuple[int, ...], "", ()),
        ENV_KWARGS: KWARGS,
    }
    for name, item in known.items():
        if name not in ("task", "algo", "seed", "threads"):  # the command has these itself
            fields[name] = _axis(item.hint), item.meaning, ()
    return _dataclass("Settings", fields)


def _algorithms_in(plan: Path) -> list[str]:
    """The algorithms that a plan names; none of what is no plan, which is told when the plan is read."""
    from sbtrpo.benchmark.plan import algorithms_in

    try:
        content = read_toml(plan)
        return algorithms_in([content, *content.get("group", [])])
    except (OSError, ValueError, TypeError, AttributeError):
        return []


def given(settings: Any) -> dict[str, Any]:
    """The settings that are not at their defaults."""
    return {
        field.name: value
        for field in dataclasses.fields(settings)
        if (value := getattr(settings, field.name)) != field.default
    }


def _axis(hint: Any) -> Any:
    """How the command line takes several values of a setting."""
    if is_listed(hint):
        return hint
    plain = [o for o in members(hint) if typing.get_origin(o) is not tuple and o is not type(None)]
    return types.GenericAlias(tuple, (typing.Union[tuple(plain)], ...))  # noqa: UP007


def _dataclass(name: str, fields: Mapping[str, tuple[Any, str, Any]], **attributes: Any) -> type:
    """From names to types, sentences and defaults; the class has these attributes."""
    made: list[tuple[str, Any, Any]] = []
    for key, (kind, sentence, default) in fields.items():
        made.append((key, Annotated[_flag(kind), tyro.conf.arg(help=sentence)], dataclasses.field(default=default)))
    return dataclasses.make_dataclass(name, made, frozen=True, namespace={"__doc__": "Settings.", **attributes})


def _flag(kind: Any) -> Any:
    """How the command line takes a value of this type: --first-cost-zero False, as in axes."""
    return tyro.conf.FlagConversionOff[bool] if kind is bool else kind


def checkpoint(which: str) -> Any:
    """Which checkpoint is meant."""
    if which not in ("last", "best") and not which.isdigit():
        raise ValueError(f"which must be last, best or an epoch's number, got {which!r}")
    return int(which) if which.isdigit() else which
