"""A training run: the settings of the run, and those of its method."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sbtrpo.config import catalogue
from sbtrpo.config.run import MOST_WORLDS, RunSettings
from sbtrpo.config.settings import Declared, MethodSettings, Needs, declared
from sbtrpo.config.tasks import ENV_KWARGS, TaskEntry, is_foreign, task_entry, with_env_kwargs


@dataclass(frozen=True, init=False)
class TrainConfig(RunSettings):
    """One training run: its settings and its method's, all of them known and checked.

    Settings are given by name, the run's and the method's alike. What is left out has the method's default, which is
    the published one on that task; some of the run's settings may have a method's default, too. `env_kwargs`, a dict,
    or `name=value` each, are keyword arguments of an environment of one's own; they become part of its name.

    >>> config = TrainConfig(algo="cpo", cg_damping=0.02, seed=3)
    >>> config.seed, config.method.cg_damping, config.method.target_kl
    (3, 0.02, 0.01)
    """

    method: MethodSettings = dataclasses.field(kw_only=True)
    """The method's settings."""
    given: Mapping[str, Any] = dataclasses.field(kw_only=True, repr=False, compare=False)
    """What was given, and not left to defaults."""

    def __init__(self, **given: Any) -> None:
        algo = declared(RunSettings)["algo"].checked(given.get("algo", RunSettings.algo))
        entry = catalogue.method(algo)
        known = all_settings(entry)
        kwargs = given.pop(ENV_KWARGS, ())
        for name in given:
            if name not in known:
                raise ValueError(no_such_setting(name, entry))
        given = {name: value for name, value in given.items() if value is not None or known[name].default is not None}
        given = {name: known[name].checked(value) for name, value in given.items()}
        given |= {"algo": entry.name} if "algo" in given else {}
        if kwargs or "task" in given:
            task = given.get("task", RunSettings.task).removeprefix("sbtrpo:")
            given["task"] = with_env_kwargs(task, kwargs)
        run = {name: given.get(name, default) for name, default in entry.run_defaults.items()}
        for name, value in {**run, "algo": entry.name}.items():
            object.__setattr__(self, name, value)
        defaults = entry.settings.defaults(self.task, self.fidelity)
        chosen = {name: given.get(name, default) for name, default in defaults.items()}
        object.__setattr__(self, "method", entry.settings(**chosen))
        object.__setattr__(self, "given", given)
        self._check()

    def _check(self) -> None:
        if self.steps_per_epoch % self.num_envs:
            raise ValueError(
                f"steps_per_epoch must be a multiple of num_envs, got {self.steps_per_epoch} and {self.num_envs}"
            )
        if self.total_steps < self.steps_per_epoch:
            raise ValueError(
                f"total_steps ({self.total_steps}) must hold at least one epoch of {self.steps_per_epoch} steps"
            )
        if self.grow_by == "worlds" and self.epoch_growth:
            self._check_worlds()
        if self.init_which != "last" and self.init_from is None:
            raise ValueError("init_which names a checkpoint of the run in init_from; give that, too")
        if self.patience and not self.evaluate_every:
            raise ValueError("patience counts evaluations, and there are none; give evaluate_every, too, such as 25")
        for name in (name for name, value in self.settings().items() if value == ()):
            raise ValueError(f"{name} must name at least one {'layer' if name == 'hidden' else 'value'}, got ()")
        if self.network == "cnn" and (self.method.in_effect("baseline") or self.method.in_effect("off-policy")):
            raise ValueError(
                f"advantage {self.method.advantage} gives every pixel weights of its own; with network cnn use mc,"
                " gae-reward or gae"
            )
        self.method.check(self.gamma)

    def _check_worlds(self) -> None:
        if is_foreign(self.task):
            raise ValueError(
                "worlds of an environment of your own cannot be laid beside others; leave grow_by out, and they play"
                " for longer instead"
            )
        if (most := self.worlds_in(self.epochs - 1)) > MOST_WORLDS:
            raise ValueError(
                f"with grow_by worlds the last epoch would have {most:,} of them, and {MOST_WORLDS:,} are the most;"
                " choose a smaller total_steps, epoch_growth or num_envs, or leave grow_by out"
            )

    def replace(self, **changes: Any) -> TrainConfig:
        """With other values of these settings; None takes one back to its default."""
        changed = {**self.given, **changes}
        return TrainConfig(**{name: value for name, value in changed.items() if value is not None})

    @property
    def label(self) -> str:
        """What titles, tables and folders call the method."""
        return catalogue.method(self.algo).label

    @property
    def task_entry(self) -> TaskEntry:
        """What titles, tables and folders call the task, and what tells it from others."""
        return task_entry(self.task)

    def settings(self) -> dict[str, Any]:
        """Every setting by its name, the run's and the method's."""
        run = {name: getattr(self, name) for name in declared(RunSettings)}
        return run | {name: getattr(self.method, name) for name in declared(type(self.method))}

    def get(self, name: str) -> Any:
        """A setting by its name; None where the method has no such setting."""
        return self.settings().get(name)

    def in_effect(self) -> dict[str, Any]:
        """The settings that shape what the run computes, but for the seed; files count by their content."""
        entry = catalogue.method(self.algo)
        rules = {name: item.rule for name, item in all_settings(entry).items()}
        identities = {"task": self.task_entry.identity, "algo": entry.identity, "init_from": self._start()}
        return {
            name: value
            for name, value in {**self.settings(), **identities}.items()
            if not rules[name].operational and self._takes_effect(rules[name].needs)
        }

    def differences(self, before: TrainConfig, but: tuple[str, ...] = ("total_steps",)) -> list[str]:
        """In words, what shapes this run and not that one, but for what may differ."""
        old, new = ({**config.in_effect(), "seed": config.seed} for config in (before, self))
        names = [name for name in {**old, **new} if name not in but and old.get(name) != new.get(name)]
        return [f"{name} ({old.get(name)!r}, now {new.get(name)!r})" for name in names]

    def _start(self) -> str | None:
        """What tells the policy that the run begins with from others."""
        if self.init_from is None:
            return None
        policies = importlib.import_module("sbtrpo.runs.policy_file")  # here: what reads policies knows settings
        return str(policies.identity_of(self.init_from, self.init_which))

    def _takes_effect(self, needs: Needs | None) -> bool:
        """Whether settings with this need shape what the run computes."""
        if needs == "growth":
            return self.epoch_growth > 0
        return self.patience > 0 if needs == "patience" else self.method.in_effect(needs)

    def without_effect(self) -> dict[str, str]:
        """Settings that were given and change nothing, each with the setting by whose value it does not."""
        rules = declared(type(self.method))
        needs = {name: rules[name].rule.needs for name in self.given if name in rules}
        idle = {name: need for name, need in needs.items() if not self.method.in_effect(need)}
        by: dict[Needs | None, str] = {"first-hit": "cost_to_go", "beta-end": "beta_end"}
        return {name: by.get(need, "advantage") for name, need in idle.items()}

    def notes(self) -> list[str]:
        """What a user may not expect of these settings."""
        notes = []
        if self.init_from is None and catalogue.method(self.algo).implementation.trains_on:
            notes.append(f"{self.algo} is for a policy that is trained already: name its file or run with init_from")
        if self.init_from is not None and self.initial_log_std != RunSettings.initial_log_std:
            notes.append("initial_log_std changes nothing where a run begins with the policy of init_from")
        if self.grow_by == "worlds" and not self.epoch_growth:
            notes.append("grow_by changes nothing where epochs are all alike; give epoch_growth, too, such as 0.02")
        if (trained := self.steps_after(self.epochs)) != self.total_steps:
            lengths = f"{self.steps_per_epoch:,}" + (" and more" if self.epoch_growth else "")
            epochs = f"{self.epochs:,} whole epoch{'s' * (self.epochs > 1)} of {lengths}"
            notes.append(f"of total_steps, {self.total_steps:,}, the run takes {trained:,}: {epochs}")
        return notes

    def digest(self) -> str:
        """Eight letters that tell runs with other settings apart, the seed aside."""
        effective = {name: value for name, value in self.in_effect().items() if (name, value) not in LATER}
        return hashlib.sha256(json.dumps(effective, sort_keys=True).encode()).hexdigest()[:8]


