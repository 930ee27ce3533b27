"""The whole report, from a tidy table: what there are runs for, and a sentence for what there are not.

report/
  index.html          the page: open it
  comparison.csv      every cell of the paper beside ours
  tables/             each table as .md, .tex and .html
  figures/            each figure as .png and .svg
  videos/             copies, if there are any
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbtrpo.files import write_atomically
from sbtrpo.report import compare, figures, histograms, page, paper, planes, render, tables
from sbtrpo.report.canvas import files, slug
from sbtrpo.report.page import FigureFile, Skipped, VideoFile
from sbtrpo.report.runs import Runs, Table, as_columns, read_runs
from sbtrpo.report.tables import Missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIDEOS = (".mp4", ".webm", ".gif")


@dataclass
class Report:
    """What a report holds."""

    index: Path
    written: list[Path] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


@dataclass(frozen=True)
class _Drawing:
    name: str
    title: str
    draw: Callable[[], Figure]
    on_page: bool = True
    """Training curves are not: the page has its own, which one can point at."""


def build(
    table: Table,
    out: str | Path,
    videos: str | Path | None = None,
    notes: Sequence[str] = (),
    refresh: float | None = None,
) -> Report:
    """Write the report; a part without runs is left out, and said to be.

    Args:
        table: one row a run and epoch, as `sbtrpo.benchmark.collect` makes it.
        out: the folder for it; files of an earlier report in it are replaced.
        videos: a folder whose videos the page shall play.
        notes: what else a reader should know, such as runs that failed.
        refresh: seconds after which an open page loads itself anew; None: never.
    """
    out = Path(out)
    runs = read_runs(table)
    runs.notes[:0] = notes
    report = Report(out / "index.html")
    made = _write_tables(runs, out, report)
    drawn = _write_figures(runs, out, report)
    if found := compare.comparisons(runs):
        _write(out / "comparison.csv", compare.as_csv(found).encode(), report)
    films = _copy_videos(Path(videos), out, runs, report) if videos is not None else []
    if not films:
        report.skipped.append(Skipped("videos", "there are none"))
    shown = [table for table in made if table.name != "comparison"]
    html = page.page_html(runs, shown, drawn, films, report.skipped, refresh)
    _write(report.index, html.encode(), report)
    return report


def _print(sentence: str) -> None:
    print(sentence, flush=True)  # also where a file is followed


def watch(
    read: Callable[[], tuple[Table, Sequence[str]]],
    out: str | Path,
    videos: str | Path | None = None,
    interval: float = 30.0,
    until: Callable[[], bool] | None = None,
    say: Callable[[str], None] = _print,
    sleep: Callable[[float], None] = time.sleep,
) -> Report | None:
    """Renew the report as often as the table changes; an open page follows by itself.

    Args:
        read: gives the table as it is now, and notes. If it fails, that is said, and it is asked again.
        out: as of `build`.
        videos: as of `build`.
        interval: seconds between two looks.
        until: says whether this look was the last; None: only Ctrl-C ends it.
        say: told in one sentence what happened.
        sleep: waits; for tests.
    """
    before, report = "", None
    try:
        while True:
            last = until is not None and until()
            try:
                table, notes = read()
                now = _fingerprint(table, notes)
                if now != before or last:
                    report = build(table, out, videos, notes, refresh=None if last else interval)
                    before = now
                    say(f"{report.index}: {len(report.written)} files, {len(report.skipped)} parts left out")
            except (OSError, ValueError) as error:
                say(f"the runs could not be read ({error}); trying again in {interval:g} seconds")
                last = False
            if last:
                return report
            sleep(interval)
    except KeyboardInterrupt:  # whatever it is at: files are replaced in one piece
        return report


# ---- tables ----------------------------------------------------------------------------------------------------------


def _write_tables(runs: Runs, out: Path, report: Report) -> list[render.Table]:
    made = []
    for name, make in (
        ("main table, safety", functools.partial(tables.main, runs, "safety")),
        ("main table, reward", functools.partial(tables.main, runs, "reward")),
        ("table across seeds, safety", functools.partial(tables.main_across_seeds, runs, "safety")),
        ("table across seeds, reward", functools.partial(tables.main_across_seeds, runs, "reward")),
        ("table over tasks", functools.partial(tables.overall, runs)),
        ("table of cost limits", functools.partial(tables.cost_limit, runs)),
        ("table of advantage estimates", functools.partial(tables.advantage, runs)),
        ("table of other methods and settings, safety", functools.partial(tables.others, runs, "safety")),
        ("table of other methods and settings, reward", functools.partial(tables.others, runs, "reward")),
        ("table of update times", functools.partial(tables.update_time, runs)),
        ("table of hyperparameters", functools.partial(tables.hyperparameters, runs)),
        ("comparison by method", functools.partial(compare.summary_table, runs)),
        ("comparison", functools.partial(compare.comparison_table, runs)),
    ):
        try:
            table = make()
        except Missing as missing:
            report.skipped.append(Skipped(name, str(missing)))
            continue
        made.append(table)
        for ending, text in (
            ("md", render.markdown(table)),
            ("tex", render.latex(table)),
            ("html", render.html_document(table)),
        ):
            _write(out / "tables" / f"{table.name}.{ending}", text.encode(), report)
    return made


# ---- figures ---------------------------------------------------------------------------------------------------------


def _drawings(runs: Runs) -> Iterable[_Drawing]:
    part = functools.partial
    for task, name in zip(runs.tasks, _names(runs.tasks), strict=True):
        title = f"training curves, {paper.task_title(task)}"
        yield _Drawing(f"curves_{name}", title, part(figures.training_curves, runs, task), on_page=False)
    yield _Drawing("car_circle", "Car Circle: relapses and recoveries", part(figures.car_circle, runs))
    long = sorted({run.task for run in runs.long}) or [figures.BUTTON]
    for task, name in zip(long, _names(long), strict=True):
        yield _Drawing(f"long_{name}", f"long run, {paper.task_title(task)}", part(figures.long_run, runs, task))
    yield _Drawing("beta", "frontier of the safety bias β", part(planes.beta_frontier, runs))
    yield _Drawing("profiles", "performance profiles", part(planes.performance_profiles, runs))
    yield _Drawing("angles_reward", "angles to the reward gradient", part(histograms.angles, runs, "reward"))
    yield _Drawing("angles_cost", "angles to the descent of cost", part(histograms.angles, runs, "cost"))
    yield _Drawing("model_errors", "errors of the linear and quadratic models", part(histograms.model_errors, runs))
    yield _Drawing("convex_combination", "the update as a convex combination", planes.convex_combination)


def _names(tasks: Iterable[str]) -> list[str]:
    """Names for files; numbers tell apart what the alphabet of file names does not."""
    names: list[str] = []
    for task in tasks:
        name = slug(paper.task_title(task))
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


def _write_figures(runs: Runs, out: Path, report: Report) -> list[FigureFile]:
    shown = []
    for drawing in _drawings(runs):
        try:
            made = files(drawing.draw)
        except Missing as missing:
            report.skipped.append(Skipped(f"figure: {drawing.title}", str(missing)))
            continue
        for ending, content in made.items():
            _write(out / "figures" / f"{drawing.name}.{ending}", content, report)
        if drawing.on_page:
            title = drawing.title[0].upper() + drawing.title[1:]
            shown.append(FigureFile(title, made["png"], f"figures/{drawing.name}.svg"))
    return shown


# ---- videos and files ------------------------------------------------------------------------------------------------


def _copy_videos(folder: Path, out: Path, runs: Runs, report: Report) -> list[VideoFile]:
    found = []
    for path in _videos(folder, out):
        inside = path.relative_to(folder)
        target = out / "videos" / inside
        _copy(path, target)
        report.written.append(target)
        title = " · ".join(part.replace("_", " ") for part in inside.with_suffix("").parts)
        known = [t for t in runs.tasks if t in inside.as_posix() or slug(paper.task_title(t)) in slug(title)]
        found.append(VideoFile(title, f"videos/{inside.as_posix()}", known[0] if known else ""))
    return found


def _videos(folder: Path, out: Path) -> list[Path]:
    """The videos below a folder; not the report's own copies, nor GIFs of what is there as a film."""
    report = out.resolve()
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in VIDEOS and path.is_file()]
    films = {path.with_suffix("") for path in paths if path.suffix.lower() != ".gif"}
    return [
        path
        for path in paths
        if report not in path.resolve().parents and (path.suffix.lower() != ".gif" or path.with_suffix("") not in films)
    ]


def _copy(source: Path, target: Path) -> None:
    """Copy a file in one piece, unless it has been copied before."""
    facts = source.stat()
    if target.exists() and (target.stat().st_size, target.stat().st_mtime_ns) == (facts.st_size, facts.st_mtime_ns):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.unfinished")
    shutil.copy2(source, unfinished)
    unfinished.replace(target)


def _write(path: Path, content: bytes, report: Report) -> None:
    """Replace a file in one piece; one that is the same already is left alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not (path.exists() and path.read_bytes() == content):
        write_atomically(path, content)
    report.written.append(path)


def _fingerprint(table: Table, notes: Sequence[str]) -> str:
    """Changes with what a report is made of."""
    digest = hashlib.sha256(repr(list(notes)).encode())
    for name, values in sorted(as_columns(table).items()):
        digest.update(f"{name} {len(values)}".encode())
        if values.dtype.kind in "biuf":
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
