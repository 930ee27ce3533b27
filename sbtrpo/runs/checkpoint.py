"""Checkpoints: nested dicts of arrays and plain values, each in a folder that is written wholly or not at all.

A checkpoint has two files. `state.safetensors` holds all arrays. `state.json` holds the nesting, the plain values, a
format version and SHA-256 digests. Reading a checkpoint never runs code from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError

from sbtrpo.errors import UserError
from sbtrpo.files import UNFINISHED, Guard, move, remove, sync_folder, unguarded, write_synced
from sbtrpo.runs.judgement import Merit, merit_of_safe_reward

VERSION = 1
ARRAYS, STRUCTURE = "state.safetensors", "state.json"
_REPLACED = ".old-"  # prefix of a folder that a kill may leave behind, like UNFINISHED

Arrays = dict[str, NDArray[Any]]


class DamagedCheckpoint(UserError):  # noqa: N818
    """A checkpoint that cannot be trusted: a file is missing, altered or of another format."""


def _damaged(folder: Path, reason: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(f"the checkpoint {folder} is damaged: {reason}")


@contextlib.contextmanager
def fitting(run: Path) -> Iterator[None]:
    """Whatever goes wrong within, while a checkpoint's state is taken in, is the checkpoint's fault."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise DamagedCheckpoint(
            f"the checkpoint does not fit the files in {run} ({words}); if one of them was edited, put it back, or"
            " train anew in another folder"
        ) from error


def check_form(state: Any, like: Any, path: str = "state") -> None:
    """Raise a ValueError where a state has not the lengths and shapes of another one, in what both have a name for."""
    if isinstance(like, Mapping) and isinstance(state, Mapping):
        for key in like.keys() & state.keys():  # older versions knew fewer names
            check_form(state[key], like[key], f"{path}.{key}")
    elif isinstance(like, list | tuple) and isinstance(state, list | tuple) and len(like) == len(state):
        for k, (item, other) in enumerate(zip(state, like, strict=True)):
            check_form(item, other, f"{path}[{k}]")
    elif isinstance(like, Mapping | list | tuple) or np.shape(state) != np.shape(like) or _kind(state) != _kind(like):
        raise ValueError(f"{path} has another form")


def _kind(value: Any) -> str:
    """Number, text or nothing."""
    kind = "f" if isinstance(value, torch.Tensor) else np.asarray(value).dtype.kind  # a tensor may be on a device
    return "number" if kind in "biuf" else "other"


# ---- one checkpoint --------------------------------------------------------------------------------------------------


def save(folder: Path, state: Mapping[Any, Any], guard: Guard = unguarded) -> Path:
    """Write `state` as a checkpoint and replace an older one of that name; returns the folder.

    Leaves may be torch tensors, NumPy arrays and scalars, str, int, float, bool and None. They may be nested in lists,
    tuples, and dicts with keys of str or int. Each comes back with its type, and tensors come back on the CPU.
    """
    folder = Path(folder)
    arrays: Arrays = {}
    structure = encode(state, "", arrays)
    tensor_bytes = safetensors.numpy.save(arrays)
    description = {
        "version": VERSION,
        "arrays_sha256": _digest(tensor_bytes),
        "structure_sha256": _digest(_json(structure)),
        "structure": structure,
    }
    unfinished = folder.with_name(f"{UNFINISHED}{folder.name}")
    guard()
    remove(unfinished)
    unfinished.mkdir(parents=True)
    for name, content in ((ARRAYS, tensor_bytes), (STRUCTURE, _json(description))):
        guard()
        write_synced(unfinished / name, content)
    sync_folder(unfinished)
    guard()
    _put_in_place(unfinished, folder)
    return folder


