"""Damage to a run's tables is noticed, and whoever notices it changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.benchmark.collect import collect
from sbtrpo.cli.app import main
from sbtrpo.errors import UserError
from sbtrpo.runs.claims import CLAIMS
from tests.resume.test_old_runs import contents

CONFIG = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=800, hidden=(4,))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sbtrpo.train(CONFIG, tmp_path_factory.mktemp("damage") / "whole", quiet=True)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A run that was killed after its summary had got lost."""
    copy = Path(shutil.copytree(whole, tmp_path / "run"))
    (copy / "summary.json").unlink()
    return copy


def another_digit(path: Path) -> None:
    """Change the last digit of the first row."""
    header, row, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, f"{row[:-2]}{(int(row[-2]) + 1) % 10}\n", *others]))


def another_return(folder: Path) -> None:
    """Write a part anew, whole and readable, with another number in it."""
    part = sorted(folder.iterdir())[0]
    table = pyarrow.parquet.read_table(part)
    values = table["return"].to_pylist()
    changed = pyarrow.array([values[0] + 1e-9, *values[1:]])
    pyarrow.parquet.write_table(table.set_column(table.column_names.index("return"), "return", changed), part)


@pytest.mark.parametrize("name", ["metrics.csv", "timing.csv", "episodes.parquet"])
def test_a_number_that_the_run_did_not_write_stops_a_resume(name: str, run: Path) -> None:
    (another_return if name == "episodes.parquet" else another_digit)(run / name)
    before = contents(run)
    with pytest.raises(UserError, match=rf"{name} is damaged: its rows up to epoch 4 are not what was written"):
        sbtrpo.resume(run, quiet=True)
    assert {key: value for key, value in contents(run).items() if not Path(key).match(CLAIMS)} == before


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("timing.csv", "its rows up to epoch 3 are lost"),
        ("episodes.parquet", "its episodes up to epoch 3 are lost"),
        ("run.json", "when and where the run began is lost"),
    ],
)
def test_a_run_goes_on_without_what_it_can_spare_and_says_so(
    name: str, lost: str, run: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(run / name) if name == "episodes.parquet" else (run / name).unlink()
    shutil.rmtree(run / "checkpoints" / "epoch-000004")
    assert main(["resume", str(run)]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "is missing" in line]
    assert told == [f"{run / name} is missing: {lost}"]
    assert (run / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    table = collect(run.parent).table
    assert table["epoch"].to_pylist() == [1, 2, 3, 4]
    lacking = [None] * 3 if name == "timing.csv" else []
    assert table["update_seconds"].to_pylist()[: len(lacking)] == lacking
    assert table["update_seconds"].to_pylist()[3] is not None


def test_a_run_that_lacks_nothing_is_not_told_so(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(run)]) == 0
    assert "is missing" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["metrics.csv", "timing.csv"])
def test_collect_names_a_finished_run_with_other_numbers(name: str, whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "runs" / "run"))
    assert collect(run.parent).states == {"run": "done"}
    another_digit(run / name)
    collected = collect(run.parent)
    assert collected.unreadable == {
        "run": f"run: {name} is damaged: it is not what the run wrote; restore it from a copy"
    }
    assert not collected.table.num_rows


def overlap(folder: Path) -> None:
    """As if two commands had written episodes."""
    for name in ("00000001-00000005", "00000002-00000006"):
        (folder / f"{name}.parquet").touch()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (another_return, "episodes.parquet is damaged: it is not what the run wrote; restore it from a copy"),
        (lambda folder: sorted(folder.iterdir())[0].unlink(), "episodes.parquet is damaged: it is not what the run"),
        (lambda folder: (folder / "00000009-00000009.parquet").touch(), "episodes.parquet is damaged: it is not what"),
        (overlap, "both have episodes of epoch 2"),
        (shutil.rmtree, "episodes.parquet is missing"),
        (lambda folder: (folder.parent / "timing.csv").unlink(), "timing.csv is missing"),
    ],
    ids=["another number", "a part lost", "a part too many", "two writers", "all lost", "times lost"],
)
def test_collect_tells_of_damage_to_what_its_table_can_do_without(
    harm: Callable[[Path], None], words: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [Path(shutil.copytree(whole, tmp_path / name)) for name in ("one", "other", "well")]
    assert collect(tmp_path).damaged == []
    for run in runs[:2]:
        harm(run / "episodes.parquet")
    collected = collect(tmp_path)
    assert collected.states == dict.fromkeys(("one", "other", "well"), "done")
    assert collected.table.num_rows == 12
    assert main(["collect", str(tmp_path)]) == 0
    told = " ".join(line for line in capsys.readouterr().out.splitlines() if words in line)
    assert [run.name for run in runs if run.name in told] == ["one", "other"]


@pytest.mark.usefixtures("no_figures")
def test_a_report_tells_of_damaged_episodes(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    another_return(Path(shutil.copytree(whole, tmp_path / "runs" / "run")) / "episodes.parquet")
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    words = "run: episodes.parquet is damaged: it is not what the run wrote"
    assert words in capsys.readouterr().out
    assert words in (tmp_path / "report" / "index.html").read_text()


def test_a_damaged_origin_is_named(run: Path) -> None:
    (run / "run.json").write_text("{")
    with pytest.raises(UserError, match=r"run\.json is damaged .*; restore it from a copy, or delete it"):
        sbtrpo.resume(run, quiet=True)
