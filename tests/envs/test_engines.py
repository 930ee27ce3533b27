"""Which engine is taken, and what is said where one cannot be."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import sbtrpo
from sbtrpo.envs import engines
from sbtrpo.envs.engines import CROSSING, CROSSINGS, NoEngine, NoMemory, choose, crossing, within_memory
from sbtrpo.envs.registry import PAPER_TASKS, get_spec
from sbtrpo.envs.spec import NavigationSpec

TASK = "SafetyPointGoal2-v0"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine as it is described: by default one with all that the GPU engine needs, and 16 cores."""

    def describe(driver: bool = True, cuda: str | None = "12.8", gpu: bool = True, extra: bool = True) -> None:
        monkeypatch.setattr(engines, "has_driver", lambda: driver)
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: driver and cuda is not None and gpu)
        found = SimpleNamespace() if extra else None
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
        monkeypatch.setattr(engines, "_warp_sees_gpu", lambda: True)
        monkeypatch.setattr(engines, "available_cores", lambda: 16)

    describe()
    return describe


@pytest.mark.parametrize(
    ("lacking", "sentence"),
    [
        ({"driver": False}, "no NVIDIA driver here; install it"),
        ({"driver": False, "extra": False}, "no NVIDIA driver here; install it"),
        ({"cuda": None}, "this torch is a build without CUDA; install one"),
        ({"gpu": False}, "torch sees no GPU that its CUDA 12.8 can use; look whether nvidia-smi"),
        ({"extra": False}, r"not installed; run `pip install 'sbtrpo\[gpu\]'`"),
    ],
)
def test_what_a_gpu_engine_lacks_is_told_with_what_to_do(lacking: Any, sentence: str, machine: Any) -> None:
    machine(**lacking)
    with pytest.raises(NoEngine, match=f"{sentence}.*, or use engine=cpu$"):
        sbtrpo.make_pool(TASK, 4096, engine="gpu")
    assert choose("auto", TASK, 4096).engine == "cpu"
    assert "engine=cpu" not in choose("auto", TASK, 4096).why


def test_a_gpu_that_warp_cannot_use_is_told(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_warp_sees_gpu", lambda: False)
    with pytest.raises(NoEngine, match="Warp cannot use the GPU that torch sees; update the NVIDIA driver"):
        sbtrpo.make_pool(TASK, 2, engine="gpu")


def test_tests_on_the_cpu_need_the_extra_alone(machine: Any) -> None:
    machine(driver=False)
    assert choose("gpu-on-cpu", TASK, 2).engine == "gpu-on-cpu"
    machine(driver=False, extra=False)
    with pytest.raises(NoEngine, match=r"pip install 'sbtrpo\[gpu\]'"):
        choose("gpu-on-cpu", TASK, 2)


@pytest.mark.parametrize(
    ("task", "original", "sentence"),
    [
        (
            "my_package:MyEnv-v0",
            False,
            "my_package:MyEnv-v0 is simulated by its own package, on the CPU; use engine=cpu",
        ),
        ("ToyCorridor-v0", False, "ToyCorridor-v0 has no physics that a GPU could simulate; use engine=cpu"),
        (TASK, True, "are drawn on the host; use engine=cpu, or layout_rng='fast'"),
    ],
)
def test_what_no_gpu_can_simulate_is_told_and_left_to_the_cpu(
    task: str, original: bool, sentence: str, machine: Any
) -> None:
    with pytest.raises(NoEngine, match=sentence):
        sbtrpo.make_pool(task, 4096, engine="gpu", layout_rng="original" if original else "fast")
    assert choose("auto", task, 100_000, original).engine == "cpu"


def test_auto_takes_the_gpu_from_so_many_worlds_for_each_core_on(machine: Any) -> None:
    for task in PAPER_TASKS:
        least = 16 * crossing(get_spec(task))
        assert choose("auto", task, least).engine == "gpu"
        fewer = choose("auto", task, least - 1)
        assert fewer.engine == "cpu"
        assert f"{least:,} worlds" in fewer.why


def test_every_kind_of_task_has_its_crossing() -> None:
    specs = [get_spec(task) for task in sbtrpo.task_ids()]
    kinds = {f"{spec.robot} {spec.objective}" for spec in specs if isinstance(spec, NavigationSpec)}
    assert kinds == set(CROSSINGS)
    assert crossing(get_spec("SafetyHopperVelocity-v1")) == CROSSING


def test_few_worlds_do_not_wait_for_a_look_at_the_gpu(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "missing", lambda engine: pytest.fail("nobody asked for it"))
    assert choose("auto", TASK, 20).engine == "cpu"
    assert choose("cpu", TASK, 100_000).engine == "cpu"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("Failed to allocate 123 bytes on device 'cuda:0'"),
    ],
)
def test_too_little_memory_is_told_with_what_to_do(error: RuntimeError) -> None:
    sentence = "8,192 worlds do not fit into the GPU's memory; use fewer worlds"
    with pytest.raises(NoMemory, match=sentence), within_memory(8192):
        raise error


def test_other_errors_are_left_as_they_are() -> None:
    with pytest.raises(RuntimeError, match=r"^shapes differ$"), within_memory(8192):
        raise RuntimeError("shapes differ")


def test_what_warp_cannot_simulate_is_told(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = importlib.import_module("sbtrpo.envs.gpu")

    def refuse(*_: Any) -> None:
        raise NotImplementedError("Body plugins not supported.")

    monkeypatch.setattr(gpu, "GpuPool", refuse)
    with pytest.raises(NoEngine, match=rf"Warp cannot simulate {TASK} \(Body plugins not supported\); use engine=cpu"):
        sbtrpo.make_pool(TASK, 2, engine="gpu")