def load(folder: Path) -> dict[str, Any]:
    """The state of a checkpoint; raises `DamagedCheckpoint` if it is not what was saved."""
    folder = Path(folder)
    structure, arrays_sha256 = _read_structure(folder)
    tensor_bytes = _read(folder, ARRAYS)
    if _digest(tensor_bytes) != arrays_sha256:
        raise _damaged(folder, f"{ARRAYS} is not what was written, its SHA-256 differs")
    try:
        state = decode(structure, safetensors.numpy.load(tensor_bytes))
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, RuntimeError, MemoryError) as error:
        # The digests were right, so another program wrote this file.
        raise _damaged(folder, f"{STRUCTURE} and {ARRAYS} do not fit together ({repr(error)[:200]})") from error
    if not isinstance(state, dict):
        raise _damaged(folder, f"{STRUCTURE} holds no state")
    return state


def _put_in_place(unfinished: Path, folder: Path) -> None:
    """Rename the new folder; at every moment a whole checkpoint exists, under its name or with the prefix `.old-`."""
    replaced = folder.with_name(f"{_REPLACED}{folder.name}")
    if folder.exists():
        remove(replaced)
        move(folder, replaced)
    move(unfinished, folder)
    sync_folder(folder.parent)
    remove(replaced)


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        raise _damaged(folder, f"{name if folder.exists() else 'the folder'} is missing") from None
    except OSError as error:
        raise _damaged(folder, f"{name} cannot be read ({error.strerror})") from error


def _read_structure(folder: Path) -> tuple[Any, str]:
    """The structure, checked by its digest, and the digest that the arrays must have."""
    content = _read(folder, STRUCTURE)
    try:
        description = json.loads(content)
        version = description["version"]
        if version != VERSION:
            raise _damaged(folder, f"it has format version {version!r}, this sbtrpo reads version {VERSION}")
        structure = description["structure"]
        expected, arrays_sha256 = description["structure_sha256"], str(description["arrays_sha256"])
        digest = _digest(_json(structure))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(folder, f"{STRUCTURE} is not the JSON of a checkpoint ({error!r})") from error
    if digest != expected:
        raise _damaged(folder, f"{STRUCTURE} is not what was written, its SHA-256 differs")
    return structure, arrays_sha256


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


# ---- state <-> JSON and arrays ---------------------------------------------------------------------------------------
# Plain values are stored as they are. A type that JSON lacks becomes an object with one key that begins with $.


