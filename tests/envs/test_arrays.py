"""Task logic runs on torch tensors as it runs on NumPy arrays (and so on a GPU engine)."""

from __future__ import annotations

from typing import Any

import array_api_compat.torch
import numpy as np
import pytest
import torch

import sbtrpo
from sbtrpo.envs.arrays import is_mark, quaternion_to_matrix
from sbtrpo.envs.layout import Layouts
from sbtrpo.envs.physics.cpu import CpuPhysics
from sbtrpo.envs.registry import PAPER_TASKS, get_spec
from sbtrpo.envs.scene import compile_navigation, compile_velocity
from sbtrpo.envs.spec import VelocitySpec
from sbtrpo.envs.streams import CounterStreams
from sbtrpo.envs.tasks import OBJECTIVES
from sbtrpo.envs.tasks.velocity import Velocity


def rows(who: Any) -> Any:
    """Row numbers of worlds, however they are named."""
    return who.nonzero()[:, 0].numpy() if is_mark(who) else who


def for_all(who: Any, drawn: Any) -> Any:
    """What was drawn for worlds; if they are marked, with entries for all the others."""
    if not is_mark(who):
        return drawn
    values = torch.as_tensor(drawn)
    everyone = values.new_zeros((len(who), *values.shape[1:]))
    everyone[who] = values
    return everyone


class TorchPhysics(CpuPhysics):
    """The CPU engine seen through torch tensors that share its memory, its worlds marked by tensors."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.xp = array_api_compat.torch
        for name in ("qpos", "qvel", "ctrl", "time", "sensordata", "xpos", "xmat"):
            array = getattr(self, name)
            array.flags.writeable = True  # outputs are read-only in NumPy, a notion that torch does not have
            setattr(self, name, torch.from_numpy(array))

    def field(self, name: str) -> Any:
        return torch.from_numpy(super().field(name))

    def output(self, name: str) -> Any:
        array = super().output(name)
        array.flags.writeable = True
        return torch.from_numpy(array)

    def step(self, substeps: int, forward: bool, mocap: Any = None, between: Any = None) -> Any:
        return super().step(substeps, forward, None if mocap is None else mocap.numpy(), between)

    def reset(self, who: Any) -> None:
        super().reset(rows(who))

    def forward(self, who: Any = None) -> None:
        super().forward(None if who is None else rows(who))


class TorchStreams(CounterStreams):
    """The host's streams, for worlds marked by tensors, too."""

    def peek(self, who: Any, count: int) -> Any:
        return for_all(who, super().peek(rows(who), count))

    def advance(self, who: Any, count: Any) -> None:
        super().advance(rows(who), count)

    def integers(self, who: Any, high: int) -> Any:
        return for_all(who, super().integers(rows(who), high))


class TorchLayouts(Layouts):
    """The host's layouts, for worlds marked by tensors."""

    def take(self, who: Any) -> Any:
        return tuple(for_all(who, drawn) for drawn in super().take(rows(who)))

    def draw_target(self, k: int, streams: Any, who: Any, places: Any) -> Any:
        xy, placed = super().draw_target(k, streams, rows(who), places[who])
        return for_all(who, xy), for_all(who, placed) | ~who


def torch_task(task: str, worlds: int, seed: int) -> Any:
    spec = get_spec(task)
    logic: Any
    if isinstance(spec, VelocitySpec):
        model = compile_velocity(spec)
        logic = Velocity(spec, model, TorchPhysics(model, worlds, 1), seed, False)
    else:
        scene = compile_navigation(spec)
        logic = OBJECTIVES[spec.objective](spec, scene, TorchPhysics(scene.model, worlds, 1), seed, False)
        logic.layouts = TorchLayouts(spec, TorchStreams(worlds, seed, 0), worlds)
    logic.streams = TorchStreams(worlds, seed, 1)
    return logic


OTHERS = [  # of the family: what the paper's tasks do not use
    "SafetyPointRun0-v0",
    "SafetyHalfCheetahVelocity-v1",
    "SafetyAntVelocity-v1",
    "SafetyHumanoidVelocity-v1",
    "SafetySwimmerVelocity-v0",
]


@pytest.mark.parametrize("task", [*PAPER_TASKS, *OTHERS])
def test_torch_and_numpy_give_the_same_task(task: str) -> None:
    pool = sbtrpo.make_pool(task, num_worlds=5, seed=3)
    ours = torch_task(task, 5, 3)
    obs, _ = pool.reset()
    ours.reset(torch.ones(5, dtype=torch.bool))
    np.testing.assert_allclose(ours.observe().numpy(), obs, rtol=0, atol=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(5 if "Run" in task else 15):  # a sine that rounds otherwise grows fivefold a substep in the Point
        action = rng.uniform(-1, 1, (5, *pool.single_action_space.shape))
        _, reward, _, terminated, _, info = pool.step(action)
        if terminated.any():
            break
        outcome, failed = ours.step(torch.from_numpy(action))
        assert failed is None
        assert outcome.terminated is None or not outcome.terminated.any()
        assert isinstance(outcome.reward, torch.Tensor)
        np.testing.assert_allclose(outcome.reward.numpy(), reward, rtol=0, atol=1e-12)
        for name, violated in zip(ours.cost_names, outcome.violated, strict=True):
            np.testing.assert_array_equal(violated.numpy(), info[name])
        observation = ours.observe()
        assert observation.dtype == torch.float64
        np.testing.assert_allclose(observation.numpy(), pool.last_obs, rtol=0, atol=1e-9)


def test_quaternions_become_rotations() -> None:
    import mujoco

    rng = np.random.default_rng(0)
    q = rng.normal(size=(10, 4))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    for ours, quaternion in zip(quaternion_to_matrix(np, q), q, strict=True):
        expected = np.zeros(9)
        mujoco.mju_quat2Mat(expected, quaternion)
        np.testing.assert_allclose(ours.ravel(), expected, atol=1e-14)
