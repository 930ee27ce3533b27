"""Where a run's worlds and its learner are: on the CPU's cores or on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from sbtrpo.config import TrainConfig
from sbtrpo.envs import Pool
from sbtrpo.envs.engines import Choice, choose, missing
from sbtrpo.errors import UserError
from sbtrpo.learning.rollout import Collector


@dataclass(frozen=True)
class Placement:
    """What `auto` stands for, here and now."""

    engine: str
    device: str
    why: str

    def sentence(self) -> str:
        """For whoever watches."""
        name = f" ({torch.cuda.get_device_name()})" if self.engine == "gpu" else ""
        return f"engine {self.engine}{name}: {self.why}; learner on {self.device}"


def place(config: TrainConfig, before: str = "") -> Placement:
    """Where a run is to run; with `auto` on the engine that it has been on `before`, as long as that can run here."""
    choice = _choice(config, before)
    learner = "cuda" if choice.engine == "gpu" else "cpu"
    device = learner if config.device == "auto" else config.device
    _check(device)
    if choice.engine != "cpu" and torch.device(device) not in (torch.device(learner), torch.device(learner, 0)):
        raise UserError(
            f"with engine={choice.engine} the learner is where the worlds are; leave device={device} out, or use"
            " engine=cpu (of several GPUs CUDA_VISIBLE_DEVICES picks one)"
        )
    return Placement(choice.engine, device, choice.why)


def _choice(config: TrainConfig, before: str) -> Choice:
    if config.engine == "auto" and config.device == "cpu":
        return Choice("cpu", "as device is cpu")
    if config.engine == "auto" and before and (before == "cpu" or not missing(before)):
        return Choice(before, "as before")
    return choose(config.engine, config.task, config.mean_worlds)


def _check(name: str) -> None:
    """Refuse a device that is not there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device must be auto, cpu or cuda, got {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"torch sees no GPU here, so there is no device {name}; use --device cpu")
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if (device.index or 0) >= count:
        last = f" to {device.type}:{count - 1}" if count > 1 else ""
        raise UserError(f"there is no device {name} here; use --device {device.type}, or {device.type}:0{last}")


def collector_class(pool: Pool) -> type[Collector]:
    """What collects from a pool."""
    if getattr(getattr(pool, "physics", None), "device", None) is None:
        return Collector
    from sbtrpo.learning.device import DeviceCollector  # needs the engine of that device

    return DeviceCollector


@contextlib.contextmanager
def keeping_torch() -> Iterator[None]:
    """PyTorch's settings belong to the process, and a run changes them: afterwards they are as before."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
