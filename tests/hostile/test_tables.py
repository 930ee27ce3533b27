"""Tables that somebody made to do harm: metrics.csv, episodes.parquet, and the collected table."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sbtrpo import TrainConfig
from sbtrpo.benchmark.collect import collect, final, over_tasks, read_table
from sbtrpo.config.file import write_config
from sbtrpo.errors import UserError
from sbtrpo.report import page, render, tables
from sbtrpo.report.runs import read_runs
from sbtrpo.runs.tables import Episodes, Table
from tests.hostile.inputs import obeys, pickled, texts
from tests.report import samples

LENIENT = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
REFUSALS = (UserError, ValueError, OSError)
HEADER = b"epoch,steps,reward,cost,safety_probability,safe_reward\n"


def refuses(do: Any) -> Any:
    """What it gives, or the sentence of ordinary length that refuses it."""
    try:
        return do()
    except REFUSALS as refusal:
        words = str(refusal)
    assert 0 < len(words) < 1500, words[:200]
    return words


@settings(LENIENT, max_examples=60)
@given(st.one_of(st.binary(max_size=80), st.text("0123456789,.e-+naif\n\r\"'\x00x", max_size=80).map(str.encode)))
def test_any_metrics_are_read_or_refused(tmp_path: Path, rows: bytes) -> None:
    run = tmp_path / "run"
    run.mkdir(exist_ok=True)
    write_config(run / "config.toml", TrainConfig(task="ToyCorridor-v0"))
    for content in (rows, HEADER + rows):
        (run / "metrics.csv").write_bytes(content)
        refuses(lambda: Table(run / "metrics.csv").columns())
        refuses(lambda: Table(run / "metrics.csv").rewind(1))
        (run / "metrics.csv").write_bytes(content)
        collected = collect(tmp_path)
        assert len(collected.states) + len(collected.unreadable) == 1
        final(collected.table)
        over_tasks(collected.table)


@settings(LENIENT)
@given(st.binary(max_size=100), st.sampled_from([b"", b"PAR1", b"ARROW1\x00\x00"]))
def test_any_bytes_for_parquet_are_refused(tmp_path: Path, content: bytes, magic: bytes) -> None:
    folder = tmp_path / "episodes.parquet"
    folder.mkdir(exist_ok=True)
    (folder / "00000001-00000002.parquet").write_bytes(magic + content + magic)
    (tmp_path / "table.parquet").write_bytes(magic + content + magic)
    with pytest.raises(UserError, match="is damaged"):
        Episodes(folder).columns()
    with pytest.raises(ValueError, match="is no Parquet table"):
        read_table(tmp_path / "table.parquet")


def test_a_pickle_for_a_table_is_never_unpickled(tmp_path: Path) -> None:
    (tmp_path / "table.parquet").write_bytes(pickled(tmp_path / "trace"))
    assert obeys("report", str(tmp_path / "table.parquet"), "--out", str(tmp_path / "out"))[0] == 2
    assert not (tmp_path / "trace").exists()


def test_a_small_file_that_holds_a_vast_table_is_refused(tmp_path: Path) -> None:
    path, rows = tmp_path / "table.parquet", pyarrow.nulls(10_000_000)
    table = pyarrow.table(dict.fromkeys(["task", "algo", "epoch", *"abcdefghijklmnop"], rows))
    pyarrow.parquet.write_table(table, path)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(ValueError, match="is too large"):
        read_table(path)


COLUMNS = (
    "run", "task", "algo", "seed", "complete", "epochs", "total_steps", "beta", "epoch", "steps", "reward", "cost",
)  # fmt: skip
cells = st.one_of(
    st.lists(texts, min_size=4, max_size=4),
    st.lists(st.one_of(st.none(), texts), min_size=4, max_size=4),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=4, max_size=4),
    st.lists(st.floats(), min_size=4, max_size=4),
    st.just([None] * 4),
    st.just([[1, 2]] * 4),
    st.just([{"a": 1}] * 4),
    st.just([b"\xff"] * 4),
    st.just([True, False, None, True]),
)


@settings(LENIENT, max_examples=60)
@given(st.dictionaries(st.one_of(st.sampled_from(COLUMNS), texts), cells, min_size=1, max_size=4))
def test_any_collected_table_is_read_or_refused(tmp_path: Path, columns: dict[str, list[Any]]) -> None:
    usual = {key: list(values)[:4] for key, values in samples.run("ToyCorridor-v0", "cpo", epochs=4).items()}
    path = tmp_path / "table.parquet"
    pyarrow.parquet.write_table(pyarrow.table({**usual, **columns}), path)
    shown = refuses(lambda: _tables_and_page(path))
    assert shown.count("<script") == 2 or not shown.startswith("<!")


def _tables_and_page(path: Path) -> str:
    runs = read_runs(read_table(path))
    shown = []
    with contextlib.suppress(tables.Missing):
        shown.append(tables.main(runs, "safety"))
    text = page.page_html(runs, shown)
    for table in shown:
        render.latex(table)
        render.markdown(table)
    assert text.startswith("<!")
    return text
