"""The whole report: what is written, what is left out, and that it follows a benchmark."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from sbtrpo.benchmark.collect import collect, write_table
from sbtrpo.benchmark.sources import joined
from sbtrpo.cli import main
from sbtrpo.config import TrainConfig
from sbtrpo.learning.training import train
from sbtrpo.report import Report, build, page, watch
from sbtrpo.report.build import _names
from sbtrpo.report.canvas import files
from sbtrpo.report.planes import convex_combination
from sbtrpo.report.runs import Variant, read_runs
from tests.report import samples

GOAL = "SafetyPointGoal2-v0"


def small(epochs: int = 2, algo: str = "my own") -> dict[str, Any]:
    """A run for which next to nothing is drawn."""
    return samples.run("Mine-v0", algo, epochs=epochs, total_epochs=9, beta=0.5)


def test_tables_come_in_three_formats_and_figures_in_two(report: Report) -> None:
    out = report.index.parent
    names = {path.relative_to(out).as_posix() for path in report.written}
    for table in (
        "main_safety", "main_reward", "seeds_safety", "seeds_reward", "overall", "cost_limit", "advantage",
        "others_safety", "others_reward", "update_time", "hyperparameters", "comparison", "comparison_summary",
    ):  # fmt: skip
        assert {f"tables/{table}.{ending}" for ending in ("md", "tex", "html")} <= names
    for figure in (
        "curves_safetypointbutton2_v0", "curves_safetycarcircle2_v0", "car_circle", "long_safetypointbutton2_v0",
        "beta", "profiles", "angles_reward", "angles_cost", "model_errors", "convex_combination",
    ):  # fmt: skip
        assert {f"figures/{figure}.png", f"figures/{figure}.svg"} <= names
    assert {"index.html", "comparison.csv", "videos/SafetyCarCircle2-v0/a <b> & c.mp4"} <= names
    assert all((out / name).stat().st_size > 0 for name in names)
    assert report.skipped == []


def test_pictures_are_pictures(report: Report) -> None:
    for path in (report.index.parent / "figures").glob("*.svg"):
        root = ET.parse(path).getroot()
        assert root.tag.endswith("svg")
        assert len(list(root.iter())) > 50
    for path in (report.index.parent / "figures").glob("*.png"):
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) > 10_000


def test_no_text_of_a_run_becomes_markup(report: Report) -> None:
    for path in report.written:
        if path.suffix in (".html", ".svg", ".md"):
            assert "<script>alert" not in path.read_text(encoding="utf-8"), path
    assert samples.NASTY not in (report.index.parent / "tables" / "main_safety.tex").read_text(encoding="utf-8")


def test_the_page_asks_for_nothing_from_elsewhere(report: Report) -> None:
    text = report.index.read_text(encoding="utf-8")
    markup = text.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert "http://" not in markup
    assert "https://" not in markup
    assert "default-src 'none'" in text


def test_an_empty_table_gives_a_page_that_says_so(tmp_path: Path) -> None:
    report = build({}, tmp_path)
    assert "There are no runs yet." in report.index.read_text(encoding="utf-8")
    skipped = {one.part: one.why for one in report.skipped}
    assert skipped["table over tasks"] == "no two methods that ran on the same tasks"
    assert skipped["figure: performance profiles"] == "no two methods that ran on the same tasks"
    assert len(skipped) == 14 + 9 + 1  # tables, figures but for the sketch, videos
    assert all(skipped.values())


def test_what_is_left_out_is_on_the_page(tmp_path: Path) -> None:
    report = build(samples.table([small()]), tmp_path)
    text = report.index.read_text(encoding="utf-8")
    for one in report.skipped:
        assert one.part in text


def test_the_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    table = samples.table([small(), small(algo="cpo")])
    first, second = (build(table, tmp_path / name) for name in ("a", "b"))
    for one, other in zip(first.written, second.written, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_figures_do_not_depend_on_the_users_settings() -> None:
    import matplotlib as mpl

    usual = files(convex_combination)
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        assert files(convex_combination) == usual


def test_names_of_files_are_told_apart() -> None:
    assert _names(["Safe/Goal", "Safe Goal", "SafetyPointGoal2-v0"]) == [
        "safe_goal",
        "safe_goal_1",
        "safetypointgoal2_v0",
    ]


@pytest.mark.usefixtures("no_figures")
def test_watching_renews_the_report_when_there_is_news(tmp_path: Path) -> None:
    tables = [samples.table([small(epochs)]) for epochs in (1, 1, 2)]
    said: list[str] = []
    naps: list[float] = []

    def read() -> Any:
        if len(naps) == 3:
            raise ValueError("half a line")
        return tables[min(len(naps), 2)], ["3 runs: 1 done, 2 failed"]

    looks = iter([False, False, False, False, True])
    report = watch(read, tmp_path, interval=5, until=lambda: next(looks), say=said.append, sleep=naps.append)
    assert naps == [5, 5, 5, 5]
    assert [sentence.split(":")[0].endswith("index.html") for sentence in said] == [True, True, False, True]
    assert "half a line" in said[2]
    assert report is not None
    text = report.index.read_text(encoding="utf-8")
    assert '"refresh":null' in text  # it is the last
    assert "3 runs: 1 done, 2 failed" in text


@pytest.mark.usefixtures("no_figures")
def test_videos_are_copied_once_and_a_film_stands_for_its_gif(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "runs" / "report"
    (runs / "Mine-v0").mkdir(parents=True)
    for name in ("video.mp4", "video.gif", "alone.gif"):
        (runs / "Mine-v0" / name).write_bytes(b"not a film")
    table = samples.table([small()])
    first = build(table, out, runs)
    copies = sorted(path.relative_to(out).as_posix() for path in first.written if path.suffix in (".mp4", ".gif"))
    assert copies == ["videos/Mine-v0/alone.gif", "videos/Mine-v0/video.mp4"]
    before = [(out / name).stat().st_ctime_ns for name in copies]
    assert len(build(table, out, runs).written) == len(first.written)  # its own copies are none of the runs'
    assert [(out / name).stat().st_ctime_ns for name in copies] == before
    (runs / "Mine-v0" / "video.mp4").write_bytes(b"another one")
    build(table, out, runs)
    assert (out / "videos/Mine-v0/video.mp4").read_bytes() == b"another one"


@pytest.mark.parametrize("moment", ["read", "build"])
def test_ctrl_c_in_the_midst_of_a_look_ends_the_watch(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    if moment == "build":
        monkeypatch.setattr(page, "page_html", interrupted)
    read = interrupted if moment == "read" else lambda: (samples.table([small()]), [])
    assert watch(read, tmp_path, interval=7, sleep=lambda _: None) is None


@pytest.mark.usefixtures("no_figures")
def test_a_watched_page_follows_and_ctrl_c_ends_the_watch(tmp_path: Path) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    report = watch(lambda: (samples.table([small()]), []), tmp_path, interval=7, say=lambda _: None, sleep=interrupted)
    assert report is not None
    assert '"refresh":7' in report.index.read_text(encoding="utf-8")


def test_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no column"):
        build({"reward": [1.0]}, tmp_path)


def test_it_reads_what_a_benchmark_collects(tmp_path: Path) -> None:
    for algo, seed in (("sb-trpo", 0), ("sb-trpo", 1), ("ppo_lag", 0)):
        rate = {"learning_rate": 1e-4} if algo == "ppo_lag" else {}  # a setting whose name is also a metric's
        sizes = {"num_envs": 4, "steps_per_epoch": 200, "total_steps": 500, "hidden": (8,)}
        config = TrainConfig(task="ToyCorridor-v0", algo=algo, seed=seed, **sizes, **rate)
        train(config, tmp_path / "runs" / f"{algo}{seed}", quiet=True)
    runs = read_runs(collect(tmp_path / "runs").table)
    assert [(run.variant.title, run.seed, run.finished) for run in runs.usual] == [
        ("SB-TRPO", 0, True),
        ("SB-TRPO", 1, True),
        ("PPO-Lag", 0, True),
    ]
    assert "not the default: hidden = 8 (all methods)" in runs.notes
    assert "not the default: learning_rate = 0.0001 (PPO-Lag)" in runs.notes
    assert runs.pooled("ToyCorridor-v0", Variant("sb-trpo"), "safe_reward") is not None
    assert runs.usual[0].column("update_seconds").min() > 0


def test_several_tables_make_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goal = "SafetyPointGoal2-v0"
    first = samples.table([samples.run(goal, "cpo", epochs=3)])
    second = samples.table([samples.run(goal, "cup", epochs=3, own="a")])
    whole = joined([first, second])
    assert whole.num_rows == first.num_rows + second.num_rows
    names = whole.column_names  # a setting that the second alone has is a setting still
    assert names.index("advantage") < names.index("own") < names.index("epoch")
    for name, table in (("a", first), ("b", second)):
        write_table(table, tmp_path / f"{name}.parquet")
    arguments = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet"), "--out", str(tmp_path / "out")]
    assert main(["report", *arguments]) == 0
    assert "CUP" in (tmp_path / "out" / "tables" / "main_safety.md").read_text()
    assert (tmp_path / "out" / "figures" / "safety_planes.png").is_file()
    assert main(["report"]) == 2
    assert "or several of these" in capsys.readouterr().err


def test_tables_of_unlike_columns_are_refused() -> None:
    numbers, words = (samples.run("SafetyPointGoal2-v0", "cpo", epochs=3) for _ in range(2))
    words["reward"] = ["much"] * 3
    with pytest.raises(ValueError, match="too unlike to be joined"):
        joined([samples.table([numbers]), samples.table([words])])
