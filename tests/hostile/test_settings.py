"""config.toml, plans and tasks in TOML that somebody made to do harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sbtrpo import TrainConfig
from sbtrpo.benchmark.plan import Plan, run_path
from sbtrpo.config import catalogue
from sbtrpo.config.file import read_config
from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import declared
from sbtrpo.config.train import all_settings
from sbtrpo.envs.custom import KINDS, SETTINGS, spec_from_toml
from sbtrpo.envs.spec import NavigationSpec
from sbtrpo.errors import UserError
from tests.hostile.inputs import DANGEROUS, obeys, texts, values

LENIENT = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
REFUSALS = (UserError, ValueError, OSError, ImportError)


def toml(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)


def written(path: Path, content: dict[str, Any]) -> Path:
    """A file in TOML."""
    path.write_text("".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in content.items()), encoding="utf-8")
    return path


def refuses(read: Any, path: Path) -> Any:
    """What a file holds, or the sentence that refuses it."""
    try:
        return read(path)
    except REFUSALS as refusal:
        words = str(refusal)
    assert 0 < len(words) < 1500, words[:200]
    assert "\n" not in words
    return words


KNOWN = [*all_settings(catalogue.method("sb-trpo")), "beta"]
PLANNED = [*KNOWN, "tasks", "algos", "seeds", "num_seeds", "group"]


@settings(LENIENT)
@given(st.dictionaries(st.one_of(st.sampled_from(KNOWN), texts), values, max_size=4))
def test_any_settings_are_read_or_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    read = refuses(read_config, written(tmp_path / "config.toml", content))
    assert isinstance(read, TrainConfig | str)


@settings(LENIENT)
@given(st.dictionaries(st.one_of(st.sampled_from(PLANNED), texts), values, max_size=4))
def test_any_plan_is_read_or_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    read = refuses(Plan.from_file, written(tmp_path / "plan.toml", content))
    assert isinstance(read, Plan | str)


TASK = {"id": "Mine-v0", "robot": "point", "objective": "goal", "objects": [{"kind": "goal"}]}
objects = st.fixed_dictionaries(
    {"kind": st.sampled_from(list(KINDS))},
    optional=dict.fromkeys(("count", "size", "keepout", "places", "area", "boundary", "density", "cost"), values),
)


@settings(LENIENT)
@given(st.dictionaries(st.sampled_from(SETTINGS), values, max_size=3), st.lists(objects, max_size=3))
def test_any_task_is_read_or_refused(tmp_path: Path, content: dict[str, Any], others: list[Any]) -> None:
    whole = {**TASK, "objects": [{"kind": "goal"}, *others], **content}
    read = refuses(spec_from_toml, written(tmp_path / "task.toml", whole))
    assert isinstance(read, NavigationSpec | str)


READERS = {"config": read_config, "plan": Plan.from_file, "task": spec_from_toml}


@settings(LENIENT)
@given(st.binary(max_size=100))
def test_any_bytes_are_refused_or_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.toml").write_bytes(content)
    for read in READERS.values():
        assert isinstance(refuses(read, tmp_path / "file.toml"), TrainConfig | Plan | NavigationSpec | str)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "content",
    [
        "a = " + "[" * 100_000,
        "a = " + "{a = " * 5_000,
        "seed = " + "[" * 300 + "]" * 300,
        ".".join("a" * 20_000) + " = 1",
        "[" + ".".join("a" * 20_000) + "]",
        "seed = " + "9" * 10_000,
        "seed = 1e999999999",
        "seed = " + "\"" + "a" * 1_000_000 + "\"",
        "\x00",
        "seed = 2026-01-01",
    ],
    ids=range(10),
)  # fmt: skip
def test_files_that_would_exhaust_a_parser_are_refused(reader: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text(content, encoding="utf-8")
    assert isinstance(refuses(READERS[reader], path), str)


@pytest.mark.parametrize("setting", [name for name, item in declared(RunSettings).items() if item.hint is int])
def test_a_number_beyond_all_machines_is_refused_before_anything_is_made(setting: str, tmp_path: Path) -> None:
    vast = {"num_envs": 10**12, "steps_per_epoch": 10**12, "total_steps": 10**13, setting: 10**13}
    path = written(tmp_path / "config.toml", {"task": "ToyCorridor-v0", **vast})
    assert isinstance(refuses(read_config, path), str)


@pytest.mark.parametrize(
    "content", [{"num_seeds": 10**12}, {"beta": [k / 1e6 for k in range(1000)], "seeds": list(range(1000))}]
)
def test_a_plan_of_more_runs_than_anybody_has_time_for_is_refused(content: dict[str, Any], tmp_path: Path) -> None:
    path = written(tmp_path / "plan.toml", {"tasks": ["ToyCorridor-v0"], **content})
    assert "runs" in refuses(Plan.from_file, path)


# ---- paths ---------------------------------------------------------------------------------------------------------


@settings(LENIENT)
@given(texts)
def test_no_task_leads_a_run_out_of_its_root(tmp_path: Path, name: str) -> None:
    for task in (name, f"package:{name}", f"{name}:{name}", f"{name}.toml"):
        try:
            path = run_path(tmp_path, TrainConfig(task=task))
        except REFUSALS:
            continue
        assert path.resolve().is_relative_to(tmp_path.resolve())
        assert path.resolve() != tmp_path.resolve()
        assert "\x00" not in str(path)


@pytest.mark.parametrize("name", DANGEROUS)
def test_no_id_of_a_task_names_anything_but_a_folder(name: str, tmp_path: Path) -> None:
    read = refuses(spec_from_toml, written(tmp_path / "task.toml", {**TASK, "id": name}))
    assert isinstance(read, str) or (read.id.isascii() and "/" not in read.id and not read.id.startswith("."))


@pytest.mark.parametrize("name", DANGEROUS, ids=ascii)
def test_a_folder_with_settings_that_nobody_wrote_is_one_sentence(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for setting in ("task", "algo", "device"):
        written(run / "config.toml", {"total_steps": 20_000, setting: name})
        for command in ("resume", "evaluate"):
            assert obeys(command, str(run))[0] == 2
    assert not [path for path in tmp_path.rglob("*") if path.is_dir() and path not in (run, *run.rglob("*"))]
