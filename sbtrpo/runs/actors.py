"""Policies from elsewhere: exported files, and anything that maps observations to actions.

`policy.onnx`      an ONNX file, this package's or another's: observations in, actions out
`policy.pt`        likewise a TorchScript file; loading one runs the code in it, so load only what you trust
`module:policy`    a callable, or an object with Stable-Baselines3's `predict`; also `file.py:policy`

They are given flat observations, (N, observation size), and give actions as the environment's action space has them,
(N, *action shape).
"""

from __future__ import annotations

import importlib
import json
import math
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from sbtrpo.config import catalogue
from sbtrpo.config.tasks import is_foreign, is_task_file
from sbtrpo.envs import Pool
from sbtrpo.envs.arrays import to_numpy
from sbtrpo.envs.foreign.environment import Combinations, one_line
from sbtrpo.errors import UserError, users_traceback
from sbtrpo.nets.distributions import Categorical, Gaussian

ONNX, TORCHSCRIPT = (".onnx",), (".pt", ".pth", ".ts", ".torchscript")
DESCRIPTION = "description.json"
"""Name of the extra file inside a TorchScript file of ours; an ONNX file has the same entries as metadata."""
_NAMED = re.compile(r"[^:]+:[A-Za-z_][\w.]*")
_PRECISIONS = {"tensor(double)": np.float64, "tensor(float)": np.float32, "tensor(float16)": np.float16}

Noise: TypeAlias = Callable[[], NDArray[Any]]
"""Draws what a policy samples by: one row a world, standard normal or Gumbel's."""
Decide: TypeAlias = Callable[[NDArray[Any], bool, Noise], Any]
"""Actions for observations, by the mean or not."""


class UnfitPolicy(UserError, ValueError):  # noqa: N818
    """What cannot act here; the message says why."""


@dataclass(frozen=True)
class Actor:
    """A policy from elsewhere."""

    name: str
    decide: Decide
    stem: str = "policy"
    """What files about it are called."""
    home: Path = Path()
    """Where they go."""
    task: str | None = None
    """What it was made for, if it says so."""
    size: int | None = None
    """Of its observations, if it says so."""
    samples: bool | None = None
    """Whether it acts by its mean or samples as one wishes (True), or always acts alike (False); None: nobody knows."""

    def by_mean(self, wished: bool) -> bool | None:
        """Whether it acts by its mean where that is wished or not; None where nobody knows."""
        return None if self.samples is None else wished or not self.samples

    def in_pool(self, pool: Pool, deterministic: bool, seed: int) -> Callable[[Any], Any]:
        """What acts in a pool. Torch's own generator is seeded, too, for policies that draw from it."""
        space: Any = pool.env_action_space
        discrete = isinstance(space, spaces.Discrete)
        head = Categorical(int(space.n)) if discrete else Gaussian(math.prod(space.shape))
        generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        if self.size not in (None, pool.task.observation_size):
            raise UnfitPolicy(
                f"{self.name} takes observations of {self.size} numbers, and {pool.spec.id} gives"
                f" {pool.task.observation_size}; name the task that it was made for with --task"
            )

        def noise() -> NDArray[Any]:
            drawn: NDArray[Any] = head.noise(torch, (pool.num_worlds,), generator).numpy()
            return drawn

        def act(obs: Any) -> Any:
            given = to_numpy(obs)
            try:
                decided = self.decide(given, deterministic, noise)
            except Exception as error:
                failure = UnfitPolicy(f"{self.name} fails on observations of shape {given.shape}: {one_line(error)}")
                failure.add_note(users_traceback(error))
                raise failure from error
            actions = self._fitting(decided, len(given), space)
            return torch.as_tensor(actions).to(obs) if isinstance(obs, torch.Tensor) else actions

        return act

    def _fitting(self, decided: Any, worlds: int, space: Any) -> NDArray[Any]:
        """Actions as a pool takes them."""
        shape = space.table.shape[1:] if isinstance(space, Combinations) else space.shape
        if isinstance(decided, tuple):  # (actions, state), as `predict` gives
            decided = decided[0]
        if isinstance(decided, torch.Tensor):
            decided = decided.detach().cpu().numpy()
        try:
            actions = np.asarray(decided, np.int64 if isinstance(space, spaces.Discrete) else np.float64)
            actions = actions.reshape(worlds, *shape)
        except (TypeError, ValueError) as error:
            raise UnfitPolicy(
                f"{self.name} gives actions of shape {np.shape(decided)}; for {worlds} worlds they must have the shape"
                f" {(worlds, *shape)}"
            ) from error
        if isinstance(space, Combinations):
            try:
                return space.numbers(actions)
            except ValueError as error:
                raise UnfitPolicy(f"{self.name} gives an action outside of {space.counts} choices") from error
        if isinstance(space, spaces.Discrete):
            actions = actions - int(space.start)
            if actions.min() < 0 or actions.max() >= space.n:
                raise UnfitPolicy(f"{self.name} gives an action outside of {space}")
            return actions
        within: NDArray[Any] = np.clip(actions, space.low, space.high)
        return within.reshape(worlds, -1)


def no_policy(policy: str | Path) -> UserError:
    """What is told of a policy that is not there."""
    return UserError(f"there is no {policy}; name a run's folder, an exported policy, or module:policy")


