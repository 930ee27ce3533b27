"""What a run is a run of: a method, and the settings in which the run is not the method as published."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sbtrpo.benchmark.columns import VERSION, short_version
from sbtrpo.config import catalogue
from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import declared
from sbtrpo.report import paper

Group: TypeAlias = tuple[str, str]
"""A task and a method."""

NAMED = (
    "advantage", "solver", "beta", "beta_end", "cost_limit", "fidelity", "constraints", "end_at_violation", VERSION,
)  # fmt: skip
"""Settings that make a variant even if all runs of a method share them."""
NEVER_APART = ("grow_by",)
"""Settings that make no variant even if runs of a method differ in them: they learn from as many episodes."""
NOT_SETTINGS = {"task", "algo", "seed", "total_steps"}
_ALSO_METRICS = {"cg_iterations", "line_search_tries", "learning_rate", "penalty"}
"""Names that metrics.csv has, too: a column of such a name is a metric."""
_CRITICS = {"mc": "sb-trpo", "gae-reward": "sb-trpo_rcritic", "gae": "sb-trpo_critic"}
"""SB-TRPO's variants are one method, told apart by their advantages."""
_PHRASES = {
    "beta": "β = {}",
    "beta_end": "β moves to {}",
    "cost_limit": "limit {}",
    "advantage": "{} advantage",
    "solver": "{} solver",
    "fidelity": "{}",
    "cost_to_go": "{} costs",
}
NOT_DEFAULT = "not the default: "
"""How notes on settings begin."""
_CONSTRAINTS = {("sum",): "total cost", ("each",): "each constraint"}


@dataclass(frozen=True)
class Variant:
    """A method, and the settings in which it is not the method as published."""

    algo: str
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def title(self) -> str:
        """As a reader knows it.

        >>> Variant("sb-trpo", (("beta", (0.6, 0.9)), ("constraints", ("hazards", "vases")))).title
        'SB-TRPO, β = 0.6, 0.9, constraints hazards, vases'

        With more worlds an epoch usually has as many times the steps, which then go without saying:

        >>> Variant("sb-trpo", (("num_envs", 1600), ("steps_per_epoch", 1_600_000))).title
        'SB-TRPO, 1,600 worlds'
        """
        told = worth_saying(self.algo, dict(self.settings))
        return ", ".join([method_title(self.algo), *(phrase(name, value) for name, value in told.items())])

    def get(self, name: str) -> Any:
        """A setting: the variant's where it has one, otherwise the method's default."""
        return dict(self.settings).get(name, usual_settings("", self.algo).get(name))

    @property
    def plain(self) -> bool:
        """Whether it is the method as published, at cost limit 0."""
        return not self.settings

    def without(self, name: str) -> Variant:
        """The same but for a setting."""
        return Variant(self.algo, tuple(setting for setting in self.settings if setting[0] != name))

    def differs_in(self, *names: str) -> bool:
        """Whether it differs from its method, and in none but these settings."""
        return bool(self.settings) and {name for name, _ in self.settings} <= set(names)

    def order(self) -> tuple[Any, ...]:
        """Sorts: the paper's methods in its order, then the catalogue's, then others; variants behind their method."""
        known = [*paper.METHODS, *(name for name in catalogue.names() if name not in paper.METHODS)]
        place = known.index(self.algo) if self.algo in known else len(known)
        return place, self.algo, [(name, _kind(value), value) for name, value in self.settings]


def _kind(value: Any) -> int:
    """Values of different kinds cannot be compared; numbers come first, then texts, then lists."""
    return 2 if isinstance(value, tuple) else int(isinstance(value, str))


# ---- from a run's settings -------------------------------------------------------------------------------------------


def setting_columns(columns: Iterable[str]) -> dict[str, str]:
    """The columns that hold settings, and the settings that they hold."""
    names = list(columns)
    known = setting_names()
    if "epochs" in names and "epoch" in names:  # as `collect` lays them out, settings of the user's methods included
        between = names[names.index("epochs") + 1 : names.index("epoch")]
        known = [*known, *(name.removeprefix("config_") for name in between if name not in NOT_SETTINGS)]
    meant = {name: name for name in known if name not in _ALSO_METRICS} | {f"config_{name}": name for name in known}
    return {column: meant[column] for column in names if column in meant}


@functools.cache
def setting_names() -> list[str]:
    """The settings that shape what runs compute, of all methods that have a name."""
    names = (
        name
        for kind in (RunSettings, *(entry.settings for entry in catalogue.entries()))
        for name, item in declared(kind).items()
        if name not in NOT_SETTINGS and not item.rule.operational
    )
    return list(dict.fromkeys([*names, VERSION]))


