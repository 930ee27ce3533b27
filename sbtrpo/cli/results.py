"""The command that shows results without any run: `sbtrpo results`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:  # torch alone takes seconds
    from sbtrpo.benchmark.labelled import Labelled
    from sbtrpo.report.render import Cell
    from sbtrpo.report.results import Result

HEADS = {"safe_reward": "safe reward", "safety_probability": "P(safe)", "reward": "reward", "cost": "cost"}
LEGEND = (
    "Mean ± standard deviation over the last 20 epochs (400,000 steps of longer ones) of all seeds. * is the best"
    " of its task in this table: of safe reward and reward among what is safe in half of its episodes or more (where"
    " none of these has a safe reward above 0, the safest), of P(safe) and cost among what has a (safe) reward above 0."
)
STYLES = (
    " Dim: another row is at least as good in both of a pair; italic: safe in less than half of the episodes; red:"
    " reward below 0."
)


def results(
    task: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[TASK]")] = None,
    algo: str | None = None,
    source: Annotated[Path | None, tyro.conf.arg(name="results")] = None,
    json_only: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Print the results that this package brings, of all tasks, or of one with the commands that repeat them.

    Args:
        task: an id.
        algo: one method.
        source: other results: a table that `sbtrpo collect` made, or a folder of such.
        json_only: print JSON alone: all that is known of each result, with the command that repeats it.
    """
    from sbtrpo.benchmark.plan import PLANS
    from sbtrpo.report.results import RESULTS, chosen, read_results

    tables = read_results(RESULTS if source is None else source)
    found = chosen(tables, task, algo)
    if json_only:
        print(json.dumps([result.as_dict() for result in found], indent=2, allow_nan=False))
        return
    console = Console(highlight=False)

    def say(words: str, style: str = "") -> None:
        console.print(Text(words, style), soft_wrap=True)

    one = task is not None or algo is not None
    for name, rows in itertools.groupby(found, lambda result: result.table):
        of_table, runs = list(rows), tables[name]
        plan = f": `sbtrpo benchmark {name}`" if source is None and (PLANS / f"{name}.toml").exists() else ""
        say(f"\n{name}{plan}", "bold")
        for shown, of_task in itertools.groupby(of_table, lambda result: result.task):
            console.print(_table(shown, of_task))
        about = runs if task is None else runs.on(task)
        notes = [f"much longer runs, which only the report shows: {len(about.long)}"] if about.long else []
        for note in [*about.notes, *about.warnings([result.variant for result in of_table]), *notes]:
            say(note, "dim")
        for result in of_table if one else ():
            say(f"# {result.variant.title}{'' if task else f' on {result.task}'}", "dim")
            say(result.command or "# not of this package: name the files it is in")
    console.print(Text("\n" * one + LEGEND + (STYLES if console.is_terminal else ""), "dim"))
    if not one:
        say("`sbtrpo results TASK` shows one task, and how to repeat its results.")
    elif any(" --init-from " in (result.command or "") for result in found):
        say("--init-from NAME@HASH: the policy's file whose SHA-256, which its card has, begins with HASH", "dim")


def _table(task: str, rows: Iterable[Result]) -> Labelled:
    from sbtrpo.benchmark.labelled import Labelled

    table = Labelled(task, ("method", "seeds", "steps"), tuple(HEADS.values()))
    for row in rows:
        whole = "" if row.steps >= row.total_steps else f" of {_short(row.total_steps)}"
        labels = row.variant.title, str(len(row.seeds)), _short(row.steps) + whole
        table.add(labels, [_marked(row.cells[metric]) for metric in HEADS])
    return table


def _marked(cell: Cell) -> Text:
    styles = {"bold": cell.bold, "italic": cell.italic, "dim": cell.colour == "grey", "red": cell.colour == "red"}
    return Text("*" * cell.bold + cell.plain, " ".join(name for name, on in styles.items() if on))


def _short(steps: int) -> str:
    """A number of steps in a few letters.

    >>> _short(20_000_000), _short(1_260_000), _short(5_000)
    ('20 M', '1.26 M', '5 k')
    """
    return f"{steps / 1e6:.4g} M" if steps >= 1_000_000 else f"{steps / 1e3:.4g} k"