def open_actor(policy: Any) -> Actor | None:
    """The policy in a file, behind a name or given as it is; None of what must be a run's folder."""
    if not isinstance(policy, str | Path):
        return _of_object(type(policy).__name__, policy)
    path = Path(policy)
    if not path.is_dir():
        if path.suffix.lower() in (*ONNX, *TORCHSCRIPT) and not path.exists():
            raise no_policy(policy)
        if path.suffix.lower() in ONNX:
            return _of_onnx(path)
        if path.suffix.lower() in TORCHSCRIPT:
            return _of_torchscript(path)
        if not path.exists() and _NAMED.fullmatch(str(policy)):
            return _of_name(str(policy))
    return None


# ---- callables -------------------------------------------------------------------------------------------------------


def _of_name(name: str) -> Actor:
    """The callable `module:policy` or `path/to/file.py:policy`."""
    place, _, attribute = name.rpartition(":")
    try:
        found = operator.attrgetter(attribute)(catalogue.load(place))
    except AttributeError as error:
        raise UnfitPolicy(f"{place} has no {attribute}; name what maps observations to actions") from error
    return _of_object(name, found, stem=attribute)


def _of_object(name: str, found: Any, stem: str = "policy") -> Actor:
    if isinstance(found, type):
        raise UnfitPolicy(f"{name} is a class; name an object of it, or a function")
    predict = getattr(found, "predict", None)
    if callable(predict):

        def by_predict(obs: NDArray[Any], deterministic: bool, noise: Noise) -> Any:
            return predict(obs, deterministic=deterministic)

        return Actor(name, by_predict, stem, samples=True)
    if isinstance(found, torch.nn.Module):
        return Actor(name, lambda obs, *_: _run_module(found, np.float32, obs), stem)
    if not callable(found):
        raise UnfitPolicy(f"{name} is a {type(found).__name__}, which does not map observations to actions")
    return Actor(name, lambda obs, *_: found(obs), stem)


@torch.no_grad()
def _run_module(module: Any, precision: Any, *inputs: NDArray[Any]) -> Any:
    return module(*(torch.as_tensor(array.astype(precision)) for array in inputs))


# ---- files -----------------------------------------------------------------------------------------------------------


def _of_torchscript(path: Path) -> Actor:
    extra = {DESCRIPTION: ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates TorchScript
        load: Any = torch.jit.load  # untyped
        try:
            module = load(str(path), map_location="cpu", _extra_files=extra).eval()
        except (RuntimeError, ValueError) as error:
            raise UnfitPolicy(
                f"{path} is no TorchScript file; what another library has saved is loaded by code of your own, in"
                " my_module:policy"
            ) from error
    try:
        about = {name: str(value) for name, value in json.loads(extra[DESCRIPTION] or "{}").items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise _ill_described(path) from error
    precision = np.float64 if about else np.float32  # our own files normalise in double precision, as training does

    def decide(obs: NDArray[Any], deterministic: bool, noise: Noise) -> Any:
        return _run_module(module, precision, obs, *_perturbation(about, deterministic, noise))

    return _of_file(path, decide, about)


def _of_onnx(path: Path) -> Actor:
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ImportError("ONNX files need onnxruntime; run `pip install 'sbtrpo[onnx]'`") from error
    content = path.read_bytes()
    try:
        session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception as error:  # of kinds that only this package knows
        raise UnfitPolicy(f"{path} cannot be read as ONNX: {one_line(error)}") from error
    about, inputs = session.get_modelmeta().custom_metadata_map, session.get_inputs()
    names = [part.name for part in inputs]
    if names[1:] not in ([], ["noise"]) or not names:
        raise UnfitPolicy(
            f"{path} has {', '.join(names) or 'nothing'} as input; a policy has one, and another `noise` if it samples"
        )
    shape = inputs[0].shape
    precision = _PRECISIONS.get(inputs[0].type, np.float32)

    def decide(obs: NDArray[Any], deterministic: bool, noise: Noise) -> Any:
        if isinstance(shape[0], int) and shape[0] != len(obs):
            raise ValueError(f"it takes batches of {shape[0]} alone; export it with a batch of any size")
        perturbation = [drawn.astype(np.float32) for drawn in _perturbation(about, deterministic, noise)]
        return session.run(None, dict(zip(names, [obs.astype(precision), *perturbation], strict=True)))[0]

    size = {"observation_size": str(shape[1])} if len(shape) == 2 and isinstance(shape[1], int) else {}
    return _of_file(path, decide, size | about)


def _perturbation(about: Mapping[str, str], deterministic: bool, noise: Noise) -> list[NDArray[Any]]:
    """The second input of a file that samples."""
    if about.get("noise", "none") == "none":
        return []
    return [noise() * (not deterministic)]


def _ill_described(path: Path) -> UnfitPolicy:
    return UnfitPolicy(f"{path} says what cannot be of itself; export it again")


def _of_file(path: Path, decide: Decide, about: Mapping[str, str]) -> Actor:
    size, task = about.get("observation_size", "0"), about.get("task", "")
    if not size.isdecimal():
        raise _ill_described(path)
    if is_foreign(task) or is_task_file(task):  # a file says nothing that is run or read
        task = ""
    samples = about.get("noise", "none") != "none" if "deterministic" in about else None
    return Actor(str(path), decide, path.stem, path.parent, task or None, int(size) or None, samples)
