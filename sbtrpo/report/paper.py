"""The paper's printed numbers, from `paper_results.json`, under our names of methods and tasks."""

from __future__ import annotations

import functools
import importlib.resources
import json
from dataclasses import dataclass
from typing import Any

METRICS = ("safe_reward", "safety_probability", "reward", "cost")
"""The four metrics of every table, in the paper's order."""
TITLES = {
    "safe_reward": "safe reward",
    "safety_probability": "safety probability",
    "reward": "reward",
    "cost": "cost",
    "update_seconds": "update seconds",
    "product": "reward × safety probability",
}
PRODUCT = "product"
"""What the paper's cells of safe reward hold: 74 of 96 are, within 5 %, the mean reward times the safety probability,
as if violations did not depend on reward. By its definition, which has 0 for the return of an unsafe episode, safe
reward is less than that wherever episodes that earn more violate more often.
"""
LOWER_IS_BETTER = frozenset({"cost", "update_seconds"})

METHODS = {
    "sb-trpo": "Ours",
    "ppo_lag": "PPO-Lag",
    "trpo_lag": "TRPO-Lag",
    "cpo": "CPO",
    "cup": "CUP",
    "cppo_pid": "CPPO-PID",
    "focops": "FOCOPS",
    "rcpo": "RCPO",
    "pcpo": "PCPO",
    "p3o": "P3O",
    "c_trpo": "C-TRPO",
    "c3po": "C3PO",
}
"""From our names of methods to the paper's, in the paper's order."""
UPDATE_TIME_NAMES = {"sb-trpo": "SB-TRPO (MC)", "sb-trpo_critic": "SB-TRPO (GAE)"}
"""The names in the table of update times that differ from `METHODS`."""
UPDATE_TIME_TASK = "SafetyPointGoal2-v0"
MAIN_STEPS = 20_000_000
"""Environment steps of the paper's runs."""
SEEDS = 5
"""Of each of the paper's cells."""


@dataclass(frozen=True)
class PrintedCell:
    """One entry of a table in the paper."""

    mean_text: str
    std_text: str
    bold: bool = False
    italic: bool = False
    colour: str | None = None
    """red: the reward is negative; grey: another method is at least as good in both metrics."""

    @property
    def mean(self) -> float:
        """The printed mean as a number."""
        return float(self.mean_text)

    @property
    def std(self) -> float:
        """The printed standard deviation as a number."""
        return float(self.std_text)


Results = dict[str, dict[str, PrintedCell]]
"""Cells by task id and metric."""


@dataclass(frozen=True)
class LimitRow:
    """A row of the table with a relaxed cost limit."""

    algo: str
    cost_limit: float | None
    """None for SB-TRPO, which has no such setting."""
    results: Results


@dataclass(frozen=True)
class AdvantageRow:
    """A row of the table on advantage estimation."""

    advantage: str
    """mc or gae."""
    beta: float
    results: Results


@functools.cache
def _data() -> dict[str, Any]:
    text = importlib.resources.files(__package__).joinpath("paper_results.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def _cell(entry: dict[str, str]) -> PrintedCell:
    marks = entry["marks"].split()
    colour = next((mark for mark in marks if mark in ("red", "grey")), None)
    return PrintedCell(entry["mean"], entry["std"], "bold" in marks, "italic" in marks, colour)


def _results(results: dict[str, dict[str, dict[str, str]]]) -> Results:
    return {task_id(task): {metric: _cell(entry) for metric, entry in cells.items()} for task, cells in results.items()}


def _algo(name: str) -> str:
    return next(ours for ours, theirs in METHODS.items() if theirs == name)


def tasks() -> dict[str, str]:
    """From task ids to the paper's names of its tasks, in the paper's order.

    >>> tasks()["SafetyCarCircle2-v0"]
    'Car Circle'
    """
    return {identity: title for title, identity in _data()["tasks"].items()}


def task_id(title: str) -> str:
    """The id of a task, from its name in the paper."""
    return str(_data()["tasks"][title])


@functools.cache
def main() -> dict[str, Results]:
    """Both halves of the main table: cells by method, task and metric.

    >>> main()["sb-trpo"]["SafetyPointGoal2-v0"]["safe_reward"].mean
    1.6
    """
    return {ours: _results(_data()["main"][theirs]) for ours, theirs in METHODS.items()}


@functools.cache
def cost_limit_15() -> list[LimitRow]:
    """The table with a relaxed cost limit, row by row."""
    rows = _data()["cost_limit_15"]["rows"]
    return [LimitRow(_algo(row["method"]), row["cost_limit"], _results(row["results"])) for row in rows]


@functools.cache
def advantage() -> list[AdvantageRow]:
    """The table on advantage estimation, row by row."""
    rows = _data()["advantage"]["rows"]
    return [AdvantageRow(row["advantage"].lower(), row["beta"], _results(row["results"])) for row in rows]


@functools.cache
def update_seconds() -> dict[str, PrintedCell]:
    """Seconds that an update takes on Point Goal, by method; SB-TRPO with critics is `sb-trpo_critic`."""
    printed = {name: _cell(entry) for name, entry in _data()["update_seconds"].items()}
    ours = {theirs: name for name, theirs in (METHODS | UPDATE_TIME_NAMES).items()}
    return {ours[name]: cell for name, cell in printed.items()}


def hyperparameters() -> dict[str, dict[str, str]]:
    """The table of hyperparameters: texts by the name of the row and by method; a dash is left out."""
    columns = {"SB-TRPO (critic)": "sb-trpo_critic", "SB-TRPO (no critic)": "sb-trpo"}
    rows: dict[str, dict[str, str]] = _data()["hyperparameters"]["rows"]
    return {
        name: {columns.get(column) or _algo(column): text for column, text in row.items()} for name, row in rows.items()
    }


def unreliable(algo: str, task: str, metric: str) -> str | None:
    """Why a cell of the main table cannot be right as printed; None for all but a few.

    >>> unreliable("p3o", "SafetyHopperVelocity-v1", "safety_probability")
    'a safety probability of 0.0 ± 1.0 and a safe reward of 0.0 ± 1454.5 are impossible'
    """
    for entry in _data()["unreliable"]:
        if (_algo(entry["method"]), task_id(entry["task"])) == (algo, task) and metric in entry["metrics"]:
            return str(entry["why"])
    return None
