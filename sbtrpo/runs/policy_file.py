"""A policy as one file: all that it needs to act, and to be the start of another run.

The arrays of such a `.safetensors` file are parameters, statistics of observations and bounds of actions, of critics
their parameters alone. Its metadata holds, as JSON, how they are nested, the run's settings, and how far it was. A
checkpoint always gives the same bytes, and reading them never runs code from them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from sbtrpo.config import TrainConfig
from sbtrpo.config.run import RunSettings, Which
from sbtrpo.config.settings import declared
from sbtrpo.config.tasks import is_foreign, is_task_file, with_env_kwargs
from sbtrpo.config.train import LATEST
from sbtrpo.errors import UserError, sentence
from sbtrpo.runs.checkpoint import STRUCTURE, Arrays, CheckpointStore, decode, encode, fitting
from sbtrpo.runs.folder import read_run

SUFFIX = ".safetensors"
VERSION, KEY = 1, "sbtrpo"
NETWORK = ("network", "hidden", "activation", "normalise_observations")
"""The settings that say what a policy is made of."""
_OF_THE_TASK = ("constraints", "faulted")


class DamagedPolicy(UserError, ValueError):  # noqa: N818
    """A file that holds no policy."""


@contextlib.contextmanager
def as_policy(path: str | Path) -> Iterator[None]:
    """Whatever goes wrong within is the fault of the file that a policy is read from."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise DamagedPolicy(
            f"{path} holds no policy of sbtrpo ({type(error).__name__}: {sentence(error, 200)});"
            " `sbtrpo export RUN --format policy` writes one"
        ) from error


@dataclass(frozen=True)
class StoredPolicy:
    """A policy that was written down, in a file of its own or in a run's checkpoint."""

    source: str
    """Where it was found."""
    content: bytes
    """Of its file."""
    settings: Mapping[str, Any]
    """What shaped the run's results, and its seed; task and method by what tables call them."""
    network: TrainConfig
    """Those of them that say what it is made of."""
    epoch: int
    steps: int
    """How many it was trained for."""
    policy: Mapping[str, Any]
    """A policy's `state_dict`."""
    critics: Any
    """The critics' parameters; None where there were none."""

    @property
    def name(self) -> str:
        """Method, seed and epoch."""
        words = f"{self.settings['algo']}-seed{self.settings['seed']}-epoch{self.epoch}"
        return re.sub(r"[^\w.+-]+", "-", words)[:100]

    @property
    def identity(self) -> str:
        """The same wherever the policy lies, and another where it is another one."""
        return f"{self.name}@{hashlib.sha256(self.content).hexdigest()[:12]}"

    def config(self, task: str | None = None, env_kwargs: Mapping[str, Any] | Iterable[str] = ()) -> TrainConfig:
        """What it acts with: on the task that it names, with the constraints there, or on another one.

        A file decides on nothing that is run or read: a task that is code, or a file, is to be named.
        """
        own = str(self.settings["task"])
        if task is None and (is_foreign(own) or is_task_file(own)):
            raise ValueError(f"name the task that {self.source} is to be tried on with --task; it was made for {own}")
        chosen = with_env_kwargs(task or own, env_kwargs)
        with as_policy(self.source):
            there = {name: self.settings[name] for name in _OF_THE_TASK if chosen == own}
            return self.network.replace(task=chosen, **there)


def is_policy_file(policy: Any) -> bool:
    """Whether a policy is given as such a file."""
    return isinstance(policy, str | Path) and Path(policy).suffix == SUFFIX and not Path(policy).is_dir()


def stored_policy(place: str | Path, which: Which = "last") -> StoredPolicy:
    """The policy of a run's checkpoint, or that in a file.

    Args:
        place: the run's folder, or the file.
        which: a run's last checkpoint, its best one, or that of an epoch.
    """
    path = Path(place)
    if path.is_dir():
        return _of_run(path, which)
    if not is_policy_file(path):
        raise UserError(
            f"{place} is no policy to go on from; name a run's folder, or a {SUFFIX} file that `sbtrpo export RUN"
            " --format policy` wrote"
        )
    if which != "last":
        raise ValueError(f"{place} is one policy, and has no checkpoint {which}; leave that out")
    if not path.exists():
        raise FileNotFoundError(f"there is no {place}; name a run's folder, or a policy's {SUFFIX} file")
    return _read(path.read_bytes(), path)


def identity_of(place: str, which: Which = "last") -> str:
    """What tells a policy from others; one that is gone is known by its place."""
    return stored_policy(place, which).identity if Path(place).exists() else place


def _of_run(run: Path, which: Which) -> StoredPolicy:
    if not (run / "config.toml").exists():
        raise FileNotFoundError(f"{run} is not the folder of a run: it holds no config.toml")
    store = CheckpointStore(run / "checkpoints")
    epoch = store.epoch(which)
    structure = run / "checkpoints" / f"epoch-{epoch:06d}" / STRUCTURE
    return _of_checkpoint(run, epoch, structure.read_bytes() if structure.exists() else b"")


@functools.lru_cache(maxsize=16)
def _of_checkpoint(run: Path, epoch: int, structure: bytes) -> StoredPolicy:
    """The policy of an epoch; a checkpoint's structure, with its digests, tells whether it is still the same."""
    config, (_, state) = read_run(run), CheckpointStore(run / "checkpoints").load(epoch)
    with fitting(run):
        critics = state["critics"] and state["critics"]["params"]
        policy = {"policy": state["policy"], "critics": critics}
    settings = {**config.in_effect(), "seed": config.seed, "task": config.task_entry.label, "algo": config.label}
    del settings["total_steps"]  # a run may be made longer, and this epoch is what it was
    settings = {name: value for name, value in settings.items() if (name, value) not in LATEST}
    return _read(_written({"settings": settings, "epoch": epoch}, policy), run)


def _written(about: Mapping[str, Any], state: Mapping[str, Any]) -> bytes:
    """The content of a file."""
    arrays: Arrays = {}
    structure = encode(state, "", arrays)
    # One entry alone: several are in an order of their own every time.
    metadata = {KEY: json.dumps({"version": VERSION, **about, "structure": structure}, sort_keys=True)}
    return safetensors.numpy.save(arrays, metadata)


def _read(content: bytes, path: Path) -> StoredPolicy:
    """What `_written` wrote."""
    with as_policy(path):
        size = int.from_bytes(content[:8], "little")
        about = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][KEY])
        if about["version"] != VERSION:
            raise DamagedPolicy(f"{path} has format version {about['version']!r}, this sbtrpo reads version {VERSION}")
        state = decode(about["structure"], safetensors.numpy.load(content))
        if not all(np.isfinite(np.asarray(values)).all() for values in state["policy"]["params"]):
            raise DamagedPolicy(f"{path} has parameters that are not finite; take another checkpoint of that run")
        settings = {**about["settings"], "seed": int(about["settings"]["seed"])}
        network, epoch = TrainConfig(**{name: settings[name] for name in NETWORK}), int(about["epoch"])
        growth = declared(RunSettings)["epoch_growth"].checked(settings.get("epoch_growth", 0.0))
        lengths = RunSettings(steps_per_epoch=int(settings["steps_per_epoch"]), epoch_growth=growth)
        steps = lengths.steps_after(epoch)
        return StoredPolicy(str(path), content, settings, network, epoch, steps, state["policy"], state["critics"])
