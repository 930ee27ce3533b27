"""A report made from names that somebody chose to do harm: it shows them, and nothing else happens."""

from __future__ import annotations

import html.parser
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from sbtrpo import TrainConfig
from sbtrpo.benchmark.collect import collect
from sbtrpo.report import build, page, render
from sbtrpo.report.page import Skipped, VideoFile
from sbtrpo.report.render import Cell, Table
from sbtrpo.report.runs import Runs, read_runs
from sbtrpo.runs.curves import curves_png
from tests.benchmark.folders import write_run
from tests.hostile.inputs import DANGEROUS, obeys, texts
from tests.report import samples


class Elements(html.parser.HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


HARMLESS = page.page_html(Runs(), [])


@settings(deadline=None, max_examples=60)
@given(texts, texts)
def test_no_name_becomes_markup(name: str, other: str) -> None:
    columns = {key: list(values) for key, values in samples.run("T", "cpo", epochs=2).items()}
    columns |= {"task": [name] * 2, "algo": [other] * 2, "run": [other] * 2}
    table = Table(name, name, (other, name), [[Cell(name, note=other), Cell(other)]], other)
    runs = read_runs(columns)
    runs.notes.append(other)
    videos = [VideoFile(name, f"videos/{other}", name)]
    text = page.page_html(runs, [table], videos=videos, skipped=[Skipped(name, other)])
    assert Elements(text).found == Elements(HARMLESS).found
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text)
    document = render.html_document(table)
    harmless = render.html_document(Table("t", "t", ("a", "b"), [[Cell("x", note="y"), Cell("z")]], "c"))
    assert {tag for tag, _ in Elements(document).found} == {tag for tag, _ in Elements(harmless).found}
    assert not [names for _, names in Elements(document).found if any(name.startswith("on") for name in names)]
    markdown = render.markdown(table)
    assert not re.search(r"<[a-zA-Z/!]", markdown)
    assert not re.search(r"(?<!\\)\]\(", markdown)
    assert not re.search(r"\\(input|write|include|immediate|def)\b", render.latex(table))


def test_a_video_with_any_name_is_a_file_beside_the_page() -> None:
    for name in DANGEROUS:
        data = page.page_data(Runs(), [], [], [VideoFile(name, f"videos/{name}")], [], None)
        assert re.fullmatch(r"videos/[A-Za-z0-9%/._~-]*", data["videos"][0]["src"])


def test_the_whole_report_shows_hostile_names_and_writes_nothing_elsewhere(tmp_path: Path) -> None:
    names = [name for name in DANGEROUS if name][:12]
    runs = [samples.run(name, other, epochs=3) for name, other in zip(names[:2], ("cpo", names[-1]), strict=True)]
    table = samples.table(runs)
    build(table, tmp_path / "out", notes=names)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.resolve().is_relative_to(tmp_path / "out") for path in files)
    for path in files:
        if path.suffix in (".html", ".svg", ".md"):
            text = path.read_text(encoding="utf-8")
            assert "<script>alert" not in text
            assert "<img" not in text


FOLDERS = [
    "<script>alert(1)<", "a\nb", "\x1b[31mred", "[bold]x[bold]", "[]", "-rf", "a" * 200, os.fsdecode(b"\xff\xfe"),
]  # fmt: skip


def test_runs_in_folders_of_any_name_are_collected_and_reported(tmp_path: Path) -> None:
    for seed, name in enumerate(FOLDERS):
        config = TrainConfig(task="ToyCorridor-v0", steps_per_epoch=100, num_envs=2, total_steps=200, seed=seed)
        write_run(tmp_path / "run", config, [(1, 0, 1, 1)] * 2)
        (tmp_path / "runs").mkdir(exist_ok=True)
        (tmp_path / "run").rename(tmp_path / "runs" / name)
    assert list(collect(tmp_path / "runs").states.values()) == ["done"] * len(FOLDERS)
    for arguments in (("collect",), ("report", "--out", str(tmp_path / "out"))):
        assert obeys(*arguments, str(tmp_path / "runs"))[0] == 0
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert Elements(text).found == Elements(HARMLESS).found


@pytest.mark.filterwarnings("ignore:Glyph")
def test_the_curves_of_a_run_take_any_title() -> None:
    for name in ("a\x00b", "$\\frac{", "a\nb", "\u202e"):
        assert curves_png({}, name).startswith(b"\x89PNG")
