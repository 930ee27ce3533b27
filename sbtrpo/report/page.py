"""The report's page: one file that holds all numbers and needs no network.

Text from run folders is stored as JSON that cannot contain markup, and the script puts it into the page as text.
The page's security policy names the hash of its script, so that a browser runs no other script.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
import math
import re
import urllib.parse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sbtrpo.benchmark.columns import FRESH, constraint_metrics
from sbtrpo.report import compare, paper
from sbtrpo.report.render import Cell, Table, number_texts
from sbtrpo.report.runs import THE_LAST, Floats, Runs, rivals
from sbtrpo.report.style import look
from sbtrpo.report.tables import basis, pair_cells
from sbtrpo.report.variants import NOT_DEFAULT, Variant

POINTS = 160
"""The most points of a curve."""


@dataclass(frozen=True)
class FigureFile:
    """A figure that the page shows."""

    title: str
    png: bytes
    svg: str
    """Path of the SVG file, relative to the page."""


@dataclass(frozen=True)
class VideoFile:
    """A video that the page plays."""

    title: str
    src: str
    """Path of the video file, relative to the page."""
    task: str = ""


@dataclass(frozen=True)
class Skipped:
    """A table, figure or list of videos that the report lacks, and why."""

    part: str
    why: str


def page_html(
    runs: Runs,
    tables: Sequence[Table],
    figures: Sequence[FigureFile] = (),
    videos: Sequence[VideoFile] = (),
    skipped: Sequence[Skipped] = (),
    refresh: float | None = None,
) -> str:
    """The whole page.

    Args:
        runs: the runs that it shows.
        tables: the tables in their order, without that of the comparison, which is made here.
        figures: the figures in their order.
        videos: files beside the page.
        skipped: what the report lacks.
        refresh: seconds after which an open page reloads itself; None: never.
    """
    template = importlib.resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    script = template.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline';"
        " img-src data: 'self' file:; media-src 'self' file:; base-uri 'none'; form-action 'none'"
    )
    data = page_data(runs, tables, figures, videos, skipped, refresh)
    return template.replace("@POLICY@", policy).replace("@DATA@", safe_json(data))


def safe_json(value: Any) -> str:
    """JSON that contains neither markup nor the end of a script.

    >>> safe_json("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _finite(value: Any) -> Any:
    """A value as JSON can hold it, with null for numbers that are not finite: the page cannot draw those."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def page_data(
    runs: Runs,
    tables: Sequence[Table],
    figures: Sequence[FigureFile],
    videos: Sequence[VideoFile],
    skipped: Sequence[Skipped],
    refresh: float | None,
) -> dict[str, Any]:
    """Everything that the page's script reads."""
    best = {task: winners(runs, task) for task in runs.tasks}
    compared = compare.comparisons(runs)
    return {
        "lead": lead(best, [variant.title for variant in rivals(runs)]),
        "basis": _basis(runs),
        "alarms": runs.alarms,
        "tasks": [
            {
                "id": task,
                "title": task,
                "best": best[task][0],
                "safest": best[task][1],
                "belowZero": task in runs.below_zero,
            }
            for task in runs.tasks
        ],
        "methods": _methods(runs),
        "metrics": [{"name": name, "title": title} for name, title in metric_titles(runs).items()],
        "finals": {task: _finals(runs, task) for task in runs.tasks},
        "curves": {task: _curves(runs, task) for task in runs.tasks},
        "tables": [_table(table) for table in tables],
        "comparison": _comparison(runs, compared),
        "verdicts": _verdicts(compared),
        "figures": [
            {
                "title": f.title,
                "png": f"data:image/png;base64,{base64.b64encode(f.png).decode()}",
                "svg": urllib.parse.quote(f.svg),
            }
            for f in figures
        ],
        "videos": [
            {
                "title": v.title,
                "src": urllib.parse.quote(v.src),
                "task": v.task,
                "picture": v.src.lower().endswith(".gif"),
            }
            for v in videos
        ],
        "notes": runs.notes,
        "skipped": [{"part": gap.part, "why": gap.why} for gap in skipped],
        "refresh": refresh,
    }


# ---- which method is best where --------------------------------------------------------------------------------------


def winners(runs: Runs, task: str) -> tuple[list[str], list[str]]:
    """The best methods and the safest ones: those that are bold in the main table."""
    cells = pair_cells(runs, task, rivals(runs), "safety", runs.pooled)
    best = [variant.title for variant, (reward, _) in cells.items() if reward.bold]
    return best, [variant.title for variant, (_, safety) in cells.items() if safety.bold]


def lead(best: Mapping[str, tuple[list[str], list[str]]], methods: Sequence[str]) -> str:
    """Which method is best, in a sentence or two.

    >>> lead({"a": (["X"], ["X"]), "b": (["X"], ["Y"]), "c": ([], [])}, ["X", "Y"])
    'X is best in 2 of 3 tasks. On one task no method is safe in half of its episodes.'
    """
    if not best:
        return "There are no runs yet."
    if len(methods) == 1:
        return f"{methods[0]} is the only method here; there is nothing to compare it with yet."
    counts = Counter(name for names, _ in best.values() for name in names)
    if not counts:
        return "On no task is any method safe in half of its episodes."
    total = f"{len(best)} task{'s' if len(best) > 1 else ''}"
    most = max(counts.values())
    leaders = [name for name, count in counts.items() if count == most]
    where = f"in {most} of {total}"
    text = f"{_and(leaders)} are best, each {where}" if len(leaders) > 1 else f"{leaders[0]} is best {where}"
    rest = [f"{name} in {count}" for name, count in counts.most_common() if count < most]
    text += f", {_and(rest)}." if rest else "."
    if unsafe := sum(not names for names, _ in best.values()):
        text += f" On {'one task' if unsafe == 1 else f'{unsafe} tasks'} no method is safe in half of its episodes."
    return text


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _basis(runs: Runs) -> str:
    if not runs.usual:
        return ""
    finished = sum(run.finished for run in runs.usual)
    seeds = [len(runs.of(task, variant)) for task in runs.tasks for variant in runs.variants if runs.of(task, variant)]
    span = f"{min(seeds)}" if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}"
    done = "all finished" if finished == len(runs.usual) else f"{finished} finished"
    plural = "" if max(seeds) == 1 else "s"
    longest = max(run.steps for run in runs.usual)
    not_default = [note.removeprefix(NOT_DEFAULT) for note in runs.notes if note.startswith(NOT_DEFAULT)]
    return (
        f"{len(runs.usual)} runs ({done}) of {len(runs.variants)} methods and settings on {len(runs.tasks)} tasks,"
        f" {span} seed{plural} each, up to {longest:,.0f} steps. Final values are means over {THE_LAST}"
        " of all seeds. An episode is safe if it has no cost and no fault; an unsafe one earns no safe reward."
        " The best method has the most safe reward of those that are safe in at least half of their episodes; where"
        " these earn none, safety comes first, then the reward of safe episodes."
        + (f" Not the default: {'; '.join(not_default)}." if not_default else "")
    )