def not_default(task: str, name: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A run's method, and the settings in which the run differs from the method's defaults.

    Of a method of the user's only the defaults that every run has are known: what else it sets counts as differing.
    """
    algo = catalogue_name(name)
    if algo in _CRITICS.values():
        algo = _CRITICS.get(given.get("advantage", usual_settings(task, algo)["advantage"]), "sb-trpo")
    usual = usual_settings(task, algo, given.get("fidelity", "paper"))
    unknown = catalogue.labelled(algo) is None
    chosen = {key: _as_set(key, value) for key, value in given.items() if unknown or key in usual}
    differing = {key: value for key, value in chosen.items() if value != usual.get(key)}
    if given.get("fidelity", "paper") != "paper":
        differing["fidelity"] = given["fidelity"]
    return algo, differing


def _as_set(name: str, value: Any) -> Any:
    """A setting's value; the table has numbers for each constraint, and may have names of constraints, as one text."""
    if not isinstance(value, str):
        return value
    if name == "constraints":
        return tuple(value.split())
    try:
        numbers = tuple(map(float, value.split()))
    except ValueError:
        return value
    return numbers[0] if len(set(numbers)) == 1 else numbers


def stands_out(name: str, task: str, algo: str) -> bool:
    """Whether a setting makes a variant even if all runs of a method on a task share it."""
    return name == VERSION or (name in NAMED and name in usual_settings(task, algo))


@functools.cache
def usual_settings(task: str, algo: str, fidelity: Any = "paper") -> dict[str, Any]:
    """The defaults of a run with a method; of a method that the catalogue does not know, what every run has."""
    entry = catalogue.labelled(algo)
    if entry is None:
        return {name: item.default for name, item in declared(RunSettings).items()}
    return {**entry.run_defaults, **entry.settings.defaults(task, fidelity)}


# ---- names -----------------------------------------------------------------------------------------------------------


def method_title(algo: str) -> str:
    """A method's title; its name, where the catalogue does not know it."""
    entry = catalogue.labelled(algo)
    return algo if entry is None else entry.title


def catalogue_name(name: str) -> str:
    """The catalogue's name of a method that a table names; a table never makes this program load a user's code."""
    if ":" in name:
        return name
    try:
        return catalogue.method(name).name
    except ValueError:
        return name


def worth_saying(algo: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that are not the default, but for an epoch's steps where a world plays as many of them as by default.

    >>> worth_saying("sb-trpo", {"num_envs": 40, "steps_per_epoch": 40_000, "beta": 0.6})
    {'num_envs': 40, 'beta': 0.6}
    """
    usual, names = usual_settings("", algo), ("num_envs", "steps_per_epoch")
    worlds, steps = (settings.get(name) for name in names)
    numbers = isinstance(worlds, int | float) and isinstance(steps, int | float)
    implied = numbers and steps * usual[names[0]] == worlds * usual[names[1]]
    return {name: value for name, value in settings.items() if not (implied and name == names[1])}


def phrase(name: str, value: Any) -> str:
    """A setting in words.

    >>> phrase("beta", 0.6), phrase("hidden", (8, 8)), phrase("constraints", ("each",)), phrase("num_envs", 1600)
    ('β = 0.6', 'hidden = 8 8', 'each constraint', '1,600 worlds')
    """
    if name == "constraints":
        several = "s" if len(value) > 1 else ""
        return _CONSTRAINTS.get(value, f"constraint{several} {', '.join(value)}")
    if name == VERSION:
        return f"{'version' if '@' in value else 'of'} {short_version(value)}"
    if name == "end_at_violation" and value is True:
        return "episodes end at violations"
    if name == "num_envs" and isinstance(value, int | float):
        return f"{value:,.9g} world{'s' * (value != 1)}"
    if isinstance(value, tuple):
        text = (", " if name in _PHRASES else " ").join(map(_number, value))
    else:
        text = f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return _PHRASES[name].format(text) if name in _PHRASES else f"{name} = {text}"


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def notes_on(shared: Mapping[Group, Mapping[str, Any]]) -> list[str]:
    """Which of these settings are not the default, and whose they are."""
    by_phrase: dict[str, list[Group]] = {}
    for group, same in shared.items():
        usual = usual_settings(*group)
        for name, value in worth_saying(group[1], same).items():
            if name in usual:  # a table does not tell the defaults of a user's method
                by_phrase.setdefault(phrase(name, value), []).append(group)
    return [f"{NOT_DEFAULT}{words} ({_whom(sharing, list(shared))})" for words, sharing in by_phrase.items()]


def _whom(chosen: Sequence[Group], everyone: Sequence[Group]) -> str:
    """The chosen pairs of task and method in words; tasks are named where they are not all of the methods'."""
    on: dict[tuple[str, ...], list[str]] = {}
    for algo in dict.fromkeys(algo for _, algo in chosen):
        on.setdefault(tuple(task for task, other in chosen if other == algo), []).append(algo)
    if len(chosen) == len(everyone) and len({algo for _, algo in chosen}) > 1:
        return "all methods"
    phrases = []
    for tasks, algos in on.items():
        all_there = 1 < len(algos) == len({algo for task, algo in everyone if task in tasks})
        partly = any(task not in tasks for task, algo in everyone if algo in algos)
        names = "all methods" if all_there else ", ".join(map(method_title, algos))
        where = f" on {', '.join(tasks)}" if partly or all_there else ""
        phrases.append(names + where)
    return "; ".join(phrases)
