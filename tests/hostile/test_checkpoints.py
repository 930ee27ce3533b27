"""Checkpoints that somebody made to do harm: with the right digests, but not what a run would write."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.errors import UserError
from sbtrpo.learning.training import restore
from sbtrpo.runs import checkpoint
from sbtrpo.runs.checkpoint import ARRAYS, STRUCTURE, DamagedCheckpoint
from sbtrpo.runs.folder import RunFolder
from tests.hostile.inputs import pickled, values

SMALL = TrainConfig(task="ToyCorridor-v0", num_envs=2, steps_per_epoch=100, total_steps=200, hidden=(4,))
OBS = np.zeros((1, 2))
LENIENT = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def forge(folder: Path, arrays: bytes, structure: Any) -> None:
    """Write a checkpoint whose digests are right."""
    folder.mkdir(exist_ok=True)
    (folder / ARRAYS).write_bytes(arrays)
    description = {
        "version": checkpoint.VERSION,
        "arrays_sha256": hashlib.sha256(arrays).hexdigest(),
        "structure_sha256": hashlib.sha256(json.dumps(structure).encode()).hexdigest(),
        "structure": structure,
    }
    (folder / STRUCTURE).write_text(json.dumps(description))


def loads(folder: Path) -> dict[str, Any] | None:
    """The state, or None where it is refused in one sentence."""
    try:
        return checkpoint.load(folder)
    except DamagedCheckpoint as error:
        refusal = str(error)
    assert str(folder) in refusal
    assert len(refusal) < 1000
    return None


def header(content: Any, claimed: int | None = None) -> bytes:
    """A file of safetensors with this header, which may claim another length."""
    text = json.dumps(content).encode()
    return (len(text) if claimed is None else claimed).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "arrays",
    [
        b"",
        b"\x00" * 8,
        header({}, claimed=2**60),
        header({}, claimed=2**64 - 1),
        header({"a": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}}),
        header({"a": {"dtype": "F64", "shape": [2**32, 2**32], "data_offsets": [0, 0]}}),
        header({"a": {"dtype": "F64", "shape": [0, 2**62], "data_offsets": [0, 0]}}),
        header({"a": {"dtype": "F64", "shape": [1], "data_offsets": [8, 0]}}),
        header({"a": {"dtype": "F64", "shape": [-1], "data_offsets": [0, 8]}}),
        header({"a": {"dtype": "O", "shape": [1], "data_offsets": [0, 8]}}) + b"\x00" * 8,
        header({"../../a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}) + b"\x00",
        b"PK\x03\x04" + b"\x00" * 40,
    ],
)
def test_arrays_that_lie_about_themselves_are_refused(arrays: bytes, tmp_path: Path) -> None:
    forge(tmp_path / "state", arrays, {"a": {"$numpy": "a"}})
    assert loads(tmp_path / "state") is None


@settings(LENIENT)
@given(st.binary(max_size=200))
def test_any_bytes_for_arrays_are_refused_or_read(tmp_path: Path, arrays: bytes) -> None:
    forge(tmp_path / "state", arrays, {"a": {"$numpy": "a"}})
    state = loads(tmp_path / "state")
    assert state is None or isinstance(state["a"], np.ndarray)


@pytest.mark.parametrize("name", [ARRAYS, STRUCTURE])
def test_a_pickle_in_disguise_is_never_unpickled(name: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    forge(tmp_path / "state", pickled(trace), {"a": {"$numpy": "a"}})
    if name == STRUCTURE:
        (tmp_path / "state" / STRUCTURE).write_bytes(pickled(trace))
    assert loads(tmp_path / "state") is None
    assert not trace.exists()


MARKED = st.sampled_from(["$numpy", "$scalar", "$torch", "$bfloat16", "$tuple", "$float", "$dict", "$eval", "$", "a"])


@settings(LENIENT)
@given(st.recursive(values, lambda inner: st.dictionaries(MARKED, inner, min_size=1, max_size=2), max_leaves=5))
def test_any_structure_is_refused_or_read(tmp_path: Path, structure: Any) -> None:
    forge(tmp_path / "state", safetensors.numpy.save({"a": np.zeros(3)}), structure)
    state = loads(tmp_path / "state")
    assert state is None or isinstance(state, dict)


@pytest.mark.parametrize("depth", [100, 900, 3000, 100_000])
@pytest.mark.parametrize("pair", [("[", "]"), ('{"a":', "}"), ('{"$tuple":[', "]}")])
def test_deep_nesting_is_refused_or_read(pair: tuple[str, str], depth: int, tmp_path: Path) -> None:
    text = f'{{"a": {pair[0] * depth}0{pair[1] * depth}}}'
    digest = hashlib.sha256(text.encode()).hexdigest()
    forge(tmp_path / "state", safetensors.numpy.save({}), {})
    description = f'{{"version": 1, "arrays_sha256": "x", "structure_sha256": "{digest}", "structure": {text}}}'
    (tmp_path / "state" / STRUCTURE).write_text(description)
    assert loads(tmp_path / "state") is None


# ---- the state of a run --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sbtrpo.train(SMALL, tmp_path_factory.mktemp("hostile") / "run", quiet=True)


def places(state: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something is in a nested state."""
    inside = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list | tuple) else ()
    return [place for key, value in inside for place in [(*path, key), *places(value, (*path, key))]]


def changed(state: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a place; without it, where the value is `places`."""
    if not place:
        return value
    items = dict(state) if isinstance(state, dict) else dict(enumerate(state))
    if len(place) == 1 and value is places:
        del items[place[0]]
    else:
        items[place[0]] = changed(items[place[0]], place[1:], value)
    return items if isinstance(state, dict) else type(state)(items.values())


@pytest.mark.parametrize("shape", [np.zeros((7, 5)), np.full(3, np.nan), -1, None, "x", [2.5, 1], [7]])
def test_a_forged_shape_of_actions_is_refused(trained: Path, tmp_path: Path, shape: Any) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    newest = run / "checkpoints" / "epoch-000002"
    content = checkpoint.load(newest)
    checkpoint.save(newest, changed(content, ("state", "policy", "action", "shape"), shape))
    with pytest.raises((UserError, ValueError)):
        sbtrpo.load_policy(run).act(OBS)


@settings(LENIENT, max_examples=40)
@given(data=st.data())
def test_a_run_with_a_forged_state_goes_on_or_is_refused(trained: Path, tmp_path: Path, data: st.DataObject) -> None:
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    newest = run / "checkpoints" / "epoch-000002"
    shutil.rmtree(run / "checkpoints" / "epoch-000001", ignore_errors=True)
    content = checkpoint.load(newest)
    place = data.draw(st.sampled_from(places(content)))
    forgeries = st.sampled_from([places, None, np.zeros((7, 5)), np.zeros(0), np.full(3, np.nan), -1, [], {}, "x"])
    checkpoint.save(newest, changed(content, place, data.draw(forgeries)))
    before = (run / "metrics.csv").read_bytes()
    for go_on in (lambda: restore(RunFolder.open(run))[0].run_epoch(), lambda: sbtrpo.load_policy(run).act(OBS)):
        refusal = ""
        try:
            go_on()
        except (UserError, ValueError) as error:
            refusal = str(error)
        assert len(refusal) < 1500
        assert "\n" not in refusal
    assert before.startswith((run / "metrics.csv").read_bytes())
