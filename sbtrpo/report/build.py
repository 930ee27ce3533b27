"""Builds the whole report from a tidy table. What has no runs is left out, and a sentence says so.

report/
  index.html          the page: open it
  comparison.csv      every cell of the paper beside ours
  tables/             each table as .md, .tex and .html
  figures/            each figure as .png and .svg
  videos/             copies, if there are any
"""

from __future__ import annotations

import hashlib
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbtrpo.benchmark.columns import FRESH
from sbtrpo.files import UNFINISHED, move, naming, write_atomically
from sbtrpo.report import beside, compare, constraints, evaluations, figures, histograms, page, planes, render, tables
from sbtrpo.report.canvas import files, slug
from sbtrpo.report.page import FigureFile, Skipped, VideoFile
from sbtrpo.report.runs import Runs, Table, as_columns, read_runs
from sbtrpo.report.tables import Missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIDEOS = (".mp4", ".webm", ".gif")


@dataclass
class Report:
    """The files of a report, and what it lacks."""

    index: Path
    written: list[Path] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    """What must not be overlooked, such as many episodes that faults have cut."""
    warnings: list[str] = field(default_factory=list)
    """What a reader must know to judge its numbers."""


@dataclass(frozen=True)
class _Drawing:
    name: str
    title: str
    draw: Callable[[], Figure]
    on_page: bool = True
    """False for training curves: the page draws these itself, so that a reader can point at them."""


def build(
    table: Table,
    out: str | Path,
    videos: str | Path | None = None,
    notes: Sequence[str] = (),
    refresh: float | None = None,
) -> Report:
    """Write the report; what has no runs is left out and listed in `Report.skipped`.

    Args:
        table: one row for each run and epoch, as `sbtrpo.benchmark.collect` makes it.
        out: the report's folder; files of an earlier report there are replaced.
        videos: a folder whose videos the page plays.
        notes: what else a reader should know, such as runs that failed.
        refresh: seconds after which an open page reloads itself; None: never.
    """
    out = Path(out)
    runs = read_runs(table)
    runs.notes[:0] = notes
    report = Report(out / "index.html", alarms=runs.alarms, warnings=runs.warnings())
    runs.notes += report.warnings
    written_tables = _write_tables(runs, out, report)
    drawn = _write_figures(runs, out, report)
    if comparisons := compare.comparisons(runs):
        _write_file(out / "comparison.csv", compare.as_csv(comparisons).encode(), report)
    films = _copy_videos(Path(videos), out, runs, report) if videos is not None else []
    if not films:
        report.skipped.append(Skipped("videos", "there are none"))
    shown = [table for table in written_tables if table.name != "comparison"]
    html = page.page_html(runs, shown, drawn, films, report.skipped, refresh)
    _write_file(report.index, html.encode(), report)
    return report


def _print(words: str) -> None:
    print(words, flush=True)  # at once, for whoever follows a log file


def watch(
    read: Callable[[], tuple[Table, Sequence[str]]],
    out: str | Path,
    videos: str | Path | None = None,
    interval: float = 30.0,
    until: Callable[[], bool] | None = None,
    say: Callable[[str], None] = _print,
    sleep: Callable[[float], None] = time.sleep,
) -> Report | None:
    """Build the report again whenever the table changes; an open page reloads itself.

    Args:
        read: returns the current table and notes. If it fails, the error is reported and it is called again later.
        out: as in `build`.
        videos: as in `build`.
        interval: seconds between two calls of `read`.
        until: returns whether this call is the last; None: only Ctrl-C ends the loop.
        say: receives one sentence on what happened.
        sleep: waits so many seconds; tests replace it.
    """
    fingerprint, report = "", None
    try:
        while True:
            last = until is not None and until()
            try:
                table, notes = read()
                now = _fingerprint(table, notes)
                if now != fingerprint or last:
                    report = build(table, out, videos, notes, refresh=None if last else interval)
                    fingerprint = now
                    say(f"{report.index}: {len(report.written)} files, {len(report.skipped)} parts left out")
                    for words in report.alarms:
                        say(words)
            except (OSError, ValueError) as error:
                say(f"the runs could not be read ({error}); trying again in {interval:g} seconds")
                last = False
            if last:
                return report
            sleep(interval)
    except KeyboardInterrupt:  # safe at any moment, because files are replaced in one step
        return report


# ---- tables ----------------------------------------------------------------------------------------------------------


def _write_tables(runs: Runs, out: Path, report: Report) -> list[render.Table]:
    written = []
    for name, make in (
        ("main table, safety", partial(tables.main, runs, "safety")),
        ("main table, reward", partial(tables.main, runs, "reward")),
        ("table across seeds, safety", partial(tables.main_across_seeds, runs, "safety")),
        ("table across seeds, reward", partial(tables.main_across_seeds, runs, "reward")),
        ("table over tasks", partial(tables.overall, runs)),
        ("table of cost limits", partial(tables.cost_limit, runs)),
        ("table of advantage estimates", partial(tables.advantage, runs)),
        ("table of other settings, safety", partial(tables.others, runs, "safety")),
        ("table of other settings, reward", partial(tables.others, runs, "reward")),
        *([("table of fresh worlds", partial(evaluations.evaluation_table, runs))] if runs.evaluated else []),
        *([("table of constraints", partial(constraints.constraint_table, runs))] if runs.constraints else []),
        ("table of update times", partial(tables.update_time, runs)),
        ("table of hyperparameters", partial(tables.hyperparameters, runs)),
        ("table beside the paper", partial(beside.beside, runs)),
        ("comparison by method", partial(compare.summary_table, runs)),
        ("comparison", partial(compare.comparison_table, runs)),
    ):
        try:
            table = make()
        except Missing as missing:
            report.skipped.append(Skipped(name, str(missing)))
            continue
        written.append(table)
        for ending, text in (
            ("md", render.markdown(table)),
            ("tex", render.latex(table)),
            ("html", render.html_document(table)),
        ):
            _write_file(out / "tables" / f"{table.name}.{ending}", text.encode(), report)
    return written


