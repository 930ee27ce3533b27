"""What the tidy table calls things: methods in its column `algo`, and the numbers of each constraint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from sbtrpo.config import TrainConfig, catalogue

VERSION = "method_version"
"""The column that tells methods apart that have the same label."""

FRESH = "fresh_"
"""What the columns of evaluations on fresh worlds begin with."""

HOLDS = "holds_"
"""What the columns begin with that tell how much of an update's promise holds in worlds that it was not made from."""


def constraint_names(columns: Iterable[str]) -> list[str]:
    """The constraints of which columns tell by themselves: each has its cost and its safety.

    >>> constraint_names(["cost", "safety_probability", "cost_statistic", "cost_hazards", "safety_hazards"])
    ['hazards']
    """
    present = list(columns)
    names = [column.removeprefix("cost_") for column in present if column.startswith("cost_")]
    return [name for name in names if name != "probability" and f"safety_{name}" in present]


def constraint_metrics(name: str) -> tuple[str, str]:
    """The columns of a constraint's cost and of its safety probability."""
    return f"cost_{name}", f"safety_{name}"


def label(config: TrainConfig) -> str:
    """What the table calls a run's method: its name, or, for a user's, the name of the class.

    A class that is named like a listed method has its file or module behind it, as in `PPO (method.py)`.
    """
    entry = catalogue.method(config.algo)
    place, _, _ = entry.name.rpartition(":")
    if not place or not _is_listed(entry.label):
        return entry.label
    return f"{entry.label} ({Path(place).name if place.endswith('.py') else place})"


def short_version(identity: str) -> str:
    """A version in a few letters: of a file those that tell its contents apart, of a class in a module the module.

    >>> short_version("MyMethod@3f2a9c1b20aa"), short_version("package.module:MyMethod")
    ('3f2a9c1b', 'package.module')
    """
    _, in_file, digest = identity.rpartition("@")
    return digest[:8] if in_file else identity.rpartition(":")[0]


def _is_listed(name: str) -> bool:
    try:
        catalogue.method(name)
    except ValueError:
        return False
    return True


def ambiguous_labels(configs: Iterable[TrainConfig]) -> set[str]:
    """Labels that stand for several methods: versions of a file, or classes of one name."""
    identities: dict[str, set[str]] = {}
    for config in configs:
        identities.setdefault(label(config), set()).add(catalogue.method(config.algo).identity)
    return {name for name, methods in identities.items() if len(methods) > 1}


def task_names(configs: Iterable[TrainConfig]) -> dict[str, str]:
    """What the table calls tasks, by identity: their ids; where several have one id, a version is behind it."""
    labels = {entry.identity: entry.label for entry in (config.task_entry for config in configs)}
    alone = {label for label, count in Counter(labels.values()).items() if count == 1}
    return {identity: label if label in alone else identity for identity, label in labels.items()}