def encode(value: Any, path: str, arrays: Arrays) -> Any:
    """A state as JSON says it; its arrays are added to `arrays`, under names that begin with `path`."""
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, path, arrays)
    if isinstance(value, np.ndarray):
        return {"$numpy": _store(value, path, arrays)}
    if isinstance(value, np.generic):  # before float, because np.float64 is a float too
        return {"$scalar": _store(np.asarray(value), path, arrays)}
    if isinstance(value, Mapping):
        return _encode_mapping(value, path, arrays)
    if type(value) in (list, tuple):
        items = [encode(item, f"{path}/{i}", arrays) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if type(value) is float and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or type(value) in (str, int, float, bool):
        return value
    raise TypeError(
        f"a checkpoint cannot hold the {type(value).__name__} at {path or 'its root'};"
        " make it a tensor, an array, a plain number, a string, or a dict or list of such"
    )


def _encode_mapping(value: Mapping[Any, Any], path: str, arrays: Arrays) -> Any:
    for key in value:
        if type(key) not in (str, int):
            raise TypeError(f"keys of a checkpoint are str or int, got {key!r} at {path or 'its root'}")
    items = [(key, encode(item, f"{path}/{key}", arrays)) for key, item in value.items()]
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return dict(items)
    return {"$dict": [list(item) for item in items]}  # JSON has only string keys: 0 would come back as "0"


def _encode_tensor(value: torch.Tensor, path: str, arrays: Arrays) -> Any:
    value = value.detach().cpu()
    if value.dtype == torch.bfloat16:  # NumPy has no such type
        return {"$bfloat16": _store(value.contiguous().view(torch.int16).numpy(), path, arrays)}
    return {"$torch": _store(value.numpy(), path, arrays)}


def _store(value: NDArray[Any], path: str, arrays: Arrays) -> str:
    """Add a copy of an array to those that will be written; returns its name among them."""
    if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
        raise TypeError(
            f"a checkpoint cannot hold the array of {value.dtype} at {path}; use booleans, integers or floats"
        )
    name = path
    while name in arrays:  # {"a": {"b": x}, "a/b": y}
        name += "'"
    # safetensors writes the memory as it is and ignores strides, so the copy has C order and native bytes.
    arrays[name] = np.array(value, dtype=value.dtype.newbyteorder("="), order="C")
    return name


def decode(value: Any, arrays: Arrays) -> Any:
    """The state that `encode` was given."""
    if isinstance(value, list):
        return [decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        key, content = next(iter(value.items()))
        if key.startswith("$"):
            return _DECODERS[key](content, arrays)
    return {key: decode(item, arrays) for key, item in value.items()}


_DECODERS: dict[str, Callable[[Any, Arrays], Any]] = {
    "$numpy": lambda name, arrays: arrays[name].copy(),  # a copy can be written to, which safetensors does not promise
    "$scalar": lambda name, arrays: arrays[name][()],
    "$torch": lambda name, arrays: torch.from_numpy(arrays[name].copy()),
    "$bfloat16": lambda name, arrays: torch.from_numpy(arrays[name].copy()).view(torch.bfloat16),
    "$tuple": lambda items, arrays: tuple(decode(item, arrays) for item in items),
    "$float": lambda text, arrays: float(text),
    "$dict": lambda items, arrays: {key: decode(item, arrays) for key, item in items},
}


# ---- the checkpoints of a run ----------------------------------------------------------------------------------------


class CheckpointStore:
    """The checkpoints of one run: a folder with `epoch-000123` and so on.

    The store keeps the last `keep_last`, those whose epoch is a multiple of `keep_every` (0: none of these), and the
    best one. The best has the highest score, a `Merit`; of two equal scores the later counts. Each score is stored in
    its checkpoint, so that no separate index can be out of date. Earlier versions stored the safe reward.
    """

    def __init__(self, folder: Path, keep_last: int = 2, keep_every: int = 100, guard: Guard = unguarded) -> None:
        if keep_last < 1:
            raise ValueError(
                f"keep_last must be at least 1, got {keep_last}; a run needs one checkpoint to resume from"
            )
        if keep_every < 0:
            raise ValueError(f"keep_every must be at least 0, got {keep_every}; 0 keeps none for good")
        self.folder, self._guard = Path(folder), guard
        self.keep_last, self.keep_every = keep_last, keep_every
        self._scores = {epoch: _score(path) for epoch, path in self._paths().items()}

    def save(self, epoch: int, state: Mapping[Any, Any], score: Merit | float | None = None) -> Path:
        """Write the checkpoint of an epoch, then remove those that are no longer kept."""
        if epoch < 0:
            raise ValueError(f"epoch must be at least 0, got {epoch}")
        path = save(self.folder / f"epoch-{epoch:06d}", {"epoch": epoch, "score": score, "state": state}, self._guard)
        self._scores[epoch] = _as_merit(score)
        self.prune()
        return path

    def prune(self) -> None:
        """Remove the checkpoints that are not kept, and what interrupted writes left behind."""
        self._guard()
        self._clean()
        paths = self._paths()
        for epoch in sorted(set(paths) - self._kept()):
            self._guard()
            rubbish = self.folder / f"{UNFINISHED}{paths[epoch].name}"
            move(paths[epoch], rubbish)  # first, so that half a checkpoint never has its name
            remove(rubbish)
            self._scores.pop(epoch, None)

    def load_latest(self) -> tuple[int, dict[str, Any], list[str]]:
        """The newest intact checkpoint: its epoch, its state, and a note on each damaged one that is newer."""
        notes: list[str] = []
        for epoch, path in sorted(self._paths().items(), reverse=True):
            try:
                return epoch, _state(path), notes
            except DamagedCheckpoint as damage:
                notes.append(str(damage))
                self._scores.pop(epoch, None)
        if notes:
            raise DamagedCheckpoint(
                f"no intact checkpoint is left in {self.folder}; begin the run anew: {'; '.join(notes)}"
            )
        raise FileNotFoundError(f"there is no checkpoint in {self.folder}; begin the run anew")

    def load(self, which: Literal["last", "best"] | int = "last") -> tuple[int, dict[str, Any]]:
        """An epoch and the state of its checkpoint: the last one, the best by score, or that of a given epoch.

        Unlike `load_latest`, this raises if that checkpoint is damaged, and never loads another one instead.
        """
        epoch = self.epoch(which)
        return epoch, _state(self._paths()[epoch])

    def epoch(self, which: Literal["last", "best"] | int = "last") -> int:
        """The epoch of the last checkpoint, of the best one, or a given one that has a checkpoint."""
        epochs = self.epochs()
        if not epochs:
            raise FileNotFoundError(f"there is no checkpoint in {self.folder}")
        epoch = epochs[-1] if which == "last" else self.best if which == "best" else which
        if epoch is None:
            raise FileNotFoundError(f"no checkpoint in {self.folder} has a score; load 'last' or one of {epochs}")
        if epoch not in epochs:
            raise FileNotFoundError(f"{self.folder} holds no checkpoint of epoch {epoch}; there are {epochs}")
        return int(epoch)

    def epochs(self) -> list[int]:
        """The epochs that have a checkpoint, in order."""
        return sorted(self._paths())

    @property
    def best(self) -> int | None:
        """The epoch with the highest score; None if no checkpoint has one."""
        scored = [(score, epoch) for epoch, score in self._scores.items() if score is not None]
        return max(scored)[1] if scored else None

    def _kept(self) -> set[int]:
        epochs = self.epochs()
        kept = set(epochs[-self.keep_last :])
        if self.keep_every:
            kept |= {epoch for epoch in epochs if epoch % self.keep_every == 0}
        return kept if self.best is None else kept | {self.best}

    def _paths(self) -> dict[int, Path]:
        """The folder of each epoch's checkpoint; if a replacement was interrupted, this is the `.old-` folder."""
        paths: dict[int, Path] = {}
        for prefix in (_REPLACED, ""):
            for path in self.folder.glob(f"{prefix}epoch-*"):
                if match := re.fullmatch(rf"{re.escape(prefix)}epoch-(\d{{6,}})", path.name):
                    paths[int(match[1])] = path
        return paths

    def _clean(self) -> None:
        """Remove or restore what interrupted writes left behind.

        Only a writer may do this: for a reader, such a folder may be a write of another process that still goes on.
        """
        for path in self.folder.glob(f"{UNFINISHED}*"):
            remove(path)
        for path in self.folder.glob(f"{_REPLACED}epoch-*"):
            original = path.with_name(path.name.removeprefix(_REPLACED))
            if original.exists():
                remove(path)
            else:
                move(path, original)


def _score(path: Path) -> Merit | None:
    try:
        structure, _ = _read_structure(path)
        return _as_merit(decode(structure["score"], {}))
    except (DamagedCheckpoint, KeyError, TypeError, ValueError):
        return None


def _as_merit(score: Any) -> Merit | None:
    """A score as it can be compared; None for what is none."""
    if isinstance(score, int | float):
        return None if math.isnan(score) else merit_of_safe_reward(float(score))
    if not isinstance(score, tuple) or any(math.isnan(part) for part in score):
        return None
    rank, first, second = map(float, score)
    return rank, first, second


def _state(path: Path) -> dict[str, Any]:
    content = load(path)
    if not isinstance(content.get("state"), dict):
        raise _damaged(path, f"{STRUCTURE} is not of a run's checkpoint")
    return content["state"]  # type: ignore[no-any-return]
