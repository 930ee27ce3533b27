from __future__ import annotations

import ast
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sbtrpo.runs.checkpoint
from sbtrpo.runs.checkpoint import ARRAYS, STRUCTURE, CheckpointStore, DamagedCheckpoint, load, save

ODD: dict[str, Any] = {
    "torch": {
        "weight": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
        "zero_dim": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.empty(0, 3),
        "transposed": torch.arange(6.0).view(2, 3).T,
        "bool": torch.tensor([True, False]),
        "bfloat16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "generator": torch.Generator().manual_seed(7).get_state(),
        "parameter": torch.nn.Parameter(torch.ones(2)).detach(),
    },
    "numpy": {
        "zero_dim": np.array(3),
        "empty": np.zeros((0, 2)),
        "bool": np.array([[True], [False]]),
        "uint64": np.array([2**64 - 1, 0], dtype=np.uint64),
        "int8": np.array([-128], dtype=np.int8),
        "float16": np.array(0.1, dtype=np.float16),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "strided": np.arange(10)[::-3],
        "special": np.array([np.nan, np.inf, -0.0]),
        "scalar": np.float64(0.1),
    },
    "plain": {
        "text": 'α "quoted"\n',
        "large": 2**127 + 1,  # the state of a PCG64
        "float": 0.1 + 0.2,
        "negative_zero": -0.0,
        "flags": [True, False, None],
        "infinite": [math.inf, -math.inf],
        "nested": [[1, [np.arange(2), {"deep": torch.ones(1)}]], []],
        "tuple": (0.9, 0.999),
        "empty": {},
    },
    "keys": {0: {"step": torch.tensor(1.0)}, "$torch": "no array", "a/b": np.ones(1), "a": {"b": np.zeros(1)}},
    "__metadata__": np.ones(1),
}


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert torch.equal(found, expected)
    elif isinstance(expected, np.ndarray | np.generic):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()
    else:
        assert repr(found) == repr(expected)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def filled(folder: Path, epochs: int, **policy: int) -> CheckpointStore:
    store = CheckpointStore(folder, **({"keep_last": 10, "keep_every": 0} | policy))
    for epoch in range(1, epochs + 1):
        store.save(epoch, {"weight": torch.full((2,), float(epoch))})
    return store


def test_every_kind_of_leaf_comes_back_as_it_was(tmp_path: Path) -> None:
    assert_same(load(save(tmp_path / "point", ODD)), ODD)


def test_restored_arrays_are_their_own_and_writable(tmp_path: Path) -> None:
    tensor = torch.zeros(4)
    state = load(save(tmp_path / "point", {"a": tensor, "b": tensor[:2], "c": np.zeros(2)}))  # a and b share memory
    state["a"] += 1
    state["c"] += 1
    assert torch.equal(state["b"], torch.zeros(2))


@pytest.mark.parametrize(
    ("leaf", "word"),
    [
        ({1, 2}, "set"),
        (np.array(["a"]), "array of <U1"),
        (np.array([None]), "object"),
        (1j, "complex"),
        (Path(), "Path"),
    ],
)
def test_what_cannot_be_saved_is_named_and_leaves_no_file(tmp_path: Path, leaf: Any, word: str) -> None:
    with pytest.raises(TypeError, match=f"{word}.* at /outer/leaf"):
        save(tmp_path / "point", {"outer": {"leaf": leaf}})
    assert not list(tmp_path.iterdir())


def test_saving_again_replaces(tmp_path: Path) -> None:
    save(tmp_path / "point", {"a": 1})
    save(tmp_path / "point", {"a": 2})
    assert load(tmp_path / "point") == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["point"]


