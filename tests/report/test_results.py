"""The committed results: how large they are, and what they add up to."""

from __future__ import annotations

from pathlib import Path

import pyarrow.csv
import pytest

from sbtrpo.benchmark.collect import overall, read_table
from sbtrpo.benchmark.plan import PLANS
from sbtrpo.cli import app as cli
from sbtrpo.report.results import RESULTS


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results") / "report"
    assert cli.main(["report", str(RESULTS / "circle_hopper.parquet"), "--out", str(out)]) == 0
    assert (out / "index.html").stat().st_size > 100_000
    return out / "tables"


@pytest.mark.parametrize("table", sorted(RESULTS.glob("*.parquet")), ids=lambda path: path.stem)
def test_a_committed_table_is_no_larger_than_a_repository_should_hold(table: Path) -> None:
    assert table.stat().st_size < 5_000_000


def test_the_committed_table_over_tasks_is_that_of_the_committed_runs(tables: Path) -> None:
    committed = pyarrow.csv.read_csv(RESULTS / "circle_hopper-overall.csv").to_pylist()
    rows = overall(read_table(RESULTS / "circle_hopper.parquet")).to_pylist()
    assert [row["algo"] for row in committed] == [row["algo"] for row in rows]
    numbers = [name for name, value in rows[0].items() if isinstance(value, float) and "iqm" in name]
    assert len(numbers) == 6
    printed = (tables / "overall.md").read_text()
    for row, same in zip(rows, committed, strict=True):
        assert [row[name] for name in numbers] == pytest.approx([same[name] for name in numbers])
        for name in ("normalised_safe_reward", "safety_probability"):
            mean, low, high = (row[f"{name}_iqm{end}"] for end in ("", "_low", "_high"))
            assert f"{mean:.2f} ({low:.2f} to {high:.2f})" in printed  # the report has the same numbers


def test_other_files_are_no_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["report", str(PLANS / "smoke.toml"), "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.endswith("smoke.toml is no Parquet table; `sbtrpo collect RUNS` makes one\n")
