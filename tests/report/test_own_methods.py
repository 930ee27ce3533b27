"""Methods of the user's in the report: from a table alone, with a look of their own, and versions told apart."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from sbtrpo.benchmark.collect import collect, read_table, write_table
from sbtrpo.benchmark.columns import VERSION
from sbtrpo.benchmark.view import BenchmarkView, Row
from sbtrpo.report import build, figures, page, tables
from sbtrpo.report.runs import read_runs
from sbtrpo.report.style import GREY, LOOKS, look
from sbtrpo.report.variants import Variant
from sbtrpo.runs.folder import METHOD_FILE
from tests.benchmark.folders import toy, write_run
from tests.report import samples
from tests.user_methods import write_method

GOAL, CIRCLE = "SafetyPointGoal2-v0", "SafetyCarCircle2-v0"


def versions(*digests: str, **settings: Any) -> list[dict[str, Any]]:
    return [samples.run(GOAL, "MyMethod", **{VERSION: f"MyMethod@{digest}", **settings}) for digest in digests]


def test_a_table_is_reported_where_the_class_is_not(tmp_path: Path) -> None:
    """As `sbtrpo collect` writes it, read where neither the runs nor the file are."""
    algo = write_method(tmp_path / "mine.py")
    for seed in (0, 1):
        run = write_run(tmp_path / "runs", toy(algo=algo, seed=seed, caution=0.9), [(1.0, 0.0, 1.0, 1.0)] * 3)
        (run / METHOD_FILE).write_bytes((tmp_path / "mine.py").read_bytes())
    write_run(tmp_path / "runs", toy(), [(0.5, 0.0, 1.0, 0.5)] * 3)
    path = write_table(collect(tmp_path / "runs").table, tmp_path / "elsewhere" / "table.parquet")
    (tmp_path / "mine.py").unlink()
    report = build(read_table(path), tmp_path / "report")
    text = report.index.read_text(encoding="utf-8")
    assert "MyMethod is best in 1 of 1 task" in text
    assert "MyMethod | **1.0" in (tmp_path / "report" / "tables" / "main_safety.md").read_text()
    assert "MyMethod" in (tmp_path / "report" / "tables" / "hyperparameters.md").read_text()
    assert "MyMethod" in (tmp_path / "report" / "figures" / "curves_toycorridor_v0.svg").read_text()


def test_what_all_its_runs_share_is_not_called_other_than_the_default() -> None:
    shared = {"target_kl": 0.5, "beta": 0.3, "cost_limit": 25.0, "advantage": "mc"}
    runs = read_runs(samples.table([samples.run(GOAL, "MyMethod", k, **shared) for k in (0, 1)]))
    assert runs.variants == [Variant("MyMethod")]
    assert runs.notes == []
    assert runs.shared[GOAL, "MyMethod"] == shared


def test_what_its_runs_differ_in_makes_variants() -> None:
    runs = read_runs(samples.table([samples.run(GOAL, "MyMethod", beta=beta) for beta in (0.3, 0.6)]))
    assert [variant.title for variant in runs.variants] == ["MyMethod, β = 0.3", "MyMethod, β = 0.6"]


def test_what_every_run_has_is_compared_with_the_defaults_of_runs() -> None:
    """They are the same whatever the method."""
    table = samples.table([samples.run(GOAL, "MyMethod", gamma=g, num_envs=4) for g in (0.99, 0.9)])
    runs = read_runs(table)
    assert [variant.title for variant in runs.variants] == ["MyMethod", "MyMethod, gamma = 0.9"]
    assert runs.notes == ["not the default: 4 worlds (MyMethod)"]


def test_a_setting_that_only_the_method_has_is_read_from_the_columns_of_settings() -> None:
    one = samples.run(GOAL, "MyMethod", epochs=2)
    ordered = {"run": one.pop("run"), "task": one.pop("task"), "algo": one.pop("algo"), "epochs": [2, 2]}
    both = [{**ordered, "run": [str(c)] * 2, "caution": [c] * 2, **one} for c in (0.5, 0.9)]
    titles = [variant.title for variant in read_runs(samples.table(both)).variants]
    assert titles == ["MyMethod, caution = 0.5", "MyMethod, caution = 0.9"]


def test_versions_are_variants_wherever_they_ran() -> None:
    both = read_runs(samples.table(versions("3f2a9c1b20aa", "0123456789ab")))
    assert [variant.title for variant in both.variants] == ["MyMethod, version 01234567", "MyMethod, version 3f2a9c1b"]
    apart = [*versions("123456789012"), samples.run(CIRCLE, "MyMethod", **{VERSION: "MyMethod@3f2a9c1b20aa"})]
    runs = read_runs(samples.table(apart))
    assert [variant.title for variant in runs.variants] == ["MyMethod, version 12345678", "MyMethod, version 3f2a9c1b"]
    assert runs.notes == []
    modules = [samples.run(GOAL, "MyMethod", **{VERSION: f"{place}:MyMethod"}) for place in ("a.b", "c")]
    assert [v.title for v in read_runs(samples.table(modules)).variants] == ["MyMethod, of a.b", "MyMethod, of c"]


def test_versions_are_drawn_and_look_different() -> None:
    runs = read_runs(samples.table(versions("3f2a9c1b20aa", "0123456789ab")))
    names = [variant.title for variant in runs.variants]
    assert figures.training_curves(runs, GOAL).axes[0].get_legend_handles_labels()[1] == names
    assert [variant.title for variant in page.rivals(runs)] == names
    assert len({look(variant) for variant in runs.variants}) == 2


def test_a_users_method_has_the_same_look_everywhere_and_no_other_methods() -> None:
    looks = {name: look(Variant(name)) for name in ("MyMethod", "Cautious", "PPO (method.py)", "Another", "B", "C")}
    assert looks["MyMethod"] == look(Variant("MyMethod"))
    assert not set(looks.values()) & set(LOOKS.values())
    assert GREY not in {one.colour for one in looks.values()}
    assert len(set(looks.values())) > 2
    # The numbers of a hash that is the same in every process, unlike Python's own.
    assert (looks["MyMethod"].colour, looks["MyMethod"].line) == ("#999933", "solid")
    assert look(Variant("MyMethod", (("beta", 0.3),))).colour == looks["MyMethod"].colour


def test_a_table_cannot_make_the_report_load_code(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('loaded')")
    monkeypatch.chdir(tmp_path)
    runs = read_runs(samples.table([samples.run(GOAL, name, epochs=2) for name in ("trap.py:X", "trap:X")]))
    assert [variant.title for variant in runs.variants] == ["trap.py:X", "trap:X"]


def test_a_report_on_users_methods_alone_has_their_numbers() -> None:
    runs = read_runs(samples.table([samples.run(GOAL, name, epochs=2) for name in ("MyMethod", "Other")]))
    assert [row[0].text for row in tables.main(runs, "reward").rows] == ["MyMethod", "Other"]


def test_the_main_table_and_those_over_tasks_and_of_times_have_it() -> None:
    runs = read_runs(samples.table([samples.run(GOAL, "MyMethod", epochs=2), samples.run(GOAL, "sb-trpo", epochs=2)]))
    for table in (tables.main(runs, "safety"), tables.update_time(runs), tables.overall(runs)):
        assert [row[0].text for row in table.rows] == ["SB-TRPO", "MyMethod"]


def test_the_live_view_of_a_benchmark_names_it() -> None:
    output = io.StringIO()
    with BenchmarkView(console=Console(file=output, force_terminal=True, width=100)) as view:
        view.update([Row("ToyCorridor-v0/MyMethod/seed0-1a2b3c4d", 1, 3, 0.5, 2.0)], {"running": 1}, None)
    assert "ToyCorridor-v0/MyMethod/seed0-1a2b3c4d" in output.getvalue()