def truncate(folder: Path) -> None:
    content = (folder / ARRAYS).read_bytes()
    (folder / ARRAYS).write_bytes(content[: len(content) // 2])


def change_a_number(folder: Path) -> None:
    text = (folder / STRUCTURE).read_text()
    assert '"count": 17' in text
    (folder / STRUCTURE).write_text(text.replace('"count": 17', '"count": 18'))


def set_version(folder: Path) -> None:
    content = json.loads((folder / STRUCTURE).read_text())
    (folder / STRUCTURE).write_text(json.dumps(content | {"version": 99}))


DAMAGES = {
    "truncated": (truncate, f"{ARRAYS} is not what was written"),
    "bit flipped": (lambda folder: flip_a_bit(folder / ARRAYS), f"{ARRAYS} is not what was written"),
    "number changed": (change_a_number, f"{STRUCTURE} is not what was written"),
    "no arrays": (lambda folder: (folder / ARRAYS).unlink(), f"{ARRAYS} is missing"),
    "no structure": (lambda folder: (folder / STRUCTURE).unlink(), f"{STRUCTURE} is missing"),
    "cut JSON": (lambda folder: (folder / STRUCTURE).write_text('{"version": 1'), "is not the JSON of a checkpoint"),
    "other JSON": (lambda folder: (folder / STRUCTURE).write_text("[1]"), "is not the JSON of a checkpoint"),
    "pickle": (lambda folder: (folder / STRUCTURE).write_bytes(pickle.dumps({"a": 1})), "is not the JSON"),
    "version": (set_version, "it has format version 99, this sbtrpo reads version 1"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_and_the_checkpoint_before_is_used(tmp_path: Path, name: str) -> None:
    store = CheckpointStore(tmp_path, keep_last=3, keep_every=0)
    for epoch in (1, 2):
        store.save(epoch, {"weight": torch.full((2,), float(epoch)), "count": 17}, score=float(epoch))
    damage, sentence = DAMAGES[name]
    damage(tmp_path / "epoch-000002")
    with pytest.raises(DamagedCheckpoint) as caught:
        load(tmp_path / "epoch-000002")
    assert sentence in str(caught.value)

    store = CheckpointStore(tmp_path, keep_last=3, keep_every=0)
    epoch, state, notes = store.load_latest()
    assert epoch == 1
    assert torch.equal(state["weight"], torch.ones(2))
    assert len(notes) == 1
    assert str(tmp_path / "epoch-000002") in notes[0]
    assert store.best == 1  # a checkpoint that cannot be read is not the best one
    with pytest.raises(DamagedCheckpoint):
        store.load("last")


def test_missing_checkpoints_are_told_from_damaged_ones(tmp_path: Path) -> None:
    with pytest.raises(DamagedCheckpoint, match="the folder is missing"):
        load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        CheckpointStore(tmp_path / "nowhere").load_latest()
    store = filled(tmp_path, 2)
    for epoch in (1, 2):
        flip_a_bit(tmp_path / f"epoch-00000{epoch}" / ARRAYS)
    with pytest.raises(DamagedCheckpoint, match=r"no intact checkpoint is left.*epoch-000002.*epoch-000001"):
        store.load_latest()


def test_an_interrupted_save_is_ignored_then_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(sbtrpo.runs.checkpoint, "_put_in_place", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.save(2, {"weight": torch.zeros(2)})
    assert (tmp_path / ".tmp-epoch-000002" / ARRAYS).exists()
    assert CheckpointStore(tmp_path).load_latest()[0] == 1
    assert (tmp_path / ".tmp-epoch-000002").exists()  # a reader leaves a writer's files alone
    CheckpointStore(tmp_path, keep_last=2, keep_every=0).save(3, {"weight": torch.zeros(2)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-000001", "epoch-000003"]


def test_a_kill_between_the_two_renames_of_a_replacement_loses_nothing(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    (tmp_path / "epoch-000001").rename(tmp_path / ".old-epoch-000001")
    store = CheckpointStore(tmp_path, keep_last=2, keep_every=0)
    assert store.load_latest()[0] == 1
    store.save(2, {"weight": torch.zeros(2)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-000001", "epoch-000002"]


def test_the_last_every_kth_and_the_best_are_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep_last=2, keep_every=5)
    scores = {3: 9.0, 4: math.nan, 5: None, 7: 9.0, 8: 8.0}
    for epoch in range(1, 13):
        store.save(epoch, {"epoch": epoch}, scores.get(epoch, 1.0))
    assert store.epochs() == [5, 7, 10, 11, 12]
    reopened = CheckpointStore(tmp_path, keep_last=1, keep_every=0)
    assert reopened.load("best") == (7, {"epoch": 7})
    assert reopened.load("last") == (12, {"epoch": 12})
    assert reopened.load(10) == (10, {"epoch": 10})
    with pytest.raises(FileNotFoundError, match="no checkpoint of epoch 6"):
        reopened.load(6)
    reopened.prune()
    assert reopened.epochs() == [7, 12]


def test_without_scores_there_is_no_best(tmp_path: Path) -> None:
    store = filled(tmp_path, 4, keep_last=1)
    assert store.epochs() == [4]
    with pytest.raises(FileNotFoundError, match="has a score"):
        store.load("best")


def test_impossible_policies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep_last"):
        CheckpointStore(tmp_path, keep_last=0, keep_every=1)
    with pytest.raises(ValueError, match="keep_every"):
        CheckpointStore(tmp_path, keep_last=1, keep_every=-1)


def test_the_module_cannot_run_code_from_a_checkpoint() -> None:
    tree = ast.parse(Path(sbtrpo.runs.checkpoint.__file__).read_text())
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert not imported & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "importlib"}
    attributes = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not attributes & {"torch.load", "torch.save", "np.load", "np.save"}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"eval", "exec", "__import__", "compile"}
