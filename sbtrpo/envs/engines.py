"""Which engine simulates the worlds, the CPU's cores or a GPU; and what to do where one is asked for in vain."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from sbtrpo.config.run import Engine
from sbtrpo.config.tasks import is_foreign
from sbtrpo.envs.physics.cpu import available_cores
from sbtrpo.envs.registry import TaskLike, get_spec
from sbtrpo.envs.spec import CorridorSpec, NavigationSpec, TaskSpec
from sbtrpo.errors import UserError

ENGINES: tuple[str, ...] = get_args(Engine)
CROSSINGS = {
    "point goal": 128, "point push": 144, "point button": 16, "point circle": 64, "point run": 64,
    "car goal": 52, "car push": 56, "car button": 16, "car circle": 34, "car run": 34,
}  # fmt: skip
"""From so many worlds for each of the CPU's cores on a GPU is the faster engine: `benchmarks/engine.py --engine gpu
--crossing` on one H200 with 16 cores. Point Circle, Run and Car Button were not measured; they have those of their
like."""
CROSSING = 56
"""The same of all other tasks: the runners."""
_SHORTAGE = re.compile("out of memory|Failed to allocate")


class NoEngine(UserError, RuntimeError):  # noqa: N818
    """The engine that is asked for cannot simulate these worlds here; the message says what to do."""


class NoMemory(UserError, MemoryError):  # noqa: N818
    """The worlds, or what is learnt from them, do not fit on the GPU."""


@dataclass(frozen=True)
class Choice:
    """An engine, and why it is this one."""

    engine: str
    """cpu, gpu or gpu-on-cpu"""
    why: str


def choose(engine: str, task: TaskLike, num_worlds: int, original: bool = False) -> Choice:
    """An engine that can simulate these worlds here.

    Args:
        engine: its name; "auto" takes the GPU where there is one and so many worlds make it the faster one.
        task: as of `make_pool`.
        num_worlds: how many step together.
        original: whether the worlds draw what the original environments draw.

    Raises:
        NoEngine: the one that is asked for cannot.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if engine == "cpu":
        return Choice("cpu", "as asked for")
    obstacle = unfit(task, original)
    if engine != "auto":
        if obstacle := obstacle or missing(engine):
            raise NoEngine(obstacle)
        return Choice(engine, "as asked for")
    if obstacle:
        return Choice("cpu", obstacle.partition(";")[0])
    least = crossing(get_spec(task)) * available_cores()  # also where several processes share them, and the GPU
    if num_worlds < least:
        return Choice("cpu", f"a GPU pays from {least:,} worlds on")
    if lacking := missing("gpu"):
        return Choice("cpu", lacking.replace(", or use engine=cpu", ""))
    return Choice("gpu", f"it pays from {least:,} worlds on")


def crossing(spec: TaskSpec) -> int:
    """From how many worlds for each core on a GPU is the faster engine."""
    return CROSSINGS.get(f"{spec.robot} {spec.objective}", CROSSING) if isinstance(spec, NavigationSpec) else CROSSING


def unfit(task: TaskLike, original: bool = False) -> str:
    """Why no GPU can simulate a task, and what to do; empty where one can."""
    if isinstance(task, str) and is_foreign(task):
        return f"{task} is simulated by its own package, on the CPU; use engine=cpu"
    spec = get_spec(task)
    if isinstance(spec, CorridorSpec):
        return f"{spec.id} has no physics that a GPU could simulate; use engine=cpu"
    if original:
        return "the original's random numbers are drawn on the host; use engine=cpu, or layout_rng='fast'"
    return ""


def missing(engine: str) -> str:
    """What a GPU engine lacks here, and what to do; empty where nothing is missing."""
    import torch  # who only looks does not wait for it

    on_gpu = engine == "gpu"
    if on_gpu and not torch.cuda.is_available():
        if not has_driver():
            return "there is no NVIDIA driver here; install it where there is such a GPU, or use engine=cpu"
        if torch.version.cuda is None:
            return "this torch is a build without CUDA; install one with CUDA that fits the driver, or use engine=cpu"
        return (
            f"torch sees no GPU that its CUDA {torch.version.cuda} can use; look whether nvidia-smi and"
            " CUDA_VISIBLE_DEVICES name one and update the driver, or use engine=cpu"
        )
    if any(importlib.util.find_spec(package) is None for package in ("warp", "mujoco_warp")):
        return "the GPU engine is not installed; run `pip install 'sbtrpo[gpu]'`, or use engine=cpu"
    if on_gpu and not _warp_sees_gpu():
        return "Warp cannot use the GPU that torch sees; update the NVIDIA driver, or use engine=cpu"
    return ""


def has_driver() -> bool:
    """Whether this machine has a driver for NVIDIA's GPUs."""
    return shutil.which("nvidia-smi") is not None or any(
        Path(place).exists() for place in ("/proc/driver/nvidia/version", "/dev/nvidia0", "/dev/dxg")
    )


def _warp_sees_gpu() -> bool:
    import warp

    warp.config.log_level = warp.LOG_WARNING
    return bool(warp.is_cuda_available())


@contextmanager
def within_memory(num_worlds: int) -> Iterator[None]:
    """Tell in a sentence where the GPU's memory does not suffice."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, UserError) or not _SHORTAGE.search(str(error)):
            raise
        raise NoMemory(
            f"{num_worlds:,} worlds do not fit into the GPU's memory; use fewer worlds or shorter epochs, give other"
            " programs' memory back (nvidia-smi lists them), or use engine=cpu"
        ) from error
