"""What a run's task is called, and what tells it from others.

A task in a TOML file is what the file says: it has one name wherever the file lies, and is another task once the file
says something else. Comments, the order of keys, and defaults that are written out say nothing. What a registered id or
`module:Env` stands for is code, and known by its name alone.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path


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
    return task.endswith(".toml")


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
