"""The committed results: they give the report that the documentation shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbtrpo import cli

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results") / "report"
    assert cli.main(["report", str(ROOT / "results" / "circle_hopper.parquet"), "--out", str(out)]) == 0
    assert (out / "index.html").stat().st_size > 100_000
    return out / "tables"


@pytest.mark.parametrize("name", ["main_safety", "main_reward", "comparison_summary"])
def test_the_documented_tables_are_those_of_the_committed_runs(tables: Path, name: str) -> None:
    made = [line for line in (tables / f"{name}.md").read_text().splitlines() if line.startswith("|")]
    documented = (ROOT / "docs" / "results.md").read_text().splitlines()
    assert len(made) > 4
    assert [line for line in made if line not in documented] == []


def test_other_files_are_no_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["report", str(ROOT / "plans" / "smoke.toml"), "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.endswith("smoke.toml is no Parquet table; `sbtrpo collect RUNS` makes one\n")