# ---- figures ---------------------------------------------------------------------------------------------------------


def _drawings(runs: Runs) -> Iterable[_Drawing]:
    for task, name in zip(runs.tasks, _names(runs.tasks), strict=True):
        title = f"training curves, {task}"
        yield _Drawing(f"curves_{name}", title, partial(figures.training_curves, runs, task), on_page=False)
        if runs.evaluated:
            draw = partial(figures.training_curves, runs, task, FRESH)
            yield _Drawing(f"fresh_{name}", f"fresh worlds, {task}", draw, on_page=False)
        if any(run.has(metric) for metric in runs.holding for run in runs.usual if run.task == task):
            draw = partial(figures.what_holds, runs, task)
            yield _Drawing(f"holds_{name}", f"what holds in other worlds, {task}", draw, on_page=False)
    yield _Drawing("progress", "all tasks over the course of training", partial(figures.progress, runs))
    yield _Drawing("car_circle", f"{figures.CIRCLE}: relapses and recoveries", partial(figures.car_circle, runs))
    long = sorted({run.task for run in runs.long}) or [figures.BUTTON]
    for task, name in zip(long, _names(long), strict=True):
        yield _Drawing(f"long_{name}", f"long run, {task}", partial(figures.long_run, runs, task))
    yield _Drawing("safety_planes", "safety and safe reward", partial(planes.safety_planes, runs))
    yield _Drawing("beta", "frontier of the safety bias β", partial(planes.beta_frontier, runs))
    yield _Drawing("profiles", "performance profiles", partial(planes.performance_profiles, runs))
    yield _Drawing("angles_reward", "angles to the reward gradient", partial(histograms.angles, runs, "reward"))
    yield _Drawing("angles_cost", "angles to the descent of cost", partial(histograms.angles, runs, "cost"))
    yield _Drawing("model_errors", "errors of the linear and quadratic models", partial(histograms.model_errors, runs))
    yield _Drawing("convex_combination", "the update as a convex combination", planes.convex_combination)


def _names(tasks: Iterable[str]) -> list[str]:
    """A file name for each task; a number is added if two would be the same."""
    names: list[str] = []
    for task in tasks:
        name = slug(task)
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


def _write_figures(runs: Runs, out: Path, report: Report) -> list[FigureFile]:
    shown = []
    for drawing in _drawings(runs):
        try:
            contents = files(drawing.draw)
        except Missing as missing:
            report.skipped.append(Skipped(f"figure: {drawing.title}", str(missing)))
            continue
        for ending, content in contents.items():
            _write_file(out / "figures" / f"{drawing.name}.{ending}", content, report)
        if drawing.on_page:
            title = drawing.title[0].upper() + drawing.title[1:]
            shown.append(FigureFile(title, contents["png"], f"figures/{drawing.name}.svg"))
    return shown


# ---- videos and files ------------------------------------------------------------------------------------------------


def _copy_videos(folder: Path, out: Path, runs: Runs, report: Report) -> list[VideoFile]:
    films = []
    for path in _videos(folder, out):
        inside = path.relative_to(folder)
        target = out / "videos" / inside
        _copy(path, target)
        report.written.append(target)
        title = " · ".join(name.replace("_", " ") for name in inside.with_suffix("").parts)
        tasks = [t for t in runs.tasks if t in inside.as_posix() or slug(t) in slug(title)]
        films.append(VideoFile(title, f"videos/{inside.as_posix()}", tasks[0] if tasks else ""))
    return films


def _videos(folder: Path, out: Path) -> list[Path]:
    """The videos below a folder, without copies inside the report and without GIFs that exist as a film too."""
    report = out.resolve()
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in VIDEOS and path.is_file()]
    films = {path.with_suffix("") for path in paths if path.suffix.lower() != ".gif"}
    return [
        path
        for path in paths
        if report not in path.resolve().parents and (path.suffix.lower() != ".gif" or path.with_suffix("") not in films)
    ]


def _copy(source: Path, target: Path) -> None:
    """Copy a file in one step, unless the copy is up to date."""
    facts = source.stat()
    if target.exists() and (target.stat().st_size, target.stat().st_mtime_ns) == (facts.st_size, facts.st_mtime_ns):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{UNFINISHED}{target.name}-{uuid.uuid4().hex[:12]}")
    with naming(target):
        shutil.copy2(source, unfinished)
    move(unfinished, target)


def _write_file(path: Path, content: bytes, report: Report) -> None:
    """Replace a file in one step, unless its content is the same already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not (path.exists() and path.read_bytes() == content):
        write_atomically(path, content, alone=False)
    report.written.append(path)


def _fingerprint(table: Table, notes: Sequence[str]) -> str:
    """A digest of the notes and of all numbers in the table."""
    digest = hashlib.sha256(repr(list(notes)).encode())
    for name, values in sorted(as_columns(table).items()):
        digest.update(f"{name} {len(values)}".encode())
        if values.dtype.kind in "biuf":
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