LATEST = (
    ("epoch_growth", 0.0), ("statistics", "running"), ("grow_by", "steps"), ("cost_to_go", "sum"),
    ("first_hit_from", 0.0), ("end_at_violation", False), ("beta_end", None), ("beta_from", 0.0),
)  # fmt: skip
"""Settings as they were before there were such: files of policies leave them out, as they did then."""
LATER = (
    ("init_from", None), ("step_decay", 0.0), ("step_decay_from", 0.0), ("pace", 0.0), ("pace_memory", 0.98), *LATEST
)  # fmt: skip
"""The same, with those that had come before the files: folders had their names then, and keep them."""


def all_settings(entry: catalogue.Entry) -> dict[str, Declared]:
    """A run's settings and those of a method, by name."""
    return {**declared(RunSettings), **declared(entry.settings)}


def concerning(given: Mapping[str, Any]) -> TrainConfig:
    """A run with those of the settings that its method has."""
    known = all_settings(catalogue.method(given.get("algo", RunSettings.algo)))
    return TrainConfig(**{name: value for name, value in given.items() if name in (*known, ENV_KWARGS)})


def no_such_setting(name: str, entry: catalogue.Entry) -> str:
    """What to say of a setting that a method does not have."""
    if owners := catalogue.owners(name):
        return f"{entry.name} has no setting {name}; {_listed(owners)} {'have' if len(owners) > 1 else 'has'} it"
    return f"there is no setting {name!r}; {catalogue.nearest(name, all_settings(entry))}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
