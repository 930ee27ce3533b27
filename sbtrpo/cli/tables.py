"""The tables that commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    how = "mean action" if result.deterministic else "sampled actions"
    table = Table(box=box.SIMPLE_HEAD, title=f"{result.task}: {result.episodes} fresh episodes, {how}")
    table.add_column("measure")
    table.add_column("value", justify="right")
    low, high = result.safety_probability_interval
    table.add_row("reward", f"{result.reward:.3f} ± {result.reward_std:.3f}")
    table.add_row("cost", f"{result.cost:.3f} ± {result.cost_std:.3f}")
    table.add_row("safety probability", f"{result.safety_probability:.3f} (95 %: {low:.3f} to {high:.3f})")
    table.add_row("safe reward", f"{result.safe_reward:.3f}")
    if result.safe_episodes_reward is not None:
        table.add_row("reward of safe episodes", f"{result.safe_episodes_reward:.3f}")
    table.add_row("violation probability, 95 % upper bound", f"{result.violation_probability_upper:.3f}")
    for name, alone in result.constraints.items():
        low, high = alone["safety_probability_interval"]
        table.add_row(f"{name}: cost", f"{alone['cost']:.3f}")
        table.add_row(f"{name}: safety", f"{alone['safety_probability']:.3f} (95 %: {low:.3f} to {high:.3f})")
    how = {"unsafe": "count as unsafe", "apart": "left out of the above"}[result.faulted]
    table.add_row("episodes cut by a fault", f"{result.faulted_episodes}" + f" ({how})" * bool(result.faulted_episodes))
    table.add_row("worlds that failed", str(result.faults))
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