# ---- the page's sections ---------------------------------------------------------------------------------------------


def _methods(runs: Runs) -> list[dict[str, Any]]:
    """How methods look; at first the page shows those that compete."""
    shown = rivals(runs)
    return [
        {
            "title": variant.title,
            "colour": look(variant).colour,
            "line": look(variant).line,
            "shown": variant in shown,
            "ours": variant == Variant("sb-trpo"),
        }
        for variant in [*shown, *(variant for variant in runs.variants if variant not in shown)]
    ]


def _finals(runs: Runs, task: str) -> dict[str, Any]:
    by_method = {}
    for variant in runs.variants:
        cells = {}
        for metric in paper.METRICS:
            if (estimate := runs.pooled(task, variant, metric)) is not None:
                mean, std = number_texts(estimate.mean, estimate.std)
                cells[metric] = {"mean": estimate.mean, "text": f"{mean} ± {std}"}
        if cells:
            by_method[variant.title] = {**cells, "basis": basis(runs, task, variant)}
    return by_method


def metric_titles(runs: Runs) -> dict[str, str]:
    """The metrics of which the page has curves, and what it calls them: the paper's, each constraint's, and more."""
    titles = {metric: paper.TITLES[metric] for metric in paper.METRICS}
    for name in runs.constraints:
        cost, safety = constraint_metrics(name)
        titles |= {cost: f"cost: {name}", safety: f"safety: {name}"}
    if runs.evaluated:
        titles |= {f"{FRESH}{metric}": f"{paper.TITLES[metric]}, fresh worlds" for metric in paper.METRICS}
    return titles | runs.holding


def _curves(runs: Runs, task: str) -> dict[str, Any]:
    by_method: dict[str, Any] = {}
    for variant in runs.variants:
        for metric in metric_titles(runs):
            if (curve := runs.curve(task, variant, metric)) is not None:
                thin = curve.thinned(POINTS)
                lines = by_method.setdefault(variant.title, {"seeds": curve.seeds, "steps": _digits(thin.steps, 12)})
                if len(lines["steps"]) == len(thin.steps):
                    lines[metric] = {"mean": _digits(thin.mean), "std": _digits(thin.std) if curve.seeds > 1 else None}
    return by_method


def _digits(values: Floats, count: int = 4) -> list[float]:
    """Values rounded to `count` digits; a curve of a few hundred pixels shows no more."""
    rounded = (float(f"{value:.{count}g}") for value in values.tolist())
    return [int(number) if number.is_integer() else number for number in rounded]


def _table(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "title": table.title,
        "caption": table.caption,
        "columns": list(table.columns),
        "groups": [list(group) for group in table.groups],
        "rows": [[_cell(cell) for cell in row] for row in table.rows],
        "rules": sorted(table.rules),
        "rowTags": [list(tags) for tags in table.row_tags],
        "columnTags": list(table.column_tags),
    }


def _cell(cell: Cell) -> list[Any]:
    flags = (("bold", cell.bold), ("italic", cell.italic), (cell.colour or "", True))
    classes = " ".join(name for name, on in flags if on and name)
    return [cell.text, cell.std, classes, cell.value, cell.note]


def _comparison(runs: Runs, compared: Sequence[compare.Comparison]) -> dict[str, Any] | None:
    if not compared:
        return None
    summary = compare.summary_table(runs)
    by_method = [
        {"method": row[0].text, "counts": dict(zip(summary.columns[2:], (int(c.text) for c in row[2:]), strict=True))}
        for row in summary.rows
    ]
    sentences, table = compare.summary(compared), compare.comparison_table(runs)
    table = replace(table, caption=table.caption.removeprefix(sentences).strip())  # they are above the table
    return {"summary": sentences, "byMethod": by_method, "table": _table(table)}


def _verdicts(compared: Sequence[compare.Comparison]) -> list[dict[str, Any]]:
    counts = Counter(comparison.outcome for comparison in compared)
    return [{"name": kind, "count": counts[kind]} for kind in (*compare.VERDICTS, compare.UNRELIABLE)]
