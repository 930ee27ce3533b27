"""The tables that commands print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:  # torch alone takes seconds
    from rich.console import Console

    from sbtrpo.config.catalogue import Entry
    from sbtrpo.envs.describe import Description, Sheet
    from sbtrpo.runs.evaluation import Evaluation
    from sbtrpo.tools.algorithm_docs import Listing


def evaluation_table(result: Evaluation) -> Table:
    """What an evaluation measured."""
    what = result.policy + (f", epoch {result.checkpoint}" if result.checkpoint is not None else "")
    title = f"{escape(what)}\n{escape(result.task)}: {result.episodes} fresh episodes, {actions(result.deterministic)}"
    table = Table(box=box.SIMPLE_HEAD, title=title)
    for column in ("measure", "value", "spread"):
        table.add_column(column, justify="right" if column == "value" else "left")

    def row(measure: str, value: float, spread: str = "") -> None:
        table.add_row(measure, f"{value:.3f}", spread)

    def safety(measure: str, of: Mapping[str, Any]) -> None:
        low, high = of["safety_probability_interval"]
        row(measure, of["safety_probability"], f"Wilson's 95 % interval {low:.3f} to {high:.3f}")

    row("reward", result.reward, f"standard deviation {result.reward_std:.3f}")
    row("cost", result.cost, f"standard deviation {result.cost_std:.3f}")
    safety("safety probability", result.as_dict())
    bound = f"95 % upper bound {result.violation_probability_upper:.3f} (Clopper-Pearson)"
    row("violation probability", 1 - result.safety_probability, bound)
    row("safe reward", result.safe_reward, f"standard deviation {result.safe_reward_std:.3f}")
    if result.safe_episodes_reward is not None:
        row("reward of safe episodes", result.safe_episodes_reward)
    for name, alone in result.constraints.items():
        row(f"{escape(name)}: cost", alone["cost"])
        safety(f"{escape(name)}: safety", alone)
    how = {"unsafe": "count as unsafe", "apart": "left out of the above"}[result.faulted]
    table.add_row("episodes cut by a fault", str(result.faulted_episodes), how if result.faulted_episodes else "")
    table.add_row("worlds that failed", str(result.faults))
    return table


def actions(deterministic: bool | None) -> str:
    """How a policy acted."""
    return {True: "mean action", False: "sampled actions", None: "actions of its choice"}[deterministic]


def evaluations_table(kept: Sequence[tuple[Path, Mapping[str, Any]]]) -> Table:
    """The evaluations that a folder holds, side by side; what earlier versions did not write is left open."""
    title = "mean (standard deviation) of episodes\nsafety with Wilson's 95 % interval"
    table = Table(box=box.SIMPLE_HEAD, title=title)
    table.add_column("evaluation", overflow="fold")
    for column in ("reward", "cost", "safety"):
        table.add_column(column, no_wrap=True)
    for _, found in kept:
        low, high = found["safety_probability_interval"]
        means = (f"{found[name]:.2f} ({found[f'{name}_std']:.2f})" for name in ("reward", "cost"))
        who = [found.get("policy"), f"epoch {epoch}" if (epoch := found.get("checkpoint")) is not None else ""]
        how = [f"{found['episodes']} episodes", f"seed {seed}" if (seed := found.get("seed")) is not None else ""]
        lines = [found["task"], ", ".join(filter(None, who)), ", ".join(filter(None, how))]
        what = "\n".join(filter(None, [*lines, actions(found["deterministic"])]))
        table.add_row(escape(what), *means, f"{found['safety_probability']:.3f}\n{low:.3f} to {high:.3f}")
    return table


def table_of(listing: Listing | Sheet, title: str) -> Table:
    """Names in one piece, all else as wide as the terminal allows."""
    table = Table(box=box.SIMPLE_HEAD, title=title)
    for k, column in enumerate(listing.columns):
        table.add_column(column, no_wrap=k == 0)
    for row in listing.rows:
        table.add_row(*map(escape, row))
    return table


def show_task(console: Console, task: Description) -> None:
    """Every part of a task's observation, its objects, and what costs."""
    console.print(f"[bold]{escape(task.id)}[/bold]")
    for what, words in task.facts:
        console.print(f"{escape(what)}: {escape(words)}")
    for title, sheet in {"observation": task.observation, "objects": task.objects, "costs": task.costs}.items():
        if sheet.rows:
            console.print(table_of(sheet, title))


def show_method(console: Console, method: Entry, settings: Listing, quirks: Listing) -> None:
    """What a method does, its settings, and the quirks of its published code."""
    console.print(f"[bold]{escape(method.title)}[/bold] ({escape(method.name)}): {escape(method.summary)}")
    if method.source:
        console.print(f"Source: {escape(method.source)}")
    console.print(table_of(settings, "settings, as of fidelity paper"))
    console.print(table_of(quirks, "what fidelity decides"))
