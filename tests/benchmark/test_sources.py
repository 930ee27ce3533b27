"""Runs of several places become one table, and each counts once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sbtrpo.benchmark.collect import read_table
from sbtrpo.benchmark.plan import run_path
from sbtrpo.benchmark.sources import read_sources
from sbtrpo.cli.app import main
from tests.benchmark.folders import toy, write_run

ROWS = [[1.0, 2.0, 0.5, 0.25], [3.0, 0.0, 1.0, 3.0]]


def test_a_folder_and_a_table_of_another_are_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed in (("here", 0), ("there", 1)):
        write_run(tmp_path / name, toy(seed=seed), ROWS)
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    assert main(["collect", str(tmp_path / "there"), "--out", str(old)]) == 0
    shutil.rmtree(tmp_path / "there")
    assert main(["collect", str(old), str(tmp_path / "here"), "--out", str(new)]) == 0
    table = read_table(new)
    assert sorted(table["seed"].to_pylist()) == [0, 0, 1, 1]
    assert "new-final.csv" in capsys.readouterr().out.replace("\n", "")
    assert main(["collect", str(old), str(tmp_path / "here")]) == 2
    assert "--out FILE.parquet" in capsys.readouterr().err
    assert main(["collect"]) == 2
    assert "give the folder of the runs" in capsys.readouterr().err


def test_a_run_that_is_in_two_places_is_taken_from_the_last(tmp_path: Path) -> None:
    write_run(tmp_path / "old", toy(), ROWS[:1])
    write_run(tmp_path / "new", toy(), ROWS)
    found = read_sources([tmp_path / "old", tmp_path / "new"])
    assert found.table["reward"].to_pylist() == [1.0, 3.0]
    name = run_path(Path(), toy()).as_posix()
    assert found.notes[-1] == f"1 runs are in several places, and count once: {name}"
    assert read_sources([tmp_path / "new", tmp_path / "old"]).table["reward"].to_pylist() == [1.0]


def test_two_runs_of_one_name_stay_apart(tmp_path: Path) -> None:
    for place, seed in (("old", 0), ("new", 1)):
        write_run(tmp_path / place, toy(seed=seed), ROWS).rename(tmp_path / place / "mine")
    found = read_sources([tmp_path / "old", tmp_path / "new"])
    assert dict(zip(found.table["run"].to_pylist(), found.table["seed"].to_pylist(), strict=True)) == {
        "old/mine": 0,
        "mine": 1,
    }
    assert found.table.num_rows == 4
